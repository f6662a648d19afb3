// With the copy engine an iteration waits until its stage is full and releases it when nobody reads it any more. Four
// forms, by what consuming is:
//   products alone    one batch is left under way, and the next iteration releases the stage
//   prepared          work that makes left operands in registers, products of those: an iteration issues the products
//   of the
//                     one before and does its own work while they run, with results in f32, which are rounded to
//                     operands when the products are over: the assembler serialises wgmma where other instructions make
//                     operands meanwhile. Groups issue their products in turn, so that one rounds beside another's. The
//                     first iteration's work stands in front of the loop, the last one's products behind it
//   skewed            products, work on their result, products with that work's outcome: an iteration issues its first
//                     products, then the second ones of the iteration before, and does its work while those run. The
//                     first iteration's first half stands in front of the loop, the last one's second half behind it.
//                     Iterations without masks have a loop of their own, see mask_free.h
//   plain             what is issued in an iteration ends in it
//
// Where threads themselves read a stage (ldmatrix, loads), a fence stands in front of its release. Arriving at a
// barrier orders them with each other, not with the copy engine, whose writes come another way: on a loaded SM it has
// overwritten a stage that a load was still waiting to read. Source: PTX ISA, "Proxies"; the products of wgmma are
// waited for instead.
#include <algorithm>
#include <set>

#include "lowering/loop_ir/phases.h"
#include "lowering/machine/operation_price.h"
#include "lowering/passes/expand_pipeline.h"
#include "lowering/passes/mask_free.h"
#include "lowering/passes/product_forms.h"
#include "lowering/passes/simplify.h"
#include "lowering/planted.h"

namespace kachel::lowering {

using ir::ExprRef;
using ir::Op;
using Kind = LoopIntrinsic::Kind;

namespace {

// Instructions for an element of what is made beside products. Found on an H200: max(x * s, 0) gains 5 % there, exact
// silu loses 10 %, and groups overlap with each other all the same.
constexpr double kMostWork = 16;
// Of 32 bits, for what a loop holds in arrays: of some 230 that a thread may have, with addresses and values on their
// way.
constexpr int64_t kMostRegisters = 208;

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

// The consumers' loop over the stages.
class BulkConsumer {
 public:
  BulkConsumer(const LoopPipeline& node, const Ranges& ranges, GroupBatches* batches, const Synchronised& synchronised,
               ExactRegisters* exact)
      : node_(node),
        bulk_(*node.bulk),
        ranges_(ranges),
        batches_(*batches),
        synchronised_(synchronised),
        exact_(*exact) {}

