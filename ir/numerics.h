// The numerics of GRAMMAR.md, bit for bit: encoding, rounding and conversion of all element types, and the arithmetic
// that is exactly defined. Constant folding, host evaluation and the interpreter share it.
//
// Integers are held in int64_t, sign- or zero-extended from their type; u64 as its bit pattern; bool as 0 or 1.
// Floats are held in double, which holds every value of every float type.
#pragma once
#include <cstdint>
#include <span>

#include "ir/expr.h"

namespace kachel::ir {

// Products of 8-bit floats that a gemm may add in less than f32 before their sum is added in f32.
inline constexpr int64_t kF8Run = 128;

// The value of `type` nearest to `value`, ties to even. f32, f16 and bf16 overflow to infinity, the 8-bit types
// saturate to their largest finite value, infinities included; NaN stays NaN. REQUIRES: is_float(type).
double round_float(DType type, double value);
// Bits of round_float(type, value) and back. NaN is encoded as the positive quiet NaN. REQUIRES: is_float(type).
uint32_t encode_float(DType type, double value);
double decode_float(DType type, uint32_t bits);
double largest_finite(DType type);
// Distance between neighbours of `type` at |value|; at least the smallest subnormal. REQUIRES: is_float(type).
double ulp_at(DType type, double value);

// Keeps the low bits of `value`; Bool: value != 0. REQUIRES: not is_float(type).
int64_t wrap_integer(DType type, int64_t value);
// Truncates towards zero and saturates; NaN gives 0; Bool: value != 0.
int64_t float_to_integer(DType type, double value);
// Whether it is a power of two, of either sign, whose products, quotients and inverse lose nothing unless they are far
// out.
bool is_power_of_two(double value);
// The nearest f32.
double integer_to_float(DType from, int64_t value);

// Element `index` (in elements) of memory in storage format. Floats as double in `f`, others in `i`.
struct Scalar {
  DType type = DType::I64;  // a compute type
  int64_t i = 0;
  double f = 0;
};
Scalar load_element(DType type, const void* data, int64_t index);
// Converts from the compute type of `value` and writes; the other nibble of a 4-bit pair keeps its value.
void store_element(DType type, void* data, int64_t index, const Scalar& value);

// The one conversion table of casts, stores and tile copies: the value is rounded to `to` and held in its compute type.
Scalar convert(const Scalar& value, DType to);

// Of I32, U32, I64 or U64, as Scalar::i holds it.
int64_t least_integer(DType type);
int64_t greatest_integer(DType type);

// `op` on integers of compute type `type`, or on bools: comparisons and logic give 0 or 1. Missing operands are 0.
int64_t integer_op(Op op, DType type, int64_t a, int64_t b = 0, int64_t c = 0);
// `op` on f32. Exactly defined operations are rounded once; the others are the float64 result rounded to f32.
// REQUIRES: not a comparison.
double float_op(Op op, double a, double b = 0, double c = 0);
bool float_compare(Op op, double a, double b);
// True where GRAMMAR.md leaves no room: not for exp, log, tanh, sin and the like, and not for the approx variants.
bool is_exact(Op op);

// What joins two values of a reduction. REQUIRES: not is_arg(op).
Op operation_of(ReduceOp op);

// Typed operands as make_typed() requires them; kSelect included.
Scalar apply_op(Op op, std::span<const Scalar> args);

}  // namespace kachel::ir
