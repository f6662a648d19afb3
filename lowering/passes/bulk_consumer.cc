#include "lowering/passes/bulk_consumer.h"

#include <set>

#include "lowering/passes/simplify.h"
#include "lowering/planted.h"

namespace kachel::lowering {

using ir::ExprRef;
using ir::Op;
using Kind = LoopIntrinsic::Kind;

namespace {

constexpr uint64_t kThemselves = 0x8040201008040201;  // of LoopIntrinsic::peers: each block itself

bool reads(const LoopBlock& part, const LoopPipeline::Bulk::Ring& ring, bool but_products) {
  std::set<const ir::Buffer*> stages;
  for (const ir::BufferRef& buffer : ring.buffers) stages.insert(buffer.get());
  bool found = false;
  for_each_statement(part, [&](const LoopStmt& stmt) {
    if (but_products && group_mma(stmt)) return;
    for_each_access(stmt,
                    [&](const ir::BufferRef& buffer, bool write) { found |= !write && stages.count(buffer.get()); });
  });
  return found;
}

}  // namespace

LoopBlock on_registers(const LoopBlock& block, const ir::BufferRef& from, const ir::BufferRef& to) {
  const auto moved = [&](const ExprRef& expr) {
    return ir::rewrite(expr, [&](const ExprRef& part) {
      return part->kind == ir::ExprKind::kLoad && part->buffer == from ? ir::make_load(to, part->args) : part;
    });
  };
  LoopBlock out = block;
  for (LoopStmt& stmt : out) {
    if (auto* loop = std::get_if<LoopFor>(&stmt.node)) {
      loop->begin = moved(loop->begin), loop->end = moved(loop->end);
      loop->body = on_registers(loop->body, from, to);
    }
    if (auto* threads = std::get_if<LoopThreads>(&stmt.node)) threads->body = on_registers(threads->body, from, to);
    if (auto* branch = std::get_if<LoopIf>(&stmt.node)) {
      branch->condition = moved(branch->condition);
      branch->then_body = on_registers(branch->then_body, from, to);
      branch->else_body = on_registers(branch->else_body, from, to);
    }
    if (auto* let = std::get_if<LoopLet>(&stmt.node)) let->value = moved(let->value);
    if (auto* store = std::get_if<LoopStore>(&stmt.node)) {
      if (store->buffer == from) store->buffer = to;
      store->index = moved(store->index), store->value = moved(store->value);
    }
    if (auto* intrinsic = std::get_if<LoopIntrinsic>(&stmt.node))
      for (LoopIntrinsic::Operand& operand : intrinsic->operands) {
        if (operand.buffer == from) operand.buffer = to;
        operand.index = moved(operand.index);
      }
  }
  return out;
}

BulkConsumer::BulkConsumer(const LoopPipeline& node, const Ranges& ranges, GroupBatches* batches,
                           const Synchronised& synchronised, FurtherRegisters* further)
    : node_(node),
      bulk_(*node.bulk),
      ranges_(ranges),
      batches_(*batches),
      synchronised_(synchronised),
      further_(*further),
      early_(planted(Planted::kPhaseEarlyRelease)) {}

BulkConsumer::Shares BulkConsumer::shares(const LoopBlock& first, const LoopBlock* between,
                                          const LoopBlock& second) const {
  Shares shares;
  for (const Ring& ring : bulk_.rings) {
    const bool in_first = reads(first, ring, false), in_second = reads(second, ring, false);
    const bool both = in_first == in_second || (between && reads(*between, ring, false));
    (both ? shares.others : in_first ? shares.first : shares.second).push_back(&ring);
  }
  return shares;
}

LoopBlock BulkConsumer::of_before(const LoopBlock& part, const ExprRef& stage, const ExprRef& next) const {
  return substituted(part, {{node_.from.get(), stage}, {node_.var.get(), ir::make_typed(Op::kSub, {next, int64(1)})}});
}

PhaseState BulkConsumer::begin(LoopBlock* to) const {
  return begin_phase(bulk_.consumer, node_.from, to);
}

void BulkConsumer::wait(const Rings& rings, const PhaseState& state, LoopBlock* to) const {
  for (const Ring* ring : rings) {
    to->push_back(phase_operation(Kind::kPhaseWait, ring->full, state.stage, 0, state.parity));
    // cp.async has written another way than wgmma reads; who stores has fenced.
    std::set<const ir::Buffer*> stages;
    for (const ir::BufferRef& buffer : ring->buffers) stages.insert(buffer.get());
    if (ring->by_threads && !ring->stored && batches_.reads_any(stages) && !planted(Planted::kCopiesNotFenced))
      to->push_back(marker(Kind::kProxyFence));
  }
}

void BulkConsumer::take_turn(bool whole, LoopBlock* to) const {
  if (!bulk_.turns || bulk_.turns->whole != whole || planted(Planted::kTurnNotTaken)) return;
  const ExprRef now = named("turn", ir::make_load(bulk_.turns->parity, {int32(0)}), to);
  const ExprRef after = ir::make_typed(Op::kBitXor, {now, int32(1)});
  const ExprRef first = ir::make_typed(Op::kEq, {bulk_.turns->group, int32(0)});
  to->push_back(phase_operation(Kind::kPhaseWait, bulk_.turns->over, bulk_.turns->group, 0,
                                ir::make_typed(Op::kSelect, {first, after, now})));
  to->push_back({LoopStore{bulk_.turns->parity, int32(0), after}});
}

void BulkConsumer::pass_turn(bool whole, LoopBlock* to) const {
  if (!bulk_.turns || bulk_.turns->whole != whole || planted(Planted::kTurnNotPassed)) return;
  const ExprRef last = ir::make_typed(Op::kEq, {bulk_.turns->group, int32(bulk_.turns->groups - 1)});
  const ExprRef next = ir::make_typed(Op::kAdd, {bulk_.turns->group, int32(1)});
  to->push_back(
      phase_operation(Kind::kPhaseArrive, bulk_.turns->over, ir::make_typed(Op::kSelect, {last, int32(0), next})));
}

void BulkConsumer::release(const Rings& rings, const ExprRef& stage, LoopBlock* to, bool fenced) const {
  for (const Ring* ring : rings) {
    if (!fenced && reads(node_.consume, *ring, true) && !planted(Planted::kReleaseNotFenced))
      to->push_back(marker(Kind::kProxyFence));
    to->push_back(phase_operation(Kind::kPhaseArrive, ring->empty, stage));
    auto& arrive = std::get<LoopIntrinsic>(to->back().node);
    arrive.by_group = ring->by_group;
    arrive.peers = planted(Planted::kClusterNotTold) ? ring->peers & kThemselves : ring->peers;
  }
}

BulkConsumer::Rings BulkConsumer::all_rings() const {
  Rings rings;
  for (const Ring& ring : bulk_.rings) rings.push_back(&ring);
  return rings;
}

void BulkConsumer::close(LoopFor loop, const Rings& rings, const PhaseState& state, LoopBlock* out) {
  end_phase(bulk_.consumer, state, node_.depth, &loop.body);
  out->push_back({std::move(loop)});
  pass_turn(true, out);
  batches_.settle(out);
  LoopBlock rest;
  release(rings, last(&rest).stage, &rest);
  out->push_back({LoopIf{runs(), std::move(rest), {}}});
}

ExprRef BulkConsumer::runs() const {
  return ir::make_typed(Op::kLt, {node_.begin, node_.end});
}

ExprRef BulkConsumer::previous(const ExprRef& stage) const {
  return ir::make_typed(Op::kSelect, {ir::make_typed(Op::kEq, {stage, int32(0)}), int32(node_.depth - 1),
                                      ir::make_typed(Op::kSub, {stage, int32(1)})});
}

PhaseState BulkConsumer::previous(const PhaseState& state, LoopBlock* to) const {
  const ExprRef wraps = ir::make_typed(Op::kEq, {state.stage, int32(0)});
  const ExprRef other = ir::make_typed(Op::kBitXor, {state.parity, int32(1)});
  return {named("before", previous(state.stage), to),
          named("parity_before", ir::make_typed(Op::kSelect, {wraps, other, state.parity}), to)};
}

PhaseState BulkConsumer::last(LoopBlock* to) const {
  return previous({named("next", ir::make_load(bulk_.consumer.stage, {int32(0)}), to),
                   named("parity", ir::make_load(bulk_.consumer.parity, {int32(0)}), to)},
                  to);
}

}  // namespace kachel::lowering
