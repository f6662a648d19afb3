#include "lowering/passes/first_writes.h"

#include <unordered_set>

#include "lowering/loop_ir/loop_build.h"

namespace kachel::lowering {
namespace {

class FirstWrites {
 public:
  // `certain`: all threads come to the block, and in its order.
  void block(const LoopBlock& body, bool certain) {
    for (const LoopStmt& stmt : body) {
      for_each_access(stmt, [&](const ir::BufferRef& buffer, bool write) {
        if (write && buffer->scope == ir::Scope::kRegister) note(buffer.get(), certain);
      });
      if (const auto* loop = std::get_if<LoopFor>(&stmt.node)) block(loop->body, certain);
      if (const auto* threads = std::get_if<LoopThreads>(&stmt.node)) block(threads->body, certain);
      if (const auto* branch = std::get_if<LoopIf>(&stmt.node)) {
        block(branch->then_body, false);
        block(branch->else_body, false);
      }
    }
  }
  bool by_branch(const ir::Buffer* array) const { return by_branch_.count(array) != 0; }

 private:
  void note(const ir::Buffer* array, bool certain) {
    if (!written_.count(array)) (certain ? written_ : by_branch_).insert(array);
  }

  std::unordered_set<const ir::Buffer*> written_, by_branch_;
};

}  // namespace

void zero_before_branches(LoopKernel* kernel) {
  FirstWrites writes;
  writes.block(kernel->body, true);
  for (LoopBuffer& buffer : kernel->buffers) buffer.zeroed |= writes.by_branch(buffer.buffer.get());
}

}  // namespace kachel::lowering
