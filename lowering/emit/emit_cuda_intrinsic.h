// Intrinsics of loop IR as CUDA C++: part of emit_cuda().
#pragma once
#include <fmt/format.h>

#include <string>
#include <vector>

#include "lowering/emit/emit_cuda_expr.h"

namespace kachel::lowering {

class CudaIntrinsics {
 public:
  // Borrows both.
  CudaIntrinsics(const LoopKernel& kernel, CudaExpressions& expressions) : kernel_(kernel), expressions_(expressions) {}

  // Of kGroupMma, which are written in runs (group_run()), there are none.
  std::vector<std::string> statements(const LoopIntrinsic& node);
  // A pointer to the first element of an operand.
  std::string at(const LoopIntrinsic& node, size_t i);

 private:
  std::string first_only() const;
  std::string peers(const LoopIntrinsic& node);
  void packed_math(const LoopIntrinsic& node);
  template <class... Args>
  void say(fmt::format_string<Args...> format, Args&&... args) {
    out_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }

  const LoopKernel& kernel_;
  CudaExpressions& expressions_;
  std::vector<std::string> out_;
};

}  // namespace kachel::lowering
