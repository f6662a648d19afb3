// Registers that the expansion of pipelines needs beside a kernel's own.
#pragma once
#include <map>
#include <utility>
#include <vector>

#include "lowering/loop_ir/loop_ir.h"

namespace kachel::lowering {

class FurtherRegisters {
 public:
  explicit FurtherRegisters(const LoopKernel& kernel) : kernel_(kernel) {}
  // Of f32, for what is rounded to a register buffer of the kernel: the same ones for the same buffer.
  const LoopBuffer& exact(const ir::BufferRef& registers);
  // As many of the same type: a second place for it.
  const LoopBuffer& other(const ir::BufferRef& registers);
  // Of a register buffer of the kernel.
  int64_t elements(const ir::Buffer* registers) const;
  // Whether nothing but these statements touches a register buffer of the kernel.
  bool only_in(const LoopBlock& part, const ir::Buffer* registers) const;
  // Of 32 bits, that a thread has and its arrays leave over.
  int64_t free() const;
  // All, in the order of what they stand for.
  std::vector<LoopBuffer> all() const;

 private:
  enum class Use { kExact, kOther };
  const LoopBuffer& make(const ir::BufferRef& registers, Use use, ir::DType type, const char* suffix);

  const LoopKernel& kernel_;
  std::map<std::pair<const ir::Buffer*, Use>, LoopBuffer> made_;
};

}  // namespace kachel::lowering
