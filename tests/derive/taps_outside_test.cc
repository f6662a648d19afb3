// Products along flattened channels and taps, tap by tap: the same results by the reference interpreter.
#include "derive/taps_outside.h"

#include <algorithm>
#include <array>
#include <random>

#include "ir/print.h"
#include "tests/derive/interpreted.h"

namespace kachel::derive {
namespace {

std::string convolution(const std::string& read, const std::string& loop = "",
                        const std::string& end = "ceildiv(K, BK)", const std::string& behind = "") {
  return R"(tile 1
kernel conv<T: f16>(X: T[N, C, H, W], F: T[O, K], Y: out T[N, O, H*W])
where K == C * 6
tune BM = 16, BN = 16 | 32, BK = 16 | 8
grid n < N, o < ceildiv(O, BM), p < ceildiv(H*W, BN)
{
  shared f: T[BM, BK], x: T[BK, BN]
  fragment acc: f32[BM, BN] = 0
  for k < )" +
         end + R"( {
    f = F[o*BM +: BM, k*BK +: BK]
    parallel i < BK, j < BN {
      let e = k*BK + i, q = p*BN + j
      let t = e % 6
      x[i, j] = )" +
         read + R"(
    }
    )" + loop +
         R"(
    acc += f @ x
  }
  )" + behind +
         R"(
  Y[n, o*BM +: BM, p*BN +: BN] = acc
}
)";
}
const std::string kImage = "X[n, e / 6, q / W + t / 3 - 1, q % W + e % 3 - 1]";

bool is_reordered(const std::string& text) {
  auto module = ir::load(text);
  REQUIRE_MESSAGE(module.ok(), module.status().message());
  return taps_outside(module->kernels.at(0)).has_value();
}

}  // namespace

TEST_CASE("a filter's taps are walked through with the channels of each together") {
  for (auto [n, c, h, w, o] :
       {std::array<int64_t, 5>{2, 16, 5, 7, 17}, {1, 3, 4, 4, 5}, {2, 21, 1, 9, 16}, {1, 40, 3, 3, 33}})
    for (const bool made : {false, true}) {
      CAPTURE(c);
      Interpreted program(convolution(kImage), bindings(DType::F16, 16, 16, 16),
                          {{"N", n}, {"C", c}, {"H", h}, {"W", w}, {"O", o}, {"K", 6 * c}},
                          {.operands = made, .crossed = true, .taps = true});
      CHECK(program.crossed() == 1);
      CHECK(program.operands() == (made ? 1 : 0));
      program.check();
    }
}

TEST_CASE("digits of the place along k, however they are written, and comparisons of the place itself") {
  for (const char* read : {"e < K ? X[n, e / 6, q / W + e / 3 % 2 - 1, (q + e % 6) % W] : 0",
                           "X[n, e / 6, q / W, t] * (e % 2 + 1) + X[n, e / 6, t, q % W]"}) {
    Interpreted program(convolution(read), bindings(DType::F16, 16, 32, 8),
                        {{"N", 2}, {"C", 19}, {"H", 4}, {"W", 6}, {"O", 19}, {"K", 6 * 19}},
                        {.operands = false, .crossed = true, .taps = true});
    CHECK(program.crossed() == 1);
    program.check();
  }
}

