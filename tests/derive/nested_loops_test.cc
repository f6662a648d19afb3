// Operands that are made in a loop within a loop, or in one that does not begin at 0: the same results by the reference
// interpreter.
#include <array>
#include <random>

#include "tests/derive/interpreted.h"

namespace kachel::derive {
namespace {

// A block goes through its share of the columns of A B^T, and through k for each of them.
std::string shares(const std::string& bounds, const std::string& b = "B[v*BN +: BN, k*BK +: BK]",
                   const std::string& between = "") {
  return R"(tile 1
kernel shares<T: f16>(A: T[M, K], B: T[N, K], S: out f32[P, M], shift: i32)
tune BM = 16 | 32, BN = 16 | 8, BK = 16 | 8
grid p < P, m < ceildiv(M, BM)
{
  shared a: T[BM, BK], b: T[BN, BK]
  fragment s: f32[BM, BN], sum_of: f32[BM] = 0
  let share = ceildiv(ceildiv(N, 16), P) * (16 / BN)
  for v in )" +
         bounds + R"( {
    s = 0
    )" + between +
         R"(
    pipelined k < ceildiv(K, BK), 2 {
      a = A[m*BM +: BM, k*BK +: BK]
      b = )" +
         b + R"(
      s += a @ b^T
    }
    parallel i < BM { sum_of[i] += sum[j < BN](v*BN + j < N ? s[i, j] * (v % 3 + 1) : 0.0) }
  }
  S[p, m*BM +: BM] = sum_of
}
)";
}
const std::string kShare = "p*share .. min((p + 1)*share, ceildiv(N, BN))";

