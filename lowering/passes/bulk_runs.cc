// Loops of runs, see expand_bulk.cc.
#include <utility>

#include "lowering/passes/bulk_consumer.h"
#include "lowering/passes/simplify.h"
#include "lowering/planted.h"

namespace kachel::lowering {

using ir::ExprRef;
using ir::Op;

namespace {

ExprRef less(const ExprRef& a, int64_t b) {
  return apply(Op::kSub, a, int64(b));
}

}  // namespace

BulkConsumer::AlternatingRuns::AlternatingRuns(BulkConsumer& consumer, const Run& form)
    : consumer_(consumer),
      form_(form),
      other_(consumer.further_.other(form.sums).buffer),
      rings_(consumer.all_rings()) {
  consumer_.batches_.note(consumer_.further_.other(form.sums));
}

LoopBlock BulkConsumer::AlternatingRuns::placed(const LoopBlock& part, const Issued& run) const {
  const bool alternates = run.odd && !planted(Planted::kRunsCollide);
  return substituted(alternates ? on_registers(part, form_.sums, other_) : part,
                     {{consumer_.node_.from.get(), run.stage}, {consumer_.node_.var.get(), run.iteration}});
}

void BulkConsumer::AlternatingRuns::issue(bool odd, const ExprRef& iteration, LoopBlock* out) {
  const LoopPipeline::Bulk::State& state = consumer_.bulk_.consumer;
  const PhaseState now{named("stage", ir::make_load(state.stage, {int32(0)}), out),
                       named("parity", ir::make_load(state.parity, {int32(0)}), out)};
  const Issued before = std::exchange(under_way_, {odd, now.stage, iteration});
  consumer_.wait(rings_, now, out);
  consumer_.synchronised_(placed(form_.products, under_way_), out);
  consumer_.batches_.commit(out);
  if (consumer_.early_) consumer_.release(rings_, now.stage, out);
  if (before.stage) {
    consumer_.batches_.leave_one(out);
    finish(before, out);
  }
  end_phase(state, now, consumer_.node_.depth, out);
}

void BulkConsumer::AlternatingRuns::finish(const Issued& run, LoopBlock* out) {
  if (!consumer_.early_) consumer_.release(rings_, run.stage, out);
  consumer_.synchronised_(placed(form_.work, run), out);
}

void BulkConsumer::AlternatingRuns::finish_last(LoopBlock* out) {
  consumer_.batches_.settle(out);
  finish(under_way_, out);
}

void BulkConsumer::AlternatingRuns::expand(LoopBlock* out) {
  const LoopPipeline& node = consumer_.node_;
  LoopBlock all;
  issue(false, node.begin, &all);
  const ExprRef second = plus(node.begin, int64(1));
  const ExprRef rest = named("rest", apply(Op::kSub, node.end, second), &all);
  const ir::VarRef var = std::make_shared<ir::Var>(*node.var);
  LoopFor loop{var, int64(0), apply(Op::kDiv, rest, int64(2)), false, false, {}};
  const ExprRef at = plus(second, times(ir::make_var(var), 2));
  const ExprRef before = consumer_.previous(ir::make_load(consumer_.bulk_.consumer.stage, {int32(0)}));
  under_way_ = {false, named("before", before, &loop.body), less(at, 1)};
  issue(true, at, &loop.body);
  issue(false, plus(at, int64(1)), &loop.body);
  all.push_back({std::move(loop)});

  const GroupBatches::UnderWay batches = consumer_.batches_.under_way();
  LoopIf odd{apply(Op::kEq, apply(Op::kMod, rest, int64(2)), int64(1)), {}, {}};
  under_way_ = {false, consumer_.last(&odd.then_body).stage, less(node.end, 2)};
  issue(true, less(node.end, 1), &odd.then_body);
  finish_last(&odd.then_body);
  consumer_.batches_.resume(batches);
  under_way_ = {false, consumer_.last(&odd.else_body).stage, less(node.end, 1)};
  finish_last(&odd.else_body);
  all.push_back({std::move(odd)});
  out->push_back({LoopIf{consumer_.runs(), std::move(all), {}}});
}

void BulkConsumer::alternate(const Run& form, LoopBlock* out) {
  take_turn(true, out);
  AlternatingRuns(*this, form).expand(out);
  pass_turn(true, out);
}

}  // namespace kachel::lowering