TEST_CASE("channels last, which a tensor's extent divides") {
  const std::string text = R"(tile 1
kernel conv<T: f16>(X: T[H, W, C], F: T[K, O], S: f32[C], Y: out T[H*W, O])
tune BM = 16 | 32, BN = 16, BK = 16 | 8
grid m < ceildiv(H*W, BM), o < ceildiv(O, BN)
{
  shared a: T[BM, BK], f: T[BK, BN]
  fragment acc: f32[BM, BN] = 0
  pipelined k < ceildiv(K, BK) {
    f = F[k*BK +: BK, o*BN +: BN]
    parallel i < BM, j < BK {
      let p = m*BM + i, e = k*BK + j
      let t = e / C
      a[i, j] = )";
  const std::string rest = R"(
    }
    acc += a @ f
  }
  Y[m*BM +: BM, o*BN +: BN] = acc
}
)";
  for (const char* read : {"X[p / W + t / 3 - 1, p % W + e / C % 3 - 1, e % C]",
                           "e < K ? X[p / W + e / (3 * C) - 1, p % W + t % 3, e % C] : 0",
                           "e < C * 9 && t < 8 ? X[p / W + t / 3 - 1, p % W + t % 3, e % C] : 0",
                           "5 * C > e && p > 1 ? X[p / W + t / 3 - 1, p % W + t % 3, e % C] : 0",
                           "X[p / W + t / 3, p % W, e % C] / (S[e % C] == 0 ? 0 : 1) + 1"})
    for (auto [h, w, c, o] : {std::array<int64_t, 4>{5, 7, 16, 17}, {4, 4, 3, 5}, {1, 9, 21, 16}, {3, 3, 40, 3}}) {
      const int64_t extent = c % 2 ? 16 : 32;  // the latter is not in the list, which was for all of k
      CAPTURE(c);
      Interpreted program(text + read + rest, bindings(DType::F16, 16, 16, extent),
                          {{"H", h}, {"W", w}, {"C", c}, {"O", o}, {"K", 9 * c}}, {.taps = true});
      CHECK(program.operands() >= 1);
      program.check();
    }
}

TEST_CASE("groups of channels, all of whose filters a block has") {
  for (auto [h, w, c, o] : {std::array<int64_t, 4>{5, 7, 8, 16}, {4, 4, 3, 5}, {3, 3, 24, 24}}) {
    CAPTURE(c);
    Interpreted program(R"(tile 1
kernel conv<T: f16>(X: T[H, W, G, C], F: T[G, O, K], Y: out T[H*W, G, O])
where K == C * 9
tune BM = 16 | 32, BK = 16 | 8
grid m < ceildiv(H*W, BM), g < G
{
  shared a: T[BM, BK], f: T[O, BK]
  fragment acc: f32[BM, O] = 0
  pipelined k < ceildiv(9*C, BK) {
    parallel i < BM, j < BK {
      let p = m*BM + i, e = k*BK + j
      a[i, j] = e < 9*C ? X[p / W + e / C / 3 - 1, p % W + e / C % 3 - 1, g, e % C] : 0
    }
    f = F[g, :, k*BK +: BK]
    acc += a @ f^T
  }
  Y[m*BM +: BM, g, :] = acc
}
)",
                        bindings(DType::F16, 16, 16, 16),
                        {{"H", h}, {"W", w}, {"G", 3}, {"C", c}, {"O", o}, {"K", 9 * c}}, {.taps = true});
    CHECK(program.operands() == 1);  // the filters
    program.check();
  }
}

TEST_CASE("how far k goes is a matter of the outer digit alone") {
  const auto reordered = [](const std::string& text) {
    auto module = ir::load(text);
    REQUIRE_MESSAGE(module.ok(), module.status().message());
    const auto other = taps_outside(module->kernels.at(0));
    REQUIRE(other);
    return ir::print(*other);
  };
  // All that the loop walks through is there, and how it is cut is the device's matter again.
  const std::string last = reordered(
      "tile 1\nkernel conv<T: f16>(X: T[H, W, C], F: T[O, K], Y: out T[H*W, O])\nwhere K == 9*C\n"
      "tune BM = 16 | 32, BN = 16, BK = 48\ngrid m < ceildiv(H*W, BM), o < ceildiv(O, BN)\n{\n"
      "  shared a: T[BM, BK], f: T[BN, BK]\n  fragment acc: f32[BM, BN] = 0\n"
      "  pipelined k < ceildiv(9*C, BK) {\n    parallel i < BM, j < BK { let p = m*BM + i, e = k*BK + j\n"
      "      a[i, j] = e < K ? X[p / W + e / C / 3, p % W + e / C % 3, e % C] : 0 }\n"
      "    f = F[o*BN +: BN, k*BK +: BK]\n    acc += a @ f^T\n  }\n  Y[m*BM +: BM, o*BN +: BN] = acc\n}\n");
  CHECK_MESSAGE(last.find("a[i, j] = X[") != std::string::npos, last);
  CHECK_MESSAGE(last.find("tune auto BK") != std::string::npos, last);
  const std::string by_where = reordered(convolution("e < K ? " + kImage + " : 0"));
  CHECK_MESSAGE(by_where.find("= first + i < C ? X[") != std::string::npos, by_where);
  const std::string less = reordered(convolution("e < 12 ? " + kImage + " : 0"));
  CHECK_MESSAGE(less.find("* 6 + tap < 12 ? X[") != std::string::npos, less);
}

