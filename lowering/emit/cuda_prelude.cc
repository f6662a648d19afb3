#include "lowering/emit/emit.h"

namespace kachel::lowering {

// Conversions follow the table of ir/GRAMMAR.md. 8-bit floats are encoded by integer arithmetic on the bits of the f32:
// normal results by adding half a unit of the last kept place (ties to even) after moving the exponent's bias, results
// below the smallest normal by adding a power of two that leaves the float adder to round at the right place.
const char* const kCudaPrelude = R"cuda(
typedef long long i64;
typedef unsigned long long u64;
typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned char u8;
#define KACHEL_DEVICE static __device__ __forceinline__

// elements in memory -> f32
KACHEL_DEVICE float kachel_from_f16(u16 x) { float y; asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x)); return y; }
KACHEL_DEVICE float kachel_from_bf16(u16 x) { return __uint_as_float((u32)x << 16); }
// element i of registers that are filled in words: one instruction, where the upper half of a word taken as u16 takes two or three
KACHEL_DEVICE float kachel_from_bf16(const u16* x, int i) {
  const u32 word = ((const u32*)x)[i >> 1];
  return __uint_as_float(i & 1 ? word & 0xffff0000u : word << 16);
}
KACHEL_DEVICE float kachel_from_f16(const u16* x, int i) {
  const u32 word = ((const u32*)x)[i >> 1];
  float y;
  if (i & 1) asm("{ .reg .b16 low, high; mov.b32 {low, high}, %1; cvt.f32.f16 %0, high; }" : "=f"(y) : "r"(word));
  else asm("{ .reg .b16 low, high; mov.b32 {low, high}, %1; cvt.f32.f16 %0, low; }" : "=f"(y) : "r"(word));
  return y;
}
KACHEL_DEVICE float kachel_from_f8e4m3(u8 x) {
  float y = kachel_from_f16((u16)((x & 0x7f) << 7)) * 256.0f;
  if ((x & 0x7f) == 0x7f) y = __uint_as_float(0x7fc00000u);
  return x & 0x80 ? -y : y;
}
KACHEL_DEVICE float kachel_from_f8e5m2(u8 x) { return kachel_from_f16((u16)(x << 8)); }
// f32 -> elements in memory
KACHEL_DEVICE u16 kachel_to_f16(float x) { u16 y; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x)); return y; }
KACHEL_DEVICE u16 kachel_to_bf16(float x) { u16 y; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x)); return y; }
template <int kMantissa, int kBias, u32 kLargest> KACHEL_DEVICE u8 kachel_to_f8(float x) {
  u32 bits = __float_as_uint(x), magnitude = bits & 0x7fffffffu, sign = bits >> 24 & 0x80u;
  if (magnitude > 0x7f800000u) return (u8)(sign | 0x7fu);
  u32 code;
  if (magnitude < (u32)(128 - kBias) << 23) {
    const float shifter = __uint_as_float((u32)(127 + 24 - kBias - kMantissa) << 23);
    code = __float_as_uint(__fadd_rn(__uint_as_float(magnitude), shifter)) - __float_as_uint(shifter);
  } else {
    u32 moved = magnitude - ((u32)(127 - kBias) << 23);
    code = (moved + (1u << (22 - kMantissa)) - 1u + (moved >> (23 - kMantissa) & 1u)) >> (23 - kMantissa);
    if (code > kLargest) code = kLargest;
  }
  return (u8)(sign | code);
}
KACHEL_DEVICE u8 kachel_to_f8e4m3(float x) { return kachel_to_f8<3, 7, 0x7eu>(x); }
KACHEL_DEVICE u8 kachel_to_f8e5m2(float x) { return kachel_to_f8<2, 15, 0x7bu>(x); }
// 4-bit elements, low nibble first
KACHEL_DEVICE int kachel_load_u4(const u8* p, i64 i) { return p[i >> 1] >> ((i & 1) * 4) & 15; }
KACHEL_DEVICE int kachel_load_i4(const u8* p, i64 i) { return (kachel_load_u4(p, i) ^ 8) - 8; }
// f32 -> integers: towards zero, saturating, NaN gives 0
KACHEL_DEVICE int kachel_to_i32(float x) { return __float2int_rz(x); }
KACHEL_DEVICE u32 kachel_to_u32(float x) { return __float2uint_rz(x); }
KACHEL_DEVICE i64 kachel_to_i64(float x) { return x == x ? __float2ll_rz(x) : 0; }
KACHEL_DEVICE u64 kachel_to_u64(float x) { return x == x ? __float2ull_rz(x) : 0; }
KACHEL_DEVICE int kachel_saturate(float x, int lo, int hi) { int y = __float2int_rz(x); return y < lo ? lo : y > hi ? hi : y; }
// integer division: by zero gives 0, and the quotient of the smallest value by -1 wraps
KACHEL_DEVICE int kachel_div(int a, int b) { return b == 0 ? 0 : b == -1 ? (int)(0u - (u32)a) : a / b; }
KACHEL_DEVICE u32 kachel_div(u32 a, u32 b) { return b == 0 ? 0 : a / b; }
KACHEL_DEVICE i64 kachel_div(i64 a, i64 b) { return b == 0 ? 0 : b == -1 ? (i64)(0ull - (u64)a) : a / b; }
KACHEL_DEVICE u64 kachel_div(u64 a, u64 b) { return b == 0 ? 0 : a / b; }
KACHEL_DEVICE int kachel_mod(int a, int b) { return b == 0 || b == -1 ? 0 : a % b; }
KACHEL_DEVICE u32 kachel_mod(u32 a, u32 b) { return b == 0 ? 0 : a % b; }
KACHEL_DEVICE i64 kachel_mod(i64 a, i64 b) { return b == 0 || b == -1 ? 0 : a % b; }
KACHEL_DEVICE u64 kachel_mod(u64 a, u64 b) { return b == 0 ? 0 : a % b; }
template <class T> KACHEL_DEVICE T kachel_ceildiv(T a, T b) {
  T rest = kachel_mod(a, b);
  return (T)((u64)kachel_div(a, b) + (rest != 0 && (rest < 0) == (b < 0) ? 1u : 0u));
}
// shifts by the width and more
KACHEL_DEVICE int kachel_shl(int a, u64 n) { return n < 32 ? (int)((u32)a << n) : 0; }
KACHEL_DEVICE u32 kachel_shl(u32 a, u64 n) { return n < 32 ? a << n : 0; }
KACHEL_DEVICE i64 kachel_shl(i64 a, u64 n) { return n < 64 ? (i64)((u64)a << n) : 0; }
KACHEL_DEVICE u64 kachel_shl(u64 a, u64 n) { return n < 64 ? a << n : 0; }
KACHEL_DEVICE int kachel_shr(int a, u64 n) { return a >> (n < 32 ? n : 31); }
KACHEL_DEVICE u32 kachel_shr(u32 a, u64 n) { return n < 32 ? a >> n : 0; }
KACHEL_DEVICE i64 kachel_shr(i64 a, u64 n) { return a >> (n < 64 ? n : 63); }
KACHEL_DEVICE u64 kachel_shr(u64 a, u64 n) { return n < 64 ? a >> n : 0; }
// numbers
KACHEL_DEVICE float kachel_min(float a, float b) { return fminf(a, b); }
KACHEL_DEVICE float kachel_max(float a, float b) { return fmaxf(a, b); }
template <class T> KACHEL_DEVICE T kachel_min(T a, T b) { return b < a ? b : a; }
template <class T> KACHEL_DEVICE T kachel_max(T a, T b) { return a < b ? b : a; }
// By name: of 64-bit values compared by their lower halves, which is what a select between narrowed ones becomes, ptxas 13.0 may copy 16 bits.
#define KACHEL_EXTREMUM(name, type, instruction) \
  KACHEL_DEVICE type name(type a, type b) { type y; asm(instruction " %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b)); return y; }
KACHEL_EXTREMUM(kachel_min, u32, "min.u32")
KACHEL_EXTREMUM(kachel_max, u32, "max.u32")
#if __CUDA_ARCH__ >= 900
// No instruction of its own: ptxas 13.0 loses the sign of negated operands where it makes one VIMNMX3 of two.
#define KACHEL_SIGNED_EXTREMUM(name, order) \
  KACHEL_DEVICE int name(int a, int b) { \
    int y; \
    asm("{ .reg .pred first; setp." order ".s32 first, %1, %2; selp.b32 %0, %1, %2, first; }" : "=r"(y) : "r"(a), "r"(b)); \
    return y; \
  }
KACHEL_SIGNED_EXTREMUM(kachel_min, "lt")
KACHEL_SIGNED_EXTREMUM(kachel_max, "gt")
#else
KACHEL_EXTREMUM(kachel_min, int, "min.s32")
KACHEL_EXTREMUM(kachel_max, int, "max.s32")
#endif
// Orders of floats. ptxas 13.0 takes one that all numbers of an operand's range have for true of NaN, too: |x| >= 0. It
// does not take the opposite of it for false, which NVRTC would turn into the order again.
#define KACHEL_ORDER(name, fails) \
  KACHEL_DEVICE bool name(float a, float b) { \
    u32 order; \
    asm("{ .reg .pred no; setp." fails ".f32 no, %1, %2; selp.u32 %0, 0, 1, no; }" : "=r"(order) : "f"(a), "f"(b)); \
    return order != 0; \
  }
KACHEL_ORDER(kachel_less, "geu")
KACHEL_ORDER(kachel_at_most, "gtu")
template <class T> KACHEL_DEVICE T kachel_clamp(T x, T lo, T hi) { return kachel_min(kachel_max(x, lo), hi); }
KACHEL_DEVICE float kachel_abs(float a) { return fabsf(a); }
// No instruction of its own, which NVVM would find again: ptxas 13.0 takes the result for positive; that of the least number is not.
KACHEL_DEVICE int kachel_abs(int a) { u32 sign; asm("shr.s32 %0, %1, 31;" : "=r"(sign) : "r"(a)); return (int)(((u32)a ^ sign) - sign); }
KACHEL_DEVICE u32 kachel_abs(u32 a) { return a; }
KACHEL_DEVICE i64 kachel_abs(i64 a) { u64 sign; asm("shr.s64 %0, %1, 63;" : "=l"(sign) : "l"(a)); return (i64)(((u64)a ^ sign) - sign); }
KACHEL_DEVICE u64 kachel_abs(u64 a) { return a; }
template <class T> KACHEL_DEVICE T kachel_popcount(T a) { return (T)(sizeof(T) == 8 ? __popcll((u64)a) : __popc((u32)a)); }
KACHEL_DEVICE float kachel_rcp(float a) { float y; asm("rcp.approx.f32 %0, %1;" : "=f"(y) : "f"(a)); return y; }  // 1 ulp
KACHEL_DEVICE float kachel_exp2(float a) { float y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(a)); return y; }  // 2 ulp
// the fast variants
KACHEL_DEVICE float kachel_approx_exp2(float a) { return kachel_exp2(a); }
KACHEL_DEVICE float kachel_approx_exp(float a) { return kachel_approx_exp2(a * 1.4426950408889634f); }
KACHEL_DEVICE float kachel_approx_log2(float a) { float y; asm("lg2.approx.f32 %0, %1;" : "=f"(y) : "f"(a)); return y; }
KACHEL_DEVICE float kachel_approx_log(float a) { return kachel_approx_log2(a) * 0.6931471805599453f; }
KACHEL_DEVICE float kachel_approx_rsqrt(float a) { float y; asm("rsqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(a)); return y; }
KACHEL_DEVICE float kachel_approx_rcp(float a) { return kachel_rcp(a); }
KACHEL_DEVICE float kachel_approx_sqrt(float a) { float y; asm("sqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(a)); return y; }
KACHEL_DEVICE float kachel_approx_tanh(float a) { float y; asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(a)); return y; }
KACHEL_DEVICE float kachel_approx_sin(float a) { float y; asm("sin.approx.f32 %0, %1;" : "=f"(y) : "f"(a)); return y; }
KACHEL_DEVICE float kachel_approx_cos(float a) { float y; asm("cos.approx.f32 %0, %1;" : "=f"(y) : "f"(a)); return y; }
// atomics
KACHEL_DEVICE void kachel_atomic_add(float* p, float v) { atomicAdd(p, v); }
KACHEL_DEVICE void kachel_atomic_add(int* p, int v) { atomicAdd(p, v); }
KACHEL_DEVICE void kachel_atomic_add(u32* p, u32 v) { atomicAdd(p, v); }
KACHEL_DEVICE void kachel_atomic_add(i64* p, i64 v) { atomicAdd((u64*)p, (u64)v); }
KACHEL_DEVICE void kachel_atomic_add(u64* p, u64 v) { atomicAdd(p, v); }
template <class T> KACHEL_DEVICE void kachel_atomic_max(T* p, T v) { atomicMax(p, v); }
template <class T> KACHEL_DEVICE void kachel_atomic_min(T* p, T v) { atomicMin(p, v); }
// Extrema of floats are those of integers: floats without a sign are in the order of their bits, those with one in the
// opposite order. Nothing is done where memory holds what would be left there; a NaN there is replaced first, after
// which there is none.
KACHEL_DEVICE void kachel_replace_nan(float* p, float old, float v) {
  if (old != old) atomicCAS((u32*)p, __float_as_uint(old), __float_as_uint(v));
}
KACHEL_DEVICE void kachel_atomic_max(float* p, float v) {
  const float old = *(volatile float*)p;
  if (v != v || old >= v) return;
  kachel_replace_nan(p, old, v);
  if (__float_as_int(v) >= 0) atomicMax((int*)p, __float_as_int(v));
  else atomicMin((u32*)p, __float_as_uint(v));
}
KACHEL_DEVICE void kachel_atomic_min(float* p, float v) {
  const float old = *(volatile float*)p;
  if (v != v || old <= v) return;
  kachel_replace_nan(p, old, v);
  if (__float_as_int(v) >= 0) atomicMin((int*)p, __float_as_int(v));
  else atomicMax((u32*)p, __float_as_uint(v));
}
// the operand is an element too: converted first
KACHEL_DEVICE void kachel_atomic_add_f16(u16* p, float x) {
  asm volatile("red.global.add.noftz.f16 [%0], %1;" :: "l"(p), "h"(kachel_to_f16(x)) : "memory");
}
// neighbours, from sm_90 on; `x`: their bits
#define KACHEL_ADD4(type, x2) KACHEL_DEVICE void kachel_add4_##type(void* p, const u32* x) { \
    asm volatile("red.global.add.noftz." x2 " [%0], %1;" :: "l"(p), "r"(x[0]) : "memory"); \
  }
#define KACHEL_ADD8(type, op) KACHEL_DEVICE void kachel_add8_##type(void* p, const u32* x) { \
    asm volatile("red.global.add" op " [%0], {%1, %2};" :: "l"(p), "r"(x[0]), "r"(x[1]) : "memory"); \
  }
#define KACHEL_ADD16(type, op) KACHEL_DEVICE void kachel_add16_##type(void* p, const u32* x) { \
    asm volatile("red.global.add" op " [%0], {%1, %2, %3, %4};" \
                 :: "l"(p), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]) : "memory"); \
  }
