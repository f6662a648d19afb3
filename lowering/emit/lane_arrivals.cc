#include "lowering/emit/lane_arrivals.h"

#include <algorithm>

#include "lowering/loop_ir/loop_build.h"
#include "lowering/machine/machine.h"

namespace kachel::lowering {

int64_t lane_arrivals(const LoopKernel& kernel, const LoopPhases& phases) {
  using Kind = LoopIntrinsic::Kind;
  int64_t alone = 0, lanes = 1;  // alone: those of `arrivals` that a thread makes for itself
  const auto note = [&](const LoopStmt& stmt) {
    const auto* node = std::get_if<LoopIntrinsic>(&stmt.node);
    if (!node || node->operands.empty() || node->operands[0].buffer != phases.buffer) return;
    if (node->kind == Kind::kPhaseExpect) alone = std::max<int64_t>(alone, 1);
    if (node->kind == Kind::kPhaseCopied) alone = phases.arrivals;
    if (node->kind == Kind::kPhaseArrive) lanes = node->by_group ? kGroupThreads : 32;
  };
  for_each_statement(kernel.body, note);
  for_each_statement(kernel.producer, note);
  return alone + (phases.arrivals - alone) * lanes;
}

}  // namespace kachel::lowering
