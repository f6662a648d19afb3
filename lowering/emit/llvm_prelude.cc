#include "lowering/emit/emit.h"

namespace kachel::lowering {

// The same conversions and integer rules as the CUDA prelude, see there. bf16 is rounded by integer arithmetic because
// the instruction that some processors have flushes subnormal values.
const char* const kLlvmPrelude = R"llvm(
declare float @llvm.fma.f32(float, float, float)
declare float @llvm.sqrt.f32(float)
declare float @llvm.fabs.f32(float)
declare float @llvm.floor.f32(float)
declare float @llvm.ceil.f32(float)
declare float @llvm.trunc.f32(float)
declare float @llvm.rint.f32(float)
declare float @llvm.minnum.f32(float, float)
declare float @llvm.maxnum.f32(float, float)
declare i32 @llvm.smin.i32(i32, i32)
declare i32 @llvm.smax.i32(i32, i32)
declare i32 @llvm.umin.i32(i32, i32)
declare i32 @llvm.umax.i32(i32, i32)
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.umin.i64(i64, i64)
declare i64 @llvm.umax.i64(i64, i64)
declare i32 @llvm.abs.i32(i32, i1)
declare i64 @llvm.abs.i64(i64, i1)
declare i32 @llvm.ctpop.i32(i32)
declare i64 @llvm.ctpop.i64(i64)
declare i8 @llvm.fptosi.sat.i8.f32(float)
declare i8 @llvm.fptoui.sat.i8.f32(float)
declare i16 @llvm.fptosi.sat.i16.f32(float)
declare i4 @llvm.fptosi.sat.i4.f32(float)
declare i4 @llvm.fptoui.sat.i4.f32(float)
declare i32 @llvm.fptosi.sat.i32.f32(float)
declare i32 @llvm.fptoui.sat.i32.f32(float)
declare i64 @llvm.fptosi.sat.i64.f32(float)
declare i64 @llvm.fptoui.sat.i64.f32(float)

define internal float @kachel_from_bf16(i16 %x) #0 {
  %wide = zext i16 %x to i32
  %bits = shl i32 %wide, 16
  %y = bitcast i32 %bits to float
  ret float %y
}
define internal i16 @kachel_to_bf16(float %x) #0 {
  %bits = bitcast float %x to i32
  %nan = fcmp uno float %x, 0.0
  %up = lshr i32 %bits, 16
  %odd = and i32 %up, 1
  %half = add i32 %odd, 32767
  %sum = add i32 %bits, %half
  %rounded = lshr i32 %sum, 16
  %code = select i1 %nan, i32 32704, i32 %rounded
  %y = trunc i32 %code to i16
  ret i16 %y
}
define internal float @kachel_from_f8e5m2(i8 %x) #0 {
  %wide = zext i8 %x to i16
  %bits = shl i16 %wide, 8
  %half = bitcast i16 %bits to half
  %y = fpext half %half to float
  ret float %y
}
define internal float @kachel_from_f8e4m3(i8 %x) #0 {
  %wide = zext i8 %x to i16
  %magnitude = and i16 %wide, 127
  %bits = shl i16 %magnitude, 7
  %half = bitcast i16 %bits to half
  %small = fpext half %half to float
  %scaled = fmul float %small, 256.0
  %nan = icmp eq i16 %magnitude, 127
  %positive = select i1 %nan, float 0x7FF8000000000000, float %scaled
  %negated = fneg float %positive
  %sign = icmp slt i8 %x, 0
  %y = select i1 %sign, float %negated, float %positive
  ret float %y
}
define internal i8 @kachel_to_f8(float %x, i32 %smallest_normal, i32 %shifter_bits, i32 %rebias, i32 %shift, i32 %largest) #0 {
  %bits = bitcast float %x to i32
  %magnitude = and i32 %bits, 2147483647
  %high = lshr i32 %bits, 24
  %sign = and i32 %high, 128
  %nan = icmp ugt i32 %magnitude, 2139095040
  %shifter = bitcast i32 %shifter_bits to float
  %value = bitcast i32 %magnitude to float
  %shifted = fadd float %value, %shifter
  %shifted_bits = bitcast float %shifted to i32
  %subnormal = sub i32 %shifted_bits, %shifter_bits
  %moved = sub i32 %magnitude, %rebias
  %below = sub i32 %shift, 1
  %unit = shl i32 1, %below
  %half = sub i32 %unit, 1
  %last = lshr i32 %moved, %shift
  %odd = and i32 %last, 1
  %sum0 = add i32 %moved, %half
  %sum = add i32 %sum0, %odd
  %rounded = lshr i32 %sum, %shift
  %normal = call i32 @llvm.umin.i32(i32 %rounded, i32 %largest)
  %is_small = icmp ult i32 %magnitude, %smallest_normal
  %finite = select i1 %is_small, i32 %subnormal, i32 %normal
  %code = select i1 %nan, i32 127, i32 %finite
  %signed = or i32 %code, %sign
  %y = trunc i32 %signed to i8
  ret i8 %y
}
define internal i8 @kachel_to_f8e4m3(float %x) #0 {
  %y = call i8 @kachel_to_f8(float %x, i32 1015021568, i32 1182793728, i32 1006632960, i32 20, i32 126)
  ret i8 %y
}
define internal i8 @kachel_to_f8e5m2(float %x) #0 {
  %y = call i8 @kachel_to_f8(float %x, i32 947912704, i32 1124073472, i32 939524096, i32 21, i32 123)
  ret i8 %y
}
define internal i32 @kachel_load_u4(ptr %p, i64 %i) #0 {
  %at = ashr i64 %i, 1
  %q = getelementptr i8, ptr %p, i64 %at
  %byte = load i8, ptr %q, align 1
  %wide = zext i8 %byte to i32
  %odd = trunc i64 %i to i1
  %high = lshr i32 %wide, 4
  %low = and i32 %wide, 15
  %y = select i1 %odd, i32 %high, i32 %low
  ret i32 %y
}
define internal i32 @kachel_load_i4(ptr %p, i64 %i) #0 {
  %u = call i32 @kachel_load_u4(ptr %p, i64 %i)
  %flipped = xor i32 %u, 8
  %y = sub i32 %flipped, 8
  ret i32 %y
}
)llvm"
                                 R"llvm(
