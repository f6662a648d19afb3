// What a pipelined loop copies with another padding than zero,
//
//   x = X[r, k*BK +: BK] pad -inf   parallel j < BK { ... x[j] ... }
//     ->   x = X[r, k*BK +: BK]     parallel j < BK { ... (k*BK + j < K ? x[j] : -inf) ... }
//
// is padded by the regions that read it, once each, since what copies ahead writes zeros; whole tiles have no padding
// (unswitch.h).
#pragma once
#include "ir/kernel.h"

namespace kachel::lowering {

// REQUIRES: concrete.
ir::Kernel padded_reads(const ir::Kernel& kernel);

}  // namespace kachel::lowering
