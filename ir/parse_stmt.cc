#include <fmt/format.h>

#include <utility>

#include "ir/parser.h"

namespace kachel::ir {
namespace {

constexpr std::string_view kRanges = "write `for k < n { ... }` or `for k in a .. b { ... }`";

bool begins_statement(const Token& token) {
  if (token.kind == Token::Kind::kName) return true;
  if (token.kind != Token::Kind::kWord) return false;
  for (std::string_view word :
       {"shared", "fragment", "let", "parallel", "for", "pipelined", "if", "atomic", "while", "hint"})
    if (token.text == word) return true;
  return false;
}

}  // namespace

Block Parser::block() {
  Block body;
  Loc open = peek().loc;
  if (!expect("{", "the header")) return body;
  Nest nest(*this);
  if (!nest.ok()) return body;
  size_t scope = order_.size();
  statements(body);
  leave_scope(scope);
  if (!accept("}") && !stopped_) {
    if (at_end() || at("kernel"))
      report(open, "this `{` is not closed", "write the matching `}`");
    else
      fail(fmt::format("`{}` where a statement is expected", peek().text), "close the block with `}`");
  }
  return body;
}

void Parser::statements(Block& body) {
  while (!at_end() && !at("}") && !at("kernel")) {
    if (accept(";")) continue;
    size_t before = at_;
    if (statement(body)) continue;
    if (at_ == before) advance();
    recover();
  }
}

// To the next line that begins like a statement, outside brackets, or to the end of the block.
void Parser::recover() {
  int brackets = 0, braces = 0;
  while (!at_end() && !at("kernel")) {
    const Token& token = peek();
    if (braces == 0 && token.text == "}") return;
    if (braces == 0 && token.starts_line && begins_statement(token)) return;
    if (token.text == "(" || token.text == "[") ++brackets;
    if (token.text == ")" || token.text == "]") --brackets;
    if (token.text == "{") ++braces;
    if (token.text == "}") --braces;
    advance();
    if (braces == 0 && brackets <= 0 && tokens_[at_ - 1].text == ";") return;
  }
}

// After an error in the header of a block: to its `{`, if that is on the same line.
bool Parser::recover_to_brace() {
  while (!at_end() && !at("{") && !at("}") && !peek().starts_line) advance();
  return at("{");
}

bool Parser::statement(Block& body) {
  Nest nest(*this);
  if (!nest.ok() || !count_node(peek().loc)) return false;
  size_t first = at_;
  if (accept("shared")) return decl(body, Scope::kShared);
  if (accept("fragment")) return decl(body, Scope::kFragment);
  if (accept("let")) return let(body);
  if (accept("parallel")) return parallel(body);
  if (accept("for")) return loop(body, false);
  if (accept("pipelined")) return loop(body, true);
  if (accept("if")) return if_statement(body);
  if (accept("atomic")) return atomic(body);
  if (at("while")) {
    not_in_version_1("`while`", "loop with `for k < n` over a bound known when it starts");
    advance();
    if (recover_to_brace()) block();
    return true;
  }
  if (at("hint")) {
    not_in_version_1("`hint`", "remove it; everything works without hints");
    do advance();
    while (!at_end() && !at("}") && !peek().starts_line);
    return true;
  }
  if (at_name()) return assignment(body, AtomicOp::kNone, first);
  if (at("tile"))
    return fail("`tile` where a statement is expected",
                "declare a tile as `shared x: f16[M, N]` or `fragment x: f32[M, N]`");
  if (at("const"))
    return fail("`const` where a statement is expected",
                "name a value with `let`; a table is a tensor parameter, or selections: `i < 1 ? a : i < 2 ? b : c`");
  for (const char* sign : {"+", "-", "*", "/", "@"})
    if (!body.empty() && at(sign))
      return fail(fmt::format("`{}` behind a copy or a product, which is a whole statement", sign),
                  "compute on its elements in a `parallel` behind it, or add another product with `+=`");
  return fail(fmt::format("`{}` where a statement is expected", peek().text),
              "a statement is a declaration, `let`, `parallel`, `for`, `pipelined`, `if`, `atomic` or an assignment");
}

bool Parser::decl(Block& body, Scope scope) {
  do {
    Stmt stmt;
    auto buffer = std::make_shared<Buffer>();
    buffer->scope = scope;
    if (!new_name("a tile", buffer->name, buffer->loc)) return false;
    stmt.loc = buffer->loc;
    TypeRef type;
    bool ok = expect(":", "the name of a tile") && this->type(type);
    if (ok && !at("[")) {
      report(buffer->loc, fmt::format("the tile `{}` needs a shape", buffer->name),
             "write `x: f32[BM, BN]`; one value for the whole block is `x: f32[1]`");
      ok = false;
    }
    if (ok) {
      advance();
      do {
        ExprRef extent = expr();
        ok = extent != nullptr;
        if (ok) buffer->shape.push_back(std::move(extent));
      } while (ok && accept(","));
    }
    ok = ok && expect("]", "the shape");
    buffer->type = type;
    DeclStmt decl{buffer, nullptr};
    if (ok && accept("=")) {
      decl.init = expr();
      ok = decl.init != nullptr;
    }
    if (!ok) {
      declare(buffer->name, buffer->loc, {});
      return false;
    }
    declare(buffer->name, buffer->loc, {nullptr, buffer, nullptr});
    stmt.node = std::move(decl);
    body.push_back(std::move(stmt));
  } while (accept(","));
  return true;
}

bool Parser::let(Block& body) {
  do {
    std::string name;
    Loc loc;
    if (!new_name("a value", name, loc)) return false;
    auto var = std::make_shared<const Var>(Var{VarKind::kLet, name, {}, loc});
    ExprRef value = expect("=", "the name of a value") ? expr() : nullptr;
    declare(name, loc, value ? Entity{var, nullptr, nullptr} : Entity{});
    if (!value) return false;
    body.push_back({loc, LetStmt{var, std::move(value)}});
  } while (accept(","));
  return true;
}

// `i < M, j < N`; declares the variables.
bool Parser::iters(std::vector<IterVar>& out, VarKind kind) {
  do {
    std::string name;
    Loc loc;
    if (!new_name("an index", name, loc)) return false;
    if (kind == VarKind::kReduce && at("<="))
      return fail("`<=` in a reduction stands before an index of the `parallel` around it",
                  "write `sum[k <= j](...)` for an index j of the region, alone; else `k < n`");
    constexpr std::string_view kFromZero =
        "indices of regions and reductions begin at 0: write `i < n`, and `a + i` in place of an index from a on";
    if (at("in") || at("="))
      return fail(fmt::format("`{}` behind the name of an index", peek().text), std::string(kFromZero));
    if (!expect("<", "the name of an index")) return false;
    ExprRef extent = expr();
    if (!extent) return false;
    if (at("..")) return fail("`..` behind the extent of an index", std::string(kFromZero));
    auto var = std::make_shared<const Var>(Var{kind, name, {DType::I64, nullptr}, loc});
    declare(name, loc, {var, nullptr, nullptr});
    out.push_back({var, std::move(extent)});
  } while (accept(","));
  return true;
}

bool Parser::parallel(Block& body) {
  size_t first = at_ - 1;
  size_t scope = order_.size();
  ParallelStmt stmt;
  bool ok = iters(stmt.iters, VarKind::kParallel);
  Loc loc = span(first);
  if (ok && in_parallel_) {
    report(tokens_[first].loc, "`parallel` inside `parallel`",
           "list all indices at once: `parallel i < M, j < N { ... }`");
  }
  if (ok && !at("{")) ok = expect("{", "the indices of `parallel`");
  if (ok || recover_to_brace()) {
    bool outer = std::exchange(in_parallel_, true);
    const std::vector<IterVar> outer_region = region_;
    region_.insert(region_.end(), stmt.iters.begin(), stmt.iters.end());
    stmt.body = block();
    in_parallel_ = outer;
    region_ = outer_region;
    ok = true;
  }
  leave_scope(scope);
  if (ok) body.push_back({loc, std::move(stmt)});
  return ok;
}

bool Parser::loop(Block& body, bool pipelined) {
  size_t first = at_ - 1;
  size_t scope = order_.size();
  if (in_parallel_)
    report(tokens_[first].loc, "a loop inside `parallel`",
           "reduce with `sum[k < n](...)`, or put the loop around `parallel`");
  ForStmt stmt;
  stmt.pipelined = pipelined;
  std::string name;
  Loc loc;
  bool ok = new_name("a loop index", name, loc);
  if (ok && accept("in")) {
    stmt.begin = expr();
    ok = stmt.begin && expect("..", "the first index");
  } else if (ok) {
    ok = at("=") ? fail("`=` behind the name of a loop index", std::string(kRanges))
                 : expect("<", "the name of a loop index");
    stmt.begin = make_int(0, DType::I64, loc);
  }
  if (ok) ok = (stmt.end = expr()) != nullptr;
  if (ok && at(",")) {
    if (!pipelined) {
      ok = fail("a `for` has one index and no depth", "nest two `for`, or write `pipelined k < n, stages`");
    } else {
      advance();
      ok = (stmt.stages = expr()) != nullptr;
    }
  }
  if (ok && at("..")) ok = fail("`..` behind the end of a loop", std::string(kRanges));
  Loc header = span(first);
  if (!name.empty()) {
    stmt.var = std::make_shared<const Var>(Var{VarKind::kLoop, name, {DType::I64, nullptr}, loc});
    declare(name, loc, {stmt.var, nullptr, nullptr});
  }
  if (ok && !at("{")) ok = expect("{", "the range of a loop");
  bool complete = ok;
  if (ok || recover_to_brace()) {
    stmt.body = block();
    ok = true;
  }
  leave_scope(scope);
  if (complete) body.push_back({header, std::move(stmt)});
  return ok;
}

bool Parser::if_statement(Block& body) {
  size_t first = at_ - 1;
  IfStmt stmt;
  stmt.condition = expr();
  Loc loc = span(first);
  bool ok = stmt.condition != nullptr;
  if (ok && !at("{")) ok = expect("{", "the condition");
  if (!ok && !recover_to_brace()) return false;
  bool complete = ok;
  stmt.then_body = block();
  if (accept("else")) {
    if (accept("if")) {
      Nest nest(*this);
      if (!nest.ok() || !if_statement(stmt.else_body)) return false;
    } else {
      stmt.else_body = block();
    }
  }
  if (complete) body.push_back({loc, std::move(stmt)});
  return true;
}

bool Parser::atomic(Block& body) {
  size_t first = at_ - 1;
  AtomicOp op = AtomicOp::kAdd;
  if (accept("max"))
    op = AtomicOp::kMax;
  else if (accept("min"))
    op = AtomicOp::kMin;
  if (!at_name())
    return fail("`atomic` is followed by the tensor that it updates",
                "write `atomic C[i, j] += x` or `atomic max C[i, j] = x`");
  return assignment(body, op, first);
}

// `name...` at the beginning of a statement.
bool Parser::assignment(Block& body, AtomicOp atomic, size_t first) {
  const Token& name = peek();
  const Entity* entity = find(name.text);
  if (!entity) {
    unknown(name, "name");
    return false;
  }
  if (!entity->buffer) {
    if (entity->var || entity->type)
      return fail(fmt::format("`{}` cannot be assigned", name.text),
                  "only tensors and tiles change; keep a changing value in a `fragment` of one element");
    return false;  // its declaration has failed and is reported
  }
  TileRef dst;
  if (!tile(dst)) return false;
  if (!in_parallel_) return tile_assignment(body, std::move(dst), atomic, first);

  AssignStmt stmt;
  stmt.buffer = dst.buffer;
  stmt.atomic = atomic;
  for (const AxisSpec& axis : dst.axes) {
    if (axis.kind != AxisSpec::Kind::kIndex || dst.within_first || dst.pad) {
      report(dst.loc, "a slice inside `parallel`", "index one element, or copy the tile outside `parallel`");
      return false;
    }
    stmt.indices.push_back(axis.start);
  }
  if (accept("="))
    stmt.op = AssignOp::kSet;
  else if (accept("+="))
    stmt.op = AssignOp::kAdd;
  else if (accept("-="))
    stmt.op = AssignOp::kSub;
  else if (accept("*="))
    stmt.op = AssignOp::kMul;
  else if (accept("/="))
    stmt.op = AssignOp::kDiv;
  else if (atomic != AtomicOp::kNone && (at("max") || at("min")))
    return fail(fmt::format("`{}` behind the element that is assigned", peek().text),
                fmt::format("write `atomic {} C[i] = x`", peek().text));
  else if (at("|") || at("&") || at("^") || at("%") || at("<<") || at(">>"))
    return fail(fmt::format("there is no assignment `{}=`", peek().text),
                fmt::format("write `u[i] = u[i] {} x`; the assignments are = += -= *= /=", peek().text));
  else
    return expect("=", "the element that is assigned");
  bool fits =
      atomic == AtomicOp::kNone || (atomic == AtomicOp::kAdd ? stmt.op == AssignOp::kAdd : stmt.op == AssignOp::kSet);
  if (!fits) {
    report(tokens_[at_ - 1].loc, fmt::format("`{}` does not go with this `atomic`", tokens_[at_ - 1].text),
           "write `atomic C[i] += x`, `atomic max C[i] = x` or `atomic min C[i] = x`");
    stmt.op = atomic == AtomicOp::kAdd ? AssignOp::kAdd : AssignOp::kSet;
  }
  stmt.value = expr();
  if (!stmt.value) return false;
  body.push_back({span(first), std::move(stmt)});
  return true;
}

}  // namespace kachel::ir
