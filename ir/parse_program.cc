// Programs: temporaries and calls. Which kernel a call means is found out by verify(), so that order does not matter.
#include <fmt/format.h>

#include "ir/parser.h"

namespace kachel::ir {

void Parser::program() {
  Program program;
  const bool sound = header(program.header, "program");
  if (!program.header.grid.empty())
    report(program.header.grid[0].var->loc, "a program has no grid",
           "the kernels that it calls have theirs; remove it");
  if (!at("{")) {
    if (sound) fail("a program needs a body", "write `{ ... }` after the header");
  } else {
    advance();
    calls(program);
    expect("}", "the calls of a program");
  }
  result_.module.programs.push_back(std::move(program));
}

void Parser::calls(Program& program) {
  while (!at("}") && !at_end() && !at("kernel") && !at("program")) {
    if (accept(";")) continue;
    if (!(at("temp") ? temp(program) : at("if") ? conditional(program) : call(program))) recover_to_call();
  }
}

// `if splits == 1 { ... } else { ... }`
bool Parser::conditional(Program& program) {
  advance();
  Nest nest(*this);
  if (!nest.ok()) return false;
  Guard guard{expr()};
  if (!guard.condition) return false;
  // So that `if !c` is the opposite of `if c`.
  while (guard.condition->kind == ExprKind::kApply && guard.condition->op == Op::kNot)
    guard = {guard.condition->args[0], !guard.holds};
  guards_.push_back(guard);
  bool sound = braced_calls(program);
  if (sound && accept("else")) {
    guards_.back().holds = !guard.holds;
    sound = at("if") ? conditional(program) : braced_calls(program);
  }
  guards_.pop_back();
  return sound;
}

bool Parser::braced_calls(Program& program) {
  if (!expect("{", "the condition of a call")) return false;
  calls(program);
  return expect("}", "the calls");
}

// To what may be the next one: statements end with the line.
void Parser::recover_to_call() {
  while (!at_end() && !at("}") && !at(";") && !at("kernel") && !at("program")) {
    advance();
    if (peek().starts_line) return;
  }
}

// `temp part: f32[B, H, splits, D], lse: f32[B, H, splits]`
bool Parser::temp(Program& program) {
  if (!guards_.empty())
    return fail("a temporary tensor within `if`", "declare it in front; where no call uses it, it takes no memory");
  advance();
  do {
    auto buffer = std::make_shared<Buffer>();
    buffer->direction = Direction::kInOut;
    if (!new_name("a temporary tensor", buffer->name, buffer->loc) || !expect(":", "the name of a temporary tensor"))
      return false;
    if (!type(buffer->type) || !expect("[", "the type of a temporary tensor")) {
      declare(buffer->name, buffer->loc, {});  // so that its uses are not reported
      return false;
    }
    do {
      ExprRef extent = expr();
      if (!extent) return false;
      buffer->shape.push_back(std::move(extent));
    } while (accept(","));
    if (!expect("]", "the shape")) return false;
    declare(buffer->name, buffer->loc, {nullptr, buffer, nullptr});
    program.temps.push_back(std::move(buffer));
  } while (accept(","));
  return true;
}

// `attention<causal = true>(Q, K, V, part, scale)`
bool Parser::call(Program& program) {
  if (!at_name())
    return fail(fmt::format("`{}` where a call is expected", peek().text),
                "the body of a program declares `temp` tensors and calls kernels: `name(A, B)`");
  Call call;
  const size_t first = at_;
  call.kernel = peek().text;
  advance();
  if (at("<") && !call_consts(call)) return false;
  if (at("=") || at("+=") || at("["))
    return fail(
        fmt::format("`{}` behind `{}` in a program, which calls kernels and nothing else", peek().text, call.kernel),
        "let a kernel copy or compute it: `kernel copy(X: f32[N], Y: out f32[N]) ...`");
  if (!expect("(", "the name of a kernel")) return false;
  if (!accept(")")) {
    do {
      if (!call_arg(call)) return false;
    } while (accept(","));
    if (!expect(")", "the arguments of a call")) return false;
  }
  call.loc = span(first);
  call.guards = guards_;
  program.calls.push_back(std::move(call));
  return true;
}

bool Parser::call_consts(Call& call) {
  advance();
  do {
    if (!at_name()) return fail("a constant of the kernel is given by its name", "name it, as in `<causal = true>`");
    Call::Const value{std::string(peek().text), nullptr, peek().loc};
    advance();
    if (!expect("=", "the name of a constant")) return false;
    value.value = unary();  // a comparison would take the closing bracket; parentheses hold any expression
    if (!value.value) return false;
    call.consts.push_back(std::move(value));
  } while (accept(","));
  return expect(">", "the constants of a call");
}

bool Parser::call_arg(Call& call) {
  CallArg arg;
  arg.loc = peek().loc;
  const Entity* entity = at_name() ? find(peek().text) : nullptr;
  if (entity && entity->buffer) {
    arg.tensor = entity->buffer;
    advance();
    if (at("["))
      return fail("a call passes whole tensors", "pass the tensor alone, and let the kernel take what it needs of it");
  } else {
    arg.value = expr();
    if (!arg.value) return false;
  }
  call.args.push_back(std::move(arg));
  return true;
}

}  // namespace kachel::ir
