// Sums that a loop carries along: `l[i] = l[i] * f[i] + sum[j](...)`, which softmax has for its denominator. As long as
// nothing else in the loop wants them, each of the threads that share an l[i] may carry a part of it, since the step is
// linear, and the parts be added up once behind the loop and not in every iteration. Extremes, `m[i] = max(m[i],
// max[j](...))`, are carried alike. Steps may stand under conditions.
#pragma once
#include <set>
#include <vector>

#include "ir/kernel.h"

namespace kachel::lowering {

struct DeferredSum {
  const ir::ParallelStmt* reduction;  // of the loop: makes what an iteration adds, which only the step reads
  ir::BufferRef sum;                  // l
  ir::ReduceOp op;
};
// Those of a loop of the kernel. REQUIRES: from hoist_reductions().
std::vector<DeferredSum> deferred_sums(const ir::Kernel& kernel, const ir::ForStmt& loop);
// What makes them, of all its loops.
std::set<const ir::ParallelStmt*> deferred_reductions(const ir::Kernel& kernel);

}  // namespace kachel::lowering
