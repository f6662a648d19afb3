// Forward data flow over the block-level statements. The state is the set of buffers read and written since the last
// barrier on some path; a statement that conflicts with it gets a barrier in front. A loop's state at entry includes
// its state at exit (the back edge), found by iterating: states only grow, so this ends. The whole body is such a loop
// too, since a block goes on to its next tile. All block-level control flow is uniform, so a barrier may stand anywhere
// in it.
#include "lowering/synchronise.h"

#include <set>

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
  if (const auto* threads = std::get_if<LoopThreads>(&stmt.node)) accesses.add(accesses_of(threads->body));
  if (!deep) return accesses;
  if (const auto* loop = std::get_if<LoopFor>(&stmt.node)) accesses.add(accesses_of(loop->body));
  if (const auto* branch = std::get_if<LoopIf>(&stmt.node)) {
    accesses.add(accesses_of(branch->then_body));
    accesses.add(accesses_of(branch->else_body));
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
  // Returns the state at the end of the block; with `out`, also writes the block with its barriers.
  Accesses block(const LoopBlock& in, Accesses state, LoopBlock* out) {
    for (const LoopStmt& stmt : in) {
      Accesses now = accesses_of(stmt, false);
      if (conflict(state, now)) {
        if (out && !planted(Planted::kDroppedBarrier)) out->push_back({LoopBarrier{}});
        state = {};
      }
      state.add(now);
      if (const auto* loop = std::get_if<LoopFor>(&stmt.node)) {
        state = this->loop(*loop, std::move(state), out);
      } else if (const auto* branch = std::get_if<LoopIf>(&stmt.node)) {
        LoopIf copy{branch->condition, {}, {}};
        Accesses then_state = block(branch->then_body, state, out ? &copy.then_body : nullptr);
        Accesses else_state = block(branch->else_body, state, out ? &copy.else_body : nullptr);
        state = std::move(then_state);
        state.add(else_state);
        if (out) out->push_back({std::move(copy)});
      } else if (out) {
        out->push_back(stmt);
      }
    }
    return state;
  }

 private:
  Accesses loop(const LoopFor& loop, Accesses entry, LoopBlock* out) {
    while (!planted(Planted::kDroppedLoopBarrier)) {
      Accesses wider = entry;
      wider.add(block(loop.body, entry, nullptr));
      if (wider == entry) break;
      entry = std::move(wider);
    }
    LoopFor copy{loop.var, loop.begin, loop.end, loop.unroll, loop.reassociate, {}};
    Accesses exit = block(loop.body, entry, out ? &copy.body : nullptr);
    if (out) out->push_back({std::move(copy)});
    exit.add(entry);  // no iteration at all
    return exit;
  }
};

}  // namespace

void synchronise(LoopKernel* kernel) {
  if (kernel->threads == 1) return;
  Synchroniser pass;
  Accesses entry;
  while (!planted(Planted::kDroppedLoopBarrier)) {
    Accesses wider = entry;
    wider.add(pass.block(kernel->body, entry, nullptr));
    if (wider == entry) break;
    entry = std::move(wider);
  }
  LoopBlock body;
  pass.block(kernel->body, entry, &body);
  kernel->body = std::move(body);
}

}  // namespace kachel::lowering
