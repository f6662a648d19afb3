#include "ir/typecheck.h"

#include <doctest/doctest.h>

#include "ir/parse.h"
#include "ir/print.h"

namespace kachel::ir {
namespace {

// Statements and expressions over variables of every type.
std::string around(const std::string& body) {
  return R"(tile 1
kernel k<T: f16 | u4>(F: f32[N], H: inout f16[N], I: i32[N], Q: out u4[N], T4: out T[N], E: inout f8e4m3[N], B8: inout i8[N],
  L: inout bool[N], A: inout i64[N], f: f32, i: i32, u: u32, l: i64, w: u64, c: bool)
grid g < 1
{
  shared hs: f16[16, 16], fs: f32[16, 16], is: i8[16, 16], bs: bool[16, 16]
  fragment acc: f32[16, 16] = 0, hacc: f16[16, 16] = 0, iacc: i32[16, 16] = 0, t: f32[16] = 0, n: i32[16] = 0
)" + body +
         "\n}\n";
}

std::vector<Diagnostic> diagnose(const std::string& body, DType type = DType::F16) {
  const std::string text = around(body);
  ParseResult parsed = parse(text);
  for (const Diagnostic& diagnostic : parsed.diagnostics) FAIL(format(diagnostic, "test", text));
  const Kernel& kernel = parsed.module.kernels.at(0);
  return check_types(kernel, {{kernel.type_symbols[0].get(), type}});
}

TEST_CASE("every type diagnostic has a place, a message and a mend") {
  const auto let = [](const char* e) { return std::string("let x = ") + e; };
  const std::pair<std::string, const char*> rows[] = {
      {let("c + 1"), "`+` cannot mix bool and i64"},
      {let("f < c"), "`<` cannot mix bool and f32"},
      {let("c < c"), "`<` needs numbers, these are bool"},
      {let("c + c"), "`+` needs numbers, these are bool"},
      {let("max(c, c)"), "`max` needs numbers, these are bool"},
      {let("w + i"), "`+` cannot mix u64 and i32"},
      {let("w + l"), "`+` cannot mix u64 and i64"},
      {let("w == -1"), "`==` cannot mix u64 and i64"},
      {let("c ? w : i"), "`select` cannot mix u64 and i32"},
      {let("f % 2"), "`%` needs integers, these are f32"},
      {let("f & 1"), "`&` needs integers, these are f32"},
      {let("ceildiv(f, 2)"), "`ceildiv` needs integers, these are f32"},
      {let("f << 1"), "`<<` needs integers, this is f32"},
      {let("i >> c"), "`>>` needs integers, this is bool"},
      {let("-c"), "`-` needs a number, this is bool"},
      {let("abs(c)"), "`abs` needs a number, this is bool"},
      {let("~f"), "`~` needs an integer, this is f32"},
      {let("popcount(c)"), "`popcount` needs an integer, this is bool"},
      {let("exp(c)"), "`exp` needs numbers, this is bool"},
      {let("clamp(c, c, c)"), "`clamp` needs numbers, these are bool"},
      {let("bucket(i)"), "`bucket` is for `key` only"},
      {let("sum[k < 4](c)"), "a reduction needs numbers, this is bool"},
      {let("F[f]"), "an index or extent must be an integer, this is f32"},
      {"for k < f { t = 0 }", "an index or extent must be an integer, this is f32"},
      {"t = F[f +: 16]", "an index or extent must be an integer, this is f32"},
      {"t = F[H[0 +: 16]]", "`H` selects elements, so it must hold integers, not f16"},
      {"acc += bs @ hs", "a gemm needs numbers, an operand is bool"},
      {"acc += is @ hs", "a gemm cannot mix i8 and f16"},
      {"hacc += hs @ hs", "a gemm of f16 accumulates in f32, `hacc` is f16"},
      {"acc += is @ is", "a gemm of i8 accumulates in i32 or i64, `acc` is f32"},
      {"acc += hs @ hs precision tf32", "`precision tf32` is for f32 operands, these are f16 and f16"},
      {"acc += hs @ hs precision fast", "`precision fast` is for 8-bit float operands, these are f16 and f16"},
      {"parallel j < 16 { Q[j] = 1 }", "elements of `Q` cannot be written one by one, two u4 share a byte"},
      {"parallel j < 16 { atomic E[j] += 1 }", "there is no `atomic +=` on f8e4m3"},
      {"parallel j < 16 { atomic B8[j] += 1 }", "there is no `atomic +=` on i8"},
      {"parallel j < 16 { atomic max H[j] = 1 }", "there is no `atomic max` on f16"},
      {"parallel j < 16 { atomic L[j] += 1 }", "there is no `atomic +=` on bool"},
      {"atomic min E[0 +: 16] = t", "there is no `atomic min` on f8e4m3"},
  };
  for (const auto& [body, message] : rows) {
    CAPTURE(body);
    std::vector<Diagnostic> found = diagnose(body);
    REQUIRE(found.size() == 1);
    CHECK(found[0].message == message);
    CHECK_FALSE(found[0].mend.empty());
    CHECK(found[0].loc.line == 8);
    CHECK(found[0].loc.column > 0);
  }
}

TEST_CASE("rules that depend on a type symbol") {
  const std::string body = "parallel j < 16 { T4[j] = 1 }";
  CHECK(diagnose(body, DType::F16).empty());
  REQUIRE(diagnose(body, DType::U4).size() == 1);
  CHECK(diagnose(body, DType::U4)[0].message == "elements of `T4` cannot be written one by one, two u4 share a byte");
  const char* text = "tile 1\nkernel k<T: f32 | f16>(Y: out f32[4], s: T)\ngrid b < 1 { }\n";
  ParseResult parsed = parse(text);
  const Kernel& kernel = parsed.module.kernels.at(0);
  CHECK(check_types(kernel, {{kernel.type_symbols[0].get(), DType::F32}}).empty());
  std::vector<Diagnostic> found = check_types(kernel, {{kernel.type_symbols[0].get(), DType::F16}});
  REQUIRE(found.size() == 1);
  CHECK(found[0].message == "the scalar `s` cannot be f16");
}

TEST_CASE("one mistake, one diagnostic") {
  CHECK(diagnose("let x = ((c + 1) * 2 < f) ? exp(c + 1) : 3  let y = x + 1").size() == 2);
  CHECK(diagnose("parallel j < 16 { t[j] += t[j] * (f % 2) }").size() == 1);
}

// The typed value of `let x = e`, with casts spelt out.
ExprRef typed(const std::string& e) {
  const std::string text = around("let x = " + e);
  ParseResult parsed = parse(text);
  for (const Diagnostic& diagnostic : parsed.diagnostics) FAIL(format(diagnostic, "test", text));
  std::vector<Diagnostic> diagnostics;
  Kernel kernel = type_kernel(parsed.module.kernels.at(0), {}, diagnostics);
  for (const Diagnostic& diagnostic : diagnostics) FAIL(format(diagnostic, "test", text));
  const auto& let = std::get<LetStmt>(kernel.body.back().node);
  CHECK(let.var->type.dtype == let.value->type);
  return let.value;
}

TEST_CASE("operands meet in one type, and literals adapt") {
  struct Row {
    const char* text;
    DType type;
    const char* printed;
  };
  const Row rows[] = {
      {"i + 1", DType::I32, "i + 1"},
      {"i + 4294967296", DType::I64, "i64(i) + 4294967296"},
      {"u + 1", DType::U32, "u + 1"},
      {"u + -1", DType::I64, "i64(u) + -1"},
      {"i + u", DType::I64, "i64(i) + i64(u)"},
      {"i + l", DType::I64, "i64(i) + l"},
      {"w + u", DType::U64, "w + u64(u)"},
      {"w * 2", DType::U64, "w * 2"},
      {"f * 2", DType::F32, "f * 2.0"},
      {"f * i", DType::F32, "f * f32(i)"},
      {"N * f", DType::F32, "f32(N) * f"},
      {"i * N", DType::I64, "i64(i) * N"},
      {"i < 3", DType::Bool, "i < 3"},
      {"1 << 4", DType::I64, "16"},
      {"i << 4", DType::I32, "i << 4"},
      {"5", DType::I64, "5"},
      {"c ? 1 : 0", DType::I64, "c ? 1 : 0"},
      {"i + (c ? 1 : 0)", DType::I32, "i + (c ? 1 : 0)"},
      {"f + (c ? 1 : 0)", DType::F32, "f + (c ? 1.0 : 0.0)"},
      {"c ? f : 0", DType::F32, "c ? f : 0.0"},
      {"i ? f : 1", DType::F32, "bool(i) ? f : 1.0"},
      {"!i && c", DType::Bool, "!bool(i) && c"},
      {"c == (f > 1)", DType::Bool, "c == (f > 1.0)"},
      {"exp(i)", DType::F32, "exp(f32(i))"},
      {"clamp(f, 0, 1)", DType::F32, "clamp(f, 0.0, 1.0)"},
      {"max(i, l)", DType::I64, "max(i64(i), l)"},
      {"F[i]", DType::F32, "F[i64(i)]"},
      {"H[0] + 1", DType::F32, "H[0] + 1.0"},
      {"B8[0] * I[1]", DType::I32, "B8[0] * I[1]"},
      {"sum[k < 4](B8[k])", DType::I32, "sum[k < 4](B8[k])"},
      {"f16(f)", DType::F32, "f16(f)"},
      {"i8(f)", DType::I32, "i8(f)"},
      {"popcount(w)", DType::U64, "popcount(w)"},
      {"T(i)", DType::F32, "f16(i)"},
      {"-f", DType::F32, "-f"},
      {"fma(f, 2, i)", DType::F32, "fma(f, 2.0, f32(i))"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.text);
    ExprRef value = typed(row.text);
    CHECK(value->typed);
    CHECK(value->type == row.type);
    CHECK(print(value) == row.printed);
  }
}

// What the store `lhs = e` holds after typing.
TEST_CASE("stored values have the compute type of the buffer") {
  const auto stored = [](const std::string& statement) {
    const std::string text = around("parallel j < 16 { " + statement + " }");
    ParseResult parsed = parse(text);
    for (const Diagnostic& diagnostic : parsed.diagnostics) FAIL(format(diagnostic, "test", text));
    std::vector<Diagnostic> diagnostics;
    Kernel kernel = type_kernel(parsed.module.kernels.at(0), {}, diagnostics);
    for (const Diagnostic& diagnostic : diagnostics) FAIL(format(diagnostic, "test", text));
    const auto& region = std::get<ParallelStmt>(kernel.body.back().node);
    const auto& assign = std::get<AssignStmt>(region.body.back().node);
    CHECK(assign.value->type == compute_type(assign.buffer->type.dtype));
    if (assign.atomic == AtomicOp::kNone) CHECK(assign.op == AssignOp::kSet);
    return print(assign.value);
  };
  CHECK(stored("H[j] = f") == "f");
  CHECK(stored("B8[j] = f") == "i8(f)");  // saturates at once, not by way of i32
  CHECK(stored("B8[j] = l") == "i8(l)");
  CHECK(stored("B8[j] = 300") == "300");
  CHECK(stored("t[j] = 3") == "3.0");
  CHECK(stored("t[j] = i") == "f32(i)");
  CHECK(stored("L[j] = i") == "bool(i)");
  CHECK(stored("t[j] = c") == "f32(c)");
  CHECK(stored("t[j] += 1") == "t[j] + 1.0");
  CHECK(stored("n[j] *= l") == "i32(i64(n[j]) * l)");
  CHECK(stored("A[j] -= i") == "A[j] - i64(i)");
  CHECK(stored("atomic H[j] += i") == "f16(i)");
}

TEST_CASE("host expressions") {
  auto m = std::make_shared<Var>(Var{VarKind::kDim, "m", {DType::I64, nullptr}, {}});
  ExprRef good = make_apply(Op::kBucket, {make_apply(Op::kAdd, {make_var(m), make_int(1)})});
  auto typed_good = type_expr(good);
  REQUIRE(typed_good.ok());
  CHECK((*typed_good)->typed);
  CHECK((*typed_good)->args[0]->args[0]->var == m);
  auto bad = type_expr(make_apply(Op::kMod, {make_float(1), make_var(m)}));
  REQUIRE_FALSE(bad.ok());
  CHECK(bad.status().message() == "`%` needs integers, these are f32; convert the operands with i32(...) or i64(...)");
  auto arity = type_expr(make_apply(Op::kAdd, {make_int(1)}));
  CHECK_FALSE(arity.ok());
}

}  // namespace
}  // namespace kachel::ir
