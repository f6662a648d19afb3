#include <fmt/format.h>

#include <algorithm>

#include "ir/verify_rules.h"

namespace kachel::ir {
namespace {

bool is_scalar_type(DType type) {
  return compute_type(type) == type;
}

}  // namespace

void check_host(const ExprRef& expr, bool scalars, std::string_view place, Diagnostics& out) {
  visit(expr, [&](const ExprRef& node) {
    if (node->kind == ExprKind::kLoad)
      out.push_back({node->loc,
                     fmt::format("{} reads the tensor `{}`, which the host cannot see", place, node->buffer->name),
                     "use dimensions, constants, tunables and scalars; read memory in the body"});
    if (is_reduction(*node))
      out.push_back({node->loc, fmt::format("a reduction in {}", place), "write the value as a formula"});
    if (!scalars && node->kind == ExprKind::kVar && node->var->kind == VarKind::kScalar)
      out.push_back({node->loc, fmt::format("{} depends on the run-time scalar `{}`", place, node->var->name),
                     fmt::format("make it `const {}`, or bind a dimension", node->var->name)});
  });
}

namespace {

constexpr std::string_view kReduced = "the extent of a reduction";

class Extents {
 public:
  explicit Extents(Diagnostics& out) : out_(out) {}

  void extent(const ExprRef& expr, std::string_view what, Loc loc) {
    if (expr->loc.line > 0) loc = expr->loc;
    if (is_const(expr) && (expr->kind != ExprKind::kInt || expr->int_value < 1)) {
      out_.push_back({loc, fmt::format("{} must be a positive integer", what), "write a number of at least 1"});
      return;
    }
    compile_time(expr, what, loc);
  }

  void compile_time(const ExprRef& expr, std::string_view what, Loc loc) {
    bool found = false;
    visit(expr, [&](const ExprRef& node) {
      if (found) return;
      std::string culprit;
      std::string_view mend = "build it from numbers, tunables, constants and dimensions, and mask what is too much";
      if (node->kind == ExprKind::kLoad) culprit = node->buffer->name;
      if (is_reduction(*node)) culprit = "a reduction";
      if (node->kind == ExprKind::kVar) {
        VarKind kind = node->var->kind;
        if (kind != VarKind::kDim && kind != VarKind::kConst && kind != VarKind::kTunable) culprit = node->var->name;
        if (kind == VarKind::kLet)
          mend =
              "`let` names what is computed at run time: write out what it stands for; if that is read from a tensor, "
              "take all that there may be and mask what is too much";
        if (kind == VarKind::kParallel && what == kReduced)
          mend =
              "up to an index of the region it is `sum[k <= i](x[k])` or `sum[k < i](x[k])`; else reduce over all that "
              "there may be, and mask what is too much";
      }
      if (culprit.empty()) return;
      found = true;
      out_.push_back({node->loc.line > 0 ? node->loc : loc,
                      fmt::format("{} must be known at compile time, `{}` is not", what, culprit), std::string(mend)});
    });
  }

  void tile(const TileRef& tile) {
    for (const AxisSpec& axis : tile.axes)
      if (axis.kind == AxisSpec::Kind::kRange) extent(axis.extent, "the length of a range", tile.loc);
    if (tile.pad) compile_time(tile.pad, "the padding", tile.loc);
  }

  void statement(const Stmt& stmt) {
    for_each_tile(stmt, [&](const TileRef& tile, bool) { this->tile(tile); });
    for_each_expr(stmt, [&](const ExprRef& expr) {
      visit(expr, [&](const ExprRef& node) {
        for (const IterVar& iter : node->iters) extent(iter.extent, kReduced, node->loc);
      });
    });
    if (const auto* decl = std::get_if<DeclStmt>(&stmt.node)) {
      for (const ExprRef& expr : decl->buffer->shape) extent(expr, "the extent of a tile", stmt.loc);
      if (decl->init) compile_time(decl->init, "the initial value of a tile", stmt.loc);
    } else if (const auto* region = std::get_if<ParallelStmt>(&stmt.node)) {
      for (const IterVar& iter : region->iters) extent(iter.extent, "the extent of `parallel`", stmt.loc);
    } else if (const auto* loop = std::get_if<ForStmt>(&stmt.node)) {
      if (loop->stages) extent(loop->stages, "the depth of a pipeline", stmt.loc);
    }
  }

