#include "lowering/plan/tile_blocks.h"

#include <algorithm>

#include "ir/visit.h"
#include "lowering/loop_ir/loop_build.h"
#include "lowering/tile_ir/live_ranges.h"
#include "lowering/tile_ir/long_rows.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

// Of fragments in a block: 64 registers of each of 512 threads leave as many for the work on them; 96, where no further
// blocks could take them, some. Rows of 16-bit elements come in half of the time, in which one block alone does not get
// done what stands between its barriers: two on a multiprocessor, of 256 threads (softmax of 131072 on an H200, us:
// bf16 423 for 461, f32 610 for 608). Blocks that could do without each other are quicker (means of 64 rows of 16 bits,
// 128 KB of fragments: 881 for 1342).
constexpr int64_t kMostAlone = 160 * 1024, kUsualBytes = 128 * 1024, kNarrowBytes = 64 * 1024, kMostBytes = 192 * 1024;
// Every store to it is one to each block.
constexpr int64_t kMostShared = 16 * 1024;

struct Needs {
  bool multiplies = false, pipelined = false, reduces = false;
  bool narrow = true;  // no more than 16 bits of an element are read
};

Needs needs_of(const ir::Kernel& kernel) {
  Needs needs;
  ir::for_each_stmt(kernel.body, [&](const ir::Stmt& stmt) {
    needs.multiplies |= std::holds_alternative<ir::GemmStmt>(stmt.node);
    if (const auto* loop = std::get_if<ir::ForStmt>(&stmt.node)) needs.pipelined |= loop->pipelined;
    if (const auto* copy = std::get_if<ir::CopyStmt>(&stmt.node))
      needs.narrow &= copy->src.buffer->scope != ir::Scope::kGlobal || ir::bits(copy->src.buffer->type.dtype) <= 16;
  });
  for_each_node(kernel.body, [&](const ir::ExprRef& node) { needs.reduces |= ir::is_reduction(*node); });
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

int asked_tile_blocks(const ir::Kernel& kernel, const Target& target) {
  // The code for it is PTX's.
  if (target.kind != Target::Kind::kCuda || target.architecture != 90 || target.generic || !target.ptx) return 1;
  if (target.tile_blocks || target.cluster <= 1) return target.tile_blocks;
  const Needs needs = needs_of(kernel);
  return needs.multiplies || needs.pipelined || !needs.reduces ? 0 : target.cluster;
}

int needed_tile_blocks(const ir::Kernel& kernel, const LoopKernel& alone) {
  const Needs needs = needs_of(kernel);
  const int64_t all = fragment_bytes(kernel);
  if (needs.multiplies || !needs.reduces || all <= kMostAlone) return 1;
  const int64_t live = 4 * most_live_registers(alone) * alone.block_threads();
  const int64_t bytes = alone.workspace_bytes ? all : std::min(live, all);
  if (bytes <= kMostAlone || bytes > kMostCluster * kMostBytes) return 1;
  const int64_t each = needs.narrow ? kNarrowBytes : kUsualBytes;
  int blocks = 2;
  while (blocks < kMostCluster && bytes > blocks * each) blocks *= 2;
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
