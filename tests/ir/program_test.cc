// Programs: what is read, what is refused and why, and what a binary is keyed by.
#include <fmt/format.h>

#include "diagnostics_table.h"
#include "ir/print.h"

namespace kachel::ir {
namespace {

constexpr std::string_view kKernels = R"(tile 1
kernel part<T: f16 | bf16, const last: bool>(X: T[B, S], P: out f32[B, n], scale: f32) tune n = 2 | 4 grid b < B
{ parallel i < n { P[b, i] = last ? scale : 0 } }
kernel join<T: f16 | bf16>(P: f32[B, n], Y: inout T[B]) tune n = 2 | 4 grid b < B { parallel i < 1 { Y[b] = P[b, 0] } }
kernel fill(P: out f32[B, n]) tune n = 2 | 4 grid b < B { parallel i < n { P[b, i] = 0 } }
)";

// `header` stands behind the name, `calls` between the braces.
std::string program(std::string_view header, std::string_view calls) {
  return fmt::format("{}program p{} {{ {} }}\n", kKernels, header, calls);
}
std::string with_calls(std::string_view calls) {
  return program(
      "<T: f16 | bf16, const all: bool>(X: T[B, S], Y: inout T[B], s: f32) key bucket(B) tune splits = 2 | 4", calls);
}

}  // namespace

TEST_CASE("a program is read, printed, and read again") {
  const std::string text = with_calls(
      "temp P: f32[B, splits], Q: f32[B, splits * 2] part<last = all>(X, P, s * 2.0) temp R: f32[S, 3]; "
      "part<last = (1 < 2 || all)>(X, Q, f32(B)) join(P, Y)");
  Result<Module> module = load(text);
  REQUIRE_MESSAGE(module.ok(), module.status().message());
  REQUIRE(module->programs.size() == 1);
  CHECK(module->kernels.size() == 3);
  const Program& read = module->programs[0];
  CHECK(module->find_program("p") == &read);
  CHECK(!module->find("p"));
  CHECK(read.header.params.size() == 3);
  CHECK(read.header.tunables.size() == 1);
  REQUIRE(read.temps.size() == 3);
  CHECK(read.temps[2]->name == "R");
  REQUIRE(read.calls.size() == 3);
  CHECK(read.calls[0].kernel == "part");
  CHECK(read.calls[0].args[1].tensor == read.temps[0]);
  CHECK(read.calls[0].args[0].tensor == read.header.params[0].tensor);
  CHECK(print(read.calls[0].args[2].value) == "s * 2.0");
  CHECK(print(read) ==
        "program p<T: f16 | bf16, const all: bool>(X: T[B, S], Y: inout T[B], s: f32)\nkey bucket(B)\ntune splits = 2 "
        "| 4\n{\n"
        "  temp P: f32[B, splits], Q: f32[B, splits * 2], R: f32[S, 3]\n  part<last = all>(X, P, s * 2.0)\n"
        "  part<last = (1 < 2 || all)>(X, Q, f32(B))\n  join(P, Y)\n}\n");
  Result<Module> again = load(print(*module));
  REQUIRE_MESSAGE(again.ok(), again.status().message());
  CHECK(print(*again) == print(*module));
}

TEST_CASE("calls within `if` are read and printed with their conditions") {
  const std::string text = with_calls(
      "temp P: f32[B, splits] if splits == 2 && all { part<last = all>(X, P, s) if B > 1 { fill(P) } else if B == 0 { "
      "fill(P) } } else { if !(S < 4) { fill(P) } fill(P) } join(P, Y)");
  Result<Module> module = load(text);
  REQUIRE_MESSAGE(module.ok(), module.status().message());
  const Program& read = module->programs.at(0);
  REQUIRE(read.calls.size() == 6);
  CHECK(read.calls[0].guards.size() == 1);
  REQUIRE(read.calls[2].guards.size() == 3);
  CHECK(read.calls[2].guards[0].holds);
  CHECK_FALSE(read.calls[2].guards[1].holds);
  CHECK(print(read.calls[2].guards[2].condition) == "B == 0");
  CHECK_FALSE(read.calls[3].guards[1].holds);
  CHECK(read.calls[5].guards.empty());
  const std::string printed = print(*module);
  CHECK(printed.find("  if splits == 2 && all {\n    part<last = all>(X, P, s)\n    if B > 1 {\n      fill(P)\n    }\n"
                     "    if !(B > 1) {\n      if B == 0 {\n        fill(P)\n      }\n    }\n  }\n"
                     "  if !(splits == 2 && all) {\n    if !(S < 4) {\n      fill(P)\n    }\n    fill(P)\n  }\n"
                     "  join(P, Y)\n}\n") != printed.npos);
  Result<Module> again = load(printed);
  REQUIRE_MESSAGE(again.ok(), again.status().message());
  CHECK(print(*again) == printed);
  CHECK(canonical_body(*again, again->programs[0]) == canonical_body(*module, read));
}

