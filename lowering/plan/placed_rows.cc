#include "lowering/plan/placed_rows.h"

#include <optional>
#include <utility>
#include <vector>

#include "ir/instantiate.h"
#include "ir/parallel.h"
#include "ir/tunable_role.h"
#include "ir/visit.h"
#include "lowering/plan/placement.h"
#include "lowering/tile_ir/region_value.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

using ir::AxisSpec;
using ir::ExprKind;
using ir::ExprRef;
using ir::Op;

constexpr uint64_t kMostInlined = 256;  // nodes of what is worked out for each row
constexpr int64_t kLeastBytes = 8;      // that a copy moves at once

// A region of its own for each element that the region assigns; empty where anything but names stands with these.
std::vector<ir::ParallelStmt> by_assignment(const ir::ParallelStmt& region) {
  std::vector<ir::ParallelStmt> regions;
  ir::ParallelStmt names{region.iters, {}};
  for (const ir::Stmt& stmt : region.body) {
    if (std::holds_alternative<ir::AssignStmt>(stmt.node)) {
      regions.push_back(names);
      regions.back().body.push_back(stmt);
    } else if (std::holds_alternative<ir::LetStmt>(stmt.node)) {
      names.body.push_back(stmt);
    } else {
      return {};
    }
  }
  return regions;
}

// `place` of an index `place + var`, neither of which is cut off at fewer bits than 64; null if it is none.
ExprRef before(const ExprRef& index, const ir::VarRef& var) {
  if (index->type != ir::DType::I64) return nullptr;
  if (index->kind == ExprKind::kVar && index->var == var) return ir::make_int(0, index->type);
  if (index->kind == ExprKind::kCast && index->cast_type.dtype == ir::DType::I64) return before(index->args[0], var);
  if (index->kind != ExprKind::kApply || index->op != Op::kAdd) return nullptr;
  for (const size_t side : {0, 1}) {
    const ExprRef &own = index->args[side], &other = index->args[1 - side];
    if (ir::mentions(other, var)) continue;
    if (const ExprRef rest = before(own, var)) return ir::fold(ir::make_typed(Op::kAdd, {rest, other}));
  }
  return nullptr;
}

// `column < D` beside `X[..., column]` with rows of D, of which nothing is read beyond them anyway.
bool is_end_of_rows(const ExprRef& condition, const ir::Expr& load, const ir::VarRef& column) {
  const auto is_column = [&](const ExprRef& expr) { return expr->kind == ExprKind::kVar && expr->var == column; };
  return condition->kind == ExprKind::kApply && condition->op == Op::kLt && is_column(condition->args[0]) &&
         is_column(load.args.back()) && ir::same(condition->args[1], load.buffer->shape.back());
}

class Rewriter {
 public:
  Rewriter(const ir::Kernel& kernel, uint64_t fact_mask) : kernel_(kernel), fact_mask_(fact_mask) {}

  ir::Block block(const ir::Block& body, bool pipelined) const {
    ir::Block out;
    for (ir::Stmt stmt : body) {
      const auto* loop = std::get_if<ir::ForStmt>(&stmt.node);
      const bool inner = pipelined || (loop && loop->pipelined);
      if (const auto* region = std::get_if<ir::ParallelStmt>(&stmt.node); region && pipelined)
        if (ir::Block copies = copied_all(*region); !copies.empty()) {
          out.insert(out.end(), copies.begin(), copies.end());
          continue;
        }
      replace_blocks(&stmt, [&](const ir::Block& nested) { return block(nested, inner); });
      out.push_back(std::move(stmt));
    }
    return out;
  }

 private:
  // Copies read tensors that nothing writes, so that their order is free.
  ir::Block copied_all(const ir::ParallelStmt& region) const {
    ir::Block copies;
    for (const ir::ParallelStmt& part : by_assignment(region)) {
      auto copy = copied(part);
      if (!copy) return {};
      copies.push_back({part.body.back().loc, std::move(*copy)});
    }
    return copies;
  }

  std::optional<ir::CopyStmt> copied(const ir::ParallelStmt& region) const {
    ExprRef value = region_value(region, kMostInlined);
    if (!value) return std::nullopt;
    const auto& assign = std::get<ir::AssignStmt>(region.body.back().node);
    if (assign.buffer->scope != ir::Scope::kShared || !ir::sets_all(region, assign)) return std::nullopt;
    // Of the tile's own type, as what is loaded has to be.
    const ir::DType type = assign.buffer->type.dtype;
    if (value->kind == ExprKind::kCast && value->cast_type.dtype == type) value = value->args[0];
    std::vector<ExprRef> conditions;
    for (; value->kind == ExprKind::kApply && value->op == Op::kSelect && ir::is_zero_constant(value->args[2]);
         value = value->args[1])
      conditions.push_back(value->args[0]);
    const ir::VarRef &row = region.iters[0].var, &column = region.iters[1].var;
    if (value->kind != ExprKind::kLoad || !may_copy(*value->buffer, *assign.buffer)) return std::nullopt;
    if (conditions.empty())
      if (auto rows = rows_in_order(*value, row, column, assign, region.iters)) return rows;
    if (!has_vectors(*value->buffer, *assign.buffer)) return std::nullopt;
    ExprRef condition;
    for (const ExprRef& each : conditions) {
      if (is_end_of_rows(each, *value, column)) continue;
      if (!is_unchanging(each) || ir::mentions(each, column)) return std::nullopt;
      condition = condition ? ir::make_typed(Op::kAnd, {condition, each}) : each;
    }
    return copy_of(*value, condition, row, column, assign, region.iters);
  }

