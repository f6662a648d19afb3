#include "lowering/plan/tile_blocks.h"

#include <algorithm>

#include "ir/visit.h"
#include "lowering/loop_ir/loop_build.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

// Of fragments in a block: 64 registers of each of 512 threads leave as many for the work on them; 96, where no further
// blocks could take them, some.
constexpr int64_t kUsualBytes = 128 * 1024, kMostBytes = 192 * 1024;
// Every store to it is one to each block.
constexpr int64_t kMostShared = 16 * 1024;

struct Needs {
  int64_t fragment_bytes = 0;
  bool multiplies = false, pipelined = false, reduces = false;
};

Needs needs_of(const ir::Kernel& kernel) {
  Needs needs;
  ir::for_each_stmt(kernel.body, [&](const ir::Stmt& stmt) {
    needs.multiplies |= std::holds_alternative<ir::GemmStmt>(stmt.node);
    if (const auto* loop = std::get_if<ir::ForStmt>(&stmt.node)) needs.pipelined |= loop->pipelined;
    const auto* decl = std::get_if<ir::DeclStmt>(&stmt.node);
    if (!decl || decl->buffer->scope != ir::Scope::kFragment) return;
    needs.fragment_bytes +=
        elements_of(*decl->buffer) * std::max(ir::bits(ir::compute_type(decl->buffer->type.dtype)), 32) / 8;
  });
  for_each_node(kernel.body, [&](const ir::ExprRef& node) {
    needs.reduces |= ir::is_reduction(*node);
  });
  return needs;
}

bool writes_shared(const LoopStmt& stmt) {
  const auto is_shared = [](const ir::BufferRef& buffer) { return buffer->scope == ir::Scope::kShared; };
  if (const auto* atomic = std::get_if<LoopAtomic>(&stmt.node)) return is_shared(atomic->buffer);
  const auto* intrinsic = std::get_if<LoopIntrinsic>(&stmt.node);
  return intrinsic && std::any_of(intrinsic->operands.begin(), intrinsic->operands.end(),
                                  [&](const auto& operand) { return operand.write && is_shared(operand.buffer); });
}

}  // namespace

int tile_blocks_for(const ir::Kernel& kernel, const Target& target) {
  // The code for it is PTX's.
  if (target.kind != Target::Kind::kCuda || target.architecture != 90 || target.generic || !target.ptx) return 1;
  if (target.tile_blocks) return target.tile_blocks;
  const Needs needs = needs_of(kernel);
  if (needs.multiplies || !needs.reduces) return 1;
  if (target.cluster > 1 && !needs.pipelined) return target.cluster;
  if (needs.fragment_bytes <= kUsualBytes || needs.fragment_bytes > kMostCluster * kMostBytes) return 1;
  int blocks = 2;
  while (blocks < kMostCluster && needs.fragment_bytes > blocks * kUsualBytes) blocks *= 2;
  return blocks;
}

bool can_part_tiles(const LoopKernel& kernel) {
  if (!kernel.producer.empty() || kernel.teams > 1 || !kernel.cluster.empty() || !kernel.phases.empty() ||
      kernel.workspace_bytes || kernel.shared_bytes > kMostShared)
    return false;
  bool alone = true;
  for_each_statement(kernel.body, [&](const LoopStmt& stmt) {
    if (!std::holds_alternative<LoopStore>(stmt.node)) alone &= !writes_shared(stmt);
  });
  return alone;
}

}  // namespace kachel::lowering