define internal i32 @kachel_sdiv_i32(i32 %a, i32 %b) #0 {
  %zero = icmp eq i32 %b, 0
  %minus = icmp eq i32 %b, -1
  %special = or i1 %zero, %minus
  %safe = select i1 %special, i32 1, i32 %b
  %q = sdiv i32 %a, %safe
  %negated = sub i32 0, %a
  %q1 = select i1 %minus, i32 %negated, i32 %q
  %y = select i1 %zero, i32 0, i32 %q1
  ret i32 %y
}
define internal i64 @kachel_sdiv_i64(i64 %a, i64 %b) #0 {
  %zero = icmp eq i64 %b, 0
  %minus = icmp eq i64 %b, -1
  %special = or i1 %zero, %minus
  %safe = select i1 %special, i64 1, i64 %b
  %q = sdiv i64 %a, %safe
  %negated = sub i64 0, %a
  %q1 = select i1 %minus, i64 %negated, i64 %q
  %y = select i1 %zero, i64 0, i64 %q1
  ret i64 %y
}
define internal i32 @kachel_udiv_i32(i32 %a, i32 %b) #0 {
  %zero = icmp eq i32 %b, 0
  %safe = select i1 %zero, i32 1, i32 %b
  %q = udiv i32 %a, %safe
  %y = select i1 %zero, i32 0, i32 %q
  ret i32 %y
}
define internal i64 @kachel_udiv_i64(i64 %a, i64 %b) #0 {
  %zero = icmp eq i64 %b, 0
  %safe = select i1 %zero, i64 1, i64 %b
  %q = udiv i64 %a, %safe
  %y = select i1 %zero, i64 0, i64 %q
  ret i64 %y
}
define internal i32 @kachel_srem_i32(i32 %a, i32 %b) #0 {
  %zero = icmp eq i32 %b, 0
  %minus = icmp eq i32 %b, -1
  %special = or i1 %zero, %minus
  %safe = select i1 %special, i32 1, i32 %b
  %y = srem i32 %a, %safe
  ret i32 %y
}
define internal i64 @kachel_srem_i64(i64 %a, i64 %b) #0 {
  %zero = icmp eq i64 %b, 0
  %minus = icmp eq i64 %b, -1
  %special = or i1 %zero, %minus
  %safe = select i1 %special, i64 1, i64 %b
  %y = srem i64 %a, %safe
  ret i64 %y
}
define internal i32 @kachel_urem_i32(i32 %a, i32 %b) #0 {
  %zero = icmp eq i32 %b, 0
  %safe = select i1 %zero, i32 1, i32 %b
  %y = urem i32 %a, %safe
  ret i32 %y
}
define internal i64 @kachel_urem_i64(i64 %a, i64 %b) #0 {
  %zero = icmp eq i64 %b, 0
  %safe = select i1 %zero, i64 1, i64 %b
  %y = urem i64 %a, %safe
  ret i64 %y
}
; Stores that bypass the caches are of whole lines. The kernel ends with a fence, since they are not ordered.
define internal void @kachel_stream(ptr noalias %to, ptr noalias readonly %from, i64 %bytes) #2 {
entry:
  %address = ptrtoint ptr %to to i64
  %negated = sub i64 0, %address
  %misaligned = and i64 %negated, 63
  %head = call i64 @llvm.umin.i64(i64 %misaligned, i64 %bytes)
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %head, i1 false)
  %left = sub i64 %bytes, %head
  %lines = and i64 %left, -64
  %end = add i64 %head, %lines
  %any = icmp ne i64 %lines, 0
  br i1 %any, label %body, label %tail
body:
  %at = phi i64 [ %head, %entry ], [ %next, %body ]
  %p = getelementptr i8, ptr %from, i64 %at
  %q = getelementptr i8, ptr %to, i64 %at
  %line = load <16 x float>, ptr %p, align 1
  store <16 x float> %line, ptr %q, align 64, !nontemporal !{i32 1}
  %next = add nuw i64 %at, 64
  %more = icmp ult i64 %next, %end
  br i1 %more, label %body, label %tail
tail:
  %rest = sub i64 %bytes, %end
  %p1 = getelementptr i8, ptr %from, i64 %end
  %q1 = getelementptr i8, ptr %to, i64 %end
  call void @llvm.memcpy.p0.p0.i64(ptr %q1, ptr %p1, i64 %rest, i1 false)
  ret void
}
declare void @llvm.memcpy.p0.p0.i64(ptr noalias, ptr noalias, i64, i1)
declare <16 x i32> @llvm.x86.avx512.vpdpwssd.512(<16 x i32>, <16 x i32>, <16 x i32>)
declare <16 x i32> @llvm.x86.avx512.pmaddw.d.512(<32 x i16>, <32 x i16>)
declare <8 x i32> @llvm.x86.avx2.pmadd.wd(<16 x i16>, <16 x i16>)
declare <4 x i32> @llvm.x86.sse2.pmadd.wd(<8 x i16>, <8 x i16>)
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
attributes #0 = { alwaysinline nounwind "no-builtins" }
attributes #3 = { noinline nounwind willreturn memory(argmem: readwrite) "no-builtins" }
attributes #2 = { nounwind "no-builtins" }
)llvm";

}  // namespace kachel::lowering
