#include "ir/parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace kachel::ir {
namespace {

// Edits that turn one name into the other, an exchange of neighbours counting as one; given up beyond `limit`.
size_t distance(std::string_view a, std::string_view b, size_t limit) {
  if (a.size() > b.size() + limit || b.size() > a.size() + limit) return limit + 1;
  std::vector<size_t> row(b.size() + 1), above(b.size() + 1), before(b.size() + 1);  // row: that of a[i - 1]
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  const auto equal = [&](size_t i, size_t j) { return (a[i] | 0x20) == (b[j] | 0x20); };
  for (size_t i = 1; i <= a.size(); ++i) {
    before = std::exchange(above, row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (equal(i - 1, j - 1) ? 0 : 1)});
      if (i > 1 && j > 1 && equal(i - 1, j - 2) && equal(i - 2, j - 1)) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

}  // namespace

Parser::Parser(std::string_view text) : tokens_(lex(text, result_.diagnostics)) {}

const Token& Parser::peek(size_t ahead) const {
  return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
}
bool Parser::at(std::string_view text) const {
  return peek().text == text;
}

void Parser::advance() {
  if (at_ + 1 < tokens_.size()) ++at_;
}

bool Parser::accept(std::string_view text) {
  if (!at(text)) return false;
  advance();
  return true;
}

void Parser::skip_group() {
  int depth = 0;
  do {
    depth += at("(") || at("[");
    depth -= at(")") || at("]");
    advance();
  } while (depth > 0 && !at_end() && !at("}"));
}

namespace {

constexpr std::string_view kOtherReductions[] = {"product", "any", "all", "count", "cumsum", "cumprod", "reduce"};

// Words of other languages, and how they are written here.
constexpr std::pair<std::string_view, std::string_view> kOtherWords[] = {
    {"elif", "write `else if`"},
    {"elseif", "write `else if`"},
    {"else", "a choice of values is `condition ? a : b`; `else` itself follows the `}` of an `if`"},
    {"and", "write `&&`"},
    {"or", "write `||`"},
    {"not", "write `!`"},
    {"True", "write `true`"},
    {"False", "write `false`"},
    {"sigmoid", "write `rcp(1 + exp(-x))`"},
    {"silu", "write `x * rcp(1 + exp(-x))`"},
    {"relu", "write `max(x, 0)`"},
    {"gelu", "write `0.5 * x * (1 + erf(x * 0.70710678))`"},
    {"softplus", "write `log(1 + exp(x))`"},
    {"mish", "write `x * tanh(log(1 + exp(x)))`"},
    {"leaky_relu", "write `x > 0 ? x : 0.01 * x`"},
    {"elu", "write `x > 0 ? x : exp(x) - 1`"},
    {"hardtanh", "write `clamp(x, -1, 1)`"},
    {"hardsigmoid", "write `clamp(x / 6 + 0.5, 0, 1)`"},
    {"hardswish", "write `x * clamp(x / 6 + 0.5, 0, 1)`"},
    {"sign", "write `x > 0 ? 1.0 : x < 0 ? -1.0 : 0.0`"},
    {"log1p", "write `log(1 + x)`"},
    {"expm1", "write `exp(x) - 1`"},
    {"log10", "write `log2(x) * 0.30103`"},
    {"sinh", "write `0.5 * (exp(x) - exp(-x))`"},
    {"cosh", "write `0.5 * (exp(x) + exp(-x))`"},
    {"pow", "write `exp2(y * log2(x))` for x > 0, or a product"},
    {"where", "write `condition ? a : b`"},
    {"fabs", "write `abs(x)`"},
    {"fmax", "write `max(a, b)`"},
    {"fmin", "write `min(a, b)`"},
    {"isnan", "write `x != x`"},
    {"tan", "write `sin(x) / cos(x)`"},
    {"cdiv", "write `ceildiv(a, b)`"},
    {"rint", "write `round(x)`"},
    {"maximum", "write `max(a, b)`"},
    {"minimum", "write `min(a, b)`"},
    {"range", "an index runs from 0: `for i < n { ... }`, or between two: `for i in a .. b { ... }`"},
    {"step", "an index rises by one: write `for i < ceildiv(n, 2)` and `2 * i` in place of a step of 2"},
    {"sync", "nothing has to be waited for: the lowering places what threads need to agree on"},
    {"barrier", "nothing has to be waited for: the lowering places what threads need to agree on"},
    {"syncthreads", "nothing has to be waited for: the lowering places what threads need to agree on"},
    {"__syncthreads", "nothing has to be waited for: the lowering places what threads need to agree on"},
};

// What stands here for a word of other languages; "" for any other word.
std::string_view here_for(std::string_view name) {
  for (const auto& [other, here] : kOtherWords)
    if (name == other) return here;
  for (const std::string_view word : {"return", "break", "continue"})
    if (name == word) return "nothing leaves a block or a loop early: put what follows under `if`";
  if (name == "mean") return "write `sum[k < n](x[k]) / n`";
  if (std::find(std::begin(kOtherReductions), std::end(kOtherReductions), name) != std::end(kOtherReductions))
    return "the reductions are `sum[k < n](x[k])`, `prod`, `max`, `min`, `argmax` and `argmin`, of what stands before "
           "an index "
           "`sum[k <= j](x[k])`";
  for (const std::string_view word : {"assert", "static_assert", "print", "printf"})
    if (name == word)
      return "nothing is checked or printed while a kernel runs: say what has to hold by `where`, and write what you "
             "want to see to an output";
  for (const std::string_view word : {"bitcast", "reinterpret", "as_uint", "as_float"})
    if (name == word)
      return "the bits of a float are not to be had; conversions are `i32(x)` and `f32(n)`, towards zero and to the "
             "nearest";
  for (const std::string_view word : {"rand", "random", "randn"})
    if (name == word)
      return "random numbers are the host's, as a tensor, or integers that a region mixes of a seed and its place";
  for (const std::string_view word : {"int", "float", "double", "auto", "var", "const"})
    if (name == word)
      return "`let x = ...` names a value, whose type is that of the expression; a conversion is `f32(x)` or `i32(x)`";
  return "";
}

}  // namespace

bool Parser::expect(std::string_view text, std::string_view after) {
  if (accept(text)) return true;
  return fail(at_end() ? fmt::format("the program ends where `{}` is expected after {}", text, after)
                       : fmt::format("`{}` where `{}` is expected after {}", peek().text, text, after),
              mend_of_next(fmt::format("write `{}` here", text)));
}

std::string Parser::mend_of_next(std::string otherwise) const {
  const std::string_view here = at_end() ? "" : here_for(peek().text);
  return here.empty() ? otherwise : std::string(here);
}

Loc Parser::span(size_t first) const {
  Loc loc = tokens_[first].loc;
  for (size_t i = at_; i-- > first;) {
    const Loc& last = tokens_[i].loc;
    if (last.line != loc.line) continue;
    loc.length = last.column + last.length - loc.column;
    break;
  }
  return loc;
}

Parser::Mark Parser::mark() const {
  return {at_, result_.diagnostics.size(), reported_.size(), nodes_};
}

void Parser::rewind(const Mark& mark) {
  if (stopped_) return;
  at_ = mark.at;
  result_.diagnostics.resize(mark.diagnostics);
  reported_.resize(mark.reported);
  nodes_ = mark.nodes;
}

void Parser::report(Loc loc, std::string message, std::string mend) {
  if (stopped_) return;
  result_.diagnostics.push_back({loc, std::move(message), std::move(mend)});
  if (result_.diagnostics.size() >= kMaxDiagnostics) {
    stopped_ = true;
    at_ = tokens_.size() - 1;
  }
}

bool Parser::fail(std::string message, std::string mend) {
  report(peek().loc, std::move(message), std::move(mend));
  return false;
}

void Parser::give_up(Loc loc, std::string message, std::string mend) {
  report(loc, std::move(message), std::move(mend));
  stopped_ = true;
  at_ = tokens_.size() - 1;
}

bool Parser::count_node(Loc loc) {
  if (++nodes_ > kMaxNodes)
    give_up(loc, "the kernel has more than 100,000 nodes", "split it, or replace repetition by a loop");
  return !stopped_;
}

bool Parser::declare(std::string_view name, Loc loc, Entity entity) {
  auto [it, fresh] = names_.try_emplace(std::string(name), std::move(entity));
  if (!fresh) {
    const Entity& first = it->second;
    const int line = first.var ? first.var->loc.line : first.buffer ? first.buffer->loc.line : 0;
    report(loc, fmt::format("`{}` is declared already{}", name, line ? fmt::format(", in line {}", line) : ""),
           "choose another name; visible names are never hidden");
    if (!it->second.type) it->second = {};  // which of the two is meant from here on is not known
    return false;
  }
  order_.push_back(it->first);
  return true;
}

const Entity* Parser::find(std::string_view name) const {
  auto it = names_.find(std::string(name));
  return it == names_.end() ? nullptr : &it->second;
}

void Parser::leave_scope(size_t depth) {
  while (order_.size() > depth) {
    names_.erase(order_.back());
    order_.pop_back();
  }
}

std::string Parser::nearest(std::string_view name) const {
  size_t best = (name.size() < 3 ? 0 : std::max<size_t>(1, name.size() / 3)) + 1;  // of short names, the case only
  std::string found;
  for (const std::string& other : order_) {  // in order of declaration, so that the choice is deterministic
    size_t far = distance(name, other, best);
    if (far < best) best = far, found = other;
  }
  return found;
}

void Parser::unknown(const Token& token, std::string_view what) {
  std::string name(token.text);
  if (half_declared_) return;
  if (std::find(reported_.begin(), reported_.end(), name) != reported_.end()) return;
  reported_.push_back(name);
  std::string near = nearest(name);
  report(
      token.loc, fmt::format("unknown {} `{}`", what, name),
      !here_for(name).empty() ? std::string(here_for(name))
      : !near.empty()         ? fmt::format("did you mean `{}`?", near)
      : what == "function"
          ? "the functions are min max abs clamp select ceildiv fma popcount exp exp2 log log2 rsqrt rcp sqrt tanh erf "
            "sin cos floor ceil trunc round"
          : "declare it: a shape binds a dimension whose name stands there alone (put that parameter first; of an "
            "extent such as `B + 1` write `B1` and `where B1 == B + 1`), `let` names a value, `tune` a tunable");
}

// At the name of something that is being declared.
bool Parser::new_name(std::string_view what, std::string& name, Loc& loc) {
  loc = peek().loc;
  if (at_name()) {
    name = peek().text;
    advance();
    return true;
  }
  if (peek().kind == Token::Kind::kWord)
    return fail(fmt::format("`{}` is a reserved word and cannot name {}", peek().text, what), "choose another name");
  return fail(at_end() ? fmt::format("the program ends where the name of {} is expected", what)
                       : fmt::format("`{}` where the name of {} is expected", peek().text, what),
              at("(") ? "write a name, without parentheses: `i < M, j < N`"
                      : "write a name: a letter, then letters, digits or `_`");
}

}  // namespace kachel::ir
