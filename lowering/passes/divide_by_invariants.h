// f32 quotients whose divisor does not change within a loop, on the CPU: by its reciprocal, which is worked out once.
// A vector of quotients takes the divider as long as ten multiplications. With r the reciprocal rounded to nearest,
//
//   q = a * r,  q' = fma(fma(-q, b, a), r, q)
//
// is a / b rounded to nearest, unless something on the way underflows or overflows. (Brisebarre, Muller and Raina,
// "Accelerating correctly rounded floating-point division when the divisor is known in advance", 2004.) Divisors far
// from 1 are scaled by a power of two, and where q' is NaN (infinities, zeros and NaN among the operands) q is right.
#pragma once
#include "lowering/loop_ir/loop_ir.h"

namespace kachel::lowering {

void divide_by_invariants(LoopKernel* kernel);

}  // namespace kachel::lowering
