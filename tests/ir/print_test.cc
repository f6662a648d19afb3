#include "ir/print.h"
#include <cstring>

#include <doctest/doctest.h>

#include <limits>

#include "ir/builder.h"
#include "ir/parse.h"

namespace kachel::ir {
namespace {

// What `let x = <text>` prints as.
std::string reprinted(const std::string& text) {
  ParseResult result = parse("tile 1 kernel k(A: f32[M, N], a: i32, b: i32, c: i32, p: bool) { let x = " + text + " }");
  REQUIRE(result.diagnostics.empty());
  return print(std::get<LetStmt>(result.module.kernels[0].body[0].node).value);
}

std::string canonical(const std::string& text) {
  ParseResult result = parse(text);
  REQUIRE(result.diagnostics.empty());
  return canonical_body(result.module.kernels.at(0));
}

}  // namespace

TEST_CASE("parentheses are as few as precedence allows") {
  for (const char* text : {"a + b * c",
                           "(a + b) * c",
                           "a - b - c",
                           "a - (b - c)",
                           "a / b / c",
                           "a / (b * c)",
                           "a << b + c",
                           "(a << b) + c",
                           "a & b == c",
                           "a & (b == c ? 1 : 2)",
                           "a | b ^ c & a",
                           "(a | b) & c",
                           "-(a + b)",
                           "-a * b",
                           "!(a < b)",
                           "~a & b",
                           "p ? a : p ? b : c",
                           "(p ? a : b) + c",
                           "(p ? p : a < b) ? a : b",
                           "p && a < b || !p",
                           "p && (p || p)",
                           "(a < b) == p",
                           "a % b * c",
                           "a * (b % c)",
                           "--a",
                           "a - -b",
                           "max(a, b) + min(a, b)",
                           "A[a + 1, b] * 2",
                           "sum[i < 4, j < M](A[i, j] + 1) - 1",
                           "f32(a + b) * 2",
                           "approx exp2(f32(a))",
                           "ceildiv(a, b)",
                           "a >> b & 1"}) {
    CHECK(reprinted(text) == text);
  }
  CHECK(reprinted("((a)) + (b * c)") == "a + b * c");
  CHECK(reprinted("(a - b) - c") == "a - b - c");
  CHECK(reprinted("select(p, a, b)") == "p ? a : b");
  CHECK(reprinted("max(a, b, c)") == "max(max(a, b), c)");
}

TEST_CASE("numbers are printed so that they are read back exactly") {
  CHECK(reprinted("0x40") == "64");
  CHECK(reprinted("1e30") == "1e+30");
  CHECK(reprinted("-1e-30") == "-1e-30");
  CHECK(reprinted("2.50") == "2.5");
  CHECK(reprinted("3.0") == "3.0");
  CHECK(reprinted("0.1") == "0.1");
  CHECK(reprinted("-0.0") == "-0.0");
  CHECK(reprinted("-inf") == "-inf");
  CHECK(reprinted("nan") == "nan");
  CHECK(reprinted("log2e + ln2 * pi") == "log2e + ln2 * pi");
  CHECK(reprinted("1.4426950408889634") == "log2e");
  CHECK(reprinted("18446744073709551615") == "18446744073709551615");
  CHECK(reprinted("-9223372036854775808") == "-9223372036854775808");
  uint32_t state = 1;
  for (int i = 0; i < 2000; ++i) {
    state = state * 1664525 + 1013904223;
    float value = 0;
    std::memcpy(&value, &state, sizeof value);
    std::string text = print(make_float(value));
    CHECK(reprinted(text) == text);
  }
  for (int64_t value : {INT64_MIN, INT64_MIN + 1, int64_t{-1}, INT64_MAX})
    CHECK(reprinted(print(make_int(value))) == std::to_string(value));
}

TEST_CASE("canonical text of a kernel") {
  ParseResult result = parse(
      "tile 1 kernel k<T: f16|bf16, const c: bool>(A: T[M,2*M], x: f32, B: out T[M,N]) key M, bucket(N) where M>0 "
      "where N>0"
      " tune BM = 1|2 tune BN = 4 grid b<M { for i in 0..4 { if c {} else if x>0 { B[b, :] = 1.0 } } }");
  REQUIRE(result.diagnostics.empty());
  CHECK(print(result.module) ==
        "tile 1\n"
        "\n"
        "kernel k<T: f16 | bf16, const c: bool>(A: T[M, 2 * M], x: f32, B: out T[M, N])\n"
        "where M > 0, N > 0\n"
        "key M, bucket(N)\n"
        "tune BM = 1 | 2, BN = 4\n"
        "grid b < M\n"
        "{\n"
        "  for i < 4 {\n"
        "    if c {\n"
        "    } else if x > 0 {\n"
        "      B[b, :] = 1.0\n"
        "    }\n"
        "  }\n"
        "}\n");
}

TEST_CASE("prefix reductions are printed as they were, and are no others") {
  const auto kernel = [](const std::string& value) {
    return "tile 1 kernel k(X: f32[N], Y: out f32[N]) grid b < N { fragment x: f32[8] x = X[0 +: 8]"
           " parallel i < 8, j < 8 { x[j] = " +
           value + " } Y[b +: 8] = x }";
  };
  for (const char* value : {"sum[k <= j](x[k])", "sum[k < j](x[k])", "max[k <= j](x[k] + 1) * 2", "min[k < i](x[k])"}) {
    const ParseResult result = parse(kernel(value));
    REQUIRE(result.diagnostics.empty());
    const std::string text = print(result.module);
    CHECK(text.find(std::string("x[j] = ") + value + "\n") != std::string::npos);
    CHECK(print(parse(text).module) == text);
  }
  const std::string sums = canonical(kernel("sum[k <= j](x[k])"));
  CHECK(sums == canonical(kernel("sum[other <= j](x[other])")));
  for (const char* value : {"sum[k < j](x[k])", "sum[k <= i](x[k])", "max[k <= j](x[k])", "sum[k < 8](x[k])"})
    CHECK(sums != canonical(kernel(value)));
}

TEST_CASE("a canonical body knows no names, no tuning and no key") {
  const std::string kFirst =
      "tile 1 kernel a<T: f16 | bf16>(A: T[M, K], B: out T[M, K]) key M tune BM = 64 | 128 where M > 2"
      " grid b < ceildiv(M, BM) { fragment x: f32[BM, K] x = A[b*BM +: BM, :] # comment\n"
      " parallel i < BM, j < K { x[i, j] = max(x[i, j], 0) } B[b*BM +: BM, :] = x }";
  const std::string kSecond =
      "tile 1\nkernel other<U: f16>(in_: U[rows, cols], out_: out U[rows, cols])\ntune R = 1\n"
      "grid g < ceildiv(rows, R)\n{ fragment t: f32[R, cols]\n t = in_[g * R +: R, :]\n"
      " parallel p < R, q < cols { t[p, q] = max(t[p, q], 0) }\n out_[g * R +: R, :] = t }";
  CHECK(canonical(kFirst) == canonical(kSecond));
  auto differs = [&](const std::string& what, const std::string& with) {
    std::string changed = kFirst;
    size_t at = changed.find(what);
    REQUIRE(at != std::string::npos);
    return canonical(changed.replace(at, what.size(), with)) != canonical(kFirst);
  };
  CHECK(differs("0) }", "1) }"));
  CHECK(differs("0) }", "0.0) }"));
  CHECK(differs("x: f32", "x: f16"));
  CHECK(differs("fragment", "shared"));
  CHECK(differs("B: out T[M, K]", "B: inout T[M, K]"));
  CHECK(differs("B: out T[M, K]", "B: out f16[M, K]"));
  CHECK(differs("B: out T[M, K]", "B: out T[K, M]"));
  CHECK(differs("x[i, j] = max", "x[i, j] += max"));
}

}  // namespace kachel::ir
