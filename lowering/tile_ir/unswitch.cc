#include "lowering/tile_ir/unswitch.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

#include "ir/expansion.h"
#include "ir/instantiate.h"
#include "lowering/loop_ir/range.h"
#include "lowering/tile_ir/hoist_reductions.h"

namespace kachel::lowering {
namespace {

using ir::ExprKind;
using ir::ExprRef;
using ir::Op;

struct Linear {
  std::map<const ir::Var*, int64_t> coefficients;
  ExprRef rest;
};

class Unswitcher {
 public:
  ir::Kernel run(const ir::Kernel& kernel) {
    for (const ir::VarRef& dim : kernel.dims) ranges_.set(dim, {0, kMaxDim});
    for (const ir::IterVar& axis : kernel.grid) ranges_.set(axis.var, {0, kMaxDim - 1});
    ir::Kernel out = kernel;
    out.body = block(kernel.body, false);
    return out;
  }

 private:
  ir::Block block(const ir::Block& in, bool in_loop) {
    ir::Block out;
    for (const ir::Stmt& stmt : in) {
      ir::Stmt copy = stmt;
      if (auto* let = std::get_if<ir::LetStmt>(&copy.node)) {
        if (!ir::is_float(let->value->type)) ranges_.set(let->var, ranges_.of(let->value));
      } else if (auto* loop = std::get_if<ir::ForStmt>(&copy.node)) {
        const Interval begin = ranges_.of(loop->begin), end = ranges_.of(loop->end);
        ranges_.set(loop->var, {begin.lo, std::max(end.hi, begin.lo + 1) - 1});
        loop->body = block(loop->body, true);
      } else if (auto* branch = std::get_if<ir::IfStmt>(&copy.node)) {
        branch->then_body = block(branch->then_body, in_loop);
        branch->else_body = block(branch->else_body, in_loop);
      } else if (auto* region = std::get_if<ir::ParallelStmt>(&copy.node);
                 region && in_loop && !reduction_of(*region)) {
        this->region(stmt.loc, *region, &out);
        continue;
      }
      out.push_back(std::move(copy));
    }
    return out;
  }

  void region(ir::Loc loc, const ir::ParallelStmt& region, ir::Block* out) {
    lets_.clear();
    expansion_.clear();
    opaque_.clear();
    iters_.clear();
    for (const ir::IterVar& iter : region.iters) {
      iters_[iter.var.get()] = iter.extent->int_value;
      ranges_.set(iter.var, {0, iter.extent->int_value - 1});
    }
    ExprRef always;
    ir::ParallelStmt bare{region.iters, {}};
    for (const ir::Stmt& stmt : region.body) {
      bare.body.push_back(stmt);
      auto* let = std::get_if<ir::LetStmt>(&bare.body.back().node);
      if (!let) continue;
      let->value = ir::rewrite(let->value, [&](const ExprRef& node) {
        if (node->kind != ExprKind::kApply || node->op != Op::kSelect) return node;
        ExprRef holds = everywhere(inlined(node->args[0]));
        if (!holds || ir::is_const(holds)) return node;
        always = always ? ir::make_typed(Op::kAnd, {always, holds}) : holds;
        return node->args[1];
      });
      const ExprRef& value = std::get<ir::LetStmt>(stmt.node).value;
      expansion_.define(let->var.get(), value);
      if (expansion_.size(value) > kMostInlined)
        opaque_.insert(let->var.get());
      else
        lets_[let->var.get()] = inlined(value);
    }
    if (!always) {
      out->push_back({loc, region});
      return;
    }
    ir::IfStmt branch{always, {}, {}};
    branch.then_body.push_back({loc, std::move(bare)});
    branch.else_body.push_back({loc, region});
    out->push_back({loc, std::move(branch)});
  }

  ExprRef inlined(const ExprRef& expr) const {
    return ir::rewrite(expr, [&](const ExprRef& node) {
      if (node->kind != ExprKind::kVar) return node;
      auto it = lets_.find(node->var.get());
      return it == lets_.end() ? node : it->second;
    });
  }
  bool is_uniform(const ExprRef& expr) const {
    bool uniform = true;
    ir::visit(expr, [&](const ExprRef& node) {
      uniform &= node->kind != ExprKind::kLoad && !ir::is_reduction(*node);
      uniform &= node->kind != ExprKind::kVar || (!iters_.count(node->var.get()) && !opaque_.count(node->var.get()));
    });
    return uniform;
  }

