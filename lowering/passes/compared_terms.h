// Comparisons whose sides are parted by the unrolled loops that they change with,
//
//   for r in 0 .. 8 unroll { .. n * 64 + j + r <= row .. }     for r in 0 .. 8 unroll { .. r <= row - n * 64 - j .. }
//
// so that what is compared with is one number for all r. Private to passes/.
#pragma once
#include "lowering/passes/loop_terms.h"

namespace kachel::lowering {

// place < limit with what the place changes with on one side, where no difference wraps; else the comparison itself.
ir::ExprRef compared(const ir::ExprRef& condition, const LoopTerms& terms, const Ranges& ranges);
// Any comparison, with terms on both sides, and in 64 bits. One that reads memory stays as it is.
ir::ExprRef parted(const ir::ExprRef& condition, const LoopTerms& terms, const Ranges& ranges);

}  // namespace kachel::lowering
