// Tensors that products read across their rows, laid out along them: the same results by the reference interpreter.
#include <array>

#include "tests/derive/interpreted.h"

namespace kachel::derive {
namespace {

std::string convolution(const std::string& read, const std::string& more = "") {
  return R"(tile 1
kernel conv<T: f16>(X: T[N, C, H, W], F: T[9, O, C], R: T[N, O, H*W], Y: out T[N, O, H*W])
tune BM = 16, BN = 16 | 32, BK = 16 | 8
grid n < N, o < ceildiv(O, BM), p < ceildiv(H*W, BN)
{
  shared f: T[BM, BK], x: T[BK, BN], r: T[BM, BN]
  fragment acc: f32[BM, BN] = 0
  let chunks = ceildiv(C, BK)
  pipelined k < 9*chunks {
    let tap = k / chunks, c = k % chunks * BK
    f = F[tap, o*BM +: BM, c +: BK]
    parallel i < BK, j < BN {
      let q = p*BN + j
      x[i, j] = )" +
         read + R"(
    }
    acc += f @ x
  }
  )" + more +
         R"(
  Y[n, o*BM +: BM, p*BN +: BN] = acc
}
)";
}
const std::string kChannelsFirst = "X[n, c + i, q / W + tap / 3 - 1, q % W + tap % 3 - 1]";

size_t crossed_in(const std::string& text) {
  auto module = ir::load(text);
  REQUIRE_MESSAGE(module.ok(), module.status().message());
  return crossed_tensors(module->kernels.at(0)).size();
}

}  // namespace

TEST_CASE("an image with channels first is laid out with channels last, its rows filled up with zeros") {
  for (auto [n, c, h, w, o] :
       {std::array<int64_t, 5>{2, 16, 5, 7, 17}, {1, 3, 4, 4, 5}, {2, 21, 1, 9, 16}, {1, 40, 3, 3, 33}}) {
    CAPTURE(c);
    Interpreted program(convolution(kChannelsFirst), bindings(DType::F16, 16, 16, 16),
                        {{"N", n}, {"C", c}, {"H", h}, {"W", w}, {"O", o}}, {.operands = false, .crossed = true});
    CHECK(program.crossed() == 1);
    program.check();
    const ir::Kernel& reader = program.derived().kernels.at(program.derived().kernels.size() - 1);
    CHECK(reader.params.back().tensor->shape.size() == 4);
  }
}

TEST_CASE("a tensor of five axes is laid out along its channels") {
  // Whose indices would be called `i0` to `i4`, of which the last is a type.
  Interpreted program(R"(tile 1
kernel conv<T: f16>(X: T[N, C, D, H, W], F: T[O, C], Y: out T[N, O, D, H*W])
tune BM = 16, BN = 16 | 32, BK = 16 | 8
grid n < N, d < D, o < ceildiv(O, BM), p < ceildiv(H*W, BN)
{
  shared f: T[BM, BK], x: T[BK, BN]
  fragment acc: f32[BM, BN] = 0
  pipelined k < ceildiv(C, BK) {
    f = F[o*BM +: BM, k*BK +: BK]
    parallel i < BK, j < BN { x[i, j] = X[n, k*BK + i, d, (p*BN + j) / W, (p*BN + j) % W] }
    acc += f @ x
  }
  Y[n, o*BM +: BM, d, p*BN +: BN] = acc
}
)",
                      bindings(DType::F16, 16, 16, 16), {{"N", 2}, {"C", 19}, {"D", 2}, {"H", 3}, {"W", 7}, {"O", 5}},
                      {.operands = false, .crossed = true});
  CHECK(program.crossed() == 1);
  program.check();
}

TEST_CASE("rows along k that there are, but of any length, are filled up with zeros") {
  for (auto [n, c, h, w, o] : {std::array<int64_t, 5>{2, 5, 7, 19, 17}, {1, 3, 4, 40, 5}, {2, 4, 1, 3, 16}}) {
    CAPTURE(w);
    Interpreted program(convolution("j % 3 == 1 ? 0 : X[n, q / H + tap / 3 - 1, q % H + tap % 3 - 1, c + i]"),
                        bindings(DType::F16, 16, 16, 16), {{"N", n}, {"C", c}, {"H", h}, {"W", w}, {"O", o}},
                        {.operands = false, .crossed = true});
    CHECK(program.crossed() == 1);
    program.check();
  }
}

TEST_CASE("what else a kernel reads of the tensor it reads as it lies, and other operands are made ahead beside it") {
  const std::string more =
      "parallel i < BM, j < BN { acc[i, j] += f32(X[n, o*BM + i, (p*BN + j) / W, (p*BN + j) % W]) }";
  Interpreted program(convolution(kChannelsFirst + " * 2 + X[n, c + i, 0, q % W]", more),
                      bindings(DType::F16, 16, 32, 8), {{"N", 2}, {"C", 19}, {"H", 4}, {"W", 6}, {"O", 19}},
                      {.operands = true, .crossed = true});
  CHECK(program.crossed() == 1);
  CHECK(program.operands() == 1);
  program.check();
}