KACHEL_ADD4(f16, "f16x2")
KACHEL_ADD4(bf16, "bf16x2")
KACHEL_ADD8(f16, ".noftz.v2.f16x2")
KACHEL_ADD8(bf16, ".noftz.v2.bf16x2")
KACHEL_ADD16(f16, ".noftz.v4.f16x2")
KACHEL_ADD16(bf16, ".noftz.v4.bf16x2")
KACHEL_DEVICE void kachel_add8_f32(void* p, const u32* x) {
  const float* v = (const float*)x;
  asm volatile("red.global.add.v2.f32 [%0], {%1, %2};" :: "l"(p), "f"(v[0]), "f"(v[1]) : "memory");
}
KACHEL_DEVICE void kachel_add16_f32(void* p, const u32* x) {
  const float* v = (const float*)x;
  asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};"
               :: "l"(p), "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]) : "memory");
}
#if __CUDA_ARCH__ >= 900
KACHEL_DEVICE void kachel_atomic_add_bf16(u16* p, float x) {
  asm volatile("red.global.add.noftz.bf16 [%0], %1;" :: "l"(p), "h"(kachel_to_bf16(x)) : "memory");
}
KACHEL_DEVICE void kachel_converge() {}
#else
KACHEL_DEVICE void kachel_atomic_add_bf16(u16* p, float x) {
  const float v = kachel_from_bf16(kachel_to_bf16(x));
  u16 old = *(volatile u16*)p, seen;
  do {
    seen = old;
    old = atomicCAS(p, seen, kachel_to_bf16(kachel_from_bf16(seen) + v));
  } while (old != seen);
}
// The lanes of a warp wait for each other, by a mask that ptxas cannot know: it takes lanes behind a loop of
// compare-and-swap for being together (13.0, where another loop encloses it), but the YIELD that it has put there lets
// those go on that wait.
KACHEL_DEVICE void kachel_converge() {
  u32 below, others;
  asm volatile("mov.u32 %0, %%lanemask_lt;" : "=r"(below));
  asm volatile("mov.u32 %0, %%lanemask_ge;" : "=r"(others));
  asm volatile("bar.warp.sync %0;" :: "r"(below | others) : "memory");
}
#endif
// neighbouring elements at once
KACHEL_DEVICE void kachel_copy16(void* to, const void* from) { *(uint4*)to = *(const uint4*)from; }
KACHEL_DEVICE void kachel_copy8(void* to, const void* from) { *(uint2*)to = *(const uint2*)from; }
KACHEL_DEVICE void kachel_copy4(void* to, const void* from) { *(u32*)to = *(const u32*)from; }
KACHEL_DEVICE void kachel_copy2(void* to, const void* from) { *(u16*)to = *(const u16*)from; }
KACHEL_DEVICE void kachel_copy1(void* to, const void* from) { *(u8*)to = *(const u8*)from; }
KACHEL_DEVICE void kachel_zero16(void* to) { *(uint4*)to = make_uint4(0, 0, 0, 0); }
KACHEL_DEVICE void kachel_zero8(void* to) { *(uint2*)to = make_uint2(0, 0); }
KACHEL_DEVICE void kachel_zero4(void* to) { *(u32*)to = 0; }
KACHEL_DEVICE void kachel_zero2(void* to) { *(u16*)to = 0; }
KACHEL_DEVICE void kachel_zero1(void* to) { *(u8*)to = 0; }
// What comes next on the stream may begin, and what came before has ended, where the launch has let it overlap; nothing of
// what it wrote is read before.
KACHEL_DEVICE void kachel_after_previous() { asm volatile("griddepcontrol.launch_dependents;\ngriddepcontrol.wait;" ::: "memory"); }
KACHEL_DEVICE u32 kachel_shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }
// nothing is read where `inside` is false: zeros are written
#define KACHEL_COPY_ASYNC(name, n, cache) \
  KACHEL_DEVICE void name(u32 to, const void* from, bool inside) { \
    asm volatile("cp.async." #cache ".shared.global [%0], [%1], " #n ", %2;" \
                 :: "r"(to), "l"(from), "r"(inside ? n : 0) : "memory"); \
  }
