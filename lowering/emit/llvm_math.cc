// The functions of f32 that are no instructions, without branches, so that LLVM vectorises the loops that they are in.
// Errors, measured against double precision, with and without fused multiply-add (tests/lowering/llvm_math_test.cc):
//
//   exp 2.4 ulp   exp2 2.3 ulp   log 0.9 ulp   log2 1.4 ulp   tanh 2.0 ulp   erf 1.5 ulp   sin cos 2.1 ulp up to 2^20
//
// Polynomials are minimax fits on the reduced interval. Where a product must be exact, either one factor has trailing
// zeros or llvm.fma is called, which is slow but right on a processor without that instruction.
#include "lowering/emit/emit.h"

namespace kachel::lowering {

// 2^n is added to the exponent of p: 1.5 * 2^23 added to a number rounds it to an integer and leaves n in the low bits.
// Below `least`, where the result would be subnormal, it is 0 (ir/GRAMMAR.md allows it); from `beyond` on, and where x
// is NaN, it is x + infinity.
const char* const kLlvmMath = R"llvm(
define internal float @kachel_scale(float %p, float %shifted, float %x, float %least, float %beyond) #0 {
  %n = bitcast float %shifted to i32
  %up = shl i32 %n, 23
  %bits = bitcast float %p to i32
  %sum = add i32 %bits, %up
  %scaled = bitcast i32 %sum to float
  %tiny = fcmp olt float %x, %least
  %y = select i1 %tiny, float 0.0, float %scaled
  %finite = fcmp olt float %x, %beyond
  %otherwise = fadd float %x, 0x7FF0000000000000
  %result = select i1 %finite, float %y, float %otherwise
  ret float %result
}
define internal float @kachel_exp(float %x) #0 {
  %scaled = fmul contract float %x, 0x3FF7154760000000
  %shifted = fadd contract float %scaled, 12582912.0
  %whole = fsub float %shifted, 12582912.0
  %r0 = fmul contract float %whole, -0.693359375
  %r1 = fadd contract float %x, %r0
  %r2 = fmul contract float %whole, 0x3F2BD01060000000
  %r = fadd contract float %r1, %r2
  %p0 = fmul contract float %r, 0x3F810627C0000000
  %p1 = fadd contract float %p0, 0x3FA572A020000000
  %p2 = fmul contract float %p1, %r
  %p3 = fadd contract float %p2, 0x3FC5557AE0000000
  %p4 = fmul contract float %p3, %r
  %p5 = fadd contract float %p4, 0x3FDFFFDFC0000000
  %p6 = fmul contract float %p5, %r
  %p7 = fadd contract float %p6, 1.0
  %p8 = fmul contract float %p7, %r
  %p = fadd contract float %p8, 1.0
  %y = call float @kachel_scale(float %p, float %shifted, float %x, float 0xC055D589E0000000, float 0x40562E4300000000)
  ret float %y
}
define internal float @kachel_exp2(float %x) #0 {
  %shifted = fadd float %x, 12582912.0
  %whole = fsub float %shifted, 12582912.0
  %r = fsub float %x, %whole
  %p0 = fmul contract float %r, 0x3F55BBA140000000
  %p1 = fadd contract float %p0, 0x3F83CEA880000000
  %p2 = fmul contract float %p1, %r
  %p3 = fadd contract float %p2, 0x3FAC6B7520000000
  %p4 = fmul contract float %p3, %r
  %p5 = fadd contract float %p4, 0x3FCEBF9BC0000000
  %p6 = fmul contract float %p5, %r
  %p7 = fadd contract float %p6, 0x3FE62E42A0000000
  %p8 = fmul contract float %p7, %r
  %p = fadd contract float %p8, 1.0
  %y = call float @kachel_scale(float %p, float %shifted, float %x, float -126.0, float 128.0)
  ret float %y
}
; x = 2^e (1 + f) with 1 + f from sqrt(1/2) to sqrt(2); log(1 + f) = f + y, y = -f^2/2 + ...
define internal { float, float, float } @kachel_log_parts(float %x) #0 {
  %tiny = fcmp olt float %x, 0x3810000000000000
  %raised = fmul float %x, 8388608.0
  %x1 = select i1 %tiny, float %raised, float %x
  %bias = select i1 %tiny, float -23.0, float 0.0
  %bits = bitcast float %x1 to i32
  %moved = sub i32 %bits, 1060439283
  %exponent = ashr i32 %moved, 23
  %fraction = and i32 %moved, 8388607
  %mantissa = add i32 %fraction, 1060439283
  %m = bitcast i32 %mantissa to float
  %f = fsub float %m, 1.0
  %e0 = sitofp i32 %exponent to float
  %e = fadd float %e0, %bias
  %p0 = fmul contract float %f, 0x3FB2043760000000
  %p1 = fadd contract float %p0, 0xBFBD7A3700000000
  %p2 = fmul contract float %p1, %f
  %p3 = fadd contract float %p2, 0x3FBDE4A340000000
  %p4 = fmul contract float %p3, %f
  %p5 = fadd contract float %p4, 0xBFBFCBA9E0000000
  %p6 = fmul contract float %p5, %f
  %p7 = fadd contract float %p6, 0x3FC23D37E0000000
  %p8 = fmul contract float %p7, %f
  %p9 = fadd contract float %p8, 0xBFC555CA00000000
  %p10 = fmul contract float %p9, %f
  %p11 = fadd contract float %p10, 0x3FC999D580000000
  %p12 = fmul contract float %p11, %f
  %p13 = fadd contract float %p12, 0xBFCFFFFF80000000
  %p14 = fmul contract float %p13, %f
  %p15 = fadd contract float %p14, 0x3FD5555540000000
  %ff = fmul float %f, %f
  %p16 = fmul contract float %p15, %f
  %y = fmul contract float %p16, %ff
  %r0 = insertvalue { float, float, float } poison, float %e, 0
  %r1 = insertvalue { float, float, float } %r0, float %f, 1
  %r2 = insertvalue { float, float, float } %r1, float %y, 2
  ret { float, float, float } %r2
}
define internal float @kachel_log_ends(float %x, float %y) #0 {
  %infinite = fcmp oeq float %x, 0x7FF0000000000000
  %y1 = select i1 %infinite, float %x, float %y
  %zero = fcmp oeq float %x, 0.0
  %y2 = select i1 %zero, float 0xFFF0000000000000, float %y1
  %proper = fcmp oge float %x, 0.0
  %y3 = select i1 %proper, float %y2, float 0x7FF8000000000000
  ret float %y3
}
define internal float @kachel_log(float %x) #0 {
  %parts = call { float, float, float } @kachel_log_parts(float %x)
  %e = extractvalue { float, float, float } %parts, 0
  %f = extractvalue { float, float, float } %parts, 1
  %p = extractvalue { float, float, float } %parts, 2
  %e_low = fmul contract float %e, 0xBF2BD01060000000
  %y0 = fadd contract float %p, %e_low
  %half = fmul contract float %f, -0.5
  %square = fmul contract float %half, %f
  %y1 = fadd contract float %y0, %square
  %y2 = fadd float %y1, %f
  %e_high = fmul contract float %e, 0.693359375
  %y3 = fadd contract float %y2, %e_high
  %y = call float @kachel_log_ends(float %x, float %y3)
  ret float %y
}
; The factor log2(e) is 1 + 0.4427: what is multiplied by 1 stays exact.
define internal float @kachel_log2(float %x) #0 {
  %parts = call { float, float, float } @kachel_log_parts(float %x)
  %e = extractvalue { float, float, float } %parts, 0
  %f = extractvalue { float, float, float } %parts, 1
  %p = extractvalue { float, float, float } %parts, 2
  %half = fmul contract float %f, -0.5
  %square = fmul contract float %half, %f
  %y0 = fadd contract float %p, %square
  %s0 = fmul contract float %y0, 0x3FDC551DA0000000
  %s1 = fmul contract float %f, 0x3FDC551DA0000000
  %s2 = fadd contract float %s0, %s1
  %s3 = fadd float %s2, %y0
  %s4 = fadd float %s3, %f
  %s5 = fadd float %s4, %e
  %y = call float @kachel_log_ends(float %x, float %s5)
  ret float %y
}
)llvm"
                              R"llvm(
