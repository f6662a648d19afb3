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

// What a statement does with registers: reads them as they were, or makes them anew.
template <class Fn>
void for_each_register(const LoopStmt& stmt, const Fn& fn) {
  for_each_statement(stmt, [&](const LoopStmt& inner) {
    const auto* mma = std::get_if<LoopIntrinsic>(&inner.node);
    const bool adds = mma && (mma->kind == LoopIntrinsic::Kind::kMma ||
                              (mma->kind == LoopIntrinsic::Kind::kGroupMma && mma->accumulate));
    for_each_access(inner, [&](const ir::BufferRef& buffer, bool write) {
      if (buffer->scope == ir::Scope::kRegister) fn(buffer.get(), write && !adds);
    });
  });
}

// What the statement, and nothing else of it, makes of other registers pair by pair, by kTurnMatrix: in their place.
const ir::Buffer* made_in_place(const LoopStmt& stmt) {
  const auto* loop = std::get_if<LoopFor>(&stmt.node);
  const auto* turn = loop && loop->body.size() == 1 ? std::get_if<LoopIntrinsic>(&loop->body[0].node) : nullptr;
  return turn && turn->kind == LoopIntrinsic::Kind::kTurnMatrix ? turn->operands[0].buffer.get() : nullptr;
}

using Sizes = std::map<const ir::Buffer*, int64_t>;

// Of the buffers in `sizes`, the others being counted elsewhere. `again`: the block is run again, so that what its
// first access reads lives throughout.
int64_t most_live(const LoopBlock& body, const Sizes& sizes, bool again) {
  LiveRanges ranges;
  BufferSet carried;
  for (size_t at = 0; at < body.size(); ++at) {
    BufferSet here, read;
    for_each_register(body[at], [&](const ir::Buffer* buffer, bool made) {
      if (!sizes.count(buffer)) return;
      here.insert(buffer);
      if (!made) read.insert(buffer);
    });
    for (const ir::Buffer* buffer : here) {
      const size_t first = at + (buffer == made_in_place(body[at]) ? 1 : 0);
      const auto [range, fresh] = ranges.try_emplace(buffer, LiveRange{first, first});
      range->second.last = std::max(first, at);
      if (fresh && again && read.count(buffer)) carried.insert(buffer);
    }
  }
  for (const ir::Buffer* buffer : carried) ranges[buffer] = {0, body.empty() ? 0 : body.size() - 1};
  int64_t most = 0;
  for (size_t at = 0; at < body.size(); ++at) {
    const auto* loop = std::get_if<LoopFor>(&body[at].node);
    const auto* branch = std::get_if<LoopIf>(&body[at].node);
    const bool parts = (loop && !loop->unroll) || branch;
    int64_t live = 0, within = 0;
    Sizes inner;
    for (const auto& [buffer, range] : ranges) {
      if (at < range.first || at > range.last) continue;
      if (parts && range.first == range.last)
        inner[buffer] = sizes.at(buffer);
      else
        live += sizes.at(buffer);
    }
    if (loop && parts) within = most_live(loop->body, inner, true);
    if (branch)
      within = std::max(most_live(branch->then_body, inner, false), most_live(branch->else_body, inner, false));
    most = std::max(most, live + within);
  }
  return most;
}

int64_t words_of(const LoopBuffer& buffer) {
  return (buffer.elements * ir::bits(buffer.buffer->type.dtype) + 31) / 32;
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
  for (const LoopHanded& handed : kernel.handed) always.insert(handed.place.get());
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
    for (size_t at = range->second.first; at <= range->second.last; ++at)
      if (at == kernel.body.size() || made_in_place(kernel.body[at]) != buffer.buffer.get())
        live[at] += words_of(buffer);
  }
  return *std::max_element(live.begin(), live.end());
}

int64_t most_live_registers(const LoopKernel& kernel) {
  Sizes sizes;
  for (const LoopBuffer& buffer : kernel.buffers)
    if (buffer.buffer->scope == ir::Scope::kRegister) sizes[buffer.buffer.get()] = words_of(buffer);
  return most_live(kernel.body, sizes, false);
}

}  // namespace kachel::lowering