  static bool may_copy(const ir::Buffer& tensor, const ir::Buffer& tile) {
    const ir::DType type = tensor.type.dtype;
    return tensor.scope == ir::Scope::kGlobal && is_unwritten(tensor) && type == tile.type.dtype && ir::bits(type) >= 8;
  }
  bool has_vectors(const ir::Buffer& tensor, const ir::Buffer& tile) const {
    const ir::DType type = tensor.type.dtype;
    for (const ir::Param& param : kernel_.params)
      if (param.tensor.get() == &tensor)
        return vector_bytes(kernel_, fact_mask_, param.tensor) >= kLeastBytes &&
               tile.shape[1]->int_value * ir::bits(type) / 8 % kLeastBytes == 0;
    return false;
  }

  // Rows and columns that follow each other are a slice.
  static std::optional<ir::CopyStmt> rows_in_order(const ir::Expr& load, const ir::VarRef& row,
                                                   const ir::VarRef& column, const ir::AssignStmt& assign,
                                                   const std::vector<ir::IterVar>& iters) {
    ir::TileRef slice{load.buffer, {}, nullptr, nullptr, nullptr, load.loc};
    bool has_rows = false;
    for (size_t axis = 0; axis < load.args.size(); ++axis) {
      const ExprRef& index = load.args[axis];
      const bool last = axis + 1 == load.args.size(), down = ir::mentions(index, row);
      if (!is_unchanging(index) || ir::mentions(index, column) != last || (down && (last || has_rows)))
        return std::nullopt;
      const ExprRef first = last || down ? before(index, last ? column : row) : index;
      if (!first || ir::mentions(first, row) || ir::mentions(first, column)) return std::nullopt;
      has_rows |= down;
      const auto kind = last || down ? AxisSpec::Kind::kRange : AxisSpec::Kind::kIndex;
      slice.axes.push_back({kind, first, last ? iters[1].extent : down ? iters[0].extent : nullptr, nullptr});
    }
    if (!has_rows) return std::nullopt;
    return ir::CopyStmt{whole_tile(assign.buffer), std::move(slice)};
  }

  static std::optional<ir::CopyStmt> copy_of(const ir::Expr& load, const ExprRef& condition, const ir::VarRef& row,
                                             const ir::VarRef& column, const ir::AssignStmt& assign,
                                             const std::vector<ir::IterVar>& iters) {
    ir::TileRef slice{load.buffer, {}, nullptr, nullptr, nullptr, load.loc};
    const auto element = std::make_shared<ir::Var>(*row);
    const auto of_row = [&](const ExprRef& value) {
      return ir::rewrite(value, [&](const ExprRef& node) {
        return node->kind == ExprKind::kVar && node->var == row ? ir::make_var(element) : node;
      });
    };
    bool placed = false;
    for (size_t axis = 0; axis + 1 < load.args.size(); ++axis) {
      const ExprRef& index = load.args[axis];
      if (!is_unchanging(index) || ir::mentions(index, column)) return std::nullopt;
      AxisSpec spec;
      spec.kind = AxisSpec::Kind::kIndex;
      spec.start = index;
      if (ir::mentions(index, row)) {
        spec.start = ir::make_int(0, ir::DType::I64);
        spec.element = element;
        spec.index = of_row(index);
        if (!placed) {
          spec.kind = AxisSpec::Kind::kGather;
          spec.start = nullptr;
          spec.extent = iters[0].extent;
          if (condition)
            spec.index =
                ir::make_typed(Op::kSelect, {of_row(condition), spec.index, ir::make_int(-1, spec.index->type)});
        }
        placed = true;
      }
      slice.axes.push_back(std::move(spec));
    }
    const ExprRef& last = load.args.back();
    const ExprRef first = ir::mentions(last, row) || !is_unchanging(last) ? nullptr : before(last, column);
    if (!placed || !first) return std::nullopt;
    slice.axes.push_back({AxisSpec::Kind::kRange, first, iters[1].extent, nullptr});
    ir::TileRef whole = whole_tile(assign.buffer);
    return ir::CopyStmt{std::move(whole), std::move(slice)};
  }

  const ir::Kernel& kernel_;
  const uint64_t fact_mask_;
};

}  // namespace

ir::Kernel placed_rows(const ir::Kernel& kernel, uint64_t fact_mask) {
  ir::Kernel out = kernel;
  out.body = Rewriter(kernel, fact_mask).block(kernel.body, false);
  return out;
}

}  // namespace kachel::lowering