  void prepare(const Prepared& form, LoopBlock* out) {
    const Shares rings = shares(form.work, nullptr, form.products);
    // The work may leave some of an operand as it was.
    for (const ir::BufferRef& operand : form.operands) {
      const LoopBuffer& exact = exact_.of(operand);
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

  void skew(const Skew& skew, LoopBlock* out) {
    const Shares rings = shares(skew.first, &skew.work, skew.second);
    const Rings &first_only = rings.first, &second_only = rings.second, &others = rings.others;
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

    const ExprRef second = plus(node_.begin, int64(1));
    if (const std::optional<MaskFree> parts = mask_free(skew.work, node_.var, ranges_)) {
      const ExprRef masked = ir::make_typed(Op::kMin, {node_.end, parts->end});
      out->push_back({skewed_loop(skew, rings, parts->bare, second, masked)});
      // The branch stays in the others: where masks and products share a basic block, registers do not suffice.
      out->push_back({skewed_loop(skew, rings, skew.work, ir::make_typed(Op::kMax, {second, masked}), node_.end)});
    } else {
      out->push_back({skewed_loop(skew, rings, skew.work, second, node_.end)});
    }

    LoopBlock tail;
    const PhaseState last = this->last(&tail);
    wait(second_only, last, &tail);
    synchronised_(of_before(skew.second, last.stage, node_.end), &tail);
    batches_.settle(&tail);
    for (const Rings* rings : {&others, &second_only}) release(*rings, last.stage, &tail);
    out->push_back({LoopIf{runs(), std::move(tail), {}}});
    pass_turn(true, out);
  }

  void iterate(LoopBlock* out) {
    const bool overlapped = overlaps(node_), later = overlapped && !early_;
    Rings rings;
    for (const Ring& ring : bulk_.rings) rings.push_back(&ring);
    LoopBlock body = consumed(node_, &batches_, synchronised_);
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
  // Those that the first part of an iteration alone reads, the second one alone, and the rest.
  struct Shares {
    Rings first, second, others;
  };
  // Iterations behind the first one, with `work` in the place of the form's.
  LoopFor skewed_loop(const Skew& skew, const Shares& rings, const LoopBlock& work, const ExprRef& begin,
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
  Shares shares(const LoopBlock& first, const LoopBlock* between, const LoopBlock& second) const {
    Shares shares;
    for (const Ring& ring : bulk_.rings) {
      const bool in_first = reads(first, ring, false), in_second = reads(second, ring, false);
      const bool both = in_first == in_second || (between && reads(*between, ring, false));
      (both ? shares.others : in_first ? shares.first : shares.second).push_back(&ring);
    }
    return shares;
  }
  // A part for the iteration before `next`, whose stage was `stage`.
  LoopBlock of_before(const LoopBlock& part, const ExprRef& stage, const ExprRef& next) const {
    return substituted(part,
                       {{node_.from.get(), stage}, {node_.var.get(), ir::make_typed(Op::kSub, {next, int64(1)})}});
  }
  // The operands of the next products.
  LoopBlock rounded(const Prepared& form) {
    LoopBlock out;
    for (const ir::BufferRef& operand : form.operands) {
      const LoopBuffer& exact = exact_.of(operand);
      for (int64_t at = planted(Planted::kOperandNotRounded) ? 2 : 0; at < exact.elements; at += 2) {
        LoopIntrinsic pair{Kind::kConvertPair, {}, nullptr};
        pair.type = operand->type.dtype;
        pair.operands = {{operand, int32(at), 2, true}, {exact.buffer, int32(at), 2, false}};
        out.push_back({std::move(pair)});
      }
    }
    return out;
  }
  // The work with f32 in the place of what it would round.
  LoopBlock exactly(const Prepared& form, const LoopBlock& work) {
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
        store->buffer = exact_.of(store->buffer).buffer;
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
        out.push_back({LoopStore{exact_.of(pair->operands[0].buffer).buffer, number(0, i),
                                 ir::make_load(pair->operands[1].buffer, {number(1, i)})}});
    }
    return out;
  }

  PhaseState begin(LoopBlock* to) const { return begin_phase(bulk_.consumer, node_.from, to); }
  void wait(const Rings& rings, const PhaseState& state, LoopBlock* to) const {
    for (const Ring* ring : rings) {
      to->push_back(phase_operation(Kind::kPhaseWait, ring->full, state.stage, 0, state.parity));
      // cp.async has written another way than wgmma reads; who stores has fenced.
      std::set<const ir::Buffer*> stages;
      for (const ir::BufferRef& buffer : ring->buffers) stages.insert(buffer.get());
      if (ring->by_threads && !ring->stored && batches_.reads_any(stages) && !planted(Planted::kCopiesNotFenced))
        to->push_back(marker(Kind::kProxyFence));
    }
  }
  // Groups issue their products in turn, so that the tensor cores work for one while the other works on its results.
  // Where a turn is a whole loop, it also keeps a team from waiting for a stage that is still to be filled for the one
  // before: a barrier of phases tells a phase from the next one only. A phase of the first group's barrier is the last
  // one's turn before; for the first turn there was none.
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
    to->push_back(
        phase_operation(Kind::kPhaseArrive, bulk_.turns->over, ir::make_typed(Op::kSelect, {last, int32(0), next})));
  }
  void release(const Rings& rings, const ExprRef& stage, LoopBlock* to) const {
    for (const Ring* ring : rings) {
      if (reads(node_.consume, *ring, true) && !planted(Planted::kReleaseNotFenced))
        to->push_back(marker(Kind::kProxyFence));
      to->push_back(phase_operation(Kind::kPhaseArrive, ring->empty, stage));
      if (!ring->across) continue;
      std::get<LoopIntrinsic>(to->back().node).guard =
          planted(Planted::kClusterNotTold) ? ir::make_bool(false) : bulk_.neighbour;
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
  const Ranges& ranges_;
  GroupBatches& batches_;
  const Synchronised& synchronised_;
  ExactRegisters& exact_;
  const bool early_ = planted(Planted::kPhaseEarlyRelease);
};

// Of the values that the innermost loops make.
double work_of(const LoopBlock& work) {
  double instructions = 0;
  for_each_statement(work, [&](const LoopStmt& stmt) {
    for_each_expr(stmt, [&](const ExprRef& expr) {
      ir::visit(expr, [&](const ExprRef& node) {
        if (ir::is_float(node->type)) instructions += price_of(*node).scalar;
      });
    });
  });
  return instructions;
}

// Of 32 bits, what an iteration of the prepared form holds; operands once more, exactly.
int64_t registers_of(const LoopPipeline& node, const Prepared& form, const ExactRegisters& exact) {
  std::set<const ir::Buffer*> seen;
  int64_t bits = 0;
  for (const ir::BufferRef& operand : form.operands) bits += exact.elements(operand.get()) * 32;
  for_each_statement(node.consume, [&](const LoopStmt& stmt) {
    for_each_access(stmt, [&](const ir::BufferRef& buffer, bool) {
      if (buffer->scope == ir::Scope::kRegister && seen.insert(buffer.get()).second)
        bits += exact.elements(buffer.get()) * ir::bits(buffer->type.dtype);
    });
  });
  return bits / 32;
}

}  // namespace

const LoopBuffer& ExactRegisters::of(const ir::BufferRef& registers) {
  auto [exact, made] = made_.try_emplace(registers.get());
  if (!made) return exact->second;
  ir::Buffer copy = *registers;
  copy.name += "_exact";
  copy.type = {ir::DType::F32, nullptr};
  exact->second.buffer = std::make_shared<const ir::Buffer>(std::move(copy));
  exact->second.elements = elements(registers.get());
  return exact->second;
}

int64_t ExactRegisters::elements(const ir::Buffer* registers) const {
  for (const LoopBuffer& buffer : kernel_.buffers)
    if (buffer.buffer.get() == registers) return buffer.elements;
  return 0;
}

std::vector<LoopBuffer> ExactRegisters::all() const {
  std::vector<LoopBuffer> all;
  for (const LoopBuffer& buffer : kernel_.buffers)
    if (auto exact = made_.find(buffer.buffer.get()); exact != made_.end()) all.push_back(exact->second);
  return all;
}

void expand_bulk(const LoopPipeline& node, const Ranges& ranges, GroupBatches* batches,
                 const Synchronised& synchronised, ExactRegisters* exact, LoopBlock* out) {
  BulkConsumer consumer(node, ranges, batches, synchronised, exact);
  if (const std::optional<Skew> form = skewed(node))
    consumer.skew(*form, out);
  else if (const std::optional<Prepared> form = prepared(node);
           form && registers_of(node, *form, *exact) <= kMostRegisters && work_of(form->work) <= kMostWork)
    consumer.prepare(*form, out);
  else
    consumer.iterate(out);
}

}  // namespace kachel::lowering
