#include "ir/parse.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/parser.h"

namespace kachel::ir {
namespace {

constexpr std::string_view kClauses[] = {"where", "key", "tune", "grid", "hint"};

bool is_clause(const Token& token) {
  return token.kind == Token::Kind::kWord &&
         std::find(std::begin(kClauses), std::end(kClauses), token.text) != std::end(kClauses);
}

}  // namespace

void Parser::not_in_version_1(std::string_view what, std::string mend) {
  fail(fmt::format("{} is not in version 1 of this implementation", what), std::move(mend));
}

ParseResult Parser::run() {
  if (result_.diagnostics.empty() || !at_end()) module();
  std::stable_sort(result_.diagnostics.begin(), result_.diagnostics.end(),
                   [](const Diagnostic& a, const Diagnostic& b) {
                     return std::pair(a.loc.line, a.loc.column) < std::pair(b.loc.line, b.loc.column);
                   });
  return std::move(result_);
}

void Parser::module() {
  if (accept("tile")) {
    if (peek().kind != Token::Kind::kInt) {
      fail("`tile` is followed by the version of the language", "begin the program with `tile 1`");
    } else {
      if (peek().int_value != 1)
        fail(fmt::format("version {} of the language is not known here", peek().text),
             "this library reads `tile 1`; use a newer library for a newer program");
      advance();
    }
  } else {
    fail("a program begins with the version of the language", "begin it with `tile 1`");
  }
  while (!at_end()) {
    if (at("kernel")) {
      kernel();
    } else if (accept(";")) {
      continue;
    } else if (at("program")) {
      program();
    } else {
      fail(fmt::format("`{}` where a kernel or a program is expected", peek().text),
           "write `kernel name(...) { ... }`");
      advance();
      skip_to_kernel();
    }
  }
}

void Parser::skip_to_kernel() {
  while (!at_end() && !at("kernel") && !at("program")) advance();
}

void Parser::recover_to_clause() {
  while (!at_end() && !at("{") && !at("kernel") && !at("program") && !is_clause(peek())) advance();
}

// From the word `kernel` or `program`, which `what` is, to the body. False: what was read of it is not sound.
bool Parser::header(Kernel& kernel, std::string_view what) {
  advance();
  names_.clear();
  order_.clear();
  reported_.clear();
  depth_ = nodes_ = 0;
  in_parallel_ = half_declared_ = false;
  kernel.loc = peek().loc;
  if (!at_name()) {
    if (!at_end() && peek().kind == Token::Kind::kWord)
      fail(fmt::format("`{}` is a reserved word and cannot name a {}", peek().text, what), "choose another name");
    else
      fail(fmt::format("a {} needs a name", what), fmt::format("write `{} name(...) {{ ... }}`", what));
    if (peek().kind == Token::Kind::kWord && (peek(1).text == "(" || peek(1).text == "<")) advance();
  } else {
    kernel.name = peek().text;
    advance();
  }
  declare_tunables();
  if (!angle_params(kernel) || !params(kernel)) recover_to_clause();
  bool sound = true;
  while (!clauses(kernel)) {
    sound = false;
    recover_to_clause();
  }
  return sound;
}

void Parser::kernel() {
  Kernel kernel;
  const bool sound = header(kernel, "kernel");
  for (const IterVar& axis : kernel.grid) declare(axis.var->name, axis.var->loc, {axis.var, nullptr, nullptr});
  if (at("{"))
    kernel.body = block();
  else if (sound)
    fail("a kernel needs a body", "write `{ ... }` after the header");
  result_.module.kernels.push_back(std::move(kernel));
}

// The angle brackets: `T: f16 | bf16` and `const causal: bool`.
bool Parser::angle_params(Kernel& kernel) {
  if (!accept("<")) return true;
  do {
    std::string name;
    Loc loc;
    if (accept("const")) {
      if (!new_name("a constant", name, loc) || !expect(":", "the name of a constant")) return false;
      TypeRef type;
      if (!this->type(type)) return false;
      auto var = std::make_shared<Var>(Var{VarKind::kConst, name, type, loc});
      declare(name, loc, {var, nullptr, nullptr});
      kernel.consts.push_back(var);
      continue;
    }
    if (!new_name("a type symbol", name, loc)) return false;
    if (!at(":"))
      return fail(fmt::format("the type symbol `{}` has no types", name),
                  fmt::format("list what it may be: `{}: f16 | f32`", name));
    advance();
    TypeSymbol symbol{name, {}, loc};
    do {
      std::optional<DType> dtype = dtype_from_name(peek().text);
      if (!dtype)
        return fail(
            fmt::format("`{}` is not an element type", peek().text),
            "the types are f32 f16 bf16 f8e4m3 f8e5m2 i8 u8 i16 i32 u32 i64 u64 i4 u4 bool; a value is `const`");
      if (std::find(symbol.options.begin(), symbol.options.end(), *dtype) != symbol.options.end())
        report(peek().loc, fmt::format("`{}` is listed twice", peek().text), "remove one");
      else
        symbol.options.push_back(*dtype);
      advance();
    } while (accept("|"));
    auto shared = std::make_shared<const TypeSymbol>(std::move(symbol));
    declare(name, loc, {nullptr, nullptr, shared});
    kernel.type_symbols.push_back(shared);
  } while (accept(","));
  return expect(">", "the type symbols and constants");
}

bool Parser::params(Kernel& kernel) {
  if (!expect("(", "the name of a kernel")) return false;
  if (accept(")")) return true;
  bool sound = true;
  do {
    size_t first = at_;
    if (param(kernel)) continue;
    sound = false;
    if (at_ == first && !at(")") && !at("{")) advance();
    recover_to_param(first);
  } while (accept(","));
  if (sound && at("="))
    return fail(
        "`=` behind a parameter, which has no default",
        "let the host pass it at each launch, or make it a constant of the program: `kernel f<const s: f32>(...)`");
  return sound ? expect(")", "the parameters") : accept(")");
}

// To the `,` or `)` that ends the parameter which begins at token `first`.
void Parser::recover_to_param(size_t first) {
  int depth = 0;
  auto count = [&](const Token& token) {
    if (token.text == "[" || token.text == "(") ++depth;
    if (token.text == "]" || token.text == ")") --depth;
  };
  for (size_t i = first; i < at_; ++i) count(tokens_[i]);
  while (!at_end() && !at("{") && !at("kernel") && !at("program") && !is_clause(peek())) {
    if (depth <= 0 && (at(",") || at(")"))) return;
    count(peek());
    advance();
  }
}

bool Parser::param(Kernel& kernel) {
  std::string name;
  Loc loc;
  if (at("const"))
    return fail("`const` among the arguments of a launch",
                "what is known at compile time stands in front of them: `kernel k<T: f16, const rows: i32>(...)`");
  if (!new_name("a parameter", name, loc) || !expect(":", "the name of a parameter")) return false;
  Direction direction = Direction::kIn;
  bool directed = at("in") || at("out") || at("inout");
  if (directed) {
    direction = at("out") ? Direction::kOut : at("inout") ? Direction::kInOut : Direction::kIn;
    advance();
  }
  TypeRef type;
  const Loc type_loc = peek().loc;
  const bool typed = this->type(type);
  if (typed && type.accumulator)
    report(type_loc, "`acc` is a type of tiles only", "give the parameter a type of its own, or a type symbol");
  type.accumulator = false;
  if (!typed) {
    if (peek(1).text != "[") {
      declare(name, loc, {});  // so that its uses are not reported
      return false;
    }
    advance();  // the shape may bind dimensions
  }
  if (!at("[")) {
    if (directed)
      return fail(fmt::format("`{}` is a scalar and cannot be `in`, `out` or `inout`", name),
                  "give it a shape as in `T[1]`, or remove the direction");
    auto var = std::make_shared<Var>(Var{VarKind::kScalar, name, type, loc});
    declare(name, loc, {var, nullptr, nullptr});
    kernel.params.push_back({nullptr, var});
    return true;
  }
  advance();
  auto buffer = std::make_shared<Buffer>();
  buffer->name = name;
  buffer->direction = direction;
  buffer->type = type;
  buffer->loc = loc;
  declare(name, loc, {nullptr, nullptr, nullptr});  // so that no dimension takes the name
  do {
    if (!shape_entry(kernel, buffer->shape)) return false;
  } while (accept(","));
  if (!expect("]", "the shape")) return false;
  if (buffer->shape.size() > 5) {
    report(loc, fmt::format("`{}` has {} axes", name, buffer->shape.size()), "a tensor has 1 to 5 axes; merge some");
    return true;
  }
  if (Entity& entity = names_[name]; !entity.var && !entity.type && !entity.buffer) entity.buffer = buffer;
  kernel.params.push_back({buffer, nullptr});
  return true;
}

// A name that means nothing yet binds a dimension.
bool Parser::shape_entry(Kernel& kernel, std::vector<ExprRef>& shape) {
  bool alone = at_name() && (peek(1).text == "," || peek(1).text == "]");
  if (alone && !find(peek().text)) {
    auto dim =
        std::make_shared<const Var>(Var{VarKind::kDim, std::string(peek().text), {DType::I64, nullptr}, peek().loc});
    declare(dim->name, dim->loc, {dim, nullptr, nullptr});
    kernel.dims.push_back(dim);
  }
  ExprRef extent = expr();
  if (extent) shape.push_back(extent);
  return extent != nullptr;
}

bool Parser::type(TypeRef& out) {
  const Token& token = peek();
  if (std::optional<DType> dtype = dtype_from_name(token.text)) {
    out = {*dtype, nullptr};
    advance();
    return true;
  }
  if (token.text == "acc" && peek(1).text == "(") {
    advance(), advance();
    const Loc loc = peek().loc;
    if (!type(out)) return false;
    if (!out.symbol || out.accumulator) {
      report(loc, "`acc` takes a type symbol", "write the type that it is: f32, i32 or i64");
      return false;
    }
    out.accumulator = true;
    return expect(")", "the type symbol");
  }
  const Entity* entity = at_name() ? find(token.text) : nullptr;
  if (entity && entity->type) {
    out = {DType::F32, entity->type};
    advance();
    return true;
  }
  std::string mend = "use f32 f16 bf16 f8e4m3 f8e5m2 i8 u8 i16 i32 u32 i64 u64 i4 u4 bool or a type symbol";
  if (at_name()) mend = fmt::format("declare it: `<{}: f16 | bf16>` after the name of the kernel", token.text);
  if (token.text == "f64" || token.text == "u16") mend = "arithmetic is in f32, i32, u32, i64 or u64; use one of those";
  return fail(fmt::format("`{}` is not a type", token.text), mend);
}

bool Parser::clauses(Kernel& kernel) {
  while (is_clause(peek())) {
    std::string_view clause = peek().text;
    if (clause == "hint") {
      not_in_version_1("`hint`", "remove it; everything works without hints");
      advance();
      while (!at_end() && !at("{") && !peek().starts_line) advance();
      continue;
    }
    advance();
    if (clause == "tune") {
      if (!tune(kernel)) return false;
    } else if (clause == "grid") {
      half_declared_ = !grid(kernel);
      if (half_declared_) return false;
    } else {
      do {
        ExprRef value = expr();
        if (!value) return false;
        (clause == "where" ? kernel.where : kernel.key).push_back(std::move(value));
      } while (accept(","));
    }
    accept(";");
  }
  if (!at("{") && !at_end() && !at("kernel") && !at("program"))
    return fail(fmt::format("`{}` where a clause or the body is expected", peek().text),
                mend_of_next("the clauses are `where`, `key`, `tune` and `grid`; then comes `{`"));
  return true;
}

// `tune` follows the parameters, whose shapes may name tunables; so these are declared ahead of reading.
void Parser::declare_tunables() {
  for (size_t i = at_; i < tokens_.size(); ++i) {
    std::string_view text = tokens_[i].text;
    if (text == "{" || text == "kernel" || text == "program") return;
    if (text != "tune") continue;
    const bool automatic = i + 1 < tokens_.size() && tokens_[i + 1].text == "auto";
    for (i += automatic ? 2 : 1; i + 1 < tokens_.size(); ++i) {
      const Token& token = tokens_[i];
      if (token.text == "{" || is_clause(token)) break;
      if (token.kind != Token::Kind::kName || (!automatic && tokens_[i + 1].text != "=")) continue;
      auto var = std::make_shared<const Var>(
          Var{VarKind::kTunable, std::string(token.text), {DType::I64, nullptr}, token.loc});
      declare(var->name, var->loc, {var, nullptr, nullptr});
    }
    --i;
  }
}

// From the `=` on.
bool Parser::listed_values(std::vector<int64_t>& values) {
  if (!expect("=", "the name of a tunable")) return false;
  do {
    if (peek().kind != Token::Kind::kInt)
      return fail("the values of a tunable are integers", "write `tune BM = 64 | 128`");
    int64_t value = static_cast<int64_t>(std::min<uint64_t>(peek().int_value, INT64_MAX));
    if (value > INT32_MAX) report(peek().loc, "the value of a tunable is beyond 2^31 - 1", "list smaller values");
    if (std::find(values.begin(), values.end(), value) != values.end())
      report(peek().loc, fmt::format("{} is listed twice", value), "remove one");
    else
      values.push_back(value);
    advance();
  } while (accept("|"));
  return true;
}

bool Parser::tune(Kernel& kernel) {
  const bool automatic = accept("auto");
  do {
    if (!at_name())
      return fail("a tunable needs a name", automatic ? "write `tune auto BM, BN`"
                                            : peek().kind == Token::Kind::kInt
                                                ? "values are separated by `|`: write `tune BM = 64 | 128`"
                                                : "write `tune BM = 64 | 128`");
    const Token& name = peek();
    advance();
    Tunable tunable;
    tunable.automatic = automatic;
    if (automatic && at("="))
      return fail(fmt::format("the values of `{}` are listed in `tune auto`", name.text),
                  fmt::format("give it a clause of its own: `tune {} = 64 | 128`", name.text));
    if (!automatic && !listed_values(tunable.values)) return false;
    const Entity* entity = find(name.text);
    if (!entity || !entity->var || entity->var->kind != VarKind::kTunable) continue;
    if (entity->var->loc.line != name.loc.line || entity->var->loc.column != name.loc.column) continue;
    tunable.var = entity->var;
    kernel.tunables.push_back(std::move(tunable));
  } while (accept(","));
  return true;
}

bool Parser::grid(Kernel& kernel) {
  if (!kernel.grid.empty()) report(tokens_[at_ - 1].loc, "the grid is given twice", "keep one `grid` clause");
  do {
    std::string name;
    Loc loc;
    if (!new_name("a grid axis", name, loc)) return false;
    if (!expect("<", "the name of a grid axis")) return false;
    ExprRef extent = expr();
    if (!extent) return false;
    kernel.grid.push_back({std::make_shared<const Var>(Var{VarKind::kGrid, name, {DType::I64, nullptr}, loc}), extent});
  } while (accept(","));
  return true;
}

ParseResult parse(std::string_view text) {
  return Parser(text).run();
}

}  // namespace kachel::ir
