#include "ir/tunable_role.h"

#include <unordered_map>

#include "ir/concrete.h"
#include "ir/visit.h"

namespace kachel::ir {
namespace {

enum Use : uint8_t { kInStages = 1, kInProduct = 2, kInExtent = 4, kInParts = 8 };

class Uses {
 public:
  explicit Uses(const Kernel& kernel) {
    for (const IterVar& axis : kernel.grid) note(axis.extent, kInParts);
    for (const Param& param : kernel.params)
      if (param.tensor)
        for (const ExprRef& extent : param.tensor->shape) note(extent, kInParts);
    for_each_stmt(kernel.body, [&](const Stmt& stmt) { statement(stmt); });
  }
  explicit Uses(const Program& program) {
    for (const BufferRef& temp : program.temps)
      for (const ExprRef& extent : temp->shape) note(extent, kInParts);
    for (const Call& call : program.calls)
      for (const CallArg& argument : call.args) note(argument.value, kInParts);
  }

  TunableRole role(const VarRef& var) const {
    const auto found = uses_.find(var.get());
    const uint8_t uses = found == uses_.end() ? 0 : found->second;
    return uses & kInStages    ? TunableRole::kStages
           : uses & kInProduct ? TunableRole::kProduct
           : uses & kInExtent  ? TunableRole::kExtent
           : uses & kInParts   ? TunableRole::kParts
                               : TunableRole::kUnknown;
  }

 private:
  void note(const ExprRef& expr, Use use) {
    visit(expr, [&](const ExprRef& node) {
      if (node->kind == ExprKind::kVar && node->var->kind == VarKind::kTunable) uses_[node->var.get()] |= use;
    });
  }
  void extents_of(const TileRef& tile, Use use) {
    for (size_t axis = 0; axis < tile.axes.size(); ++axis) note(axis_extent(tile, axis), use);
  }

  void statement(const Stmt& stmt) {
    for_each_tile(stmt, [&](const TileRef& tile, bool) { extents_of(tile, kInExtent); });
    for_each_expr(stmt, [&](const ExprRef& expr) {
      visit(expr, [&](const ExprRef& node) {
        for (const IterVar& iter : node->iters) note(iter.extent, kInExtent);
      });
    });
    if (const auto* decl = std::get_if<DeclStmt>(&stmt.node)) {
      for (const ExprRef& extent : decl->buffer->shape) note(extent, kInExtent);
    } else if (const auto* gemm = std::get_if<GemmStmt>(&stmt.node)) {
      for (const TileRef* tile : {&gemm->c, &gemm->a, &gemm->b}) extents_of(*tile, kInProduct);
    } else if (const auto* region = std::get_if<ParallelStmt>(&stmt.node)) {
      for (const IterVar& iter : region->iters) note(iter.extent, kInExtent);
    } else if (const auto* loop = std::get_if<ForStmt>(&stmt.node)) {
      note(loop->stages, kInStages);
      note(loop->begin, kInParts);
      note(loop->end, kInParts);
    }
  }

  std::unordered_map<const Var*, uint8_t> uses_;
};

}  // namespace

bool mentions(const ExprRef& expr, const VarRef& var) {
  bool found = false;
  visit(expr, [&](const ExprRef& node) { found |= node->kind == ExprKind::kVar && node->var == var; });
  return found;
}

std::vector<TunableRole> roles_of(const Kernel& kernel) {
  const Uses uses(kernel);
  std::vector<TunableRole> roles;
  for (const Tunable& tunable : kernel.tunables)
    roles.push_back(tunable.var->name == "threads"           ? TunableRole::kThreads
                    : tunable.var->name == "cluster"         ? TunableRole::kCluster
                    : tunable.var->name == "cluster_columns" ? TunableRole::kClusterColumns
                                                             : uses.role(tunable.var));
  return roles;
}

std::vector<TunableRole> roles_of(const Program& program) {
  const Uses uses(program);
  std::vector<TunableRole> roles;
  for (const Tunable& tunable : program.header.tunables) roles.push_back(uses.role(tunable.var));
  return roles;
}

int64_t most_automatic(TunableRole role) {
  switch (role) {
    case TunableRole::kThreads:
      return 1024;
    case TunableRole::kCluster:
    case TunableRole::kClusterColumns:
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
