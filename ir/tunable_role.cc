#include "ir/tunable_role.h"

#include <algorithm>

#include "ir/concrete.h"
#include "ir/visit.h"

namespace kachel::ir {
namespace {

class Uses {
 public:
  Uses(const Kernel& kernel, const VarRef& var) : var_(var) {
    for (const IterVar& axis : kernel.grid) parts_ |= is_in(axis.extent);
    for (const Param& param : kernel.params)
      if (param.tensor)
        for (const ExprRef& extent : param.tensor->shape) parts_ |= is_in(extent);
    for_each_stmt(kernel.body, [&](const Stmt& stmt) { statement(stmt); });
  }

  TunableRole role() const {
    return stages_    ? TunableRole::kStages
           : product_ ? TunableRole::kProduct
           : extent_  ? TunableRole::kExtent
           : parts_   ? TunableRole::kParts
                      : TunableRole::kUnknown;
  }

 private:
  bool is_in(const ExprRef& expr) const { return mentions(expr, var_); }
  bool is_extent_of(const TileRef& tile) const {
    for (size_t axis = 0; axis < tile.axes.size(); ++axis)
      if (is_in(axis_extent(tile, axis))) return true;
    return false;
  }

  void statement(const Stmt& stmt) {
    for_each_tile(stmt, [&](const TileRef& tile, bool) { extent_ |= is_extent_of(tile); });
    for_each_expr(stmt, [&](const ExprRef& expr) {
      visit(expr, [&](const ExprRef& node) {
        for (const IterVar& iter : node->iters) extent_ |= is_in(iter.extent);
      });
    });
    if (const auto* decl = std::get_if<DeclStmt>(&stmt.node)) {
      for (const ExprRef& extent : decl->buffer->shape) extent_ |= is_in(extent);
    } else if (const auto* gemm = std::get_if<GemmStmt>(&stmt.node)) {
      product_ |= is_extent_of(gemm->c) || is_extent_of(gemm->a) || is_extent_of(gemm->b);
    } else if (const auto* region = std::get_if<ParallelStmt>(&stmt.node)) {
      for (const IterVar& iter : region->iters) extent_ |= is_in(iter.extent);
    } else if (const auto* loop = std::get_if<ForStmt>(&stmt.node)) {
      stages_ |= is_in(loop->stages);
      parts_ |= is_in(loop->begin) || is_in(loop->end);
    }
  }

  const VarRef& var_;
  bool stages_ = false, product_ = false, extent_ = false, parts_ = false;
};

}  // namespace

bool mentions(const ExprRef& expr, const VarRef& var) {
  bool found = false;
  visit(expr, [&](const ExprRef& node) { found |= node->kind == ExprKind::kVar && node->var == var; });
  return found;
}

TunableRole role_of(const Kernel& kernel, const VarRef& var) {
  if (var->name == "threads") return TunableRole::kThreads;
  if (var->name == "cluster") return TunableRole::kCluster;
  return Uses(kernel, var).role();
}

TunableRole role_of(const Program& program, const VarRef& var) {
  for (const BufferRef& temp : program.temps)
    for (const ExprRef& extent : temp->shape)
      if (mentions(extent, var)) return TunableRole::kParts;
  for (const Call& call : program.calls)
    for (const CallArg& argument : call.args)
      if (mentions(argument.value, var)) return TunableRole::kParts;
  return TunableRole::kUnknown;
}

int64_t most_automatic(TunableRole role) {
  switch (role) {
    case TunableRole::kThreads:
      return 1024;
    case TunableRole::kCluster:
      return 2;
    case TunableRole::kStages:
      return 8;
    case TunableRole::kProduct:
    case TunableRole::kParts:
      return 256;
    case TunableRole::kExtent:
      return 8192;
    case TunableRole::kUnknown:
      break;
  }
  return 1;
}

}  // namespace kachel::ir
