// Quotients and remainders of 32 bits, on a GPU, whose divisor does not change within a serial loop: by a product of 64
// bits and two shifts, where a division takes some twenty instructions. For d of up to 2^31 and n below 2^31, with
//
//   s = ceil(log2 d),  m = ceil(2^(31+s) / d) < 2^32,   n / d = (n * m >> 31) >> s
//
// since m d - 2^(31+s) < d <= 2^s, so that what m is too large by adds less than 1 / d to the quotient. (Granlund and
// Montgomery, "Division by invariant integers using multiplication", 1994.) Both are worked out in front of the loop,
// which takes a division of 64 bits, so that a loop needs several quotients an iteration for it to pay. By 0 it is 0,
// as everywhere.
#pragma once
#include "lowering/loop_ir/loop_ir.h"

namespace kachel::lowering {

// REQUIRES: synchronise(), and that no pass behind this one needs to know how large quotients are.
void integer_quotients(LoopKernel* kernel);

}  // namespace kachel::lowering
