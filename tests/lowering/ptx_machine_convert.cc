// Conversions of numbers.
#include <cmath>

#include "ir/numerics.h"
#include "tests/lowering/ptx_machine_functions.h"

namespace kachel::lowering {
namespace {

using ir::DType;

template <class To, class From>
uint64_t whole(PtxOperands x) {
  return to_ptx(static_cast<To>(from_ptx<From>(x[0])));
}

template <class From>
void define_from(PtxFunctions* all, const std::string& from) {
  (*all)["cvt.u8." + from] = whole<uint8_t, From>;
  (*all)["cvt.s8." + from] = whole<int8_t, From>;
  (*all)["cvt.u16." + from] = whole<uint16_t, From>;
  (*all)["cvt.s16." + from] = whole<int16_t, From>;
  (*all)["cvt.u32." + from] = whole<uint32_t, From>;
  (*all)["cvt.s32." + from] = whole<int32_t, From>;
  (*all)["cvt.u64." + from] = whole<uint64_t, From>;
  (*all)["cvt.s64." + from] = whole<int64_t, From>;
  (*all)["cvt.rn.f32." + from] = [](PtxOperands x) { return to_ptx(static_cast<float>(from_ptx<From>(x[0]))); };
}

// Of 64 bits, what is no number becomes the highest bit.
template <DType kTo, class Round>
void define_truncation(PtxFunctions* all, const std::string& name, Round) {
  (*all)[name] = [](PtxOperands x) -> uint64_t {
    const auto value = from_ptx<float>(x[0]);
    if (ir::bits(kTo) == 64 && std::isnan(value)) return uint64_t{1} << 63;
    return static_cast<uint64_t>(ir::float_to_integer(kTo, double{Round{}(value)}));
  };
}

template <class Round>
void define_rounding(PtxFunctions* all, const std::string& how, Round round) {
  define<float>(all, "cvt." + how + ".f32.f32", round);
  define_truncation<DType::I32>(all, "cvt." + how + ".s32.f32", round);
  define_truncation<DType::U32>(all, "cvt." + how + ".u32.f32", round);
  define_truncation<DType::I64>(all, "cvt." + how + ".s64.f32", round);
  define_truncation<DType::U64>(all, "cvt." + how + ".u64.f32", round);
}

template <DType kType>
uint64_t encoded(uint64_t bits) {
  const auto value = from_ptx<float>(bits);
  if (ir::bits(kType) == 16 && std::isnan(value)) return 0x7fff;
  return ir::encode_float(kType, double{value});
}

// The first operand becomes the upper half of a pair.
template <DType kType>
uint64_t pair(PtxOperands x) {
  return encoded<kType>(x[0]) << ir::bits(kType) | encoded<kType>(x[1]);
}

template <DType kType>
void define_half(PtxFunctions* all, const std::string& type) {
  (*all)["cvt.rn." + type + ".f32"] = [](PtxOperands x) { return encoded<kType>(x[0]); };
  (*all)["cvt.rn." + type + "x2.f32"] = pair<kType>;
  (*all)["cvt.f32." + type] = [](PtxOperands x) { return to_ptx(narrow_float(kType, static_cast<uint16_t>(x[0]))); };
}

template <DType kType>
void define_byte(PtxFunctions* all, const std::string& type) {
  (*all)["cvt.rn.satfinite." + type + "x2.f32"] = pair<kType>;
  (*all)["cvt.rn.f16x2." + type + "x2"] = [](PtxOperands x) {
    auto half = [&](int shift) {
      return uint64_t{ir::encode_float(DType::F16, double{narrow_float(kType, static_cast<uint8_t>(x[0] >> shift))})};
    };
    return half(0) | half(8) << 16;
  };
}

// Ties away from zero, 10 bits of mantissa.
uint64_t to_tf32(PtxOperands x) {
  const auto bits = static_cast<uint32_t>(x[0]);
  return std::isfinite(from_ptx<float>(bits)) ? (bits + 0x1000u) & ~0x1FFFu : bits;
}

template <DType kType>
std::vector<float> decoded() {
  std::vector<float> out;
  for (uint32_t bits = 0; bits < 1u << ir::bits(kType); ++bits)
    out.push_back(static_cast<float>(ir::decode_float(kType, bits)));
  return out;
}

}  // namespace

float narrow_float(DType type, uint32_t bits) {
  static const std::vector<float> f16 = decoded<DType::F16>(), e4m3 = decoded<DType::F8E4M3>(),
                                  e5m2 = decoded<DType::F8E5M2>();
  if (type == DType::BF16) return std::bit_cast<float>(bits << 16);
  return type == DType::F16 ? f16[bits & 0xffff] : (type == DType::F8E4M3 ? e4m3 : e5m2)[bits & 0xff];
}

void define_conversions(PtxFunctions* all) {
  define_from<uint8_t>(all, "u8");
  define_from<int8_t>(all, "s8");
  define_from<uint16_t>(all, "u16");
  define_from<int16_t>(all, "s16");
  define_from<uint32_t>(all, "u32");
  define_from<int32_t>(all, "s32");
  define_from<uint64_t>(all, "u64");
  define_from<int64_t>(all, "s64");
  define_rounding(all, "rzi", [](float a) { return std::trunc(a); });
  define_rounding(all, "rni", [](float a) { return std::nearbyint(a); });
  define_rounding(all, "rmi", [](float a) { return std::floor(a); });
  define_rounding(all, "rpi", [](float a) { return std::ceil(a); });
  define_half<DType::F16>(all, "f16");
  define_half<DType::BF16>(all, "bf16");
  define_byte<DType::F8E4M3>(all, "e4m3");
  define_byte<DType::F8E5M2>(all, "e5m2");
  (*all)["cvt.rna.tf32.f32"] = to_tf32;
}

}  // namespace kachel::lowering
