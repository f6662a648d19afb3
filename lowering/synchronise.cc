// Forward data flow over the block-level statements. The state is the set of buffers read and written since the last
// barrier on some path; a statement that conflicts with it gets a barrier in front. A loop's state at entry includes
// its state at exit (the back edge), found by iterating: states only grow, so this ends. The whole body is such a loop
// too, since a block goes on to its next tile. All block-level control flow is uniform, so a barrier may stand anywhere
// in it.
//
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
#include "lowering/synchronise.h"

#include <set>

#include "lowering/group_batches.h"
#include "lowering/planted.h"

namespace kachel::lowering {
namespace {

struct Accesses {
  std::set<const ir::Buffer*> reads, writes;

  void add(const Accesses& other) {
    reads.insert(other.reads.begin(), other.reads.end());
    writes.insert(other.writes.begin(), other.writes.end());
  }
  bool operator==(const Accesses&) const = default;
};

bool is_private(const ir::Buffer& buffer) {
  return buffer.scope == ir::Scope::kRegister;
}

bool intersects(const std::set<const ir::Buffer*>& a, const std::set<const ir::Buffer*>& b) {
  for (const ir::Buffer* buffer : a)
    if (b.count(buffer)) return true;
  return false;
}

bool conflict(const Accesses& before, const Accesses& now) {
  return intersects(before.writes, now.reads) || intersects(before.writes, now.writes) ||
         intersects(before.reads, now.writes);
}

Accesses accesses_of(const LoopBlock& block);

// `deep`: with the bodies of nested statements.
Accesses accesses_of(const LoopStmt& stmt, bool deep) {
  Accesses accesses;
  for_each_expr(stmt, [&](const ir::ExprRef& expr) {
    ir::visit(expr, [&](const ir::ExprRef& node) {
      if (node->kind == ir::ExprKind::kLoad && !is_private(*node->buffer)) accesses.reads.insert(node->buffer.get());
    });
  });
  auto write = [&](const ir::BufferRef& buffer) {
    if (!is_private(*buffer)) accesses.writes.insert(buffer.get());
  };
  if (const auto* store = std::get_if<LoopStore>(&stmt.node)) write(store->buffer);
  // Atomics do not conflict with each other, but with reads and stores: counted as both.
  if (const auto* atomic = std::get_if<LoopAtomic>(&stmt.node)) write(atomic->buffer);
  if (const auto* intrinsic = std::get_if<LoopIntrinsic>(&stmt.node))
    for (const LoopIntrinsic::Operand& operand : intrinsic->operands) {
      if (operand.write) write(operand.buffer);
      if (!operand.write && !is_private(*operand.buffer)) accesses.reads.insert(operand.buffer.get());
    }
  if (const auto* threads = std::get_if<LoopThreads>(&stmt.node)) accesses.add(accesses_of(threads->body));
  if (!deep) return accesses;
  if (const auto* loop = std::get_if<LoopFor>(&stmt.node)) accesses.add(accesses_of(loop->body));
  if (const auto* branch = std::get_if<LoopIf>(&stmt.node)) {
    accesses.add(accesses_of(branch->then_body));
    accesses.add(accesses_of(branch->else_body));
  }
  if (const auto* pipeline = std::get_if<LoopPipeline>(&stmt.node)) {
    accesses.add(accesses_of(pipeline->produce));
    accesses.add(accesses_of(pipeline->consume));
  }
  return accesses;
}

Accesses accesses_of(const LoopBlock& block) {
  Accesses accesses;
  for (const LoopStmt& stmt : block) accesses.add(accesses_of(stmt, true));
  return accesses;
}

class Synchroniser {
 public:
  explicit Synchroniser(const LoopKernel& kernel) : batches_(kernel) {}

  // Returns the state at the end of the block; with `out`, also writes the block with its barriers.
  Accesses block(const LoopBlock& in, Accesses state, LoopBlock* out) {
    for (const LoopStmt& stmt : in) {
      Accesses now = accesses_of(stmt, false);
      if (conflict(state, now)) {
        if (out) barrier(state, out);
        state = {};
      }
      if (out) batches_.before(stmt, out);
      state.add(now);
      if (const auto* loop = std::get_if<LoopFor>(&stmt.node)) {
        state = this->loop(*loop, std::move(state), out);
      } else if (const auto* pipeline = std::get_if<LoopPipeline>(&stmt.node)) {
        state = this->pipeline(*pipeline, std::move(state), out);
      } else if (const auto* branch = std::get_if<LoopIf>(&stmt.node)) {
        LoopIf copy{branch->condition, {}, {}};
        Accesses then_state = nested(branch->then_body, state, out ? &copy.then_body : nullptr);
        Accesses else_state = nested(branch->else_body, state, out ? &copy.else_body : nullptr);
        state = std::move(then_state);
        state.add(else_state);
        if (out) out->push_back({std::move(copy)});
      } else if (out) {
        out->push_back(stmt);
      }
    }
    return state;
  }

