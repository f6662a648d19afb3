// A pipeline of depth D becomes a prologue that fills D - 1 stages and a loop whose iteration waits for its stage,
// passes a barrier, starts the copies of the iteration D - 1 ahead and consumes. The barrier makes the copies of all
// threads visible to all, and it separates the reads of the stage that was consumed last from the copies into it, which
// are started after it. So within an iteration the buffers of the pipeline need no further barrier: the copies go to
// a stage that nothing reads.
//
// Where consuming is nothing but wgmma, which runs by itself, and there are three stages or more, one batch is left
// under way: an iteration waits for its stage, passes the barrier, issues its products, starts copies D - 2 ahead and
// then waits for the batch before its own. The stage that those copies fill was read by the batch before that one,
// which every thread had waited for when it came to the barrier.
#include "lowering/passes/expand_pipeline.h"

#include "lowering/passes/product_forms.h"
#include "lowering/passes/simplify.h"
#include "lowering/planted.h"

namespace kachel::lowering {

using ir::DType;
using ir::ExprRef;
using ir::Op;
using Kind = LoopIntrinsic::Kind;

bool overlaps(const LoopPipeline& node) {
  return node.depth > 2 && only_products(node.consume);
}

LoopBlock consumed(const LoopPipeline& node, GroupBatches* batches, const Synchronised& synchronised) {
  LoopBlock body;
  synchronised(node.consume, &body);
  if (overlaps(node))
    batches->commit(&body);
  else
    batches->settle(&body);
  return body;
}

void expand_async(const LoopPipeline& node, GroupBatches* batches, const Synchronised& synchronised, bool fenced,
                  LoopBlock* out) {
  const bool overlapped = overlaps(node);
  LoopBlock body = consumed(node, batches, synchronised);
  auto local = [](const char* name, DType type) {
    return std::make_shared<ir::Var>(ir::Var{ir::VarKind::kLoop, name, {type, nullptr}, {}});
  };
  LoopFor loop{node.var, node.begin, node.end, false, false, {}};
  auto fill = [&](const ir::ExprRef& ahead, const ir::ExprRef& stage, LoopBlock* to) {
    to->push_back({LoopLet{node.ahead, ahead}});
    LoopBlock produce;
    produce.push_back({LoopLet{node.into, ir::make_cast({DType::I32, nullptr}, stage)}});
    produce.insert(produce.end(), node.produce.begin(), node.produce.end());
    to->push_back({LoopIf{ir::make_typed(Op::kLt, {ir::make_var(node.ahead), node.end}), std::move(produce), {}}});
    if (to != &loop.body || !planted(Planted::kDroppedCommit)) to->push_back(marker(Kind::kAsyncCommit));
  };
  const int64_t lead = node.depth - (overlapped && !planted(Planted::kGroupEarlyCopy) ? 2 : 1);
  const ir::VarRef stage = local("stage", DType::I64);
  LoopFor prologue{stage, int64(0), int64(lead - (planted(Planted::kShortPrologue) ? 1 : 0)), true, false, {}};
  fill(ir::make_typed(Op::kAdd, {node.begin, ir::make_var(stage)}), ir::make_var(stage), &prologue.body);
  out->push_back({std::move(prologue)});
  if (overlapped) batches->pin(out);

  auto modulo = [&](const ir::ExprRef& value) { return ir::make_typed(Op::kMod, {value, int64(node.depth)}); };
  const ir::ExprRef done = ir::make_typed(Op::kSub, {ir::make_var(node.var), node.begin});
  if (planted(Planted::kEarlyBarrier)) loop.body.push_back({LoopBarrier{}});
  loop.body.push_back(marker(Kind::kAsyncWait, planted(Planted::kShortWait) ? lead : lead - 1));
  if (fenced) loop.body.push_back(marker(Kind::kProxyFence));
  if (!planted(Planted::kDroppedBarrier) && !planted(Planted::kEarlyBarrier)) loop.body.push_back({LoopBarrier{}});
  auto run_ahead = [&] {
    fill(ir::make_typed(Op::kAdd, {ir::make_var(node.var), int64(lead)}),
         modulo(ir::make_typed(Op::kAdd, {done, int64(planted(Planted::kWrongStage) ? 0 : lead)})), &loop.body);
  };
  if (!overlapped) run_ahead();
  loop.body.push_back({LoopLet{node.from, ir::make_cast({DType::I32, nullptr}, modulo(done))}});
  for (LoopStmt& stmt : body) loop.body.push_back(std::move(stmt));
  if (overlapped) {
    run_ahead();
    batches->leave_one(&loop.body);
  }
  out->push_back({std::move(loop)});
  out->push_back(marker(Kind::kAsyncWait));
  batches->settle(out);
}

}  // namespace kachel::lowering
