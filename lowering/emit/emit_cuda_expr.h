// Expressions of loop IR as CUDA C++: part of emit_cuda().
#pragma once
#include <set>
#include <string>

#include "lowering/emit/emit.h"

namespace kachel::lowering {

namespace cuda_text {

const char* memory_type(ir::DType type);  // of an element in memory
const char* value_type(ir::DType type);   // of its value in a register
bool is_narrow_float(ir::DType type);

}  // namespace cuda_text

class CudaExpressions {
 public:
  explicit CudaExpressions(const LoopKernel& kernel);

  const std::string& name(const ir::VarRef& var) { return names_.of(var.get(), var->name); }
  const std::string& name(const ir::BufferRef& buffer) { return names_.of(buffer.get(), buffer->name); }
  // `address`: an index operand, of which overflow does not matter.
  std::string text(const ir::ExprRef& expr, bool address);

 private:
  std::string load(const ir::ExprRef& expr);
  std::string cast(ir::DType to, const ir::ExprRef& arg, bool address);
  std::string apply(const ir::ExprRef& expr, bool address);

  const LoopKernel& kernel_;
  std::set<const ir::Buffer*> in_words_;  // registers of bf16 that nothing fills an element at a time
  Names names_;
};

}  // namespace kachel::lowering
