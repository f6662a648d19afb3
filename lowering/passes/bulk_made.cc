// Loops that make operands in shared memory, see expand_bulk.cc.
#include "lowering/passes/bulk_consumer.h"
#include "lowering/passes/simplify.h"
#include "lowering/planted.h"

namespace kachel::lowering {

using ir::Op;
using Kind = LoopIntrinsic::Kind;

namespace {

bool is(const LoopStmt& stmt, Kind kind) {
  const auto* intrinsic = std::get_if<LoopIntrinsic>(&stmt.node);
  return intrinsic && intrinsic->kind == kind;
}

}  // namespace

void BulkConsumer::make(LoopBlock* out) {
  const Rings rings = all_rings();
  // As an iteration finds it: the products of the one before under way.
  LoopBlock before, body;
  synchronised_(node_.consume, &before);
  batches_.commit(&before);
  synchronised_(node_.consume, &body);
  batches_.commit(&body);
  batches_.pin(out);
  take_turn(true, out);
  LoopFor loop{node_.var, node_.begin, node_.end, false, false, {}};
  const PhaseState state = begin(&loop.body);
  wait(rings, state, &loop.body);
  // Behind the fence for what this iteration has made, which serves what the one before has read as well.
  bool over = false, released = false;
  const auto release_before = [&](bool fenced) {
    if (std::exchange(released, true)) return;
    LoopBlock stage;
    release(rings, previous(state.stage), &stage, fenced);
    loop.body.push_back(
        {LoopIf{ir::make_typed(Op::kLt, {node_.begin, ir::make_var(node_.var)}), std::move(stage), {}}});
  };
  if (early_) release_before(false);
  for (LoopStmt& stmt : body) {
    const bool fence = is(stmt, Kind::kProxyFence);
    if (over && !fence) release_before(false);
    over |= is(stmt, Kind::kGroupWait);
    loop.body.push_back(std::move(stmt));
    if (over && fence) release_before(true);
  }
  close(std::move(loop), rings, state, out);
}

}  // namespace kachel::lowering
