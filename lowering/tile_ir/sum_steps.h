// Tile IR to tile IR: a region of several steps of sums becomes a region for each,
//
//   parallel i { t = total[i] + r1[i]  s = squares[i] + r2[i]  total[i] = t  squares[i] = s }
//     ->   parallel i { total[i] = total[i] + r1[i] }   parallel i { squares[i] = squares[i] + r2[i] }
//
// where each takes up results of reductions and none reads what an earlier one has written. A loop can then carry each
// of them along in parts (deferred_sums.h).
#pragma once
#include "ir/kernel.h"

namespace kachel::lowering {

// REQUIRES: from hoist_reductions(). The result shares all buffers with `kernel`.
ir::Kernel sum_steps(const ir::Kernel& kernel);

}  // namespace kachel::lowering
