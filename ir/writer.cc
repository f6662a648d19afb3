#include "ir/writer.h"

#include <fmt/format.h>

#include <cmath>

namespace kachel::ir {
namespace {

constexpr int kTernary = 0;

std::string number(double value) {
  struct Constant {
    float value;
    const char* name;
  };
  static constexpr Constant kNamed[] = {
      {1.44269504088896340736f, "log2e"}, {0.693147180559945309417f, "ln2"}, {3.14159265358979323846f, "pi"}};
  float single = static_cast<float>(value);
  if (std::isnan(single)) return "nan";
  if (std::isinf(single)) return single < 0 ? "-inf" : "inf";
  for (const Constant& constant : kNamed)
    if (single == constant.value) return constant.name;
  std::string text = fmt::format("{}", single);
  return text.find_first_of(".e") == text.npos ? text + ".0" : text;
}

}  // namespace

std::string Positions::of(const Var& var) {
  static constexpr const char* kPrefix[] = {"d", "p", "c", "n", "g", "k", "j", "r", "v", "h"};
  return name(&var, kPrefix[static_cast<int>(var.kind)]);
}

std::string Positions::of(const Buffer& buffer) {
  static constexpr const char* kPrefix[] = {"A", "S", "F", "R", "W"};
  return name(&buffer, kPrefix[static_cast<int>(buffer.scope)]);
}

std::string Positions::of(const TypeSymbol& symbol) {
  return name(&symbol, "T");
}

std::string Positions::name(const void* what, const char* prefix) {
  auto [it, fresh] = names_.try_emplace(what);
  if (fresh) it->second = fmt::format("{}{}", prefix, counts_[prefix]++);
  return it->second;
}

void Writer::expr(const ExprRef& expr, int outer) {
  if (!expr) {
    text += "?";
    return;
  }
  switch (expr->kind) {
    case ExprKind::kInt:
      text += expr->typed && expr->type == DType::U64 ? fmt::format("{}", static_cast<uint64_t>(expr->int_value))
                                                      : fmt::format("{}", expr->int_value);
      return;
    case ExprKind::kFloat:
      text += number(expr->float_value);
      return;
    case ExprKind::kBool:
      text += expr->int_value ? "true" : "false";
      return;
    case ExprKind::kVar:
      text += names_.of(*expr->var);
      return;
    case ExprKind::kApply:
      apply(*expr, outer);
      return;
    case ExprKind::kCast:
      type(expr->cast_type);
      text += "(";
      this->expr(expr->args[0]);
      text += ")";
      return;
    case ExprKind::kLoad:
      text += names_.of(*expr->buffer);
      list("[", expr->args, "]");
      return;
    case ExprKind::kReduce:
    case ExprKind::kScan:
      text += spelling(expr->reduce);
      text += "[";
      if (expr->kind == ExprKind::kReduce)
        iters(expr->iters);
      else
        scanned(*expr);
      text += "](";
      this->expr(expr->args[0]);
      text += ")";
      return;
  }
}

void Writer::tile(const TileRef& tile) {
  text += names_.of(*tile.buffer);
  bool whole = true;
  for (const AxisSpec& axis : tile.axes) whole &= axis.kind == AxisSpec::Kind::kWhole;
  if (!whole) {
    for (size_t i = 0; i < tile.axes.size(); ++i) {
      text += i ? ", " : "[";
      axis(tile.axes[i]);
    }
    text += "]";
  }
  if (tile.within_first) {
    text += " within ";
    expr(tile.within_first);
    text += " +: ";
    expr(tile.within_length);
  }
  if (tile.pad) {
    text += " pad ";
    expr(tile.pad);
  }
}

void Writer::list(const char* open, const std::vector<ExprRef>& exprs, const char* close) {
  text += open;
  for (size_t i = 0; i < exprs.size(); ++i) {
    if (i) text += ", ";
    expr(exprs[i]);
  }
  text += close;
}

// `k <= j`. Of one that lowering has made, which has no index of its own, j alone.
void Writer::scanned(const Expr& scan) {
  if (!scan.iters.empty()) text += names_.of(*scan.iters[0].var);
  text += scan.inclusive ? " <= " : " < ";
  expr(scan.args[1]);
}

void Writer::iters(const std::vector<IterVar>& iters) {
  for (size_t i = 0; i < iters.size(); ++i) {
    text += (i ? ", " : "") + names_.of(*iters[i].var) + " < ";
    expr(iters[i].extent);
  }
}

void Writer::type(const TypeRef& type) {
  const std::string spelt = type.symbol ? names_.of(*type.symbol) : std::string(name(type.dtype));
  text += type.accumulator ? "acc(" + spelt + ")" : spelt;
}

void Writer::apply(const Expr& expr, int outer) {
  const OpInfo& op = info(expr.op);
  bool ternary = expr.op == Op::kSelect;
  if (!ternary && op.precedence == 0) {
    if (expr.approx) text += "approx ";
    text += op.spelling;
    list("(", expr.args, ")");
    return;
  }
  int own = ternary ? kTernary : op.precedence;
  bool parens = own <= outer;
  if (parens) text += "(";
  if (ternary) {
    this->expr(expr.args[0], kTernary);
    text += " ? ";
    this->expr(expr.args[1]);
    text += " : ";
    this->expr(expr.args[2]);
  } else if (op.arity == 1) {
    text += op.spelling;
    this->expr(expr.args[0], own - 1);
  } else {
    // Left-associative, but comparisons do not associate.
    this->expr(expr.args[0], is_comparison(expr.op) ? own : own - 1);
    text += fmt::format(" {} ", op.spelling);
    this->expr(expr.args[1], own);
  }
  if (parens) text += ")";
}

void Writer::axis(const AxisSpec& axis) {
  switch (axis.kind) {
    case AxisSpec::Kind::kWhole:
      text += ":";
      return;
    case AxisSpec::Kind::kGather:
      if (axis.gather) tile(*axis.gather);
      if (!axis.index) return;
      text += fmt::format("{}{}: ", axis.gather ? " as " : "", axis.element->name);
      expr(axis.index);
      return;
    case AxisSpec::Kind::kIndex:
      expr(axis.index ? axis.index : axis.start);
      return;
    case AxisSpec::Kind::kRange:
      expr(axis.start);
      text += " +: ";
      expr(axis.extent);
      return;
  }
}

}  // namespace kachel::ir