KACHEL_COPY_ASYNC(kachel_copy_async16, 16, cg)
KACHEL_COPY_ASYNC(kachel_copy_async8, 8, ca)
KACHEL_COPY_ASYNC(kachel_copy_async4, 4, ca)
KACHEL_DEVICE void kachel_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kGroups> KACHEL_DEVICE void kachel_async_wait() { asm volatile("cp.async.wait_group %0;" :: "n"(kGroups) : "memory"); }
)cuda"
                                 // Fragments of the tensor cores. PTX ISA: ldmatrix, mma.
                                 R"cuda(
#define KACHEL_LOAD_MATRIX_X4(name, trans) \
  KACHEL_DEVICE void name(u32* d, u32 row) { \
    asm volatile("ldmatrix.sync.aligned.m8n8.x4" trans ".shared.b16 {%0, %1, %2, %3}, [%4];" \
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(row)); \
  }
#define KACHEL_LOAD_MATRIX_X2(name, trans) \
  KACHEL_DEVICE void name(u32* d, u32 row) { \
    asm volatile("ldmatrix.sync.aligned.m8n8.x2" trans ".shared.b16 {%0, %1}, [%2];" \
                 : "=r"(d[0]), "=r"(d[1]) : "r"(row)); \
  }
KACHEL_LOAD_MATRIX_X4(kachel_load_matrix_x4, "")
KACHEL_LOAD_MATRIX_X4(kachel_load_matrix_trans_x4, ".trans")
KACHEL_LOAD_MATRIX_X2(kachel_load_matrix_x2, "")
KACHEL_LOAD_MATRIX_X2(kachel_load_matrix_trans_x2, ".trans")
#if __CUDA_ARCH__ >= 900
KACHEL_DEVICE void kachel_store_matrix_x4(u32 row, const u32* s) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
               :: "r"(row), "r"(s[0]), "r"(s[1]), "r"(s[2]), "r"(s[3]) : "memory");
}
#endif
#define KACHEL_MMA(name, shape, constraint, c_type, types) \
  KACHEL_DEVICE void name(c_type* c, const u32* a, const u32* b) { \
    asm("mma.sync.aligned." shape ".row.col." types " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
        : "+" constraint(c[0]), "+" constraint(c[1]), "+" constraint(c[2]), "+" constraint(c[3]) \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1])); \
  }
