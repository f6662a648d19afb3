// A pipeline of depth D becomes a prologue that fills D - 1 stages and a loop whose iteration waits for its stage,
// passes a barrier, starts the copies of the iteration D - 1 ahead and consumes. The barrier makes the copies of all
// threads visible to all, and it separates the reads of the stage that was consumed last from the copies into it, which
// are started after it. So within an iteration the buffers of the pipeline need no further barrier: the copies go to
// a stage that nothing reads.
//
// Where consuming is nothing but wgmma, which runs by itself, and there are three stages or more, one batch is left
// under way: an iteration waits for its stage, passes the barrier, issues its products, starts copies D - 2 ahead and then
// waits for the batch before its own. The stage that those copies fill was read by the batch before that one, which every
// thread had waited for when it came to the barrier.
//
// With the copy engine an iteration waits until its stage is full and releases it when nobody reads it any more. Three
// forms, by what consuming is:
//   products alone    as above: the next iteration releases the stage
//   skewed            products, work on their result, products with that work's outcome: an iteration issues its first
//                     products, then the second ones of the iteration before, and does its work while those run. The first
//                     iteration's first half stands in front of the loop, the last one's second half behind it
//   plain             what is issued in an iteration ends in it
//
// Where threads themselves read a stage (ldmatrix, loads), a fence stands in front of its release. Arriving at a barrier
// orders them with each other, not with the copy engine, whose writes come another way: on a loaded SM it has overwritten a
// stage that a load was still waiting to read. Source: PTX ISA, "Proxies"; the products of wgmma are waited for instead.
#include "lowering/expand_pipeline.h"

#include <set>

#include "lowering/phases.h"
#include "lowering/planted.h"
#include "lowering/simplify.h"

