#include "lowering/passes/further_registers.h"

#include <algorithm>

#include "lowering/loop_ir/loop_build.h"
#include "lowering/machine/machine.h"
#include "lowering/tile_ir/live_ranges.h"

namespace kachel::lowering {

const LoopBuffer& FurtherRegisters::exact(const ir::BufferRef& registers) {
  return make(registers, Use::kExact, ir::DType::F32, "_exact");
}

const LoopBuffer& FurtherRegisters::other(const ir::BufferRef& registers) {
  return make(registers, Use::kOther, registers->type.dtype, "_other");
}

const LoopBuffer& FurtherRegisters::make(const ir::BufferRef& registers, Use use, ir::DType type, const char* suffix) {
  auto [entry, fresh] = made_.try_emplace({registers.get(), use});
  if (!fresh) return entry->second;
  ir::Buffer copy = *registers;
  copy.name += suffix;
  copy.type = {type, nullptr};
  entry->second.buffer = std::make_shared<const ir::Buffer>(std::move(copy));
  entry->second.elements = elements(registers.get());
  return entry->second;
}

int64_t FurtherRegisters::elements(const ir::Buffer* registers) const {
  for (const LoopBuffer& buffer : kernel_.buffers)
    if (buffer.buffer.get() == registers) return buffer.elements;
  return 0;
}

bool FurtherRegisters::only_in(const LoopBlock& part, const ir::Buffer* registers) const {
  const auto accesses = [&](const LoopBlock& block) {
    size_t count = 0;
    for_each_statement(block, [&](const LoopStmt& stmt) {
      for_each_access(stmt, [&](const ir::BufferRef& buffer, bool) { count += buffer.get() == registers; });
    });
    return count;
  };
  return accesses(part) == accesses(kernel_.body);
}

int64_t FurtherRegisters::free() const {
  constexpr int64_t kMost = 255;  // of a thread
  const int64_t threads = kernel_.block_threads() + kernel_.producer_threads;
  const int64_t alike = std::min(kMost, machine_of(90).registers_per_sm / std::max<int64_t>(threads, 1));
  int64_t taken = live_registers(kernel_);
  for (const auto& [key, buffer] : made_) taken += (buffer.elements * ir::bits(buffer.buffer->type.dtype) + 31) / 32;
  return (kernel_.registers ? kernel_.registers : alike) - taken;
}

std::vector<LoopBuffer> FurtherRegisters::all() const {
  std::vector<LoopBuffer> all;
  for (const LoopBuffer& buffer : kernel_.buffers)
    for (const Use use : {Use::kExact, Use::kOther})
      if (auto found = made_.find({buffer.buffer.get(), use}); found != made_.end()) all.push_back(found->second);
  return all;
}

}  // namespace kachel::lowering