KACHEL_MMA(kachel_mma_f16_f16, "m16n8k16", "f", float, "f32.f16.f16.f32")
KACHEL_MMA(kachel_mma_bf16_bf16, "m16n8k16", "f", float, "f32.bf16.bf16.f32")
KACHEL_DEVICE u32 kachel_tf32(u32 x) { u32 y; asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "r"(x)); return y; }
KACHEL_MMA(kachel_mma_tf32, "m16n8k8", "f", float, "f32.tf32.tf32.f32")
KACHEL_DEVICE void kachel_mma_f32_f32(float* c, const u32* a, const u32* b) {
  const u32 ra[4] = {kachel_tf32(a[0]), kachel_tf32(a[1]), kachel_tf32(a[2]), kachel_tf32(a[3])};
  const u32 rb[2] = {kachel_tf32(b[0]), kachel_tf32(b[1])};
  kachel_mma_tf32(c, ra, rb);
}
KACHEL_MMA(kachel_mma_i8_i8, "m16n8k32", "r", int, "s32.s8.s8.s32")
KACHEL_MMA(kachel_mma_u8_u8, "m16n8k32", "r", int, "s32.u8.u8.s32")
KACHEL_MMA(kachel_mma_i8_u8, "m16n8k32", "r", int, "s32.s8.u8.s32")
KACHEL_MMA(kachel_mma_u8_i8, "m16n8k32", "r", int, "s32.u8.s8.s32")
// Four 8-bit floats to two pairs of f16. The order of k within an instruction is free as long as A and B agree: the first
// product takes the lower pair of every four, the second the upper.
#define KACHEL_WIDEN(name, type) \
  KACHEL_DEVICE u32 name(u32 x) { \
    u32 y; \
    asm("{ .reg .b16 low; cvt.u16.u32 low, %1; cvt.rn.f16x2." type " %0, low; }" : "=r"(y) : "r"(x)); \
    return y; \
  }