; Below 0.625 an odd polynomial, above 1 - 2 / (exp(2x) + 1).
define internal float @kachel_tanh(float %x) #0 {
  %t = call float @llvm.fabs.f32(float %x)
  %z = fmul float %x, %x
  %p0 = fmul contract float %z, 0xBF775E1D40000000
  %p1 = fadd contract float %p0, 0x3F952269C0000000
  %p2 = fmul contract float %p1, %z
  %p3 = fadd contract float %p2, 0xBFAB83C5A0000000
  %p4 = fmul contract float %p3, %z
  %p5 = fadd contract float %p4, 0x3FC1107260000000
  %p6 = fmul contract float %p5, %z
  %p7 = fadd contract float %p6, 0xBFD5555320000000
  %p8 = fmul contract float %p7, %z
  %p9 = fmul contract float %p8, %x
  %small = fadd contract float %p9, %x
  %twice = fadd float %t, %t
  %e = call float @kachel_exp(float %twice)
  %e1 = fadd float %e, 1.0
  %q = fdiv float 2.0, %e1
  %large = fsub float 1.0, %q
  %is_small = fcmp olt float %t, 0.625
  %either = select i1 %is_small, float %small, float %large
  %y = call float @llvm.copysign.f32(float %either, float %x)
  ret float %y
}
; Below 0.9277 an odd polynomial, above 1 - exp(polynomial).
define internal float @kachel_erf(float %x) #0 {
  %t = call float @llvm.fabs.f32(float %x)
  %s = fmul float %x, %x
  %a0 = fmul contract float %t, 0xBEF2200000000000
  %a1 = fadd contract float %a0, 0x3F391CFB20000000
  %b0 = fmul contract float %t, 0xBF6FD14380000000
  %b1 = fadd contract float %b0, 0x3F98D63420000000
  %a2 = fmul contract float %a1, %s
  %a3 = fadd contract float %a2, %b1
  %a4 = fmul contract float %a3, %t
  %a5 = fadd contract float %a4, 0xBFBB55CB80000000
  %a6 = fmul contract float %a5, %t
  %a7 = fadd contract float %a6, 0xBFE450AA00000000
  %a8 = fmul contract float %a7, %t
  %a9 = fadd contract float %a8, 0xBFC079D0C0000000
  %a10 = fmul contract float %a9, %t
  %a11 = fsub contract float %a10, %t
  %e = call float @kachel_exp(float %a11)
  %large0 = fsub float 1.0, %e
  %large = call float @llvm.copysign.f32(float %large0, float %x)
  %c0 = fmul contract float %s, 0xBF438E0000000000
  %c1 = fadd contract float %c0, 0x3F7471A580000000
  %c2 = fmul contract float %c1, %s
  %c3 = fadd contract float %c2, 0xBF9B691B20000000
  %c4 = fmul contract float %c3, %s
  %c5 = fadd contract float %c4, 0x3FBCE1C440000000
  %c6 = fmul contract float %c5, %s
  %c7 = fadd contract float %c6, 0xBFD8127000000000
  %c8 = fmul contract float %c7, %s
  %c9 = fadd contract float %c8, 0x3FC06EBA80000000
  %c10 = fmul contract float %c9, %x
  %small = fadd contract float %c10, %x
  ; Beyond 10 the result is 1, and the polynomial may turn around.
  %is_large = fcmp ogt float %t, 0x3FEDB00000000000
  %is_one = fcmp ogt float %t, 10.0
  %one = call float @llvm.copysign.f32(float 1.0, float %x)
  %y0 = select i1 %is_large, float %large, float %small
  %y = select i1 %is_one, float %one, float %y0
  ret float %y
}
; sin(x + quarter pi/2): reduction by pi/2 in three parts of 24 bits each, then the polynomial of the quadrant.
define internal float @kachel_sine(float %x, i32 %quarter) #0 {
  %scaled = fmul float %x, 0x3FE45F3060000000
  %shifted = fadd float %scaled, 12582912.0
  %bits = bitcast float %shifted to i32
  %n = add i32 %bits, %quarter
  %whole = fsub float %shifted, 12582912.0
  %r0 = call float @llvm.fma.f32(float %whole, float 0xBFF921FB00000000, float %x)
  %r1 = call float @llvm.fma.f32(float %whole, float 0xBE95110B40000000, float %r0)
  %r2 = call float @llvm.fma.f32(float %whole, float 0xBCF8469880000000, float %r1)
  ; Far beyond 2^20 nothing is left of the angle, but the result stays a sine.
  %above = fcmp ogt float %r2, 1.0
  %r3 = select i1 %above, float 1.0, float %r2
  %below = fcmp olt float %r3, -1.0
  %r = select i1 %below, float -1.0, float %r3
  %z = fmul float %r, %r
  %s0 = fmul contract float %z, 0xBF29943F20000000
  %s1 = fadd contract float %s0, 0x3F811073C0000000
  %s2 = fmul contract float %s1, %z
  %s3 = fadd contract float %s2, 0xBFC5555460000000
  %s4 = fmul contract float %s3, %z
  %s5 = fmul contract float %s4, %r
  %sin = fadd contract float %s5, %r
  %c0 = fmul contract float %z, 0x3EF99EB9C0000000
  %c1 = fadd contract float %c0, 0xBF56C0C340000000
  %c2 = fmul contract float %c1, %z
  %c3 = fadd contract float %c2, 0x3FA55554A0000000
  %c4 = fmul contract float %c3, %z
  %c5 = fadd contract float %c4, -0.5
  %c6 = fmul contract float %c5, %z
  %cos = fadd contract float %c6, 1.0
  %odd_bit = and i32 %n, 1
  %odd = icmp ne i32 %odd_bit, 0
  %value = select i1 %odd, float %cos, float %sin
  %turned_bit = and i32 %n, 2
  %turned = icmp ne i32 %turned_bit, 0
  %negated = fneg float %value
  %y = select i1 %turned, float %negated, float %value
  ret float %y
}
define internal float @kachel_sin(float %x) #0 {
  %y = call float @kachel_sine(float %x, i32 0)
  ret float %y
}
define internal float @kachel_cos(float %x) #0 {
  %y = call float @kachel_sine(float %x, i32 1)
  ret float %y
}
declare float @llvm.copysign.f32(float, float)
)llvm";

}  // namespace kachel::lowering