TEST_CASE("only what products add up along one axis is crossed, along rows where vectors begin at vectors") {
  CHECK(crossed_in(convolution(kChannelsFirst)) == 1);
  CHECK(crossed_in(convolution("X[n, c + i + 1, q / W, q % W]")) == 1);
  CHECK(crossed_in(convolution("X[n, c + i, o, q + tap]")) == 1);
  CHECK(crossed_in(convolution("X[n, c + i, o, q]")) == 0);
  CHECK(crossed_in(convolution("X[n, 5 - i, q / W, q % W]")) == 0);
  CHECK(crossed_in(convolution("X[n, 2*i, q / W, q % W]")) == 0);
  CHECK(crossed_in(convolution("X[n, c + i, q / W, (q + i) % W]")) == 0);
  CHECK(crossed_in(convolution("X[n, q % C, q / W, c + i]")) == 1);
  CHECK(crossed_in(convolution("X[n, q % C, q / W, c + i + 1]")) == 0);
  CHECK(crossed_in(convolution("X[n, q % C, q / W, c + 2*i]")) == 0);
  CHECK(crossed_in(convolution("X[n, (c + i) / 2, q / W, q % W]")) == 0);
  CHECK(crossed_in(convolution(kChannelsFirst, "parallel i < BM, j < BN { acc[i, j] += x[0, j] } ")) == 1);
}

namespace {

std::string scaled(const std::string& column) {
  return R"(tile 1
kernel scaled<T: f16>(A: T[M, K], B: T[N, K], g: T[N, 2, G], Y: out f32[M, N])
tune BM = 16, BN = 16 | 32, BK = 16 | 8
grid m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  shared a: T[BM, BK], b: T[BN, BK]
  fragment acc: f32[BM, BN] = 0, s: f32[BM, BN], x: f32[BN]
  for k < ceildiv(K, BK) {
    let at = k / 2
    a = A[m*BM +: BM, k*BK +: BK]
    b = B[n*BN +: BN, k*BK +: BK]
    x = )" +
         column +
         R"(
    s = a @ b^T
    parallel i < BM, j < BN { acc[i, j] += s[i, j] * x[j] }
  }
  Y[m*BM +: BM, n*BN +: BN] = acc
}
)";
}

}  // namespace

TEST_CASE("columns that a loop copies become rows") {
  for (auto [m, n, k] : {std::array<int64_t, 3>{5, 19, 40}, {16, 33, 64}}) {
    for (const char* column : {"g[n*BN +: BN, 1, at]", "g[n*BN +: BN, at % 2, at] within 1 +: N - 2"}) {
      CAPTURE(column);
      Interpreted program(scaled(column), bindings(DType::F16, 16, 16, 16), {{"M", m}, {"N", n}, {"K", k}, {"G", 3}},
                          {.operands = false, .crossed = true});
      CHECK(program.crossed() == 1);
      program.check();
    }
  }
  CHECK(crossed_in(scaled("g[n*BN +: BN, 1, n]")) == 0);
  CHECK(crossed_in(scaled("g[n*BN, 1, at +: BN]")) == 0);
}

TEST_CASE("rows that two loops copy to one tile, or that are copied under a condition, are filled up") {
  const auto text = [](const std::string& first, const std::string& second) {
    return R"(tile 1
kernel k<T: f16>(A: T[B, L, L], X: T[B, L, D], Y: out f32[B, L, D])
tune BM = 16, BN = 16 | 32, BK = 16 | 8
grid b < B, m < ceildiv(L, BM), n < ceildiv(D, BN)
{
  shared a: T[BM, BK], x: T[BK, BN]
  fragment low: T[BM, BK], c: f32[BM, BN] = 0
  pipelined k < m * (BM / BK), 3 {
    )" + first +
           R"(
    c += a @ x
  }
  for k in m * (BM / BK) .. (m + 1) * (BM / BK) {
    )" + second +
           R"(
    parallel i < BM, j < BK { low[i, j] = k*BK + j <= m*BM + i ? a[i, j] : 0 }
    c += low @ x
  }
  Y[b, m*BM +: BM, n*BN +: BN] = c
}
)";
  };
  const std::string copies = "a = A[b, m*BM +: BM, k*BK +: BK] x = X[b, k*BK +: BK, n*BN +: BN]",
                    chosen =
                        "if k % 2 == 0 { a = A[b, m*BM +: BM, k*BK +: BK] } else { a = X[b, m*BM +: BM, k*BK +: "
                        "BK] } x = X[b, k*BK +: BK, n*BN +: BN]",
                    padded = "a = A[b, m*BM +: BM, k*BK +: BK] pad 1 x = X[b, k*BK +: BK, n*BN +: BN]",
                    bounded = "a = A[b, m*BM +: BM, k*BK +: BK] x = X[b, k*BK +: BK, n*BN +: BN] within 3 +: 40";
  CHECK(crossed_in(text(padded, padded)) == 1);
  for (const std::string& first : {copies, chosen, padded, bounded})
    for (const std::string& second : {copies, chosen}) {
      CAPTURE(first);
      CAPTURE(second);
      Interpreted program(text(first, second), bindings(DType::F16, 16, 32, 8), {{"B", 2}, {"L", 53}, {"D", 37}},
                          {.operands = true, .crossed = true});
      CHECK(program.crossed() == 2);
      program.check();
    }
}

}  // namespace kachel::derive
