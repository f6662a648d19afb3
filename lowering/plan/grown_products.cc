#include "lowering/plan/grown_products.h"

#include "ir/visit.h"
#include "lowering/plan/gemm_choice.h"
#include "lowering/plan/padded_depth.h"
#include "lowering/plan/shared_results.h"

namespace kachel::lowering {
namespace {

// Products that tensor cores could multiply if their extents were others.
int left_over(const ir::Kernel& kernel, const Target& target) {
  int count = 0;
  ir::for_each_stmt(kernel.body, [&](const ir::Stmt& stmt) {
    const auto* gemm = std::get_if<ir::GemmStmt>(&stmt.node);
    count += gemm && may_take_mma(*gemm, target) && !choose_gemm(*gemm, target, {}).mma;
  });
  return count;
}

}  // namespace

ir::Kernel grown_products(const ir::Kernel& kernel, const Target& target, bool wide) {
  ir::Kernel by_depth = shared_results(padded_depth(kernel), target, wide);
  const int left = left_over(by_depth, target);
  if (left == 0) return by_depth;
  ir::Kernel by_axes = padded_depth(shared_results(kernel, target, wide));
  return left_over(by_axes, target) < left ? by_axes : by_depth;
}

}  // namespace kachel::lowering
