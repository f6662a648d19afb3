// How the tables of functions are written. Private to the machine.
#pragma once
#include <bit>
#include <type_traits>

#include "tests/lowering/ptx_machine_program.h"

namespace kachel::lowering {

template <class T>
T from_ptx(uint64_t bits) {
  if constexpr (std::is_same_v<T, float>)
    return std::bit_cast<float>(static_cast<uint32_t>(bits));
  else
    return static_cast<T>(bits);
}
// Signed numbers are extended to the width of their register.
template <class T>
uint64_t to_ptx(T value) {
  if constexpr (std::is_same_v<T, float>)
    return std::bit_cast<uint32_t>(value);
  else
    return static_cast<uint64_t>(value);
}

// The number that bits of a float type narrower than f32 stand for.
float narrow_float(ir::DType type, uint32_t bits);

// result = op(operands), all of type T; comparisons have a bool.
template <class T, class Op>
void define(PtxFunctions* all, const std::string& name, Op) {
  (*all)[name] = [](PtxOperands x) -> uint64_t {
    if constexpr (std::is_invocable_v<Op, T>)
      return to_ptx(Op{}(from_ptx<T>(x[0])));
    else if constexpr (std::is_invocable_v<Op, T, T>)
      return to_ptx(Op{}(from_ptx<T>(x[0]), from_ptx<T>(x[1])));
    else
      return to_ptx(Op{}(from_ptx<T>(x[0]), from_ptx<T>(x[1]), from_ptx<T>(x[2])));
  };
}

// Comparisons that are false where there is no number.
template <class T>
void define_comparisons(PtxFunctions* all, const std::string& type) {
  define<T>(all, "setp.eq." + type, [](T a, T b) { return a == b; });
  define<T>(all, "setp.lt." + type, [](T a, T b) { return a < b; });
  define<T>(all, "setp.le." + type, [](T a, T b) { return a <= b; });
  define<T>(all, "setp.gt." + type, [](T a, T b) { return a > b; });
  define<T>(all, "setp.ge." + type, [](T a, T b) { return a >= b; });
}

void define_integers(PtxFunctions* all);
void define_bits(PtxFunctions* all);
void define_floats(PtxFunctions* all);
void define_conversions(PtxFunctions* all);

}  // namespace kachel::lowering