 private:
  Diagnostics& out_;
};

}  // namespace

std::string show_type(const TypeRef& type) {
  if (type.accumulator && type.symbol) return "acc(" + type.symbol->name + ")";
  return type.symbol ? type.symbol->name : std::string(name(type.dtype));
}

std::vector<DType> possible_types(const TypeRef& type) {
  if (type.accumulator && type.symbol) {
    std::vector<DType> sums;
    for (DType option : type.symbol->options)
      if (std::find(sums.begin(), sums.end(), accumulator_type(option)) == sums.end())
        sums.push_back(accumulator_type(option));
    return sums;
  }
  return type.symbol ? type.symbol->options : std::vector<DType>{type.dtype};
}

void check_header(const Kernel& kernel, Diagnostics& out) {
  for (const TypeSymbolRef& symbol : kernel.type_symbols) {
    bool used = std::any_of(kernel.params.begin(), kernel.params.end(),
                            [&](const Param& param) { return param.tensor && param.tensor->type.symbol == symbol; });
    if (!used)
      out.push_back({symbol->loc,
                     fmt::format("no tensor has the type `{}`, so that a launch cannot determine it", symbol->name),
                     "give it to a tensor, or write a concrete type"});
  }
  for (const VarRef& var : kernel.consts)
    if (var->type.symbol || !is_scalar_type(var->type.dtype))
      out.push_back({var->loc, fmt::format("the constant `{}` cannot be {}", var->name, show_type(var->type)),
                     "constants are f32, i32, u32, i64, u64 or bool; convert where it is used"});
  for (const Param& param : kernel.params) {
    if (param.scalar && !param.scalar->type.symbol && !is_scalar_type(param.scalar->type.dtype))
      out.push_back({param.scalar->loc,
                     fmt::format("the scalar `{}` cannot be {}", param.scalar->name, show_type(param.scalar->type)),
                     "scalars are f32, i32, u32, i64, u64 or bool; convert where it is used"});
    if (!param.tensor) continue;
    for (const ExprRef& extent : param.tensor->shape) {
      check_host(extent, false, "a shape", out);
      if (is_const(extent) && (extent->kind != ExprKind::kInt || extent->int_value < 1))
        out.push_back(
            {extent->loc, "the extent of a tensor must be a positive integer", "write a number of at least 1"});
    }
  }
  for (const VarRef& dim : kernel.dims) {
    bool bound = std::any_of(kernel.params.begin(), kernel.params.end(), [&](const Param& param) {
      return param.tensor && std::any_of(param.tensor->shape.begin(), param.tensor->shape.end(),
                                         [&](const ExprRef& e) { return e->kind == ExprKind::kVar && e->var == dim; });
    });
    if (!bound)
      out.push_back({dim->loc, fmt::format("no tensor has the dimension `{}` as an extent", dim->name),
                     "a dimension is bound by a shape that names it alone"});
  }
  for (const ExprRef& expr : kernel.where) check_host(expr, true, "`where`", out);
  for (const ExprRef& expr : kernel.key) check_host(expr, true, "`key`", out);
  for (const IterVar& axis : kernel.grid) check_host(axis.extent, true, "the grid", out);
  for (const IterVar& axis : kernel.grid)
    if (is_const(axis.extent) && (axis.extent->kind != ExprKind::kInt || axis.extent->int_value < 1))
      out.push_back(
          {axis.extent->loc, "the extent of a grid axis must be a positive integer", "write a number of at least 1"});
}

void check_automatic(const Kernel& header, const std::vector<TunableRole>& roles, Diagnostics& out) {
  size_t count = 0;
  for (size_t i = 0; i < header.tunables.size(); ++i) {
    const VarRef& var = header.tunables[i].var;
    if (!header.tunables[i].automatic) continue;
    if (++count == kMostAutomatic + 1) {
      out.push_back({var->loc, fmt::format("more than {} tunables without values", kMostAutomatic),
                     "list the values of those that matter least"});
      return;
    }
    if (roles[i] == TunableRole::kUnknown)
      out.push_back({var->loc, fmt::format("what `{}` is used for does not say which values make sense", var->name),
                     fmt::format("list them: `tune {} = 1 | 2`", var->name)});
  }
}

void check_extents(const Kernel& kernel, Diagnostics& out) {
  Extents extents(out);
  for_each_stmt(kernel.body, [&](const Stmt& stmt) { extents.statement(stmt); });
}

}  // namespace kachel::ir
