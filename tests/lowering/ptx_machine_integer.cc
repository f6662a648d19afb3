// Integers, predicates and bits.
#include <algorithm>
#include <limits>

#include "tests/lowering/ptx_machine_functions.h"

namespace kachel::lowering {
namespace {

// Wherever it matters that a division is not allowed, its result is not used.
constexpr uint64_t kNoQuotient = 0xA5A5A5A5A5A5A5A5;

template <class T>
bool divides(T a, T b) {
  return b != 0 && !(std::is_signed_v<T> && a == std::numeric_limits<T>::min() && b == static_cast<T>(-1));
}

// What wraps is the same with and without a sign.
template <class U>
void define_wrapping(PtxFunctions* all, const std::string& type) {
  define<U>(all, "add." + type, [](U a, U b) { return static_cast<U>(a + b); });
  define<U>(all, "sub." + type, [](U a, U b) { return static_cast<U>(a - b); });
  define<U>(all, "mul.lo." + type, [](U a, U b) { return static_cast<U>(a * b); });
  define<U>(all, "mad.lo." + type, [](U a, U b, U c) { return static_cast<U>(a * b + c); });
  define<U>(all, "neg." + type, [](U a) { return static_cast<U>(0 - a); });
}

template <class T>
void define_ordered(PtxFunctions* all, const std::string& type) {
  define_comparisons<T>(all, type);
  define<T>(all, "setp.ne." + type, [](T a, T b) { return a != b; });
  define<T>(all, "min." + type, [](T a, T b) { return std::min(a, b); });
  define<T>(all, "max." + type, [](T a, T b) { return std::max(a, b); });
  define<T>(all, "div." + type, [](T a, T b) { return divides(a, b) ? static_cast<T>(a / b) : T(kNoQuotient); });
  define<T>(all, "rem." + type, [](T a, T b) { return divides(a, b) ? static_cast<T>(a % b) : T(kNoQuotient); });
}

template <class T>
void define_signed(PtxFunctions* all, const std::string& type) {
  using U = std::make_unsigned_t<T>;
  define<T>(all, "abs." + type, [](T a) { return a < 0 ? static_cast<T>(0 - static_cast<U>(a)) : a; });
}

// Amounts saturate.
template <class T>
void define_shift(PtxFunctions* all, const std::string& type) {
  (*all)["shr." + type] = [](PtxOperands x) {
    constexpr uint32_t most = 8 * sizeof(T) - 1;
    const auto amount = static_cast<uint32_t>(x[1]);
    const T filled = static_cast<T>(from_ptx<T>(x[0]) < 0 ? -1 : 0);
    return to_ptx(amount > most ? filled : static_cast<T>(from_ptx<T>(x[0]) >> amount));
  };
}

template <class U>
void define_plain(PtxFunctions* all, const std::string& type) {
  define<U>(all, "and." + type, [](U a, U b) { return static_cast<U>(a & b); });
  define<U>(all, "or." + type, [](U a, U b) { return static_cast<U>(a | b); });
  define<U>(all, "xor." + type, [](U a, U b) { return static_cast<U>(a ^ b); });
  define<U>(all, "not." + type, [](U a) { return static_cast<U>(~a); });
}

template <class U>
void define_untyped(PtxFunctions* all, const std::string& type) {
  define_plain<U>(all, type);
  define<U>(all, "setp.eq." + type, [](U a, U b) { return a == b; });
  define<U>(all, "setp.ne." + type, [](U a, U b) { return a != b; });
  define<U>(all, "popc." + type, [](U a) { return std::popcount(a); });
  define<U>(all, "clz." + type, [](U a) { return std::countl_zero(a); });
  (*all)["shl." + type] = [](PtxOperands x) {
    const auto amount = static_cast<uint32_t>(x[1]);
    return amount < 8 * sizeof(U) ? x[0] << amount : uint64_t{0};
  };
}

template <class Narrow, class Wide>
void define_wide(PtxFunctions* all, const std::string& type) {
  (*all)["mul.wide." + type] = [](PtxOperands x) {
    return static_cast<uint64_t>(Wide{from_ptx<Narrow>(x[0])} * Wide{from_ptx<Narrow>(x[1])});
  };
  (*all)["mad.wide." + type] = [](PtxOperands x) {
    return static_cast<uint64_t>(Wide{from_ptx<Narrow>(x[0])} * Wide{from_ptx<Narrow>(x[1])}) + x[2];
  };
}

}  // namespace

void define_integers(PtxFunctions* all) {
  for (const char* type : {"b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64", "f32"}) {
    (*all)[std::string("mov.") + type] = [](PtxOperands x) { return x[0]; };
    (*all)[std::string("selp.") + type] = [](PtxOperands x) { return x[2] & 1 ? x[0] : x[1]; };
  }
  define_wrapping<uint32_t>(all, "s32");
  define_wrapping<uint32_t>(all, "u32");
  define_wrapping<uint64_t>(all, "s64");
  define_wrapping<uint64_t>(all, "u64");
  (*all)["mapa.shared::cluster.u32"] = [](PtxOperands x) {
    return from_ptx<uint32_t>(x[0]) + (from_ptx<uint32_t>(x[1]) + 1) * kPtxClusterWindow;
  };
  (*all)["mul.hi.u32"] = [](PtxOperands x) {
    return uint64_t{from_ptx<uint32_t>(x[0])} * from_ptx<uint32_t>(x[1]) >> 32;
  };
  define_ordered<int32_t>(all, "s32");
  define_ordered<uint32_t>(all, "u32");
  define_ordered<int64_t>(all, "s64");
  define_ordered<uint64_t>(all, "u64");
  define_signed<int32_t>(all, "s32");
  define_signed<int64_t>(all, "s64");
  define_shift<int32_t>(all, "s32");
  define_shift<uint32_t>(all, "u32");
  define_shift<int64_t>(all, "s64");
  define_shift<uint64_t>(all, "u64");
  define_plain<uint64_t>(all, "pred");
  define_plain<uint16_t>(all, "b16");
  define_untyped<uint32_t>(all, "b32");
  define_untyped<uint64_t>(all, "b64");
  define_wide<int32_t, int64_t>(all, "s32");
  define_wide<uint32_t, uint64_t>(all, "u32");
}

}  // namespace kachel::lowering
