#include "tests/lowering/simulated_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace kachel::lowering {
namespace {

constexpr int64_t kAlignment = 256;  // of the workspace's slice, and more than that of the arena

std::vector<uint8_t> room_for(int64_t bytes) {
  return std::vector<uint8_t>(static_cast<size_t>(bytes + kAlignment), 0);
}
uint8_t* aligned(std::vector<uint8_t>& memory) {
  const auto address = reinterpret_cast<uintptr_t>(memory.data());
  return memory.data() + (kAlignment - address % kAlignment) % kAlignment;
}

}  // namespace

SimMemory::SimMemory(const LoopKernel& kernel, const SimProgram& program, const std::vector<int64_t>& params,
                     const std::vector<Allocation>& memory, Simulation* result)
    : program_(program),
      arena_(room_for(kernel.shared_bytes)),
      workspace_(room_for(kernel.workspace_bytes)),
      fences_(static_cast<size_t>(kernel.teams * kernel.threads + kernel.copiers)),
      result_(*result) {
  for (const Allocation& allocation : memory) {
    globals_.push_back({static_cast<uint8_t*>(allocation.data), {}});
    globals_.back().shadows.resize(allocation.bytes);
  }
  shared_.data = aligned(arena_);
  shared_.shadows.resize(static_cast<size_t>(kernel.shared_bytes));
  spilled_.data = aligned(workspace_);
  spilled_.shadows.resize(static_cast<size_t>(kernel.workspace_bytes));
  for (const SimBuffer& buffer : program.buffers) region_of_.push_back(find_region(buffer, params));
}

SimMemory::Region* SimMemory::find_region(const SimBuffer& buffer, const std::vector<int64_t>& params) {
  if (buffer.kind == SimBuffer::Kind::kShared) return &shared_;
  if (buffer.kind == SimBuffer::Kind::kWorkspace) return &spilled_;
  if (buffer.kind == SimBuffer::Kind::kRegister) return nullptr;
  const auto* pointer = std::bit_cast<uint8_t*>(params[static_cast<size_t>(buffer.param)]);
  for (Region& region : globals_)
    if (pointer == region.data) return &region;
  return nullptr;  // the workspace itself
}

void SimMemory::start_block() {
  std::fill(arena_.begin(), arena_.end(), kPoison);
  std::fill(workspace_.begin(), workspace_.end(), kPoison);
  std::fill(fences_.begin(), fences_.end(), ++clock_);
}

uint8_t* SimMemory::element(int number, int64_t at, const Agent& agent, Access kind) {
  const SimBuffer& buffer = program_.buffers[static_cast<size_t>(number)];
  if (buffer.kind == SimBuffer::Kind::kRegister) {
    if (at < 0 || at >= buffer.elements) return outside(buffer, at);
    return agent.registers + buffer.offset;
  }
  const int width = ir::bits(buffer.type);
  const int64_t first = width == 4 ? at >> 1 : at * (width / 8), bytes = width == 4 ? 1 : width / 8;
  Region* region = region_of_[static_cast<size_t>(number)];
  if (!inside(buffer, region, at, 1, first + bytes)) return nullptr;
  check(buffer, region, at, first, bytes, agent, kind);
  return region->data + buffer.offset;
}

uint8_t* SimMemory::vector(int number, int64_t at, int64_t elements, int64_t alignment, const Agent& agent,
                           Access kind) {
  const SimBuffer& buffer = program_.buffers[static_cast<size_t>(number)];
  const int64_t width = ir::bits(buffer.type) / 8, first = at * width;
  auto misaligned = [&]() -> uint8_t* {
    fail(fmt::format("an access of {} bytes at element {} of `{}` is not aligned", alignment, at, buffer.name));
    return nullptr;
  };
  if (buffer.kind == SimBuffer::Kind::kRegister) {
    if (at < 0 || at + elements > buffer.elements) return outside(buffer, at);
    if (first % alignment) return misaligned();  // emit_cuda.cc aligns each array to 16 bytes
    return agent.registers + buffer.offset + first;
  }
  Region* region = region_of_[static_cast<size_t>(number)];
  if (!inside(buffer, region, at, elements, first + elements * width)) return nullptr;
  uint8_t* pointer = region->data + buffer.offset + first;
  if (reinterpret_cast<uintptr_t>(pointer) % static_cast<uintptr_t>(alignment)) return misaligned();
  check(buffer, region, at, first, elements * width, agent, kind);
  return pointer;
}

void SimMemory::mark_pending(int number, int64_t at, int64_t elements, int32_t thread) {
  const SimBuffer& buffer = program_.buffers[static_cast<size_t>(number)];
  const int64_t width = ir::bits(buffer.type) / 8, first = buffer.offset + at * width;
  for (int64_t i = 0; i < elements * width; ++i)
    region_of_[static_cast<size_t>(number)]->shadows[static_cast<size_t>(first + i)].pending = thread;
}

void SimMemory::arrived(int number, int64_t at, int64_t elements, bool by_thread) {
  mark_pending(number, at, elements, -1);
  const SimBuffer& buffer = program_.buffers[static_cast<size_t>(number)];
  const int64_t width = ir::bits(buffer.type) / 8, first = buffer.offset + at * width;
  for (int64_t i = 0; i < elements * width; ++i)
    region_of_[static_cast<size_t>(number)]->shadows[static_cast<size_t>(first + i)].copied_clock =
        by_thread ? clock_ : 0;
}

