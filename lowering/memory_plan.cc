#include "lowering/memory_plan.h"

#include <algorithm>
#include <set>

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
void collect_shared_only(const LoopBlock& body, std::set<const ir::Buffer*>* found) {
  using Kind = LoopIntrinsic::Kind;
  for (const LoopStmt& stmt : body) {
    if (const auto* intrinsic = std::get_if<LoopIntrinsic>(&stmt.node)) {
      if (intrinsic->kind == Kind::kLoadMatrix) found->insert(intrinsic->operands[1].buffer.get());
      if (intrinsic->kind == Kind::kGroupMma)
        for (size_t operand : {1, 2}) found->insert(intrinsic->operands[operand].buffer.get());
      if (intrinsic->kind == Kind::kCopyAsync || intrinsic->kind == Kind::kBulkCopy) found->insert(intrinsic->operands[0].buffer.get());
    } else if (const auto* loop = std::get_if<LoopFor>(&stmt.node)) {
      collect_shared_only(loop->body, found);
    } else if (const auto* threads = std::get_if<LoopThreads>(&stmt.node)) {
      collect_shared_only(threads->body, found);
    } else if (const auto* branch = std::get_if<LoopIf>(&stmt.node)) {
      collect_shared_only(branch->then_body, found);
      collect_shared_only(branch->else_body, found);
    } else if (const auto* pipeline = std::get_if<LoopPipeline>(&stmt.node)) {
      collect_shared_only(pipeline->produce, found);
      collect_shared_only(pipeline->consume, found);
    }
  }
}

}  // namespace

bool plan_memory(LoopKernel* kernel, const Target& target) {
  std::set<const ir::Buffer*> shared_only;
  collect_shared_only(kernel->body, &shared_only);
  for (const LoopPhases& phases : kernel->phases) shared_only.insert(phases.buffer.get());
  int64_t total = 0;
  for (const LoopBuffer& buffer : kernel->buffers)
    if (buffer.buffer->scope == ir::Scope::kShared) total += bytes_of(buffer);
  while (total > target.shared_limit) {
    LoopBuffer* largest = nullptr;
    for (LoopBuffer& buffer : kernel->buffers)
      if (buffer.buffer->scope == ir::Scope::kShared && !buffer.spilled && !shared_only.count(buffer.buffer.get()) &&
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