  // A condition without the region's variables under which `condition` holds in all of its iterations; null if none is
  // found.
  ExprRef everywhere(const ExprRef& condition) {
    if (is_uniform(condition)) return condition;
    if (condition->kind != ExprKind::kApply) return nullptr;
    const Op op = condition->op;
    if (op == Op::kAnd || op == Op::kOr) {
      ExprRef a = everywhere(condition->args[0]), b = everywhere(condition->args[1]);
      if (a && b) return ir::make_typed(op, {a, b});
      return op == Op::kAnd ? nullptr : a ? a : b;
    }
    if (op != Op::kLt && op != Op::kLe && op != Op::kGt && op != Op::kGe) return nullptr;
    const ExprRef &a = condition->args[0], &b = condition->args[1];
    if (a->type != b->type || (a->type != ir::DType::I64 && a->type != ir::DType::I32)) return nullptr;
    if (!ranges_.cannot_wrap(a) || !ranges_.cannot_wrap(b)) return nullptr;
    // Both sides are exact, so the corner that is worst for their difference decides.
    auto left = linear(a), right = linear(b);
    if (!left || !right) return nullptr;
    const bool less = op == Op::kLt || op == Op::kLe;
    ExprRef worst[2] = {left->rest, right->rest};
    for (const auto& [var, extent] : iters_) {
      const int64_t slope = left->coefficients[var] - right->coefficients[var];
      const int64_t at = (slope > 0) == less ? extent - 1 : 0;
      const int64_t offsets[2] = {left->coefficients[var] * at, right->coefficients[var] * at};
      for (int side = 0; side < 2; ++side)
        if (offsets[side]) worst[side] = ir::make_typed(Op::kAdd, {worst[side], ir::make_int(offsets[side], a->type)});
    }
    for (const ExprRef& side : worst)
      if (!ranges_.cannot_wrap(side)) return nullptr;
    return ir::fold(ir::make_typed(op, {worst[0], worst[1]}));
  }

  std::optional<Linear> linear(const ExprRef& expr) {
    if (is_uniform(expr)) return Linear{{}, expr};
    if (expr->kind == ExprKind::kVar && opaque_.count(expr->var.get())) return std::nullopt;
    if (expr->kind == ExprKind::kVar) return Linear{{{expr->var.get(), 1}}, ir::make_int(0, expr->type)};
    if (expr->kind != ExprKind::kApply) return std::nullopt;
    constexpr int64_t kMost = int64_t{1} << 30;  // of a coefficient, so that sums of products stay exact
    auto scaled = [&](Linear value, int64_t factor) -> std::optional<Linear> {
      for (auto& [var, coefficient] : value.coefficients)
        if (std::abs(coefficient) > kMost || (coefficient *= factor, std::abs(coefficient) > kMost))
          return std::nullopt;
      value.rest = ir::make_typed(Op::kMul, {value.rest, ir::make_int(factor, expr->type)});
      return value;
    };
    if (expr->op == Op::kAdd || expr->op == Op::kSub) {
      auto a = linear(expr->args[0]), b = linear(expr->args[1]);
      if (!a || !b) return std::nullopt;
      for (const auto& [var, coefficient] : b->coefficients)
        a->coefficients[var] += expr->op == Op::kAdd ? coefficient : -coefficient;
      a->rest = ir::make_typed(expr->op, {a->rest, b->rest});
      return a;
    }
    if (expr->op != Op::kMul) return std::nullopt;
    for (int constant = 0; constant < 2; ++constant) {
      const ExprRef& factor = expr->args[static_cast<size_t>(constant)];
      if (factor->kind != ExprKind::kInt || std::abs(factor->int_value) > kMost) continue;
      auto other = linear(expr->args[static_cast<size_t>(1 - constant)]);
      return other ? scaled(*other, factor->int_value) : std::nullopt;
    }
    return std::nullopt;
  }

  Ranges ranges_;
  static constexpr uint64_t kMostInlined = 256;       // nodes
  std::unordered_map<const ir::Var*, ExprRef> lets_;  // of the region, inlined
  std::set<const ir::Var*> opaque_;                   // those too large for that: nothing is known of them
  ir::Expansion expansion_;
  std::map<const ir::Var*, int64_t> iters_;  // of the region, with their extents
};

}  // namespace

ir::Kernel unswitch_masks(const ir::Kernel& kernel) {
  return Unswitcher().run(kernel);
}

}  // namespace kachel::lowering