  // A block after which nothing is under way.
  Accesses nested(const LoopBlock& in, Accesses state, LoopBlock* out) {
    state = block(in, std::move(state), out);
    if (out) batches_.settle(out);
    return state;
  }

 private:
  void barrier(const Accesses& before, LoopBlock* out) {
    batches_.settle(out);
    if (batches_.reads_any(before.writes)) out->push_back(marker(LoopIntrinsic::Kind::kProxyFence, 0));
    if (!planted(Planted::kDroppedBarrier)) out->push_back({LoopBarrier{}});
  }
  static LoopStmt marker(LoopIntrinsic::Kind kind, int64_t groups) {
    LoopIntrinsic intrinsic{kind, {}, nullptr};
    intrinsic.immediate = groups;
    return {std::move(intrinsic)};
  }

  Accesses loop(const LoopFor& loop, Accesses entry, LoopBlock* out) {
    while (!planted(Planted::kDroppedLoopBarrier)) {
      Accesses wider = entry;
      wider.add(block(loop.body, entry, nullptr));
      if (wider == entry) break;
      entry = std::move(wider);
    }
    LoopFor copy{loop.var, loop.begin, loop.end, loop.unroll, loop.reassociate, {}};
    Accesses exit = nested(loop.body, entry, out ? &copy.body : nullptr);
    if (out) out->push_back({std::move(copy)});
    exit.add(entry);  // no iteration at all
    return exit;
  }

  // The state after it holds nothing from before the loop if it runs at all, and everything if it does not.
  Accesses pipeline(const LoopPipeline& node, Accesses entry, LoopBlock* out) {
    Accesses produced = accesses_of(node.produce);
    if (conflict(entry, produced)) {
      if (out) barrier(entry, out);
      entry = {};
    }
    entry.add(produced);
    // After the barrier of an iteration only what follows it is open; the stages being filled are read by no one.
    Accesses open = produced;
    for (const ir::BufferRef& buffer : node.buffers) open.writes.erase(buffer.get());
    LoopBlock consume;
    const bool overlapped = node.depth > 2 && GroupBatches::only_products(node.consume);
    Accesses exit = block(node.consume, open, out ? &consume : nullptr);
    if (out) {
      if (overlapped)
        batches_.commit(&consume);
      else
        batches_.settle(&consume);
      expand(node, std::move(consume), overlapped, out);
      batches_.settle(out);
    }
    exit.add(entry);
    return exit;
  }

  void expand(const LoopPipeline& node, LoopBlock consume, bool overlapped, LoopBlock* out) const {
    using ir::DType;
    using ir::Op;
    using Kind = LoopIntrinsic::Kind;
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
    if (overlapped) batches_.pin(out);

    auto modulo = [&](const ir::ExprRef& value) { return ir::make_typed(Op::kMod, {value, i64(node.depth)}); };
    const ir::ExprRef done = ir::make_typed(Op::kSub, {ir::make_var(node.var), node.begin});
    if (planted(Planted::kEarlyBarrier)) loop.body.push_back({LoopBarrier{}});
    loop.body.push_back(marker(Kind::kAsyncWait, planted(Planted::kShortWait) ? lead : lead - 1));
    std::set<const ir::Buffer*> filled;
    for (const ir::BufferRef& buffer : node.buffers) filled.insert(buffer.get());
    if (batches_.reads_any(filled)) loop.body.push_back(marker(Kind::kProxyFence, 0));
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
      batches_.leave_one(&loop.body);
    }
    out->push_back({std::move(loop)});
    out->push_back(marker(Kind::kAsyncWait, 0));
  }

  GroupBatches batches_;
};

}  // namespace

void synchronise(LoopKernel* kernel) {
  if (kernel->threads == 1) return;
  Synchroniser pass(*kernel);
  Accesses entry;
  while (!planted(Planted::kDroppedLoopBarrier)) {
    Accesses wider = entry;
    wider.add(pass.block(kernel->body, entry, nullptr));
    if (wider == entry) break;
    entry = std::move(wider);
  }
  LoopBlock body;
  pass.nested(kernel->body, entry, &body);
  kernel->body = std::move(body);
}

}  // namespace kachel::lowering