void SimMemory::check_fenced(int number, int64_t at, int64_t elements) {
  const SimBuffer& buffer = program_.buffers[static_cast<size_t>(number)];
  const int64_t width = ir::bits(buffer.type) / 8, first = buffer.offset + at * width;
  for (int64_t i = 0; i < elements * width; ++i) {
    const Shadow& shadow = region_of_[static_cast<size_t>(number)]->shadows[static_cast<size_t>(first + i)];
    if (shadow.last_reader < 0 || shadow.read_clock < fences_[static_cast<size_t>(shadow.last_reader)]) continue;
    return race(fmt::format("the copy engine writes element {} of `{}` that thread {} has read and not fenced",
                            at + i / width, buffer.name, shadow.last_reader));
  }
}

int64_t SimMemory::shared_address(int number, int64_t at) const {
  const SimBuffer& buffer = program_.buffers[static_cast<size_t>(number)];
  return buffer.kind == SimBuffer::Kind::kShared ? buffer.offset + at * (ir::bits(buffer.type) / 8) : -1;
}

uint8_t* SimMemory::outside(const SimBuffer& buffer, int64_t at) {
  fail(fmt::format("element {} of `{}` is outside of its memory", at, buffer.name));
  return nullptr;
}

bool SimMemory::inside(const SimBuffer& buffer, const Region* region, int64_t at, int64_t elements, int64_t end) {
  const bool global = buffer.kind == SimBuffer::Kind::kGlobal;
  const int64_t limit = !region  ? 0
                        : global ? static_cast<int64_t>(region->shadows.size())
                                 : ir::storage_bytes(buffer.type, buffer.elements);
  if (at >= 0 && end <= limit) return true;
  outside(buffer, at < 0 ? at : at + elements - 1);
  return false;
}

void SimMemory::check(const SimBuffer& buffer, Region* region, int64_t at, int64_t first, int64_t bytes,
                      const Agent& agent, Access kind) {
  if (buffer.handed) return;
  const char* conflict = nullptr;
  int32_t other = -1;
  for (int64_t i = 0; i < bytes; ++i) {
    Shadow& shadow = region->shadows[static_cast<size_t>(buffer.offset + first + i)];
    note(shadow, agent, kind, &conflict, &other);
    if (kind == Access::kRead) shadow.last_reader = agent.thread, shadow.read_clock = clock_;
  }
  if (!conflict) return;
  race(fmt::format("thread {} {} element {} of `{}` that {} {}", agent.thread,
                   kind == Access::kRead || kind == Access::kProduct ? "reads" : "writes", at, buffer.name,
                   other == kMany     ? "several threads have"
                   : other == kAtomic ? "an atomic has"
                                      : fmt::format("thread {} has", other),
                   conflict));
}

// Sets `conflict` to what another thread has done to this byte.
void SimMemory::note(Shadow& shadow, const Agent& agent, Access kind, const char** conflict, int32_t* other) const {
  const int32_t thread = agent.warp ? kMany : agent.thread;
  const bool written = shadow.written_at == barrier_, read = shadow.read_at == barrier_;
  if (agent.met) {
    if (!written || shadow.writer == kMany || shadow.writer / 32 == agent.thread / 32) return;
    *conflict = "written";
    *other = shadow.writer;
    return;
  }
  const bool both_atomic = kind == Access::kAtomic && shadow.writer == kAtomic;
  if (written && shadow.writer != thread && !both_atomic) {
    *conflict = "written";
    *other = shadow.writer;
  }
  if (shadow.pending >= 0) {  // its own thread's too
    *conflict = "not finished copying";
    *other = shadow.pending;
  }
  if (kind == Access::kProduct && shadow.writer >= 0 && shadow.clock >= fences_[static_cast<size_t>(shadow.writer)]) {
    *conflict = "not fenced";
    *other = shadow.writer;
  }
  if (kind == Access::kProduct && shadow.copied_clock &&
      shadow.copied_clock >= fences_[static_cast<size_t>(agent.thread)]) {
    *conflict = "copied, with no fence since";
    *other = kMany;
  }
  if (kind == Access::kProduct && shadow.maker >= 0 &&
      shadow.made_clock >= fences_[static_cast<size_t>(shadow.maker)]) {
    *conflict = "stored and not fenced";
    *other = shadow.maker;
  }
  if (kind == Access::kFill || kind == Access::kMake) {
    shadow.maker = kind == Access::kMake ? thread : -1;
    shadow.made_clock = clock_;
    return;
  }
  if (kind == Access::kRead || kind == Access::kProduct) {
    shadow.reader = read && shadow.reader != thread ? kMany : thread;
    shadow.read_at = barrier_;
    return;
  }
  if (read && shadow.reader != thread) {
    *conflict = "read";
    *other = shadow.reader;
  }
  shadow.writer = kind == Access::kAtomic ? kAtomic : thread;
  shadow.written_at = barrier_;
  shadow.clock = clock_;
}

}  // namespace kachel::lowering
