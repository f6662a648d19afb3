// Reductions and prefix reductions: `sum[k < n](e)`, `max[k <= j](e)`.
#include <fmt/format.h>

#include "ir/parser.h"

namespace kachel::ir {

std::optional<ReduceOp> reduce_op(std::string_view name) {
  for (const ReduceOp op :
       {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin, ReduceOp::kProd, ReduceOp::kArgMax, ReduceOp::kArgMin})
    if (name == spelling(op)) return op;
  return std::nullopt;
}

ExprRef Parser::reduction(size_t first) {
  ReduceOp op = *reduce_op(peek().text);
  advance();
  advance();  // [
  if (const IterVar* index = scanned_index()) {
    if (!is_arg(op)) return scan(op, IterVar(*index), first);
    fail(fmt::format("`{}` reduces all of an axis, no prefix of it", spelling(op)),
         "write the prefix maximum with `max[k <= j](...)`; where it begins follows from comparing it with its "
         "neighbours");
    return nullptr;
  }
  if (at_name() && peek(1).text.starts_with(">")) {
    advance();
    fail(fmt::format("`{}` after the index of a reduction, which runs over all `k < n` or over a prefix", peek().text),
         "what begins at an element is the whole less the prefix in front of it, or a prefix of the axis turned round");
    return nullptr;
  }
  size_t scope = order_.size();
  std::vector<IterVar> vars;
  bool ok = iters(vars, VarKind::kReduce) && expect("]", "the indices of the reduction") &&
            expect("(", "the brackets of a reduction");
  ExprRef body = ok ? expr() : nullptr;
  ok = body && expect(")", "the reduced expression");
  leave_scope(scope);
  if (!ok) return nullptr;
  return finish(make_reduce(op, std::move(vars), std::move(body), span(first)), height_ + 1);
}

// At `k < j]` or `k <= j]`: the index j of the region, if it is one.
const IterVar* Parser::scanned_index() const {
  const bool bounded = peek(1).text == "<" || peek(1).text == "<=";
  if (!at_name() || !bounded || peek(2).kind != Token::Kind::kName || peek(3).text != "]") return nullptr;
  const Entity* entity = find(peek(2).text);
  for (const IterVar& iter : region_)
    if (entity && entity->var == iter.var) return &iter;
  return nullptr;
}

ExprRef Parser::scan(ReduceOp op, const IterVar& index, size_t first) {
  const size_t scope = order_.size();
  std::string name;
  Loc loc;
  if (!new_name("an index", name, loc)) return nullptr;
  const bool inclusive = at("<=");
  advance();
  const ExprRef last = make_var(index.var, peek().loc);
  advance();
  advance();  // ]
  auto var = std::make_shared<const Var>(Var{VarKind::kReduce, name, {DType::I64, nullptr}, loc});
  declare(name, loc, {var, nullptr, nullptr});
  ExprRef body = expect("(", "the brackets of a reduction") ? expr() : nullptr;
  const bool ok = body && expect(")", "the reduced expression");
  leave_scope(scope);
  if (!ok) return nullptr;
  return finish(make_scan(op, {var, index.extent}, std::move(body), last, inclusive, span(first)), height_ + 1);
}

}  // namespace kachel::ir
