#include "lowering/passes/first_writes.h"

#include <algorithm>
#include <unordered_set>

#include "lowering/loop_ir/loop_build.h"

namespace kachel::lowering {
namespace {

class FirstWrites {
 public:
  void block(const LoopBlock& body) {
    for (const LoopStmt& stmt : body) {
      for_each_access(stmt, [&](const ir::BufferRef& buffer, bool write) {
        if (write) written_.insert(buffer.get());
      });
      if (const auto* loop = std::get_if<LoopFor>(&stmt.node)) block(loop->body);
      if (const auto* threads = std::get_if<LoopThreads>(&stmt.node)) block(threads->body);
      if (const auto* branch = std::get_if<LoopIf>(&stmt.node)) {
        choice(branch->then_body);
        choice(branch->else_body);
      }
    }
  }
  bool by_branch(const ir::Buffer* array) const { return by_branch_.count(array) != 0; }

 private:
  void choice(const LoopBlock& body) {
    const bool stores = std::all_of(body.begin(), body.end(), [](const LoopStmt& stmt) {
      return std::holds_alternative<LoopStore>(stmt.node) || std::holds_alternative<LoopLet>(stmt.node) ||
             std::holds_alternative<LoopComment>(stmt.node);
    });
    if (!stores) return block(body);
    for (const LoopStmt& stmt : body) {
      const auto* store = std::get_if<LoopStore>(&stmt.node);
      if (store && store->buffer->scope == ir::Scope::kRegister && !written_.count(store->buffer.get()))
        by_branch_.insert(store->buffer.get());
    }
  }

  std::unordered_set<const ir::Buffer*> written_, by_branch_;
};

}  // namespace

void zero_before_branches(LoopKernel* kernel) {
  FirstWrites writes;
  writes.block(kernel->body);
  for (LoopBuffer& buffer : kernel->buffers) buffer.zeroed |= writes.by_branch(buffer.buffer.get());
}

}  // namespace kachel::lowering