TEST_CASE("digits at random") {
  std::mt19937 random(11);
  const auto one_of = [&](const std::vector<std::string>& options) { return options[random() % options.size()]; };
  int reordered = 0;
  for (int round = 0; round < 60; ++round) {
    const bool last = round % 2;  // channels last
    const std::string by = one_of({"4", "6", "9", "12"}), high = one_of({"2", "3"}), low = one_of({"2", "3", "4"});
    const std::string channel = last ? "e % C" : "e / " + by;
    const auto digit = [&] {
      return last ? one_of(
                        {"e / C", "t", "e / C / " + low, "e / C % " + high, "t / 2 % 2", "e / (" + low + " * C)", "1"})
                  : one_of({"e % " + by, "e % " + by + " / " + low, "e / " + low + " % " + high, "e % " + low,
                            "t / " + high, "t", "e / " + high, "0"});
    };
    const std::string places = "q / W + " + digit() + " - 1, (q + " + digit() + ") % W";
    const std::string load = last ? "X[" + places + ", " + channel + "]" : "X[" + channel + ", " + places + "]";
    const std::string read = one_of({load, "e < K ? " + load + " : 0", load + " * (" + digit() + " + 1)"});
    const std::string text = "tile 1\nkernel conv<T: f16>(X: T[" + std::string(last ? "H, W, C" : "C, H, W") +
                             "], F: T[K, O], Y: out T[H*W, O])\ntune BM = 16 | 32, BN = 16, BK = 16 | 8\n"
                             "grid m < ceildiv(H*W, BM), o < ceildiv(O, BN)\n{\n  shared a: T[BK, BM], f: T[BK, BN]\n"
                             "  fragment acc: f32[BM, BN] = 0\n  for k < ceildiv(K, BK) {\n"
                             "    f = F[k*BK +: BK, o*BN +: BN]\n    parallel i < BK, j < BM {\n"
                             "      let e = k*BK + i, q = m*BM + j\n      let t = " +
                             std::string(last ? "e / C" : "e % " + by) + "\n      a[i, j] = " + read +
                             "\n    }\n    acc += a^T @ f\n  }\n  Y[m*BM +: BM, o*BN +: BN] = acc\n}\n";
    CAPTURE(text);
    if (!is_reordered(text)) continue;
    ++reordered;
    const int64_t c = 1 + random() % 20, k = c * (last ? 1 + random() % 9 : std::stoi(by)) - random() % 2;
    CAPTURE(c);
    Interpreted program(
        text, bindings(DType::F16, 16, 16, round % 4 < 2 ? 16 : 8),
        {{"H", 1 + random() % 5}, {"W", 1 + random() % 6}, {"C", c}, {"O", 5}, {"K", std::max<int64_t>(k, 1)}},
        {.operands = round % 3 > 0, .crossed = true, .taps = true});
    program.check();
  }
  CHECK(reordered > 40);
}

TEST_CASE("loops that do anything else stay as they are") {
  CHECK(is_reordered(convolution(kImage)));
  CHECK(!is_reordered(convolution("X[n, k*BK + i, q / W, q % W]")));     // no taps
  CHECK(!is_reordered(convolution("X[n, e / W, q / W, e % W + 1]")));    // no digit alone
  CHECK(!is_reordered(convolution("X[n, e / H, q / W, e % H]")));        // another extent
  CHECK(!is_reordered(convolution("X[n, e / 6, q / W, (q + i) % W]")));  // depends on how k is cut
  CHECK(!is_reordered(convolution(kImage, "parallel j < BN { x[0, j] = 0 }")));
  CHECK(!is_reordered(convolution(kImage, "parallel i < BM, j < BN { acc[i, j] = acc[i, j] * 0.5 }")));
  CHECK(!is_reordered(convolution(kImage, "", "ceildiv(K, BK) - 1")));
  CHECK(!is_reordered(convolution(kImage + " + acc[0, j]")));  // what has been added up so far
  CHECK(!is_reordered(convolution(kImage, "", "ceildiv(K, BK)", "parallel j < BN { acc[0, j] += x[0, j] }")));
}

}  // namespace kachel::derive