std::vector<std::string> operands(const std::string& text) {
  auto module = ir::load(text);
  REQUIRE_MESSAGE(module.ok(), module.status().message());
  std::vector<std::string> names;
  for (const OperandSlice& slice : operand_slices(module->kernels.at(0))) names.push_back(slice.tile->name);
  return names;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("both operands of products in a loop within a loop are made ahead") {
  for (auto [m, n, k, p] : {std::array<int64_t, 4>{40, 70, 37, 3}, {16, 16, 8, 1}, {5, 100, 41, 4}, {33, 3, 7, 5}})
    for (const std::string& bounds : {kShare, std::string("0 .. ceildiv(N, BN)")}) {
      CAPTURE(n);
      CAPTURE(bounds);
      Interpreted program(shares(bounds), bindings(DType::F16, 16, 16, 16), {{"M", m}, {"N", n}, {"K", k}, {"P", p}});
      CHECK(program.operands() == 2);
      program.check();
    }
}

TEST_CASE("what is computed in the loop around is made with it") {
  const std::string text = shares(kShare, "B[v*BN +: BN, k*BK +: BK]", "parallel j < BN { f[j] = G[v*BN + j] }");
  std::string scaled = text;
  const auto replace = [&](const std::string& from, const std::string& to) {
    const size_t at = scaled.find(from);
    REQUIRE(at != std::string::npos);
    scaled.replace(at, from.size(), to);
  };
  replace("B: T[N, K],", "B: T[N, K], G: f32[N],");
  replace("b: T[BN, BK]", "b: T[BN, BK], f: f32[BN]");
  replace("b = B[v*BN +: BN, k*BK +: BK]", "parallel j < BN, c < BK { b[j, c] = B[v*BN + j, k*BK + c] * f[j] }");
  Interpreted program(scaled, bindings(DType::F16, 16, 16, 16), {{"M", 40}, {"N", 70}, {"K", 37}, {"P", 3}});
  CHECK(program.operands() == 2);
  program.check();
}

TEST_CASE("loops within loops at random") {
  std::mt19937 random(5);
  const auto one_of = [&](const std::vector<std::string>& options) { return options[random() % options.size()]; };
  size_t made = 0;
  for (int round = 0; round < 80; ++round) {
    // An operand follows the loops around it by their counters or by names; what it is computed from may be another's.
    const std::string begin = one_of({"0", "p*share", "p", "min(p, 1)", "max(p - 1, 0)"});
    const std::string end =
        one_of({"ceildiv(N, BN)", "min((p + 1)*share, ceildiv(N, BN))", "min(p + 2, ceildiv(N, BN))"});
    const std::string row = one_of({"v*BN", "from", "v*BN"}), column = one_of({"k*BK", "k*BK", "at"});
    const std::string between = one_of({"", "parallel j < BN { f[j] = G[v*BN + j] }", "f = G[v*BN +: BN]"});
    const std::string factor = between.empty() ? "1" : one_of({"f[j]", "(f[j] + G[v*BN + j])"});
    const std::string computed =
        "parallel j < BN, c < BK { b[j, c] = B[" + row + " + j, " + column + " + c] * " + factor + " }";
    const std::string b = one_of({"b = B[" + row + " +: BN, " + column + " +: BK]", computed, computed});
    const std::string a = one_of({"a = A[m*BM +: BM, k*BK +: BK]",
                                  "parallel i < BM, c < BK { a[i, c] = A[m*BM + i, k*BK + c] * ((m*BM + i) % 3) }",
                                  "parallel i < BM, c < BK { a[i, c] = A[m*BM + i, k*BK + c] + v }"});
    const std::string text =
        "tile 1\nkernel nested<T: f16>(A: T[M, K], B: T[N, K], G: f32[N], S: out f32[P, M])\n"
        "tune BM = 16 | 32, BN = 16 | 8, BK = 16 | 8\ngrid p < P, m < ceildiv(M, BM)\n{\n"
        "  shared a: T[BM, BK], b: T[BN, BK], f: f32[BN]\n  fragment s: f32[BM, BN], sum_of: f32[BM] = 0\n"
        "  let share = ceildiv(ceildiv(N, 16), P) * (16 / BN)\n  for v in " +
        begin + " .. " + end + " {\n    let from = v*BN\n    s = 0\n    " + between +
        "\n    for k < ceildiv(K, BK) {\n      let at = k*BK\n      " + a + "\n      " + b +
        "\n      s += a @ b^T\n    }\n"
        "    parallel i < BM { sum_of[i] += sum[j < BN](v*BN + j < N ? s[i, j] * (v % 3 + 1) : 0.0) }\n  }\n"
        "  S[p, m*BM +: BM] = sum_of\n}\n";
    CAPTURE(text);
    if (operands(text).empty()) continue;
    const int64_t n = 1 + static_cast<int64_t>(random() % 70), k = 1 + static_cast<int64_t>(random() % 40);
    Interpreted program(text, bindings(DType::F16, 16, round % 2 ? 16 : 8, round % 3 ? 16 : 8),
                        {{"M", 5 + round % 40}, {"N", n}, {"K", k}, {"P", 1 + round % 4}});
    made += program.operands();
    program.check();
  }
  CHECK(made > 80);
}

TEST_CASE("a loop that may begin below 0, or ends where no tensor does, leaves what it counts where it is") {
  CHECK(operands(shares(kShare)) == Names{"a", "b"});
  CHECK(operands(shares("p*share - 1 .. min((p + 1)*share, ceildiv(N, BN))")) == Names{"a"});
  CHECK(operands(shares("i64(shift) .. ceildiv(N, BN)")) == Names{"a"});
  CHECK(operands(shares("p*share .. p*share + i64(shift)")) == Names{"a"});
  CHECK(operands(shares(kShare, "B[v*BN + k +: BN, k*BK +: BK]")) == Names{"a"});
  // Another statement of the loop around reads what is left in it.
  std::string read = shares(kShare);
  read.replace(read.find("(v % 3 + 1)"), 11, "f32(a[i, 0])");
  CHECK(operands(read) == Names{"b"});
}

}  // namespace kachel::derive
