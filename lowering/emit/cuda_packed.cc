// Pairs of 16-bit floats in CUDA C++: arithmetic, and what is unpacked from 4 and 8 bits. The form: cuda_helpers.cc.
#include "lowering/emit/emit.h"

namespace kachel::lowering {

const char* const kCudaPacked = R"cuda(
// pairs of 16-bit floats; sm_80 has no instruction but fma for those of bf16
KACHEL_DEVICE u32 kachel_both_f16(float x) { u32 y; asm("cvt.rn.f16x2.f32 %0, %1, %1;" : "=r"(y) : "f"(x)); return y; }
KACHEL_DEVICE u32 kachel_both_bf16(float x) { u32 y; asm("cvt.rn.bf16x2.f32 %0, %1, %1;" : "=r"(y) : "f"(x)); return y; }
#define KACHEL_PACKED(name, instruction) \
  KACHEL_DEVICE u32 name(u32 a, u32 b) { u32 y; asm(instruction " %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b)); return y; }
KACHEL_PACKED(kachel_packed_add_f16, "add.rn.f16x2")
KACHEL_PACKED(kachel_packed_sub_f16, "sub.rn.f16x2")
KACHEL_PACKED(kachel_packed_mul_f16, "mul.rn.f16x2")
#if __CUDA_ARCH__ >= 900
KACHEL_PACKED(kachel_packed_add_bf16, "add.rn.bf16x2")
KACHEL_PACKED(kachel_packed_sub_bf16, "sub.rn.bf16x2")
KACHEL_PACKED(kachel_packed_mul_bf16, "mul.rn.bf16x2")
#else
KACHEL_DEVICE u32 kachel_packed_fma_bf16(u32 a, u32 b, u32 c) { u32 y; asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(a), "r"(b), "r"(c)); return y; }
KACHEL_DEVICE u32 kachel_packed_add_bf16(u32 a, u32 b) { return kachel_packed_fma_bf16(a, 0x3f803f80u, b); }
KACHEL_DEVICE u32 kachel_packed_sub_bf16(u32 a, u32 b) { return kachel_packed_fma_bf16(b, 0xbf80bf80u, a); }
KACHEL_DEVICE u32 kachel_packed_mul_bf16(u32 a, u32 b) { return kachel_packed_fma_bf16(a, b, 0x80008000u); }
#endif
// Neighbouring 4-bit integers, less a number. In the mantissa of a power of two, whose last place counts ones, an
// integer needs no conversion: the power is taken away together with the number.
// (x & 0x000f000f) ^ power by one instruction, for which one of the constants has to be in a register.
KACHEL_DEVICE u32 kachel_nibbles(u32 x, u32 power) { u32 y; asm("lop3.b32 %0, %1, 0x000f000f, %2, 0x6a;" : "=r"(y) : "r"(x), "r"(power)); return y; }
// kCount 0: of a word that four lanes hold the pair of this one.
template <int kCount> KACHEL_DEVICE void kachel_spread(u32* to, const u8* from, u32 power) {
  const u32 word = kCount == 4 ? *(const u16*)from : kCount == 2 ? *from : *(const u32*)from, high = word >> 4;
  const u32 first = kCount ? 0x4400 : 0x4400 + (threadIdx.x & 3) * 0x1111;
#pragma unroll
  for (int i = 0; i < (kCount ? kCount / 2 : 1); ++i) to[i] = kachel_nibbles(__byte_perm(word, high, first + i * 0x1111), power);
}
// Of 4 bits each, the number of a table, of whose 16 bits l has the low bytes and h the high ones, four a word. Three of
// the bits are what a permutation of eight bytes takes; the fourth one chooses between two of them.
template <int kCount> KACHEL_DEVICE void kachel_table(u32* to, const u8* from, u32 l0, u32 l1, u32 l2, u32 l3, u32 h0, u32 h1, u32 h2, u32 h3) {
  const u32 word = kCount == 4 ? *(const u16*)from : kCount == 2 ? *from : *(const u32*)from >> (kCount ? 0 : (threadIdx.x & 3) * 8);
  const u32 low = word & 0x77777777u, choice = (word >> 1 & 0x44444444u) | 0x32103210u;
#pragma unroll
  for (int i = 0; i < (kCount ? kCount : 2); i += 4) {
    const u32 own = low >> 4 * i, by = choice >> 4 * i;
    const u32 l = __byte_perm(__byte_perm(l0, l1, own), __byte_perm(l2, l3, own), by);
    const u32 h = __byte_perm(__byte_perm(h0, h1, own), __byte_perm(h2, h3, own), by);
    to[i / 2] = __byte_perm(l, h, 0x5140);
    if (kCount > 2) to[i / 2 + 1] = __byte_perm(l, h, 0x7362);
  }
}
#define KACHEL_UNPACK(name, subtract, both, power, number) \
  template <int kCount> KACHEL_DEVICE void name(u32* to, const u8* from, float less = 0) { \
    kachel_spread<kCount>(to, from, power * 0x10001u); \
    for (int i = 0; i < (kCount ? kCount / 2 : 1); ++i) to[i] = subtract(to[i], both(less + number)); \
  }
KACHEL_UNPACK(kachel_unpack_u4_f16, kachel_packed_sub_f16, kachel_both_f16, 0x6400u, 1024.0f)
KACHEL_UNPACK(kachel_unpack_i4_f16, kachel_packed_sub_f16, kachel_both_f16, 0x6408u, 1032.0f)
KACHEL_UNPACK(kachel_unpack_u4_bf16, kachel_packed_sub_bf16, kachel_both_bf16, 0x4300u, 128.0f)
KACHEL_UNPACK(kachel_unpack_i4_bf16, kachel_packed_sub_bf16, kachel_both_bf16, 0x4308u, 136.0f)
// Of words, their lowest bits, kMask of which count: the highest one is turned round where it is a sign.
#define KACHEL_UNPACK_WORDS(name, subtract, both, power, number, has_sign) \
  template <int kCount, u32 kMask> KACHEL_DEVICE void name(u32* to, const u32* from, float less = 0) { \
    const u32 top = has_sign ? (kMask + 1) / 2 : 0; \
    for (int i = 0; i < kCount / 2; ++i) to[i] = subtract((__byte_perm(from[2 * i], from[2 * i + 1], 0x5410) & kMask * 0x10001u) ^ (power + top) * 0x10001u, both(less + number + top)); \
  }
KACHEL_UNPACK_WORDS(kachel_words_f16_u32, kachel_packed_sub_f16, kachel_both_f16, 0x6400u, 1024.0f, false)
KACHEL_UNPACK_WORDS(kachel_words_f16_i32, kachel_packed_sub_f16, kachel_both_f16, 0x6400u, 1024.0f, true)
KACHEL_UNPACK_WORDS(kachel_words_bf16_u32, kachel_packed_sub_bf16, kachel_both_bf16, 0x4300u, 128.0f, false)
KACHEL_UNPACK_WORDS(kachel_words_bf16_i32, kachel_packed_sub_bf16, kachel_both_bf16, 0x4300u, 128.0f, true)
// Of 8 bits: in the mantissa of 1024; that of bf16 has 7, so that the eighth one makes 256 of 128, which is taken away.
KACHEL_DEVICE u32 kachel_byte_pair(const u8* from, u32 power) { return __byte_perm(*(const u16*)from, power, 0x4140); }
#define KACHEL_UNPACK_F16(name, flipped, number) \
  template <int kCount> KACHEL_DEVICE void name(u32* to, const u8* from, float less = 0) { \
    for (int i = 0; i < kCount / 2; ++i) to[i] = kachel_packed_sub_f16(kachel_byte_pair(from + 2 * i, 0x64u) ^ flipped, kachel_both_f16(less + number)); \
  }
#define KACHEL_UNPACK_BF16(name, flipped, number) \
  template <int kCount> KACHEL_DEVICE void name(u32* to, const u8* from, float less = 0) { \
    for (int i = 0; i < kCount / 2; ++i) { \
      const u32 pair = kachel_byte_pair(from + 2 * i, 0x43u); \
      to[i] = kachel_packed_sub_bf16(kachel_packed_sub_bf16(pair & 0xff7fff7fu, (pair & 0xff80ff80u) ^ flipped), kachel_both_bf16(less + number)); \
    } \
  }
KACHEL_UNPACK_F16(kachel_unpack_u8_f16, 0u, 1024.0f)
KACHEL_UNPACK_F16(kachel_unpack_i8_f16, 0x00800080u, 1152.0f)
KACHEL_UNPACK_BF16(kachel_unpack_u8_bf16, 0x00800080u, -128.0f)
KACHEL_UNPACK_BF16(kachel_unpack_i8_bf16, 0u, 0.0f)
#define KACHEL_UNPACK_F8(name, number, pair) \
  template <int kCount> KACHEL_DEVICE void name(u32* to, const u8* from) { \
    for (int i = 0; i < kCount / 2; ++i) asm(pair " %0, %1, %2;" : "=r"(to[i]) : "f"(number(from[2 * i + 1])), "f"(number(from[2 * i]))); \
  }
KACHEL_UNPACK_F8(kachel_unpack_f8e4m3_f16, kachel_from_f8e4m3, "cvt.rn.f16x2.f32")
KACHEL_UNPACK_F8(kachel_unpack_f8e4m3_bf16, kachel_from_f8e4m3, "cvt.rn.bf16x2.f32")
KACHEL_UNPACK_F8(kachel_unpack_f8e5m2_f16, kachel_from_f8e5m2, "cvt.rn.f16x2.f32")
KACHEL_UNPACK_F8(kachel_unpack_f8e5m2_bf16, kachel_from_f8e5m2, "cvt.rn.bf16x2.f32")
)cuda";

}  // namespace kachel::lowering
