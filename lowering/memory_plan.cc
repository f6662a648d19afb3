#include "lowering/memory_plan.h"

namespace kachel::lowering {
namespace {

// One L2 line and one bank row: no two buffers share either.
constexpr int64_t kAlignment = 128;
constexpr int64_t kSliceAlignment = 256;

int64_t align(int64_t bytes, int64_t to) {
  return (bytes + to - 1) / to * to;
}

int64_t bytes_of(const LoopBuffer& buffer) {
  return align(ir::storage_bytes(buffer.buffer->type.dtype, buffer.elements), kAlignment);
}

}  // namespace

void plan_memory(LoopKernel* kernel, const Target& target) {
  int64_t total = 0;
  for (const LoopBuffer& buffer : kernel->buffers)
    if (buffer.buffer->scope == ir::Scope::kShared) total += bytes_of(buffer);
  while (total > target.shared_limit) {
    LoopBuffer* largest = nullptr;
    for (LoopBuffer& buffer : kernel->buffers)
      if (buffer.buffer->scope == ir::Scope::kShared && !buffer.spilled &&
          (!largest || bytes_of(buffer) > bytes_of(*largest)))
        largest = &buffer;
    largest->spilled = true;
    total -= bytes_of(*largest);
  }
  for (LoopBuffer& buffer : kernel->buffers) {
    if (buffer.buffer->scope != ir::Scope::kShared) continue;
    int64_t& end = buffer.spilled ? kernel->workspace_bytes : kernel->shared_bytes;
    buffer.byte_offset = end;
    end += bytes_of(buffer);
  }
  kernel->workspace_bytes = align(kernel->workspace_bytes, kSliceAlignment);
  if (kernel->workspace_bytes) {
    auto workspace = std::make_shared<ir::Buffer>(
        ir::Buffer{"workspace", ir::Scope::kGlobal, ir::Direction::kInOut, {ir::DType::U8, nullptr}, {}, {}});
    kernel->params.push_back({{Slot::Kind::kWorkspace, 0, 0}, nullptr, workspace});
  }
}

}  // namespace kachel::lowering
