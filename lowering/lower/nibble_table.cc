#include "lowering/lower/nibble_table.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "ir/instantiate.h"
#include "ir/numerics.h"
#include "lowering/planted.h"

namespace kachel::lowering {

using ir::DType;
using ir::ExprKind;
using ir::ExprRef;
using ir::Op;

namespace {

constexpr int kMostNodes = 500;

// What is left of an expression besides the nibble.
class Function {
 public:
  explicit Function(const ExprRef& expr) : valid_(look(expr)) {}
  bool is_table() const { return valid_ && nibble_ && selects_; }
  const NibbleRead& read() const { return read_; }

  // With the integer in place of the nibble.
  ExprRef at(const ExprRef& expr, int64_t integer) const {
    if (expr->kind == ExprKind::kApply && nibble_read(*expr)) return ir::make_int(integer, expr->type);
    if (expr->args.empty()) return expr;
    auto copy = std::make_shared<ir::Expr>(*expr);
    for (ExprRef& arg : copy->args) arg = at(arg, integer);
    return copy;
  }

 private:
  bool look(const ExprRef& expr) {
    if (++nodes_ > kMostNodes) return false;
    if (ir::is_const(expr)) return true;
    if (expr->kind == ExprKind::kCast) return look(expr->args[0]);
    if (expr->kind != ExprKind::kApply) return false;
    if (const auto read = nibble_read(*expr)) {
      if (read->byte->buffer->scope != ir::Scope::kShared || (nibble_ && !ir::same(nibble_, expr))) return false;
      nibble_ = expr;
      read_ = *read;
      return true;
    }
    const Op op = expr->op;
    selects_ |= op != Op::kAdd && op != Op::kSub && op != Op::kMul && op != Op::kNeg;
    return std::all_of(expr->args.begin(), expr->args.end(), [this](const ExprRef& arg) { return look(arg); });
  }

  int nodes_ = 0;
  ExprRef nibble_;
  NibbleRead read_{};
  bool selects_ = false;  // more than pairs of numbers can be computed with at a time
  const bool valid_;
};

}  // namespace

bool are_numbers(DType type, const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [type](double value) {
    return std::isfinite(value) && ir::decode_float(type, ir::encode_float(type, value)) == value;
  });
}

std::optional<NibbleTable> nibble_table(const ExprRef& expr, const RegionIndexes& indexes) {
  const bool computed = expr->kind == ExprKind::kApply || expr->kind == ExprKind::kCast;
  if (!computed || expr->type != DType::F32) return std::nullopt;
  const ExprRef all = indexes.inlined(expr);
  const Function function(all);
  if (!function.is_table()) return std::nullopt;
  NibbleTable table{function.read(), {}};
  for (int64_t bits = 0; bits < 16; ++bits) {
    const int64_t which = planted(Planted::kTableHalves) ? bits ^ 8 : bits;
    const ExprRef value = ir::fold(function.at(all, table.read.type == DType::I4 ? (which ^ 8) - 8 : which));
    if (value->kind != ExprKind::kFloat) return std::nullopt;
    table.values.push_back(value->float_value);
  }
  if (!are_numbers(DType::F16, table.values) && !are_numbers(DType::BF16, table.values)) return std::nullopt;
  return table;
}

std::vector<const ir::LetStmt*> lets_beside_tables(const ir::ForwardedRegion& region, const RegionIndexes& indexes) {
  std::vector<const ir::LetStmt*> needed;
  bool any = false;  // of 4 bits
  for (const ir::LetStmt& let : region.lets) {
    ir::visit(let.value, [&](const ExprRef& node) { any |= nibble_read(*node).has_value(); });
    needed.push_back(&let);
  }
  if (!any || region.stores.empty()) return needed;  // without stores: the terms of a sum
  needed.clear();
  std::set<const ir::Var*> used;
  const std::function<void(const ExprRef&)> note = [&](const ExprRef& expr) {
    if (!expr || nibble_table(expr, indexes)) return;
    if (expr->kind == ExprKind::kVar) used.insert(expr->var.get());
    for (const ir::IterVar& iter : expr->iters) note(iter.extent);
    for (const ExprRef& arg : expr->args) note(arg);
  };
  for (const ir::GuardedStore& guarded : region.stores) {
    note(guarded.guard);
    note(guarded.store.value);
    for (const ExprRef& index : guarded.store.indices) note(index);
  }
  for (auto let = region.lets.rbegin(); let != region.lets.rend(); ++let) {
    if (!used.count(let->var.get())) continue;
    note(let->value);
    needed.push_back(&*let);
  }
  std::reverse(needed.begin(), needed.end());
  return needed;
}

}  // namespace kachel::lowering
