#include <fmt/format.h>

#include <limits>
#include <optional>

#include "ir/parser.h"

namespace kachel::ir {
namespace {

std::optional<Op> binary_op(const Token& token) {
  if (token.kind != Token::Kind::kPunct) return std::nullopt;
  for (int i = static_cast<int>(Op::kAdd); i <= static_cast<int>(Op::kGe); ++i)
    if (token.text == info(static_cast<Op>(i)).spelling) return static_cast<Op>(i);
  return std::nullopt;
}

std::optional<Op> function(std::string_view name) {
  for (int i = static_cast<int>(Op::kSelect); i < kTextOpCount; ++i)
    if (name == info(static_cast<Op>(i)).spelling) return static_cast<Op>(i);
  return std::nullopt;
}

// Arithmetic, whose result is rounded if it is on floats.
bool is_rounded(const Expr& expr) {
  if (expr.kind != ExprKind::kApply) return false;
  switch (expr.op) {
    case Op::kNeg:
      return is_rounded(*expr.args[0]);
    case Op::kAdd:
    case Op::kSub:
    case Op::kMul:
    case Op::kDiv:
    case Op::kFma:
      return true;
    default:
      return false;
  }
}

bool has_approx(Op op) {
  switch (op) {
    case Op::kExp:
    case Op::kExp2:
    case Op::kLog:
    case Op::kLog2:
    case Op::kRsqrt:
    case Op::kRcp:
    case Op::kTanh:
    case Op::kSin:
    case Op::kCos:
      return true;
    default:
      return false;
  }
}

struct Constant {
  std::string_view name;
  float value;
};
constexpr Constant kConstants[] = {
    {"inf", std::numeric_limits<float>::infinity()},
    {"nan", std::numeric_limits<float>::quiet_NaN()},
    {"log2e", 1.44269504088896340736f},
    {"ln2", 0.693147180559945309417f},
    {"pi", 3.14159265358979323846f},
};

}  // namespace

ExprRef Parser::finish(ExprRef expr, int height) {
  height_ = height;
  if (height > kMaxNesting) give_up(expr->loc, "nested more than 200 deep", "name parts of it with `let`");
  if (!count_node(expr->loc)) return nullptr;
  return expr;
}

ExprRef Parser::expr() {
  Nest nest(*this);
  if (!nest.ok()) return nullptr;
  size_t first = at_;
  ExprRef condition = binary(1);
  if (!condition || !accept("?")) return condition;
  int height = height_;
  ExprRef yes = expr();
  if (!yes) return nullptr;
  height = std::max(height, height_);
  if (!expect(":", "the first value of `? :`")) return nullptr;
  ExprRef no = expr();
  if (!no) return nullptr;
  height = std::max(height, height_);
  return finish(make_apply(Op::kSelect, {condition, yes, no}, span(first)), height + 1);
}

ExprRef Parser::binary(int min_precedence) {
  size_t first = at_;
  ExprRef left = unary();
  bool compared = false;
  while (left) {
    std::optional<Op> op = binary_op(peek());
    if (!op || info(*op).precedence < min_precedence) break;
    if (is_comparison(*op)) {
      if (compared) {
        fail("comparisons do not chain", "write `a < b && b < c`");
        return nullptr;
      }
      compared = true;
    }
    int height = height_;
    advance();
    ExprRef right = binary(info(*op).precedence + 1);
    if (!right) return nullptr;
    left = finish(make_apply(*op, {left, right}, span(first)), std::max(height, height_) + 1);
  }
  return left;
}

ExprRef Parser::unary() {
  Nest nest(*this);
  if (!nest.ok()) return nullptr;
  size_t first = at_;
  if (at("-") && (peek(1).kind == Token::Kind::kInt || peek(1).kind == Token::Kind::kFloat || peek(1).text == "inf")) {
    advance();
    ExprRef value = literal();
    if (!value) return nullptr;
    if (value->kind == ExprKind::kFloat) return finish(make_float(-value->float_value, span(first)), 1);
    uint64_t magnitude = static_cast<uint64_t>(value->int_value);
    if (value->type == DType::U64 && magnitude != uint64_t{1} << 63) {
      report(span(first), "the integer does not fit in 64 bits", "write a smaller one, or a float as in -1e30");
      return value;
    }
    return finish(make_int(static_cast<int64_t>(0 - magnitude), DType::I64, span(first)), 1);
  }
  std::optional<Op> op;
  if (at("-")) op = Op::kNeg;
  if (at("!")) op = Op::kNot;
  if (at("~")) op = Op::kBitNot;
  if (!op) return primary();
  advance();
  ExprRef arg = unary();
  if (!arg) return nullptr;
  return finish(make_apply(*op, {arg}, span(first)), height_ + 1);
}

ExprRef Parser::literal() {
  const Token& token = peek();
  Loc loc = token.loc;
  ExprRef value;
  if (token.kind == Token::Kind::kInt) {
    bool wide = token.int_value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    value = make_int(static_cast<int64_t>(token.int_value), wide ? DType::U64 : DType::I64, loc);
  } else if (token.kind == Token::Kind::kFloat) {
    value = make_float(token.float_value, loc);
  } else if (token.text == "true" || token.text == "false") {
    value = make_bool(token.text == "true", loc);
  } else {
    for (const Constant& constant : kConstants)
      if (token.text == constant.name) value = make_float(constant.value, loc);
  }
  if (!value) return nullptr;
  advance();
  return finish(value, 1);
}

ExprRef Parser::primary() {
  size_t first = at_;
  if (accept("(")) {
    ExprRef inner = expr();
    if (!inner || !expect(")", "the expression in parentheses")) return nullptr;
    return inner;
  }
  if (at("let")) return let_in(first);
  const Token& token = peek();
  if (token.kind == Token::Kind::kName) {
    // `prod` is no reserved word: a program may have given something that name.
    const bool product = token.text == spelling(ReduceOp::kProd) && peek(1).text == "[" && !find(token.text);
    return product ? reduction(first) : name_use();
  }
  if (token.kind == Token::Kind::kInt || token.kind == Token::Kind::kFloat) return literal();
  if (token.kind == Token::Kind::kWord) {
    if (std::optional<DType> dtype = dtype_from_name(token.text)) {
      advance();
      return cast({*dtype, nullptr}, first);
    }
    const std::optional<ReduceOp> reduces = reduce_op(token.text);
    if (reduces && peek(1).text == "[") return reduction(first);
    if (reduces && !function(token.text)) {
      advance();
      fail(fmt::format("`{}` needs its index in brackets", spelling(*reduces)),
           fmt::format("write `{}[j < N](...)`", spelling(*reduces)));
      return nullptr;
    }
    if (token.text == "approx") {
      advance();
      if (!function(peek().text)) {
        fail("`approx` is followed by a function", "write `approx exp2(x)`");
        return nullptr;
      }
      return call(first, true);
    }
    if (function(token.text)) return call(first, false);
    if (ExprRef value = literal()) return value;
  }
  fail(at_end() ? "the program ends where an expression is expected"
                : fmt::format("`{}` where an expression is expected", token.text),
       token.text == "atomic"
           ? "it is a statement of its own, `atomic x[i] += y`, and gives no value; places that follow from counts are "
             "prefix sums"
       : token.text == "if" ? "an expression chooses by `condition ? a : b`"
       : token.text == ":" ? "a slice is `first +: length` and goes up; another order is a region's: `parallel i < n { "
                             "x[i] = X[last - i] }`"
       : token.text == "*" ? "a product is `a * b`; for `x ** y` write `exp2(y * log2(x))` where x > 0, or a product"
       : token.kind == Token::Kind::kWord ? "it is a reserved word; rename, or complete the expression before it"
                                          : "write a number, a name, a call or `( ... )` here");
  return nullptr;
}

// `let d = a - b, e = d * d in d + e`: names within an expression, each of which stands for what it is given.
ExprRef Parser::let_in(size_t first) {
  Nest nest(*this);
  if (!nest.ok()) return nullptr;
  advance();
  const size_t scope = order_.size();
  const auto names = [&] {
    do {
      std::string name;
      Loc loc;
      if (!new_name("a value", name, loc) || !expect("=", "the name of a value")) return false;
      const int before = nodes_;
      ExprRef value = expr();
      if (!value) return false;
      declare(name, loc, {nullptr, nullptr, nullptr, std::move(value), nodes_ - before, height_});
    } while (accept(","));
    if (accept("in")) return true;
    report(span(first), "a `let` within an expression needs `in` and what its names are for",
           "write `let d = x - y in d * d`; or complete the expression before a statement's `let`");
    return false;
  };
  ExprRef value = names() ? expr() : nullptr;
  leave_scope(scope);
  return value;
}

ExprRef Parser::name_use() {
  size_t first = at_;
  const Token& token = peek();
  bool called = peek(1).text == "(", indexed = peek(1).text == "[";
  const Entity* found = find(token.text);
  if (!found) {
    unknown(token, called ? "function" : "name");
    advance();
    int height = 1;
    std::vector<ExprRef> ignored;
    if (called) {
      advance();
      if (!arguments(ignored, height)) return nullptr;
    } else if (indexed && peek(1).kind == Token::Kind::kName && peek(2).text.starts_with("<")) {  // as reductions begin
      skip_group();
      if (at("(")) skip_group();
    } else if (indexed) {
      advance();
      do {
        if (!expr()) return nullptr;
      } while (accept(","));
      if (!expect("]", "the indices")) return nullptr;
    }
    return finish(make_int(0, DType::I64, span(first)), 1);
  }
  Entity entity = *found;
  advance();
  if (entity.type) return cast({DType::F32, entity.type}, first);
  if (called) {
    report(token.loc, fmt::format("`{}` is not a function", token.text), "multiply with `*`, or index with `[...]`");
    advance();
    int height = 1;
    std::vector<ExprRef> ignored;
    if (!arguments(ignored, height)) return nullptr;
    return finish(make_int(0, DType::I64, span(first)), 1);
  }
  if (entity.buffer) {
    if (indexed) return load(token, entity.buffer, first);
    if (at("@")) {
      fail(fmt::format("`{} @` within an expression", token.text),
           "a product is a whole statement, `c = a @ b` or `c += a @ b`; compute on `c` in a `parallel` behind it");
      return nullptr;
    }
    report(token.loc,
           fmt::format("`{}` is a whole {}, a scalar is expected", token.text,
                       entity.buffer->scope == Scope::kGlobal ? "tensor" : "tile"),
           fmt::format("index it as in `{}[{}]`, inside `parallel` if elements are to be combined", token.text,
                       entity.buffer->shape.size() == 1 ? "i" : "i, j"));
    return finish(make_int(0, DType::I64, token.loc), 1);
  }
  if (indexed) {
    if (entity.var || entity.value)  // else its declaration has failed
      report(token.loc, fmt::format("`{}` is a scalar and has no elements", token.text), "remove the `[...]`");
    advance();
    do {
      if (!expr()) return nullptr;
    } while (accept(","));
    if (!expect("]", "the indices")) return nullptr;
    return finish(make_int(0, DType::I64, span(first)), 1);
  }
  if (entity.value) {
    nodes_ += entity.nodes - 1;
    height_ = entity.height;
    return count_node(token.loc) ? entity.value : nullptr;
  }
  if (!entity.var) return finish(make_int(0, DType::I64, token.loc), 1);  // its declaration has failed
  return finish(make_untyped_var(entity.var, token.loc), 1);
}

ExprRef Parser::load(const Token& name, BufferRef buffer, size_t first) {
  advance();  // [
  std::vector<ExprRef> indices;
  int height = 0;
  do {
    if (at(":") || at("]")) {
      fail(fmt::format("`{}` needs an index on every axis here", name.text),
           "a slice is a tile, not a scalar: copy it to a tile whose elements a `parallel` computes on, index one "
           "element, or reduce with `max[j < n](...)`");
      return nullptr;
    }
    ExprRef index = expr();
    if (!index) return nullptr;
    if (at("+:")) {
      fail(fmt::format("a range of `{}` where a scalar is expected", name.text),
           "a slice is a tile, not a scalar: copy it to a tile whose elements a `parallel` computes on, or reduce with "
           "`sum[j < n](...)`");
      return nullptr;
    }
    height = std::max(height, height_);
    indices.push_back(std::move(index));
  } while (accept(","));
  if (!expect("]", "the indices")) return nullptr;
  if (indices.size() != buffer->shape.size()) {
    report(span(first),
           fmt::format("`{}` has {} axes, {} indices are given", name.text, buffer->shape.size(), indices.size()),
           at("[") ? "write all indices in one pair of brackets: `x[i, j]`" : "give one index for each axis");
    while (at("[")) skip_group();
    return finish(make_int(0, DType::I64, span(first)), 1);
  }
  return finish(make_load(std::move(buffer), std::move(indices), span(first)), height + 1);
}

bool Parser::arguments(std::vector<ExprRef>& args, int& height) {
  height = 0;
  if (accept(")")) return true;
  do {
    ExprRef arg = expr();
    if (!arg) return false;
    height = std::max(height, height_);
    args.push_back(std::move(arg));
  } while (accept(","));
  return expect(")", "the arguments");
}

ExprRef Parser::call(size_t first, bool approx) {
  const Token& name = peek();
  Op op = *function(name.text);
  advance();
  if (!at("(")) {
    fail(fmt::format("`{}` is a function", name.text), fmt::format("call it: `{}(...)`", name.text));
    return nullptr;
  }
  advance();
  std::vector<ExprRef> args;
  int height = 0;
  if (!arguments(args, height)) return nullptr;
  if (approx && !has_approx(op)) {
    report(name.loc, fmt::format("`{}` has no `approx` variant", name.text),
           "`approx` applies to exp exp2 log log2 rsqrt rcp tanh sin cos; remove it");
    approx = false;
  }
  size_t arity = static_cast<size_t>(info(op).arity);
  bool many = (op == Op::kMin || op == Op::kMax) && args.size() > 2;
  if (args.size() != arity && !many) {
    report(span(first),
           fmt::format("`{}` takes {} argument{}, {} given", name.text, arity, arity == 1 ? "" : "s", args.size()),
           op == Op::kMin || op == Op::kMax ? fmt::format("to reduce over an axis write `{}[j < N](...)`", name.text)
                                            : "give that many");
    return finish(make_int(0, DType::I64, span(first)), 1);
  }
  if (!many) {
    auto call = std::make_shared<Expr>(*make_apply(op, std::move(args), span(first), approx));
    call->of_rounded = op == Op::kExp && !approx && is_rounded(*call->args[0]);
    return finish(std::move(call), height + 1);
  }
  ExprRef folded = args[0];
  for (size_t i = 1; folded && i < args.size(); ++i)
    folded = finish(make_apply(op, {folded, args[i]}, span(first)), ++height);
  return folded;
}

ExprRef Parser::cast(TypeRef type, size_t first) {
  if (!expect("(", "a type used as a conversion")) return nullptr;
  ExprRef arg = expr();
  if (!arg || !expect(")", "the converted value")) return nullptr;
  return finish(make_cast(std::move(type), std::move(arg), span(first)), height_ + 1);
}

}  // namespace kachel::ir