#define KACHEL_MMA_WIDENED(name, widen_a, widen_b) \
  KACHEL_DEVICE void name(float* c, const u32* a, const u32* b) { \
    for (int half = 0; half < 2; ++half) { \
      const u32 wa[4] = {widen_a(a[0] >> 16 * half), widen_a(a[1] >> 16 * half), widen_a(a[2] >> 16 * half), \
                         widen_a(a[3] >> 16 * half)}; \
      const u32 wb[2] = {widen_b(b[0] >> 16 * half), widen_b(b[1] >> 16 * half)}; \
      kachel_mma_f16_f16(c, wa, wb); \
    } \
  }
#if __CUDA_ARCH__ >= 890
KACHEL_WIDEN(kachel_widen_f8e4m3, "e4m3x2")
KACHEL_WIDEN(kachel_widen_f8e5m2, "e5m2x2")
KACHEL_MMA_WIDENED(kachel_mma_widened_f8e4m3_f8e4m3, kachel_widen_f8e4m3, kachel_widen_f8e4m3)
KACHEL_MMA_WIDENED(kachel_mma_widened_f8e5m2_f8e5m2, kachel_widen_f8e5m2, kachel_widen_f8e5m2)
KACHEL_MMA_WIDENED(kachel_mma_widened_f8e4m3_f8e5m2, kachel_widen_f8e4m3, kachel_widen_f8e5m2)
KACHEL_MMA_WIDENED(kachel_mma_widened_f8e5m2_f8e4m3, kachel_widen_f8e5m2, kachel_widen_f8e4m3)
KACHEL_MMA(kachel_mma_f8e4m3_f8e4m3, "m16n8k32", "f", float, "f32.e4m3.e4m3.f32")
KACHEL_MMA(kachel_mma_f8e5m2_f8e5m2, "m16n8k32", "f", float, "f32.e5m2.e5m2.f32")
KACHEL_MMA(kachel_mma_f8e4m3_f8e5m2, "m16n8k32", "f", float, "f32.e4m3.e5m2.f32")
KACHEL_MMA(kachel_mma_f8e5m2_f8e4m3, "m16n8k32", "f", float, "f32.e5m2.e4m3.f32")
#endif
// a 4 x 4 matrix of registers, a column a lane, is transposed
KACHEL_DEVICE void kachel_quad_exchange(u32* r) {
#pragma unroll
  for (int mask = 1; mask < 4; mask <<= 1) {
    const bool upper = threadIdx.x & mask;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i & mask) continue;
      const u32 other = __shfl_xor_sync(0xffffffffu, upper ? r[i] : r[i | mask], mask);
      if (upper) r[i] = other; else r[i | mask] = other;
    }
  }
}
// pairs of bytes of a row in four lanes, of two tiles, to four bytes a lane: one of a lane's words is for its lower
// neighbours, the other for the upper ones
KACHEL_DEVICE void kachel_quad_join(u32* to, const u32* r) {
  const u32 q = threadIdx.x & 3, from = 0x2130u >> 4 * q & 3;
  const bool outer = q == 0 || q == 3;
  const u32 a = __shfl_sync(0xffffffffu, outer ? r[0] : r[1], from, 4);
  const u32 b = __shfl_sync(0xffffffffu, outer ? r[1] : r[0], from ^ 1, 4);
  to[0] = __byte_perm(a, b, outer ? 0x5410 : 0x1054);
  to[1] = __byte_perm(a, b, outer ? 0x7632 : 0x3276);
}
// 8 x 8 elements of 32 bits in the lanes of a warp, rows to columns: the lower halves of all, and the upper ones
KACHEL_DEVICE void kachel_turn_matrix(u32* to, const u32* r) {
  u32 low, high;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(low) : "r"(__byte_perm(r[0], r[1], 0x5410)));
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(high) : "r"(__byte_perm(r[0], r[1], 0x7632)));
  to[0] = __byte_perm(low, high, 0x5410);
  to[1] = __byte_perm(low, high, 0x7632);
}
// four products of 8-bit integers
#define KACHEL_DOT4(name, types) \
  KACHEL_DEVICE void name(int* c, const u32* a, const u32* b) { \
    asm("dp4a." types " %0, %1, %2, %0;" : "+r"(*c) : "r"(*a), "r"(*b)); \
  }