TEST_CASE("a temporary is written wherever it is read") {
  auto reads = [](std::string_view calls) {
    return load(with_calls("temp P: f32[B, splits] " + std::string(calls) + " ")).ok();
  };
  CHECK(reads("if B > 1 { fill(P) join(P, Y) }"));
  CHECK(reads("if B > 1 { fill(P) } else { fill(P) } join(P, Y)"));
  CHECK(reads("if B > 1 { if S > 1 { fill(P) } else { fill(P) } } else { fill(P) } join(P, Y)"));
  CHECK(reads("if B > 1 { fill(P) } if !(B > 1) { fill(P) } join(P, Y)"));
  CHECK_FALSE(reads("if B > 1 { fill(P) } join(P, Y)"));
  CHECK_FALSE(reads("if B > 1 { fill(P) } else { join(P, Y) }"));
  CHECK_FALSE(reads("if B > 1 { if S > 1 { fill(P) } } else { fill(P) } join(P, Y)"));
  CHECK_FALSE(reads("if B > 1 { fill(P) } else if S > 1 { fill(P) } join(P, Y)"));
}

TEST_CASE("bodies of programs tell what is launched and nothing else") {
  auto body = [](const std::string& text) {
    Result<Module> module = load(text);
    REQUIRE_MESSAGE(module.ok(), module.status().message());
    return canonical_body(*module, module->programs.at(0));
  };
  const std::string calls = "temp P: f32[B, splits] part<last = all>(X, P, s) join(P, Y)",
                    first = body(with_calls(calls));
  CHECK(first.find("program <T0, const c0: bool>(A0: T0[d0, d1]") == 0);
  CHECK(body(with_calls("temp Other: f32[B, splits] part<last = all>(X, Other, s) join(Other, Y)")) == first);
  CHECK(body(with_calls(calls) + "kernel unused() { }") == first);
  CHECK(body(with_calls("temp P: f32[B, splits] part<last = false>(X, P, s) join(P, Y)")) != first);
  CHECK(body(with_calls("temp P: f32[B, splits] part<last = all>(X, P, s) join(P, Y) join(P, Y)")) != first);
  std::string other = with_calls(calls);
  other.replace(other.find("last ? scale : 0"), 16, "last ? scale : 1");
  CHECK(body(other) != first);
}

TEST_CASE("diagnostics of programs that do not parse") {
  const Malformed kTable[] = {
      {"tile 1 program $($) { }", "a program needs a name", "program name(...)"},
      {"tile 1 program $kernel$() { }", "`kernel` is a reserved word and cannot name a program", "another name"},
      {"tile 1 program p() $kernel$ k() { }", "a program needs a body", "{ ... }"},
      {program("(Y: inout f16[B]) grid $b$ < B", "temp P: f32[B, 2] fill(P) join(P, Y)"), "a program has no grid",
       "remove"},
      {with_calls("$let$ x = 3"), "`let` where a call is expected", "name(A, B)"},
      {with_calls("A $=$ B"), "`=` behind `A` in a program", "let a kernel copy"},
      {with_calls("A$[$0, 0] = 1"), "`[` behind `A` in a program", "let a kernel copy"},
      {with_calls("join $Y$"), "`(` is expected after the name of a kernel", "`(`"},
      {with_calls("join(X, Y $;$"), "`)` is expected after the arguments of a call", "`)`"},
      {with_calls("part<$3$>(X, Y, s)"), "given by its name", "<causal = true>"},
      {with_calls("part<last $true$>(X, Y, s)"), "`=` is expected after the name of a constant", "`=`"},
      {with_calls("part<last = true$($X, Y, s)"), "`>` is expected after the constants of a call", "`>`"},
      {with_calls("join(Y$[$0], Y)"), "a call passes whole tensors", "alone"},
      {with_calls("temp $=$"), "a temporary tensor", "name"},
      {with_calls("temp P$($f32[2])"), "`:` is expected after the name of a temporary tensor", "`:`"},
      {with_calls("temp P: f32 $join$(P, Y)"), "`[` is expected after the type", "`[`"},
      {with_calls("temp $X$: f32[2] join(X, Y)"), "`X` is declared already", "another name"},
      {with_calls("temp P: f32[$Z$]"), "`Z`", ""},
      {with_calls("if B > 1 $join$(X, Y)"), "`{` is expected after the condition of a call", "`{`"},
      {with_calls("if B > 1 { join(X, Y) } else $join$(X, Y)"), "`{` is expected after the condition", "`{`"},
      {with_calls("if B > 1 { $temp$ P: f32[B] }"), "a temporary tensor within `if`", "in front"},
  };
  for (const Malformed& malformed : kTable) check(malformed);
}

