#include "lowering/memory_plan.h"

#include <algorithm>
#include <set>

#include "lowering/loop_build.h"

namespace kachel::lowering {
namespace {

constexpr int64_t kSliceAlignment = 256;

int64_t align(int64_t bytes, int64_t to) {
  return (bytes + to - 1) / to * to;
}

int64_t bytes_of(const LoopBuffer& buffer) {
  return align(ir::storage_bytes(buffer.buffer->type.dtype, buffer.elements), buffer.alignment);
}

// The buffers that an instruction addresses as shared memory.
std::set<const ir::Buffer*> shared_only(const LoopKernel& kernel) {
  using Kind = LoopIntrinsic::Kind;
  std::set<const ir::Buffer*> found;
  for (const LoopPhases& phases : kernel.phases) found.insert(phases.buffer.get());
  for_each_statement(kernel.body, [&](const LoopStmt& stmt) {
    const auto* intrinsic = std::get_if<LoopIntrinsic>(&stmt.node);
    if (!intrinsic) return;
    auto add = [&](size_t operand) { found.insert(intrinsic->operands[operand].buffer.get()); };
    if (intrinsic->kind == Kind::kLoadMatrix) add(1);
    if (intrinsic->kind == Kind::kGroupMma) add(1), add(2);
    if (intrinsic->kind == Kind::kCopyAsync || intrinsic->kind == Kind::kBulkCopy) add(0);
  });
  return found;
}

}  // namespace

bool plan_memory(LoopKernel* kernel, const Target& target) {
  const std::set<const ir::Buffer*> pinned = shared_only(*kernel);
  int64_t total = 0;
  for (const LoopBuffer& buffer : kernel->buffers)
    if (buffer.buffer->scope == ir::Scope::kShared) total += bytes_of(buffer);
  while (total > target.shared_limit) {
    LoopBuffer* largest = nullptr;
    for (LoopBuffer& buffer : kernel->buffers)
      if (buffer.buffer->scope == ir::Scope::kShared && !buffer.spilled && !pinned.count(buffer.buffer.get()) &&
          (!largest || bytes_of(buffer) > bytes_of(*largest)))
        largest = &buffer;
    if (!largest) return false;
    largest->spilled = true;
    total -= bytes_of(*largest);
  }
  // The strictest alignment first: sizes are multiples of it, so nothing is lost between.
  std::vector<LoopBuffer*> order;
  for (LoopBuffer& buffer : kernel->buffers)
    if (buffer.buffer->scope == ir::Scope::kShared) order.push_back(&buffer);
  std::stable_sort(order.begin(), order.end(),
                   [](const LoopBuffer* a, const LoopBuffer* b) { return a->alignment > b->alignment; });
  for (LoopBuffer* buffer : order) {
    int64_t& end = buffer->spilled ? kernel->workspace_bytes : kernel->shared_bytes;
    buffer->byte_offset = end;
    end += bytes_of(*buffer);
  }
  kernel->workspace_bytes = align(kernel->workspace_bytes, kSliceAlignment);
  if (kernel->workspace_bytes) {
    auto workspace = std::make_shared<ir::Buffer>(
        ir::Buffer{"workspace", ir::Scope::kGlobal, ir::Direction::kInOut, {ir::DType::U8, nullptr}, {}, {}});
    kernel->params.push_back({{Slot::Kind::kWorkspace, 0, 0}, nullptr, workspace});
  }
  return true;
}

}  // namespace kachel::lowering
