// Prepared loops, see expand_bulk.cc.
#include <algorithm>

#include "lowering/passes/bulk_consumer.h"
#include "lowering/passes/simplify.h"
#include "lowering/planted.h"

namespace kachel::lowering {

using ir::ExprRef;
using ir::Op;
using Kind = LoopIntrinsic::Kind;

void BulkConsumer::prepare(const Prepared& form, LoopBlock* out) {
  const Shares rings = shares(form.work, nullptr, form.products);
  // The work may leave some of an operand as it was.
  for (const ir::BufferRef& operand : form.operands) {
    const LoopBuffer& exact = further_.exact(operand);
    for (int64_t i = 0; i < exact.elements; ++i)
      out->push_back({LoopStore{exact.buffer, int32(i), ir::make_load(operand, {int32(i)})}});
  }
  take_turn(true, out);
  LoopBlock head;
  const PhaseState first = begin(&head);
  for (const Rings* part : {&rings.others, &rings.first}) wait(*part, first, &head);
  const LoopBlock work = exactly(form, form.work);
  synchronised_(substituted(work, {{node_.var.get(), node_.begin}}), &head);
  release(rings.first, first.stage, &head);
  end_phase(bulk_.consumer, first, node_.depth, &head);
  out->push_back({LoopIf{runs(), std::move(head), {}}});

  LoopFor loop{node_.var, plus(node_.begin, int64(1)), node_.end, false, false, {}};
  const PhaseState state = begin(&loop.body), before = previous(state, &loop.body);
  wait(rings.second, before, &loop.body);
  synchronised_(rounded(form), &loop.body);
  take_turn(false, &loop.body);
  synchronised_(of_before(form.products, before.stage, ir::make_var(node_.var)), &loop.body);
  batches_.commit(&loop.body);
  pass_turn(false, &loop.body);
  for (const Rings* part : {&rings.others, &rings.first}) wait(*part, state, &loop.body);
  synchronised_(work, &loop.body);
  release(rings.first, state.stage, &loop.body);
  loop.body.push_back(marker(Kind::kInOrder));
  batches_.settle(&loop.body);
  for (const Rings* part : {&rings.others, &rings.second}) release(*part, before.stage, &loop.body);
  end_phase(bulk_.consumer, state, node_.depth, &loop.body);
  out->push_back({std::move(loop)});

  LoopBlock tail;
  const PhaseState last = this->last(&tail);
  wait(rings.second, last, &tail);
  synchronised_(rounded(form), &tail);
  synchronised_(of_before(form.products, last.stage, node_.end), &tail);
  batches_.settle(&tail);
  for (const Rings* part : {&rings.others, &rings.second}) release(*part, last.stage, &tail);
  out->push_back({LoopIf{runs(), std::move(tail), {}}});
  pass_turn(true, out);
}

LoopBlock BulkConsumer::rounded(const Prepared& form) {
  LoopBlock out;
  for (const ir::BufferRef& operand : form.operands) {
    const LoopBuffer& exact = further_.exact(operand);
    for (int64_t at = planted(Planted::kOperandNotRounded) ? 2 : 0; at < exact.elements; at += 2) {
      LoopIntrinsic pair{Kind::kConvertPair, {}, nullptr};
      pair.type = operand->type.dtype;
      pair.operands = {{operand, int32(at), 2, true}, {exact.buffer, int32(at), 2, false}};
      out.push_back({std::move(pair)});
    }
  }
  return out;
}

LoopBlock BulkConsumer::exactly(const Prepared& form, const LoopBlock& work) {
  LoopBlock out;
  for (const LoopStmt& stmt : work) {
    LoopStmt copy = stmt;
    if (auto* loop = std::get_if<LoopFor>(&copy.node)) loop->body = exactly(form, loop->body);
    if (auto* threads = std::get_if<LoopThreads>(&copy.node)) threads->body = exactly(form, threads->body);
    if (auto* branch = std::get_if<LoopIf>(&copy.node)) {
      branch->then_body = exactly(form, branch->then_body);
      branch->else_body = exactly(form, branch->else_body);
    }
    auto made = [&](const ir::BufferRef& buffer) {
      return std::find(form.operands.begin(), form.operands.end(), buffer) != form.operands.end();
    };
    if (auto* store = std::get_if<LoopStore>(&copy.node); store && made(store->buffer))
      store->buffer = further_.exact(store->buffer).buffer;
    const auto* pair = std::get_if<LoopIntrinsic>(&stmt.node);
    if (!pair || pair->operands.empty() || !made(pair->operands[0].buffer)) {
      out.push_back(std::move(copy));
      continue;
    }
    auto number = [&](size_t operand, int64_t i) {
      const ExprRef& first = pair->operands[operand].index;
      return i ? ir::make_typed(Op::kAdd, {first, ir::make_int(i, first->type)}) : first;
    };
    for (int64_t i = 0; i < 2; ++i)
      out.push_back({LoopStore{further_.exact(pair->operands[0].buffer).buffer, number(0, i),
                               ir::make_load(pair->operands[1].buffer, {number(1, i)})}});
  }
  return out;
}

}  // namespace kachel::lowering