namespace kachel::lowering {

using ir::DType;
using ir::ExprRef;
using ir::Op;
using Kind = LoopIntrinsic::Kind;

namespace {

// A body of nothing but wgmma on accumulators that nothing else in it touches.
bool only_products(const LoopBlock& body) {
  bool products = false;
  for (const LoopStmt& stmt : body) {
    const LoopIntrinsic* mma = group_mma(stmt);
    if (!mma && !is_inert(stmt)) return false;
    if (mma && mma->operands[1].buffer->scope == ir::Scope::kRegister) return false;
    products |= mma != nullptr;
  }
  return products;
}

// Whether an iteration may leave its batch to the next one.
bool overlaps(const LoopPipeline& node) {
  return node.depth > 2 && only_products(node.consume);
}
LoopBlock consume(const LoopPipeline& node, GroupBatches* batches, const Synchronised& synchronised) {
  LoopBlock body;
  synchronised(node.consume, &body);
  if (overlaps(node))
    batches->commit(&body);
  else
    batches->settle(&body);
  return body;
}

}  // namespace

void expand_async(const LoopPipeline& node, GroupBatches* batches, const Synchronised& synchronised, LoopBlock* out) {
  const bool overlapped = overlaps(node);
  LoopBlock body = consume(node, batches, synchronised);
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
  std::set<const ir::Buffer*> filled;
  for (const ir::BufferRef& buffer : node.buffers) filled.insert(buffer.get());
  if (batches->reads_any(filled)) loop.body.push_back(marker(Kind::kProxyFence));
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

namespace {

// A consume block of the form products, work, products.
struct Skew {
  LoopBlock first, work, second;
};
std::optional<Skew> skewed(const LoopPipeline& node) {
  const LoopBlock& body = node.consume;
  auto is_product = [](const LoopStmt& stmt) { return group_mma(stmt) != nullptr; };
  auto plain = [&](const LoopStmt& stmt) { return is_product(stmt) || is_inert(stmt); };
  size_t first = 0, last = body.size();
  while (first < body.size() && plain(body[first])) ++first;
  while (last > first && plain(body[last - 1])) --last;
  // Names in front of the second products may be of the work.
  Skew skew{{body.begin(), body.begin() + static_cast<std::ptrdiff_t>(first)},
            {body.begin() + static_cast<std::ptrdiff_t>(first), body.begin() + static_cast<std::ptrdiff_t>(last)},
            {body.begin() + static_cast<std::ptrdiff_t>(last), body.end()}};
  if (skew.work.empty() || issues(skew.work) || !issues(skew.first) || !issues(skew.second)) return std::nullopt;
  std::set<const ir::Buffer*> stages, sums;
  for (const ir::BufferRef& buffer : node.buffers) stages.insert(buffer.get());
  auto collect = [&](const LoopBlock& part, bool second) {
    for (const LoopStmt& stmt : part) {
      const LoopIntrinsic* mma = group_mma(stmt);
      if (!mma) continue;
      // The first products may not need what the second make, nor write what those read.
      if (second && (sums.count(mma->operands[0].buffer.get()) || sums.count(mma->operands[1].buffer.get()))) return false;
      if (!second) sums.insert(mma->operands[0].buffer.get());
      for (size_t i : {1, 2}) {
        const ir::Buffer* operand = mma->operands[i].buffer.get();
        if (operand->scope == ir::Scope::kRegister) {
          if (!second) return false;
        } else if (second && !stages.count(operand)) {
          return false;
        }
      }
    }
    return true;
  };
  if (!collect(skew.first, false) || !collect(skew.second, true)) return std::nullopt;
  // Names that the work makes are not those of its own iteration when the second products run.
  std::set<const ir::Var*> made;
  for (const LoopBlock* part : {&skew.first, &skew.work})
    for (const LoopStmt& stmt : *part)
      if (const auto* let = std::get_if<LoopLet>(&stmt.node)) made.insert(let->var.get());
  bool clean = true;
  for (const LoopStmt& stmt : skew.second)
    for_each_expr(stmt, [&](const ExprRef& expr) {
      ir::visit(expr, [&](const ExprRef& part) {
        if (part->kind == ir::ExprKind::kVar) clean &= !made.count(part->var.get());
        clean &= part->kind != ir::ExprKind::kLoad;
      });
    });
  if (!clean || node.depth < 2) return std::nullopt;
  return skew;
}

bool reads(const LoopBlock& part, const LoopPipeline::Bulk::Ring& ring, bool but_products) {
  std::set<const ir::Buffer*> stages;
  for (const ir::BufferRef& buffer : ring.buffers) stages.insert(buffer.get());
  bool found = false;
  for_each_statement(part, [&](const LoopStmt& stmt) {
    if (but_products && group_mma(stmt)) return;
    for_each_access(stmt, [&](const ir::BufferRef& buffer, bool write) { found |= !write && stages.count(buffer.get()); });
  });
  return found;
}

// The consumers' loop over the stages.
class BulkConsumer {
 public:
  BulkConsumer(const LoopPipeline& node, GroupBatches* batches, const Synchronised& synchronised)
      : node_(node), bulk_(*node.bulk), batches_(*batches), synchronised_(synchronised) {}

  void skew(const Skew& skew, LoopBlock* out) {
    // Those that the first products alone read, the second ones alone, and the rest.
    Rings first_only, second_only, others;
    for (const Ring& ring : bulk_.rings) {
      const bool first = reads(skew.first, ring, false), second = reads(skew.second, ring, false);
      const bool both = first == second || reads(skew.work, ring, false);
      (both ? others : first ? first_only : second_only).push_back(&ring);
    }
    take_turn(true, out);
    LoopBlock head;
    const PhaseState first = begin(&head);
    for (const Rings* rings : {&others, &first_only}) wait(*rings, first, &head);
    for (const LoopBlock* part : {&skew.first, &skew.work})
      synchronised_(substituted(*part, {{node_.var.get(), node_.begin}}), &head);
    batches_.settle(&head);
    release(first_only, first.stage, &head);
    end_phase(bulk_.consumer, first, node_.depth, &head);
    out->push_back({LoopIf{runs(), std::move(head), {}}});

    auto second = [&](const ExprRef& stage, const ExprRef& next) {
      return substituted(skew.second, {{node_.from.get(), stage},
                                       {node_.var.get(), ir::make_typed(Op::kSub, {next, int64(1)})}});
    };
    LoopFor loop{node_.var, plus(node_.begin, int64(1)), node_.end, false, false, {}};
    const PhaseState state = begin(&loop.body);
    for (const Rings* rings : {&others, &first_only}) wait(*rings, state, &loop.body);
    const PhaseState before = previous(state, &loop.body);
    wait(second_only, before, &loop.body);
    take_turn(false, &loop.body);
    synchronised_(skew.first, &loop.body);
    batches_.commit(&loop.body);
    synchronised_(second(before.stage, ir::make_var(node_.var)), &loop.body);
    batches_.commit(&loop.body);
    pass_turn(false, &loop.body);
    batches_.leave_one(&loop.body);
    release(first_only, state.stage, &loop.body);
    auto release_before = [&] {
      for (const Rings* rings : {&others, &second_only}) release(*rings, before.stage, &loop.body);
    };
    if (early_) release_before();
    synchronised_(skew.work, &loop.body);
    batches_.settle(&loop.body);
    if (!early_) release_before();
    end_phase(bulk_.consumer, state, node_.depth, &loop.body);
    out->push_back({std::move(loop)});

    LoopBlock tail;
    const PhaseState last = this->last(&tail);
    wait(second_only, last, &tail);
    synchronised_(second(last.stage, node_.end), &tail);
    batches_.settle(&tail);
    for (const Rings* rings : {&others, &second_only}) release(*rings, last.stage, &tail);
    out->push_back({LoopIf{runs(), std::move(tail), {}}});
    pass_turn(true, out);
  }

  void iterate(LoopBlock* out) {
    const bool overlapped = overlaps(node_), later = overlapped && !early_;
    Rings rings;
    for (const Ring& ring : bulk_.rings) rings.push_back(&ring);
    LoopBlock body = consume(node_, &batches_, synchronised_);
    if (overlapped) batches_.pin(out);
    take_turn(true, out);
    LoopFor loop{node_.var, node_.begin, node_.end, false, false, {}};
    const PhaseState state = begin(&loop.body);
    wait(rings, state, &loop.body);
    for (LoopStmt& stmt : body) loop.body.push_back(std::move(stmt));
    if (later) {
      batches_.leave_one(&loop.body);
      const ExprRef not_first = ir::make_typed(Op::kLt, {node_.begin, ir::make_var(node_.var)});
      LoopBlock before;
      release(rings, previous(state.stage), &before);
      loop.body.push_back({LoopIf{not_first, std::move(before), {}}});
    } else {
      release(rings, state.stage, &loop.body);
    }
    end_phase(bulk_.consumer, state, node_.depth, &loop.body);
    out->push_back({std::move(loop)});
    pass_turn(true, out);
    batches_.settle(out);
    if (!later) return;
    LoopBlock rest;
    release(rings, last(&rest).stage, &rest);
    out->push_back({LoopIf{runs(), std::move(rest), {}}});
  }

 private:
  using Ring = LoopPipeline::Bulk::Ring;
  using Rings = std::vector<const Ring*>;

  PhaseState begin(LoopBlock* to) const { return begin_phase(bulk_.consumer, node_.from, to); }
  void wait(const Rings& rings, const PhaseState& state, LoopBlock* to) const {
    for (const Ring* ring : rings)
      to->push_back(phase_operation(Kind::kPhaseWait, ring->full, state.stage, 0, state.parity));
  }
  // Groups issue their products in turn, so that the tensor cores work for one while the other works on its results. Where
  // a turn is a whole loop, it also keeps a team from waiting for a stage that is still to be filled for the one before:
  // a barrier of phases tells a phase from the next one only.
  // A phase of the first group's barrier is the last one's turn before; for the first turn there was none.
  void take_turn(bool whole, LoopBlock* to) const {
    if (!bulk_.turns || bulk_.turns->whole != whole || planted(Planted::kTurnNotTaken)) return;
    const ExprRef now = named("turn", ir::make_load(bulk_.turns->parity, {int32(0)}), to);
    const ExprRef after = ir::make_typed(Op::kBitXor, {now, int32(1)});
    const ExprRef first = ir::make_typed(Op::kEq, {bulk_.turns->group, int32(0)});
    to->push_back(phase_operation(Kind::kPhaseWait, bulk_.turns->over, bulk_.turns->group, 0,
                                  ir::make_typed(Op::kSelect, {first, after, now})));
    to->push_back({LoopStore{bulk_.turns->parity, int32(0), after}});
  }
  void pass_turn(bool whole, LoopBlock* to) const {
    if (!bulk_.turns || bulk_.turns->whole != whole || planted(Planted::kTurnNotPassed)) return;
    const ExprRef last = ir::make_typed(Op::kEq, {bulk_.turns->group, int32(bulk_.turns->groups - 1)});
    const ExprRef next = ir::make_typed(Op::kAdd, {bulk_.turns->group, int32(1)});
    to->push_back(phase_operation(Kind::kPhaseArrive, bulk_.turns->over,
                                  ir::make_typed(Op::kSelect, {last, int32(0), next})));
  }
  void release(const Rings& rings, const ExprRef& stage, LoopBlock* to) const {
    for (const Ring* ring : rings) {
      if (reads(node_.consume, *ring, true) && !planted(Planted::kReleaseNotFenced)) to->push_back(marker(Kind::kProxyFence));
      to->push_back(phase_operation(Kind::kPhaseArrive, ring->empty, stage));
    }
  }
  ExprRef runs() const { return ir::make_typed(Op::kLt, {node_.begin, node_.end}); }
  ExprRef previous(const ExprRef& stage) const {
    return ir::make_typed(Op::kSelect, {ir::make_typed(Op::kEq, {stage, int32(0)}), int32(node_.depth - 1),
                                        ir::make_typed(Op::kSub, {stage, int32(1)})});
  }
  // The stage before, and its parity then.
  PhaseState previous(const PhaseState& state, LoopBlock* to) const {
    const ExprRef wraps = ir::make_typed(Op::kEq, {state.stage, int32(0)});
    const ExprRef other = ir::make_typed(Op::kBitXor, {state.parity, int32(1)});
    return {named("before", previous(state.stage), to),
            named("parity_before", ir::make_typed(Op::kSelect, {wraps, other, state.parity}), to)};
  }
  // What was consumed last, after end_phase().
  PhaseState last(LoopBlock* to) const {
    return previous({named("next", ir::make_load(bulk_.consumer.stage, {int32(0)}), to),
                     named("parity", ir::make_load(bulk_.consumer.parity, {int32(0)}), to)},
                    to);
  }

  const LoopPipeline& node_;
  const LoopPipeline::Bulk& bulk_;
  GroupBatches& batches_;
  const Synchronised& synchronised_;
  const bool early_ = planted(Planted::kPhaseEarlyRelease);
};

}  // namespace

void expand_bulk(const LoopPipeline& node, GroupBatches* batches, const Synchronised& synchronised, LoopBlock* out) {
  BulkConsumer consumer(node, batches, synchronised);
  if (const std::optional<Skew> skew = skewed(node))
    consumer.skew(*skew, out);
  else
    consumer.iterate(out);
}

}  // namespace kachel::lowering
