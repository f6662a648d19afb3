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

LoopStmt marker(Kind kind, int64_t groups) {
  LoopIntrinsic intrinsic{kind, {}, nullptr};
  intrinsic.immediate = groups;
  return {std::move(intrinsic)};
}

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

void expand_async(const LoopPipeline& node, LoopBlock consume, bool overlapped, GroupBatches* batches, LoopBlock* out) {
  auto local = [](const char* name, DType type) {
    return std::make_shared<ir::Var>(ir::Var{ir::VarKind::kLoop, name, {type, nullptr}, {}});
  };
  auto i64 = [](int64_t value) { return ir::make_int(value, DType::I64); };
  LoopFor loop{node.var, node.begin, node.end, false, false, {}};
  auto fill = [&](const ir::ExprRef& ahead, const ir::ExprRef& stage, LoopBlock* to) {
    to->push_back({LoopLet{node.ahead, ahead}});
    LoopBlock produce;
    produce.push_back({LoopLet{node.into, ir::make_cast({DType::I32, nullptr}, stage)}});
    produce.insert(produce.end(), node.produce.begin(), node.produce.end());
    to->push_back({LoopIf{ir::make_typed(Op::kLt, {ir::make_var(node.ahead), node.end}), std::move(produce), {}}});
    if (to != &loop.body || !planted(Planted::kDroppedCommit)) to->push_back(marker(Kind::kAsyncCommit, 0));
  };
  const int64_t lead = node.depth - (overlapped && !planted(Planted::kGroupEarlyCopy) ? 2 : 1);
  const ir::VarRef stage = local("stage", DType::I64);
  LoopFor prologue{stage, i64(0), i64(lead - (planted(Planted::kShortPrologue) ? 1 : 0)), true, false, {}};
  fill(ir::make_typed(Op::kAdd, {node.begin, ir::make_var(stage)}), ir::make_var(stage), &prologue.body);
  out->push_back({std::move(prologue)});
  if (overlapped) batches->pin(out);

  auto modulo = [&](const ir::ExprRef& value) { return ir::make_typed(Op::kMod, {value, i64(node.depth)}); };
  const ir::ExprRef done = ir::make_typed(Op::kSub, {ir::make_var(node.var), node.begin});
  if (planted(Planted::kEarlyBarrier)) loop.body.push_back({LoopBarrier{}});
  loop.body.push_back(marker(Kind::kAsyncWait, planted(Planted::kShortWait) ? lead : lead - 1));
  std::set<const ir::Buffer*> filled;
  for (const ir::BufferRef& buffer : node.buffers) filled.insert(buffer.get());
  if (batches->reads_any(filled)) loop.body.push_back(marker(Kind::kProxyFence, 0));
  if (!planted(Planted::kDroppedBarrier) && !planted(Planted::kEarlyBarrier)) loop.body.push_back({LoopBarrier{}});
  auto run_ahead = [&] {
    fill(ir::make_typed(Op::kAdd, {ir::make_var(node.var), i64(lead)}),
         modulo(ir::make_typed(Op::kAdd, {done, i64(planted(Planted::kWrongStage) ? 0 : lead)})), &loop.body);
  };
  if (!overlapped) run_ahead();
  loop.body.push_back({LoopLet{node.from, ir::make_cast({DType::I32, nullptr}, modulo(done))}});
  for (LoopStmt& stmt : consume) loop.body.push_back(std::move(stmt));
  if (overlapped) {
    run_ahead();
    batches->leave_one(&loop.body);
  }
  out->push_back({std::move(loop)});
  out->push_back(marker(Kind::kAsyncWait, 0));
}

namespace {

ExprRef int32(int64_t value) {
  return ir::make_int(value, DType::I32);
}

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

}  // namespace

bool issues(const LoopBlock& body) {
  for (const LoopStmt& stmt : body) {
    if (group_mma(stmt)) return true;
    if (const auto* loop = std::get_if<LoopFor>(&stmt.node); loop && issues(loop->body)) return true;
    if (const auto* pipeline = std::get_if<LoopPipeline>(&stmt.node); pipeline && issues(pipeline->consume)) return true;
    const auto* branch = std::get_if<LoopIf>(&stmt.node);
    if (branch && (issues(branch->then_body) || issues(branch->else_body))) return true;
  }
  return false;
}

