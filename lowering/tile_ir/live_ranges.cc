#include "lowering/tile_ir/live_ranges.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "lowering/loop_ir/loop_build.h"
#include "lowering/planted.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

void touch(const BufferSet& buffers, size_t at, LiveRanges* ranges) {
  for (const ir::Buffer* buffer : buffers) {
    auto [it, fresh] = ranges->try_emplace(buffer, LiveRange{at, at});
    if (!fresh && !planted(Planted::kShortLife)) it->second.last = at;
  }
}

}  // namespace

LiveRanges live_ranges(const ir::Kernel& kernel) {
  LiveRanges ranges;
  for (size_t at = 0; at < kernel.body.size(); ++at) {
    const auto* decl = std::get_if<ir::DeclStmt>(&kernel.body[at].node);
    if (decl && !decl->init) continue;
    BufferSet used;
    note_uses(kernel.body[at], &used);
    touch(used, at, &ranges);
  }
  return ranges;
}

LiveRanges live_ranges(const LoopKernel& kernel) {
  LiveRanges ranges;
  BufferSet always;
  for (size_t at = 0; at < kernel.body.size(); ++at) {
    BufferSet used;
    for_each_statement(kernel.body[at], [&](const LoopStmt& stmt) {
      for_each_access(stmt, [&](const ir::BufferRef& buffer, bool) { used.insert(buffer.get()); });
      if (const auto* pipeline = std::get_if<LoopPipeline>(&stmt.node); pipeline && pipeline->bulk)
        for (const ir::BufferRef& buffer : pipeline->buffers) always.insert(buffer.get());
    });
    touch(used, at, &ranges);
  }
  if (kernel.one_tile)
    for (const ir::Buffer* filled : std::exchange(always, {})) ranges[filled].first = 0;
  for (const LoopPhases& phases : kernel.phases) always.insert(phases.buffer.get());
  for (const LoopBuffer& buffer : kernel.buffers) {
    if (!buffer.of_warps) continue;  // the copy engine reads it after its last use
    if (kernel.one_tile && ranges.count(buffer.buffer.get()))
      ranges[buffer.buffer.get()].last = kernel.body.size();
    else
      always.insert(buffer.buffer.get());
  }
  for (const ir::Buffer* buffer : always) ranges[buffer] = {0, kernel.body.size()};
  return ranges;
}

int64_t live_registers(const LoopKernel& kernel) {
  const LiveRanges ranges = live_ranges(kernel);
  std::vector<int64_t> live(kernel.body.size() + 1, 0);
  for (const LoopBuffer& buffer : kernel.buffers) {
    const auto range = ranges.find(buffer.buffer.get());
    if (buffer.buffer->scope != ir::Scope::kRegister || range == ranges.end()) continue;
    const int64_t registers = (buffer.elements * ir::bits(buffer.buffer->type.dtype) + 31) / 32;
    for (size_t at = range->second.first; at <= range->second.last; ++at) live[at] += registers;
  }
  return *std::max_element(live.begin(), live.end());
}

}  // namespace kachel::lowering
