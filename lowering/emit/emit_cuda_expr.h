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
// The number of a thread's warp group, as a value that the compiler knows to be the same in a warp: what instructions
// for a warp group are told is computed once a warp then, in uniform registers.
inline constexpr const char* kWarpGroup = "kachel_warp_group";

}  // namespace cuda_text

class CudaExpressions {
 public:
  explicit CudaExpressions(const LoopKernel& kernel);

  const std::string& name(const ir::VarRef& var) { return names_.of(var.get(), var->name); }
  const std::string& name(const ir::BufferRef& buffer) { return names_.of(buffer.get(), buffer->name); }
  // `address`: an index operand, of which overflow does not matter.
  std::string text(const ir::ExprRef& expr, bool address);
  bool names_warp_group() const { return names_warp_group_; }  // what has been written so far

 private:
  std::string load(const ir::ExprRef& expr);
  std::string cast(ir::DType to, const ir::ExprRef& arg, bool address);
  std::string apply(const ir::ExprRef& expr, bool address);

  const LoopKernel& kernel_;
  std::set<const ir::Buffer*> in_words_;  // registers of 16-bit floats that nothing fills an element at a time
  Names names_;
  bool names_warp_group_ = false;
};

}  // namespace kachel::lowering
