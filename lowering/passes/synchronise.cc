// Forward data flow over the block-level statements. The state is the set of buffers read and written since the last
// barrier on some path; a statement that conflicts with it gets a barrier in front. A loop's state at entry includes
// its state at exit (the back edge), found by iterating: states only grow, so this ends. The whole body is such a loop
// too, since a block goes on to its next tile, but tensors are left out there: no tile reads or writes what another one
// writes. All block-level control flow is uniform, so a barrier may stand anywhere in it. Buffers that share memory
// conflict as one buffer does with itself.
#include "lowering/passes/synchronise.h"

#include <map>
#include <set>

#include "lowering/passes/expand_pipeline.h"
#include "lowering/passes/group_batches.h"
#include "lowering/passes/memory_plan.h"
#include "lowering/passes/roles.h"
#include "lowering/planted.h"

namespace kachel::lowering {
namespace {

struct Accesses {
  std::set<const ir::Buffer*> reads, writes;
  std::set<const ir::Buffer*> combined;  // by atomics that commute, which may meet each other

  void add(const Accesses& other) {
    reads.insert(other.reads.begin(), other.reads.end());
    writes.insert(other.writes.begin(), other.writes.end());
    combined.insert(other.combined.begin(), other.combined.end());
  }
  template <class Fn>
  void leave_out(const Fn& fn) {
    std::erase_if(reads, fn);
    std::erase_if(writes, fn);
    std::erase_if(combined, fn);
  }
  bool operator==(const Accesses&) const = default;
};

// By buffer, the others that have bytes in common with it.
std::map<const ir::Buffer*, std::vector<const ir::Buffer*>> neighbours_of(const LoopKernel& kernel) {
  std::map<const ir::Buffer*, std::vector<const ir::Buffer*>> neighbours;
  if (planted(Planted::kUnorderedLives)) return neighbours;
  for (const LoopBuffer& a : kernel.buffers)
    for (const LoopBuffer& b : kernel.buffers)
      if (&a != &b && share_memory(a, b)) neighbours[a.buffer.get()].push_back(b.buffer.get());
  return neighbours;
}

// Buffers that all atomics of the kernel combine in one way. Additions and extremes do not commute.
std::set<const ir::Buffer*> combined_in_one_way(const LoopKernel& kernel) {
  std::map<const ir::Buffer*, std::set<ir::AtomicOp>> ways;
  const auto note = [&](const LoopStmt& stmt) {
    if (const auto* atomic = std::get_if<LoopAtomic>(&stmt.node)) ways[atomic->buffer.get()].insert(atomic->op);
  };
  for_each_statement(kernel.body, note);
  std::set<const ir::Buffer*> found;
  for (const auto& [buffer, ops] : ways)
    if (ops.size() == 1) found.insert(buffer);
  return found;
}

class Synchroniser {
 public:
  explicit Synchroniser(const LoopKernel& kernel)
      : ranges_(kernel.ranges),
        batches_(kernel),
        further_(kernel),
        neighbours_(neighbours_of(kernel)),
        one_way_(combined_in_one_way(kernel)) {
    for (const LoopBuffer& buffer : kernel.buffers)
      if (buffer.of_warps) of_warps_.insert(buffer.buffer.get());
    for_each_statement(kernel.body, [&](const LoopStmt& stmt) {
      const auto* pipeline = std::get_if<LoopPipeline>(&stmt.node);
      if (!pipeline) return;
      for (const ir::BufferRef& buffer : pipeline->alternating)
        if (!neighbours_.count(buffer.get())) alternating_.insert(buffer.get());
      if (pipeline->bulk)
        for (const ir::BufferRef& buffer : pipeline->buffers)
          if (!neighbours_.count(buffer.get())) bulk_.insert(buffer.get());
    });
  }

