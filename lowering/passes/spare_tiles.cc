#include "lowering/passes/spare_tiles.h"

#include "lowering/loop_ir/loop_build.h"
#include "lowering/planted.h"

namespace kachel::lowering {
namespace {

bool writes_tensor(const LoopStmt& stmt) {
  bool found = false;
  for_each_access(
      stmt, [&](const ir::BufferRef& buffer, bool write) { found |= write && buffer->scope == ir::Scope::kGlobal; });
  return found;
}

void spare(LoopBlock* block, const ir::ExprRef& real) {
  for (LoopStmt& stmt : *block) {
    if (auto* loop = std::get_if<LoopFor>(&stmt.node)) {
      spare(&loop->body, real);
    } else if (auto* threads = std::get_if<LoopThreads>(&stmt.node)) {
      spare(&threads->body, real);
    } else if (auto* branch = std::get_if<LoopIf>(&stmt.node)) {
      spare(&branch->then_body, real);
      spare(&branch->else_body, real);
    } else if (writes_tensor(stmt)) {
      LoopBlock within;
      within.push_back(std::move(stmt));
      stmt.node = LoopIf{real, std::move(within), {}};
    }
  }
}

}  // namespace

void spare_tiles(LoopKernel* kernel) {
  if (!planted(Planted::kSpareTileStored)) spare(&kernel->body, ir::make_var(kernel->real));
}

}  // namespace kachel::lowering