TEST_CASE("diagnostics of programs that parse") {
  const std::string made = "temp P: f32[B, splits] part<last = all>(X, P, s) ";
  const Malformed kTable[] = {
      {"tile 1 kernel k() { } program $k$() { k() }", "two kernels or programs `k`", "rename"},
      {"tile 1 program $p$() { }", "calls no kernel", "call one"},
      {with_calls("temp P: f32[B, splits] $part(X, P, s)$ join(P, Y)"), "the constant `last` of `part` has no value",
       "part<last = ...>"},
      {with_calls(made + "$missing(X)$ join(P, Y)"), "there is no kernel `missing`", "define it"},
      {with_calls(made + "$p(P, Y)$ join(P, Y)"), "`p` is a program", "its kernels"},
      {with_calls(made + "$join(P)$ join(P, Y)"), "`join` has 2 parameters, 1 are given", "one for each"},
      {with_calls(made + "part<last = all, $first$ = all>(X, P, s) join(P, Y)"), "no constant `first`", "remove"},
      {with_calls(made + "part<last = all, $last$ = all>(X, P, s) join(P, Y)"), "given twice", "remove"},
      {with_calls("temp P: f32[B, splits] part<last = s > $1$>(X, P, s) join(P, Y)"),
       "`(` is expected after the name of a kernel", "`(`"},
      {with_calls("temp P: f32[B, splits] part<last = ($B$ > 1)>(X, P, s) join(P, Y)"),
       "must be known when the program is got", "constants of the program"},
      {with_calls("temp P: f32[B, splits] part<last = all>(X, P, $X$) join(P, Y)"), "`scale` of `part` is a scalar",
       "number"},
      {with_calls("temp P: f32[B, splits] part<last = all>($2$, P, s) join(P, Y)"), "`X` of `part` is a tensor",
       "temporary"},
      {with_calls("temp P: f32[B, splits] fill(P) join(P, Y) part<last = all>($Y$, P, s)"),
       "`Y` has 1 axes, `X` of `part` has 2", "as many axes"},
      {with_calls("temp P: f16[B, splits], Q: f32[B, splits] part<last = all>(X, $P$, s) part<last = all>(X, Q, s) "
                  "join(Q, Y)"),
       "`P` is of f16, `P` of `part` of f32", "same type"},
      {program("<T: f16 | f32>(X: T[B, S], Y: inout f16[B], s: f32)",
               "temp P: f32[B, 2] part<last = true>($X$, P, s) join(P, Y)"),
       "`X` is of T", "every choice"},
      {program("(X: f16[B, S], Y: f16[B], s: f32)", "temp P: f32[B, 2] part<last = true>(X, P, s) join(P, $Y$)"),
       "`join` writes `Y`, which the program only reads", "inout"},
      {with_calls("temp P: f32[B, splits] join($P$, Y)"), "`P` is read before a call has written it",
       "writes it first"},
      {program("(P: f32[B, n], Y: out f16[B]) tune n = 2", "join(P, $Y$)"), "`Y` is read before a call has written it",
       "inout"},
      {program("(P: f32[B, n], $Y$: out f16[B]) tune n = 2", "temp Q: f32[B, 2] fill(Q)"), "no call writes `Y`",
       "declare it"},
      {with_calls("temp $P$: u4[B, 2], Q: f32[B, splits] fill(Q) join(Q, Y)"), "elements of 4 bits", "u8"},
      {with_calls("temp P: f32[B, $0$] fill(P) join(P, Y)"), "positive integer", "at least 1"},
      {with_calls(made + "if $s$ > 1.0 { join(P, Y) }"), "depends on the run-time scalar `s`", "const s"},
      {with_calls(made + "if $X[0, 0]$ > 1.0 { join(P, Y) }"), "reads the tensor `X`", "dimensions"},
      {with_calls("temp P: f32[B, splits] part<last = all>(X, P, $2$ / B) join(P, Y)"),
       "`scale` of `part` is f32, `2 / B` is i64", "f32(2 / B)"},
      {program("(Y: inout f16[B], n: i32)", "temp P: f32[B, $n$] fill(P) join(P, Y)"),
       "depends on the run-time scalar `n`", "const n"},
  };
  for (const Malformed& malformed : kTable) check(malformed);
}

TEST_CASE("programs pass a tensor twice only to read it") {
  const std::string_view kernels =
      "tile 1 kernel f(A: f32[M], B: f32[M], C: out f32[M]) tune n = 2 grid b < M { parallel i < 1 { C[b] = A[b] + "
      "B[b] } } ";
  auto text = [&](std::string_view call) {
    return fmt::format("{}program p(X: inout f32[M], Y: out f32[M]) {{ {} f(X, X, Y) f(Y, Y, X) }}", kernels, call);
  };
  CHECK(load(text("")).ok());
  check({text("f(X, X, $X$)"), "`X` is passed twice and written", "another tensor"});
}

}  // namespace kachel::ir
