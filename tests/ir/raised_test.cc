#include "ir/raised.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "ir/instantiate.h"
#include "ir/parse.h"
#include "ir/print.h"

namespace kachel::ir {
namespace {

// The statements of a region of 8 elements, after those that are given.
std::string instantiated(const std::string& statements) {
  const std::string text = fmt::format(
      "tile 1\nkernel k(X: f32[8], Z: f32[8], Y: out f32[8]) grid b < 1 {{ parallel i < 8 {{ {} }} }}\n", statements);
  ParseResult result = parse(text);
  for (const Diagnostic& diagnostic : result.diagnostics) FAIL(format(diagnostic, "test", text));
  const Result<Kernel> kernel = instantiate(result.module.kernels[0], {});
  REQUIRE_MESSAGE(kernel.ok(), kernel.status().message());
  return print(*kernel);
}

void becomes(const std::string& value, const std::string& want) {
  const std::string printed = instantiated("Y[i] = " + value);
  CAPTURE(printed);
  CAPTURE(want);
  CHECK(printed.find("Y[i] = " + want + "\n") != std::string::npos);
}

TEST_CASE("sums of a constant and its multiple of tanh or erf are one function") {
  becomes("1 + erf(X[i])", "raised_erf(X[i], 1.0)");
  becomes("tanh(X[i]) + 1", "raised_tanh(X[i], 1.0)");
  becomes("1 - erf(X[i])", "raised_erf(-X[i], 1.0)");
  becomes("erf(X[i]) - 1", "raised_erf(-X[i], -1.0)");
  becomes("0.3 + 0.3 * erf(X[i])", "raised_erf(X[i], 0.3)");
  becomes("0.5 - tanh(X[i]) * 0.5", "raised_tanh(-X[i], 0.5)");
  becomes("1 - erf(-X[i])", "raised_erf(X[i], 1.0)");
  becomes("1 + -tanh(X[i])", "raised_tanh(-X[i], 1.0)");
}

TEST_CASE("powers of two are multiplied with what is raised") {
  becomes("0.5 * (1 + erf(X[i]))", "raised_erf(X[i], 0.5)");
  becomes("0.5 * X[i] * (1 + erf(X[i] * 0.75))", "X[i] * raised_erf(X[i] * 0.75, 0.5)");
  becomes("(1 + erf(X[i])) * (X[i] * 0.5)", "X[i] * raised_erf(X[i], 0.5)");
  becomes("(1 + tanh(X[i])) / 2", "raised_tanh(X[i], 0.5)");
  becomes("0.3 * (1 + erf(X[i]))", "0.3 * raised_erf(X[i], 1.0)");
  // What overflows must go on doing so.
  becomes("2 * X[i] * (1 + erf(X[i]))", "2.0 * X[i] * raised_erf(X[i], 1.0)");
  becomes("0.5 * (X[i] * (1 + erf(X[i])))", "0.5 * (X[i] * raised_erf(X[i], 1.0))");
}

TEST_CASE("other sums stay") {
  for (const char* value : {"1.0 + 0.5 * erf(X[i])", "2.0 + tanh(X[i])", "X[i] + erf(X[i])", "1.0 + approx tanh(X[i])",
                            "1.0 + exp(X[i])", "0.5 * tanh(X[i])"})
    becomes(value, value);
}

TEST_CASE("a function that has a name is raised with the operand that it had") {
  const std::string named = instantiated("let t = tanh(X[i] * 0.75)  Y[i] = 0.5 * X[i] * (1 + t)");
  CAPTURE(named);
  CHECK(named.find("let t_x = X[i] * 0.75") != std::string::npos);
  CHECK(named.find("Y[i] = X[i] * raised_tanh(t_x, 0.5)") != std::string::npos);
  const std::string half = instantiated("let e = 0.5 * erf(X[i])  if X[i] > 0 { Y[i] = 0.5 - e } else { Y[i] = e }");
  CAPTURE(half);
  CHECK(half.find("Y[i] = raised_erf(-e_x, 0.5)") != std::string::npos);
  CHECK(half.find("let e = 0.5 * erf(e_x)") != std::string::npos);
  CHECK(half.find("Y[i] = e\n") != std::string::npos);
}

}  // namespace
}  // namespace kachel::ir