  // Returns the state at the end of the block; with `out`, also writes the block with its barriers.
  Accesses block(const LoopBlock& in, Accesses state, LoopBlock* out) {
    for (const LoopStmt& stmt : in) {
      Accesses now = accesses_of(stmt);
      for (const ir::Buffer* buffer : bulk_) now.reads.erase(buffer);
      if (conflict(state, now)) {
        if (out) barrier(state, out);
        state = {};
      }
      if (out) batches_.before(stmt, batches_.any() && has_barriers(stmt, state), out);
      state.add(now);
      if (const auto* loop = std::get_if<LoopFor>(&stmt.node)) {
        state = this->loop(*loop, std::move(state), out);
      } else if (const auto* pipeline = std::get_if<LoopPipeline>(&stmt.node)) {
        state = pipeline->bulk ? bulk_pipeline(*pipeline, std::move(state), out)
                               : this->pipeline(*pipeline, std::move(state), out);
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

  // Within the statement, if what comes before leaves this state.
  bool has_barriers(const LoopStmt& stmt, const Accesses& state) {
    const size_t before = conflicts_;
    if (const auto* loop = std::get_if<LoopFor>(&stmt.node)) (void)this->loop(*loop, state, nullptr);
    if (const auto* branch = std::get_if<LoopIf>(&stmt.node))
      for (const LoopBlock* body : {&branch->then_body, &branch->else_body}) (void)block(*body, state, nullptr);
    return conflicts_ != before;
  }

  // The state at the head of the whole body.
  Accesses around_tiles(const LoopBlock& body) {
    Accesses entry, wider;
    do {
      entry = wider;
      wider.add(block(body, entry, nullptr));
      wider.leave_out([](const ir::Buffer* buffer) { return buffer->scope == ir::Scope::kGlobal; });
    } while (!(wider == entry) && !planted(Planted::kDroppedLoopBarrier));
    return entry;
  }

  // The state at the head of a loop: with what its end may leave.
  Accesses around(const LoopBlock& body, Accesses entry, const std::set<const ir::Buffer*>& apart = {}) {
    while (!planted(Planted::kDroppedLoopBarrier)) {
      Accesses wider = entry, left = block(body, entry, nullptr);
      left.leave_out([&](const ir::Buffer* buffer) { return apart.count(buffer) != 0; });
      wider.add(left);
      if (wider == entry) break;
      entry = std::move(wider);
    }
    return entry;
  }

  // Of what iterations touch apart from each other, the end of one leaves nothing to the next.
  Accesses around(const LoopFor& loop, Accesses entry) {
    std::set<const ir::Buffer*> apart;
    for (const ir::BufferRef& buffer : loop.disjoint)
      if (!neighbours_.count(buffer.get())) apart.insert(buffer.get());
    return around(loop.body, std::move(entry), apart);
  }

  // A block that leaves nothing under way that was issued in it.
  Accesses nested(const LoopBlock& in, Accesses state, LoopBlock* out) {
    state = block(in, std::move(state), out);
    if (out && issues(in)) batches_.settle(out);
    return state;
  }

  // Registers that the expanded pipelines need beside the kernel's.
  std::vector<LoopBuffer> further_registers() const { return further_.all(); }

 private:
  void note(const LoopStmt& stmt, Accesses* accesses) const {
    const auto* intrinsic = std::get_if<LoopIntrinsic>(&stmt.node);
    if (intrinsic && intrinsic->kind == LoopIntrinsic::Kind::kBulkStore) return;  // touches what nobody else does
    const bool atomic = std::holds_alternative<LoopAtomic>(stmt.node);
    for_each_access(stmt, [&](const ir::BufferRef& buffer, bool write) {
      const bool apart = of_warps_.count(buffer.get()) && !neighbours_.count(buffer.get());
      if (buffer->scope == ir::Scope::kRegister || apart) return;
      const bool commutes = atomic && one_way_.count(buffer.get());
      (!write ? accesses->reads : commutes ? accesses->combined : accesses->writes).insert(buffer.get());
    });
  }
  Accesses accesses_of(const LoopBlock& block) const {
    Accesses accesses;
    for_each_statement(block, [&](const LoopStmt& stmt) { note(stmt, &accesses); });
    return accesses;
  }
  // Of a statement without nested ones, but for those of a thread loop.
  Accesses accesses_of(const LoopStmt& stmt) const {
    const auto* threads = std::get_if<LoopThreads>(&stmt.node);
    Accesses accesses;
    if (threads) accesses = accesses_of(threads->body);
    note(stmt, &accesses);
    return accesses;
  }

  // With `themselves`, what is in both sets meets, too; what has bytes in common does in any case.
  bool meets(const std::set<const ir::Buffer*>& a, const std::set<const ir::Buffer*>& b, bool themselves = true) const {
    for (const ir::Buffer* buffer : a) {
      if (themselves && b.count(buffer) && !of_warps_.count(buffer)) return true;
      const auto found = neighbours_.find(buffer);
      if (found == neighbours_.end()) continue;
      for (const ir::Buffer* neighbour : found->second)
        if (b.count(neighbour)) return true;
    }
    return false;
  }
  bool conflict(const Accesses& before, const Accesses& now) {
    const bool conflicts = meets_in_conflict(before, now);
    conflicts_ += conflicts;
    return conflicts;
  }
  bool meets_in_conflict(const Accesses& before, const Accesses& now) const {
    if (meets(before.writes, now.reads) || meets(before.writes, now.writes)) return true;
    if (!planted(Planted::kUnorderedAtomics)) {
      if (meets(before.combined, now.reads) || meets(before.combined, now.writes)) return true;
      if (meets(before.writes, now.combined) || meets(before.reads, now.combined)) return true;
      if (meets(before.combined, now.combined, false)) return true;
    }
    // A half that is written was read two iterations before, and between those is the barrier behind a writing.
    std::set<const ir::Buffer*> written = now.writes;
    for (const ir::Buffer* buffer : alternating_) written.erase(buffer);
    return meets(before.reads, written);
  }

  void barrier(const Accesses& before, LoopBlock* out) {
    batches_.settle(out);
    if (batches_.reads_any(before.writes) || batches_.reads_any(before.combined))
      out->push_back(marker(LoopIntrinsic::Kind::kProxyFence));
    if (!planted(Planted::kDroppedBarrier)) out->push_back({LoopBarrier{}});
  }
  // A barrier that the body needs for the sake of what came before stands in front of the loop, not in it.
  Accesses before_loop(const LoopBlock& body, Accesses entry, LoopBlock* out) {
    Accesses inside = accesses_of(body);
    for (const ir::Buffer* buffer : bulk_) inside.reads.erase(buffer);
    if (!conflict(entry, inside)) return entry;
    if (out) barrier(entry, out);
    return {};
  }

  Accesses loop(const LoopFor& loop, Accesses entry, LoopBlock* out) {
    entry = before_loop(loop.body, std::move(entry), out);
    entry = around(loop, std::move(entry));
    LoopFor copy = without_body(loop);
    Accesses exit = nested(loop.body, entry, out ? &copy.body : nullptr);
    if (out) out->push_back({std::move(copy)});
    exit.add(entry);  // no iteration at all
    return exit;
  }

  // A loop that waits for its stage and releases it when nobody reads it any more. Batches that nothing waits for may
  // run on into the next iteration, which then releases the stage.
  Accesses bulk_pipeline(const LoopPipeline& node, Accesses entry, LoopBlock* out) {
    entry = before_loop(node.consume, std::move(entry), out);
    entry = around(node.consume, std::move(entry));
    Accesses exit = block(node.consume, entry, nullptr);
    exit.add(entry);
    const Synchronised synchronised = [&](const LoopBlock& part, LoopBlock* to) { block(part, entry, to); };
    if (out) expand_bulk(node, ranges_, &batches_, synchronised, &further_, out);
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
    Accesses exit = block(node.consume, open, nullptr);
    exit.add(entry);
    if (out)
      expand_async(
          node, &batches_, [&](const LoopBlock& part, LoopBlock* to) { block(part, open, to); },
          (batches_.reads_any(exit.writes) || batches_.reads_any(exit.combined)) &&
              !planted(Planted::kUnfencedPipeline),
          out);
    return exit;
  }

  const Ranges& ranges_;
  GroupBatches batches_;
  FurtherRegisters further_;
  const std::map<const ir::Buffer*, std::vector<const ir::Buffer*>> neighbours_;
  const std::set<const ir::Buffer*> one_way_;
  std::set<const ir::Buffer*> bulk_;  // filled by the copy engine: barriers of phases order them
  std::set<const ir::Buffer*> of_warps_;
  std::set<const ir::Buffer*> alternating_;
  size_t conflicts_ = 0;  // met so far
};

}  // namespace

bool synchronise(LoopKernel* kernel) {
  if (kernel->threads == 1) return true;
  if (!split_roles(kernel)) return false;
  Synchroniser pass(*kernel);
  LoopBlock body;
  pass.nested(kernel->body, kernel->one_tile ? Accesses() : pass.around_tiles(kernel->body), &body);
  kernel->body = std::move(body);
  const std::vector<LoopBuffer> further = pass.further_registers();
  kernel->buffers.insert(kernel->buffers.end(), further.begin(), further.end());
  return true;
}

}  // namespace kachel::lowering