KACHEL_DOT4(kachel_dot4_i8_i8, "s32.s32")
KACHEL_DOT4(kachel_dot4_u8_u8, "u32.u32")
KACHEL_DOT4(kachel_dot4_i8_u8, "s32.u32")
KACHEL_DOT4(kachel_dot4_u8_i8, "u32.s32")
// two f32 to neighbouring elements of 16 and of 8 bits
KACHEL_DEVICE void kachel_pair_f16(u16* to, const float* from) { asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(*(u32*)to) : "f"(from[1]), "f"(from[0])); }
KACHEL_DEVICE void kachel_pair_bf16(u16* to, const float* from) { asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(*(u32*)to) : "f"(from[1]), "f"(from[0])); }
#if __CUDA_ARCH__ >= 890
KACHEL_DEVICE void kachel_pair_f8e4m3(u8* to, const float* from) { asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(*(u16*)to) : "f"(from[1]), "f"(from[0])); }
KACHEL_DEVICE void kachel_pair_f8e5m2(u8* to, const float* from) { asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(*(u16*)to) : "f"(from[1]), "f"(from[0])); }
#else
KACHEL_DEVICE void kachel_pair_f8e4m3(u8* to, const float* from) { to[0] = kachel_to_f8e4m3(from[0]); to[1] = kachel_to_f8e4m3(from[1]); }
KACHEL_DEVICE void kachel_pair_f8e5m2(u8* to, const float* from) { to[0] = kachel_to_f8e5m2(from[0]); to[1] = kachel_to_f8e5m2(from[1]); }
#endif
// vectors of eight elements, 32 apart in the row, as many as it has left
template <int kVectors> KACHEL_DEVICE void kachel_store_row(void* to, const u16* from, int left) {
#pragma unroll
  for (int i = 0; i < kVectors; ++i)
#pragma unroll
    for (int j = 0; j < 8; ++j)
      if (32 * i + j < left) ((u16*)to)[32 * i + j] = from[16 * i + j];
}
)cuda";

}  // namespace kachel::lowering
