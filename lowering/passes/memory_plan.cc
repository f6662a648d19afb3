#include "lowering/passes/memory_plan.h"

#include <algorithm>
#include <set>

#include "lowering/loop_ir/loop_build.h"
#include "lowering/tile_ir/live_ranges.h"

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
    if (intrinsic->kind == Kind::kStoreMatrix) add(0);
    if (intrinsic->kind == Kind::kBulkStore) add(1);
    if (intrinsic->kind == Kind::kCopyAsync || intrinsic->kind == Kind::kBulkCopy ||
        intrinsic->kind == Kind::kStoreShifted)
      add(0);
  });
  return found;
}

bool meets(const LiveRanges& ranges, const LoopBuffer& a, const LoopBuffer& b) {
  const auto first = ranges.find(a.buffer.get()), second = ranges.find(b.buffer.get());
  return first != ranges.end() && second != ranges.end() && first->second.meets(second->second);
}

// Gives each buffer the lowest address at which it meets none that lives when it does; the strictest alignment first.
// Returns the end.
int64_t place(std::vector<LoopBuffer*> buffers, const LiveRanges* ranges) {
  std::stable_sort(buffers.begin(), buffers.end(),
                   [](const LoopBuffer* a, const LoopBuffer* b) { return a->alignment > b->alignment; });
  int64_t end = 0;
  std::vector<const LoopBuffer*> placed;  // by address
  for (LoopBuffer* buffer : buffers) {
    buffer->byte_offset = 0;
    for (const LoopBuffer* other : placed) {
      if (ranges && !meets(*ranges, *buffer, *other)) continue;
      if (buffer->byte_offset + bytes_of(*buffer) <= other->byte_offset) break;
      buffer->byte_offset =
          std::max(buffer->byte_offset, align(other->byte_offset + bytes_of(*other), buffer->alignment));
    }
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), buffer,
                         [](const LoopBuffer* a, const LoopBuffer* b) { return a->byte_offset < b->byte_offset; }),
        buffer);
    end = std::max(end, buffer->byte_offset + bytes_of(*buffer));
  }
  return end;
}

}  // namespace

bool share_memory(const LoopBuffer& a, const LoopBuffer& b) {
  const auto shared = ir::Scope::kShared;
  return a.buffer->scope == shared && b.buffer->scope == shared && a.spilled == b.spilled &&
         a.byte_offset < b.byte_offset + bytes_of(b) && b.byte_offset < a.byte_offset + bytes_of(a);
}

bool plan_memory(LoopKernel* kernel, const Target& target) {
  const std::set<const ir::Buffer*> pinned = shared_only(*kernel);
  const LiveRanges ranges = live_ranges(*kernel);
  // One thread needs no barriers, which are what keeps the lives of buffers apart.
  const LiveRanges* together = kernel->threads > 1 ? &ranges : nullptr;
  std::vector<LoopBuffer*> inside, spilled;
  for (LoopBuffer& buffer : kernel->buffers)
    if (buffer.buffer->scope == ir::Scope::kShared) inside.push_back(&buffer);
  while ((kernel->shared_bytes = place(inside, together)) > target.shared_limit) {
    auto largest = inside.end();
    for (auto it = inside.begin(); it != inside.end(); ++it)
      if (!pinned.count((*it)->buffer.get()) && (largest == inside.end() || bytes_of(**it) > bytes_of(**largest)))
        largest = it;
    if (largest == inside.end()) {
      for (LoopBuffer* buffer : spilled) buffer->spilled = false;
      return false;
    }
    (*largest)->spilled = true;
    spilled.push_back(*largest);
    inside.erase(largest);
  }
  kernel->workspace_bytes = align(place(spilled, nullptr), kSliceAlignment);
  if (kernel->workspace_bytes) {
    auto workspace = std::make_shared<ir::Buffer>(
        ir::Buffer{"workspace", ir::Scope::kGlobal, ir::Direction::kInOut, {ir::DType::U8, nullptr}, {}, {}});
    kernel->params.push_back({{Slot::Kind::kWorkspace, 0, 0}, nullptr, workspace});
  }
  return true;
}

}  // namespace kachel::lowering
