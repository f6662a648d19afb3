// Skewed loops, see expand_bulk.cc.
#include "lowering/passes/bulk_consumer.h"
#include "lowering/passes/mask_free.h"
#include "lowering/passes/simplify.h"

namespace kachel::lowering {

using ir::ExprRef;
using ir::Op;

void BulkConsumer::skew(const Skew& skew, LoopBlock* out) {
  const Shares rings = shares(skew.first, &skew.work, skew.second);
  const Rings &first_only = rings.first, &second_only = rings.second, &others = rings.others;
  take_turn(true, out);
  LoopBlock head;
  const PhaseState first = begin(&head);
  for (const Rings* rings : {&others, &first_only}) wait(*rings, first, &head);
  // In one piece: a name that is known in the first iteration gives way in the work too.
  LoopBlock work = skew.first;
  work.insert(work.end(), skew.work.begin(), skew.work.end());
  synchronised_(substituted(work, {{node_.var.get(), node_.begin}}), &head);
  batches_.settle(&head);
  release(first_only, first.stage, &head);
  end_phase(bulk_.consumer, first, node_.depth, &head);
  out->push_back({LoopIf{runs(), std::move(head), {}}});

  const ExprRef second = plus(node_.begin, int64(1));
  const std::optional<MaskFree> parts =
      node_.compact ? std::nullopt : mask_free(skew.work, skew.first, node_.var, ranges_);
  // The branch stays where there are masks: where those and products share a basic block, registers do not suffice.
  ExprRef from = second, to = node_.end;
  if (parts && parts->begin) {
    from = apply(Op::kMin, node_.end, apply(Op::kMax, second, parts->begin));
    out->push_back({skewed_loop(skew, rings, skew.work, second, from)});
  }
  if (parts && parts->end) to = apply(Op::kMin, node_.end, parts->end);
  out->push_back({skewed_loop(skew, rings, parts ? parts->bare : skew.work, from, to)});
  if (parts && parts->end) out->push_back({skewed_loop(skew, rings, skew.work, apply(Op::kMax, from, to), node_.end)});

  LoopBlock tail;
  const PhaseState last = this->last(&tail);
  wait(second_only, last, &tail);
  synchronised_(of_before(skew.second, last.stage, node_.end), &tail);
  batches_.settle(&tail);
  for (const Rings* rings : {&others, &second_only}) release(*rings, last.stage, &tail);
  out->push_back({LoopIf{runs(), std::move(tail), {}}});
  pass_turn(true, out);
}

LoopFor BulkConsumer::skewed_loop(const Skew& skew, const Shares& rings, const LoopBlock& work, const ExprRef& begin,
                                  const ExprRef& end) {
  LoopFor loop{node_.var, begin, end, false, false, {}};
  const PhaseState state = begin_phase(bulk_.consumer, node_.from, &loop.body);
  for (const Rings* part : {&rings.others, &rings.first}) wait(*part, state, &loop.body);
  const PhaseState before = previous(state, &loop.body);
  wait(rings.second, before, &loop.body);
  take_turn(false, &loop.body);
  synchronised_(skew.first, &loop.body);
  batches_.commit(&loop.body);
  synchronised_(of_before(skew.second, before.stage, ir::make_var(node_.var)), &loop.body);
  batches_.commit(&loop.body);
  pass_turn(false, &loop.body);
  batches_.leave_one(&loop.body);
  release(rings.first, state.stage, &loop.body);
  auto release_before = [&] {
    for (const Rings* part : {&rings.others, &rings.second}) release(*part, before.stage, &loop.body);
  };
  if (early_) release_before();
  synchronised_(work, &loop.body);
  batches_.settle(&loop.body);
  if (!early_) release_before();
  end_phase(bulk_.consumer, state, node_.depth, &loop.body);
  return loop;
}

}  // namespace kachel::lowering