void expand_bulk(const LoopPipeline& node, GroupBatches* batches,
                 const std::function<void(const LoopBlock& part, LoopBlock* out)>& synchronised, LoopBlock* out) {
  const LoopPipeline::Bulk& bulk = *node.bulk;
  auto release = [&](const ExprRef& stage) { return phase_operation(Kind::kPhaseArrive, bulk.empty, stage); };
  auto previous = [&](const ExprRef& stage) {
    return ir::make_typed(Op::kSelect, {ir::make_typed(Op::kEq, {stage, int32(0)}), int32(node.depth - 1),
                                        ir::make_typed(Op::kSub, {stage, int32(1)})});
  };
  // The stage that was consumed last, after end_phase().
  const ExprRef last = previous(ir::make_load(bulk.consumer.stage, {int32(0)}));
  const ExprRef runs = ir::make_typed(Op::kLt, {node.begin, node.end});
  auto begin = [&](LoopBlock* to) {
    const PhaseState state = begin_phase(bulk.consumer, node.from, to);
    to->push_back(phase_operation(Kind::kPhaseWait, bulk.full, state.stage, 0, state.parity));
    return state;
  };
  const bool early = planted(Planted::kPhaseEarlyRelease);

  if (const std::optional<Skew> skew = skewed(node)) {
    LoopBlock head;
    const PhaseState first = begin(&head);
    for (const LoopBlock* part : {&skew->first, &skew->work}) {
      const LoopBlock at_begin = substituted(*part, {{node.var.get(), node.begin}});
      synchronised(at_begin, &head);
    }
    batches->settle(&head);
    end_phase(bulk.consumer, first, node.depth, &head);
    out->push_back({LoopIf{runs, std::move(head), {}}});

    auto second = [&](const ExprRef& stage, const ExprRef& iteration) {
      return substituted(skew->second, {{node.from.get(), stage}, {node.var.get(), iteration}});
    };
    const ExprRef one = ir::make_int(1, DType::I64);
    LoopFor loop{node.var, ir::make_typed(Op::kAdd, {node.begin, one}), node.end, false, false, {}};
    const PhaseState state = begin(&loop.body);
    const ExprRef before = named("before", previous(state.stage), &loop.body);
    synchronised(skew->first, &loop.body);
    batches->commit(&loop.body);
    synchronised(second(before, ir::make_typed(Op::kSub, {ir::make_var(node.var), one})), &loop.body);
    batches->commit(&loop.body);
    batches->leave_one(&loop.body);
    if (early) loop.body.push_back(release(before));
    synchronised(skew->work, &loop.body);
    batches->settle(&loop.body);
    if (!early) loop.body.push_back(release(before));
    end_phase(bulk.consumer, state, node.depth, &loop.body);
    out->push_back({std::move(loop)});

    LoopBlock tail;
    synchronised(second(last, ir::make_typed(Op::kSub, {node.end, one})), &tail);
    batches->settle(&tail);
    tail.push_back(release(last));
    out->push_back({LoopIf{runs, std::move(tail), {}}});
    return;
  }

  const bool overlapped = node.depth > 2 && only_products(node.consume);
  LoopBlock consume;
  synchronised(node.consume, &consume);
  if (overlapped)
    batches->commit(&consume);
  else
    batches->settle(&consume);
  if (overlapped) batches->pin(out);
  LoopFor loop{node.var, node.begin, node.end, false, false, {}};
  const PhaseState state = begin(&loop.body);
  for (LoopStmt& stmt : consume) loop.body.push_back(std::move(stmt));
  if (overlapped && !early) {
    batches->leave_one(&loop.body);
    const ExprRef later = ir::make_typed(Op::kLt, {node.begin, ir::make_var(node.var)});
    loop.body.push_back({LoopIf{later, {release(previous(state.stage))}, {}}});
  } else {
    loop.body.push_back(release(state.stage));
  }
  end_phase(bulk.consumer, state, node.depth, &loop.body);
  out->push_back({std::move(loop)});
  batches->settle(out);
  if (overlapped && !early) out->push_back({LoopIf{runs, {release(last)}, {}}});
}

}  // namespace kachel::lowering
