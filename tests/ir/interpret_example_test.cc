// The example kernels against plain C++ in double precision: every reference lies within the bounds, and the bounds are
// narrow enough to mean something.
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

#include "tests/ir/run_kernel.h"

namespace kachel::ir {
namespace {

std::string read_example(const std::string& name) {
  std::ifstream file(std::filesystem::path(KACHEL_EXAMPLES) / (name + ".tile"));
  REQUIRE(file.good());
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// `reference` holds the mathematical result; rounded to the output's type it must be one that the bounds allow.
void check_against(const std::vector<Expected>& expected, const std::vector<double>& reference, DType type,
                   double most_median_ulps) {
  REQUIRE(expected.size() == reference.size());
  std::vector<double> bounds;
  int wrong = 0, undecided = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const Expected& e = expected[i];
    CHECK(e.written);
    if (e.undecided) {
      ++undecided;
      continue;
    }
    if (!(std::abs(e.value - round_float(type, reference[i])) <= e.bound) && wrong++ < 3)
      MESSAGE("element " << i << ": " << e.value << " +- " << e.bound << ", reference " << reference[i]);
    bounds.push_back(ulps(type, e.value, e.bound));
  }
  CHECK(wrong == 0);
  CHECK(undecided == 0);
  REQUIRE(!bounds.empty());
  std::sort(bounds.begin(), bounds.end());
  double median = bounds[bounds.size() / 2];
  INFO("median bound " << median << " ulp, largest " << bounds.back());
  CHECK(median <= most_median_ulps);
}

std::vector<Expected> output_of(const Kernel& kernel, const std::vector<Argument>& args, size_t output) {
  return interpreted(kernel, args)[output];
}

TEST_CASE("matmul") {
  const std::string text = read_example("matmul");
  for (DType type : {DType::F16, DType::BF16, DType::F32, DType::F8E4M3}) {
    CAPTURE(name(type));
    DType out = type == DType::F32 ? DType::F32 : DType::F16;
    int64_t M = 70, N = 130, K = 200;
    TestTensor A(type, {M, K}), B(type, {N, K}), C(out, {M, N});
    A.random(1);
    B.random(2);
    Bindings b;
    b.types = {{"T", type}, {"O", out}};
    b.int_consts = {{"tf32", 0}, {"fast", 0}};
    b.tunables = {{"BM", 64}, {"BN", 64}, {"BK", 32}, {"stages", 3}, {"cluster", 1}, {"cluster_columns", 1}};
    auto expected = output_of(concrete_kernel(text, b), {A, B, C}, 2);
    std::vector<double> reference;
    for (int64_t i = 0; i < M; ++i)
      for (int64_t j = 0; j < N; ++j) {
        double sum = 0;
        for (int64_t k = 0; k < K; ++k) sum += A.get(i * K + k) * B.get(j * K + k);
        reference.push_back(sum);
      }
    check_against(expected, reference, out, type == DType::F32 ? 10000 : type == DType::F8E4M3 ? 256 : 64);
  }
}

TEST_CASE("all orientations of matmul agree") {
  const std::string text = read_example("matmul");
  int64_t M = 65, N = 33, K = 70;
  Bindings b;
  b.types = {{"T", DType::F32}, {"O", DType::F32}};
  b.tunables = {{"BM", 64}, {"BN", 64}, {"BK", 32}, {"stages", 3}, {"cluster", 1}, {"cluster_columns", 1}};
  for (std::string orientation : {"nn", "tn", "tt"}) {
    CAPTURE(orientation);
    bool a_t = orientation[0] == 't', b_t = orientation[1] == 't';
    TestTensor A(DType::F32, a_t ? std::vector<int64_t>{K, M} : std::vector<int64_t>{M, K});
    TestTensor B(DType::F32, b_t ? std::vector<int64_t>{N, K} : std::vector<int64_t>{K, N});
    TestTensor C(DType::F32, {M, N});
    A.random(1);
    B.random(2);
    auto expected = output_of(concrete_kernel(text, b, "matmul_" + orientation), {A, B, C}, 2);
    std::vector<double> reference;
    for (int64_t i = 0; i < M; ++i)
      for (int64_t j = 0; j < N; ++j) {
        double sum = 0;
        for (int64_t k = 0; k < K; ++k) sum += A.get(a_t ? k * M + i : i * K + k) * B.get(b_t ? j * K + k : k * N + j);
        reference.push_back(sum);
      }
    check_against(expected, reference, DType::F32, 1000);
  }
}

TEST_CASE("integer matmul is exact") {
  int64_t M = 20, N = 70, K = 130;
  TestTensor A(DType::I8, {M, K}), B(DType::I8, {N, K}), C(DType::I32, {M, N});
  A.random(3, -128, 128);
  B.random(4, -128, 128);
  Bindings b;
  b.types = {{"T", DType::I8}, {"O", DType::I32}};
  b.int_consts = {{"tf32", 0}, {"fast", 0}};
  b.tunables = {{"BM", 64}, {"BN", 64}, {"BK", 64}, {"stages", 3}, {"cluster", 1}, {"cluster_columns", 1}};
  auto expected = output_of(concrete_kernel(read_example("matmul"), b, "matmul"), {A, B, C}, 2);
  int wrong = 0;
  for (int64_t i = 0; i < M; ++i)
    for (int64_t j = 0; j < N; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < K; ++k) sum += A.get(i * K + k) * B.get(j * K + k);
      const Expected& e = expected[static_cast<size_t>(i * N + j)];
      wrong += e.undecided || !e.written || static_cast<double>(e.bits) != sum;
    }
  CHECK(wrong == 0);
}

// A product with tensor cores' operands and sums, made by `sum` from the rows of A and B, against the bounds.
using Sum = std::function<double(const double*, const double*)>;
void check_precision(DType type, const char* precision, int64_t K, const Sum& sum) {
  const int64_t M = 8, N = 8;
  TestTensor A(type, {M, K}), B(type, {N, K}), C(DType::F32, {M, N});
  A.random(5);
  B.random(6, 0.5, 1);  // so that what is cut off adds up
  Bindings b;
  b.types = {{"T", type}, {"O", DType::F32}};
  b.int_consts = {{"tf32", 0}, {"fast", 0}};
  if (*precision) b.int_consts[precision] = 1;
  b.tunables = {{"BM", 64}, {"BN", 64}, {"BK", 128}, {"stages", 3}, {"cluster", 1}, {"cluster_columns", 1}};
  auto expected = output_of(concrete_kernel(read_example("matmul"), b, "matmul"), {A, B, C}, 2);
  int outside = 0;
  for (int64_t i = 0; i < M; ++i)
    for (int64_t j = 0; j < N; ++j) {
      std::vector<double> x, y;
      for (int64_t k = 0; k < K; ++k) x.push_back(A.get(i * K + k)), y.push_back(B.get(j * K + k));
      const Expected& e = expected[static_cast<size_t>(i * N + j)];
      outside += e.undecided || std::abs(sum(x.data(), y.data()) - e.value) > e.bound;
    }
  CHECK(outside == 0);
}

// Towards 0, `bits` behind the leading one of `of`.
double cut(double value, double of, int bits) {
  if (of == 0) return value;
  const double unit = std::ldexp(1, std::ilogb(of) - bits);
  return std::trunc(value / unit) * unit;
}

TEST_CASE("tf32 bounds cover operands that are rounded or cut") {
  for (bool rounded : {true, false}) {
    const auto tf32 = [rounded](double v) {
      if (!rounded) return cut(v, v, 10);
      int exponent;
      double fraction = std::frexp(v, &exponent);
      return std::ldexp(std::nearbyint(std::ldexp(fraction, 11)), exponent - 11);
    };
    check_precision(DType::F32, "tf32", 64, [&](const double* x, const double* y) {
      double sum = 0;
      for (int64_t k = 0; k < 64; ++k) sum += tf32(x[k]) * tf32(y[k]);
      return sum;
    });
  }
}

TEST_CASE("bounds of 8-bit floats cover the short sums of tensor cores") {
  constexpr int64_t K = 1024, kStep = 16;
  for (DType type : {DType::F8E4M3, DType::F8E5M2})
    for (bool fast : {true, false})
      check_precision(type, fast ? "fast" : "", K, [&](const double* x, const double* y) {
        double whole = 0, run = 0;
        for (int64_t k = 0; k < K; k += kStep) {
          double largest = std::abs(run), sum = 0;
          for (int64_t i = k; i < k + kStep; ++i) largest = std::max(largest, std::abs(x[i] * y[i]));
          for (int64_t i = k; i < k + kStep; ++i) sum += cut(x[i] * y[i], largest, 13);
          sum += cut(run, largest, 13);
          run = cut(sum, sum, 13);
          if (!fast && (k + kStep) % kF8Run == 0) whole += run, run = 0;
        }
        return whole + run;
      });
}

TEST_CASE("softmax") {
  int64_t N = 33, D = 200;
  for (DType type : {DType::F16, DType::F32}) {
    TestTensor X(type, {N, D}), Y(type, {N, D});
    X.random(7, -6, 6);
    Bindings b;
    b.types = {{"T", type}};
    b.tunables = {{"rows", 2}};
    b.dims = {{"D", D}};
    auto expected = output_of(concrete_kernel(read_example("softmax"), b), {X, Y}, 1);
    std::vector<double> reference;
    for (int64_t i = 0; i < N; ++i) {
      double most = -INFINITY, sum = 0;
      for (int64_t d = 0; d < D; ++d) most = std::max(most, X.get(i * D + d));
      for (int64_t d = 0; d < D; ++d) sum += std::exp(X.get(i * D + d) - most);
      for (int64_t d = 0; d < D; ++d) reference.push_back(std::exp(X.get(i * D + d) - most) / sum);
    }
    check_against(expected, reference, type, type == DType::F16 ? 2 : 1000);
  }
}

TEST_CASE("residual add and rmsnorm, in place") {
  int64_t N = 21, D = 256;
  TestTensor X(DType::BF16, {N, D}), R(DType::BF16, {N, D}), W(DType::BF16, {D}), Y(DType::BF16, {N, D});
  X.random(8);
  R.random(9);
  W.random(10, 0.5, 1.5);
  Bindings b;
  b.types = {{"T", DType::BF16}};
  b.tunables = {{"rows", 4}};
  b.dims = {{"D", D}};
  Kernel kernel = concrete_kernel(read_example("rmsnorm"), b, "add_rmsnorm");
  auto outputs = interpreted(kernel, {X, R, W, Y, f32_argument(1e-5)});
  std::vector<double> residual, normed;
  for (int64_t i = 0; i < N; ++i) {
    double squares = 0;
    for (int64_t d = 0; d < D; ++d) {
      residual.push_back(X.get(i * D + d) + R.get(i * D + d));
      squares += residual.back() * residual.back();
    }
    double scale = 1 / std::sqrt(squares / static_cast<double>(D) + static_cast<double>(1e-5f));
    for (int64_t d = 0; d < D; ++d) normed.push_back(residual[static_cast<size_t>(i * D + d)] * scale * W.get(d));
  }
  check_against(outputs[1], residual, DType::BF16, 1);
  check_against(outputs[3], normed, DType::BF16, 1);
}

TEST_CASE("layernorm") {
  int64_t N = 9, D = 320;
  TestTensor X(DType::F16, {N, D}), W(DType::F16, {D}), bias(DType::F16, {D}), Y(DType::F16, {N, D});
  X.random(8, -3, 4);
  W.random(9, 0.5, 1.5);
  bias.random(10);
  Bindings b;
  b.types = {{"T", DType::F16}};
  b.tunables = {{"rows", 4}};
  b.dims = {{"D", D}};
  auto expected = output_of(concrete_kernel(read_example("layernorm"), b), {X, W, bias, Y, f32_argument(1e-5)}, 3);
  std::vector<double> reference;
  for (int64_t i = 0; i < N; ++i) {
    double mean = 0, squares = 0;
    for (int64_t d = 0; d < D; ++d) mean += X.get(i * D + d) / static_cast<double>(D);
    for (int64_t d = 0; d < D; ++d) squares += std::pow(X.get(i * D + d) - mean, 2);
    double scale = 1 / std::sqrt(squares / static_cast<double>(D) + static_cast<double>(1e-5f));
    for (int64_t d = 0; d < D; ++d) reference.push_back((X.get(i * D + d) - mean) * scale * W.get(d) + bias.get(d));
  }
  check_against(expected, reference, DType::F16, 4);
}

TEST_CASE("attention, causal and not, grouped heads, ragged lengths") {
  const int64_t B = 2, Sq = 100, Sk = 150, H = 4, G = 2, D = 64;
  for (bool causal : {false, true}) {
    CAPTURE(causal);
    TestTensor Q(DType::F16, {B, Sq, H, D}), K(DType::F16, {B, Sk, G, D}), V(DType::F16, {B, Sk, G, D});
    TestTensor O(DType::F16, {B, Sq, H, D});
    Q.random(11);
    K.random(12);
    V.random(13);
    Bindings b;
    b.types = {{"T", DType::F16}};
    b.int_consts = {{"causal", causal}};
    b.tunables = {{"BM", 64}, {"BN", 64}, {"stages", 2}};
    b.dims = {{"D", D}, {"E", D}};
    const double scale = static_cast<float>(1 / std::sqrt(static_cast<double>(D)));
    const std::vector<double> q = Q.values(), k = K.values(), v = V.values();
    auto expected = output_of(concrete_kernel(read_example("attention"), b), {Q, K, V, O, f32_argument(scale)}, 3);
    std::vector<double> reference;
    for (int64_t n = 0; n < B; ++n)
      for (int64_t s = 0; s < Sq; ++s)
        for (int64_t h = 0; h < H; ++h) {
          const int64_t g = h / (H / G), last = causal ? s + Sk - Sq + 1 : Sk;
          // Online, in the kernel's blocks, since that decides what P is rounded to.
          std::vector<double> out(D, 0);
          double most = -1e30, sum = 0;
          for (int64_t first = 0; first < last; first += 64) {
            std::vector<double> score;
            double next = most;
            for (int64_t t = first; t < std::min(last, first + 64); ++t) {
              double dot = 0;
              for (int64_t d = 0; d < D; ++d)
                dot += q[static_cast<size_t>(((n * Sq + s) * H + h) * D + d)] *
                       k[static_cast<size_t>(((n * Sk + t) * G + g) * D + d)];
              score.push_back(dot * scale * static_cast<float>(1.4426950408889634));
              next = std::max(next, score.back());
            }
            if (next - most <= 8) next = most;
            const double alpha = std::exp2(most - next);
            most = next;
            sum *= alpha;
            for (double& x : out) x *= alpha;
            for (size_t t = 0; t < score.size(); ++t) {
              const double p = std::exp2(score[t] - next), narrow = round_float(DType::F16, p);
              sum += p;
              for (int64_t d = 0; d < D; ++d)
                out[static_cast<size_t>(d)] +=
                    narrow * v[static_cast<size_t>(((n * Sk + first + static_cast<int64_t>(t)) * G + g) * D + d)];
            }
          }
          for (double x : out) reference.push_back(x / sum);
        }
    check_against(expected, reference, DType::F16, 64);
  }
}

TEST_CASE("rope, in place") {
  int64_t B = 2, S = 37, H = 3, half = 32, D = 64;
  TestTensor X(DType::F16, {B, S, H, D}), C(DType::F32, {S, half}), N(DType::F32, {S, half});
  X.random(14);
  for (int64_t s = 0; s < S; ++s)
    for (int64_t d = 0; d < half; ++d) {
      double angle = static_cast<double>(s) * std::pow(10000.0, -static_cast<double>(d) / static_cast<double>(half));
      C.set(s * half + d, std::cos(angle));
      N.set(s * half + d, std::sin(angle));
    }
  Bindings b;
  b.types = {{"T", DType::F16}};
  b.tunables = {{"rows", 8}};
  b.dims = {{"D", D}, {"half", half}};
  auto expected = output_of(concrete_kernel(read_example("rope"), b), {X, C, N}, 0);
  std::vector<double> reference(static_cast<size_t>(X.size()));
  for (int64_t row = 0; row < B * S * H; ++row)
    for (int64_t d = 0; d < half; ++d) {
      int64_t s = row / H % S;
      double low = X.get(row * D + d), high = X.get(row * D + d + half), c = C.get(s * half + d),
             n = N.get(s * half + d);
      reference[static_cast<size_t>(row * D + d)] = low * c - high * n;
      reference[static_cast<size_t>(row * D + d + half)] = high * c + low * n;
    }
  check_against(expected, reference, DType::F16, 1);
}

TEST_CASE("four-bit weights with groups") {
  int64_t M = 20, N = 70, K = 192, group = 32, Kg = K / group;
  TestTensor A(DType::BF16, {M, K}), W(DType::U4, {N, K}), scale(DType::BF16, {N, Kg}), zero(DType::U4, {N, Kg});
  TestTensor C(DType::BF16, {M, N});
  A.random(15);
  W.random(16, 0, 16);
  scale.random(17, 0.01, 0.1);
  zero.random(18, 0, 16);
  Bindings b;
  b.types = {{"T", DType::BF16}};
  b.int_consts = {{"group", group}};
  b.tunables = {{"BM", 16}, {"BN", 64}, {"BK", 64}, {"stages", 4}};
  auto expected = output_of(concrete_kernel(read_example("matmul_w4"), b), {A, W, scale, zero, C}, 4);
  std::vector<double> reference;
  for (int64_t i = 0; i < M; ++i)
    for (int64_t j = 0; j < N; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < K; ++k) {
        double weight = (W.get(j * K + k) - zero.get(j * Kg + k / group)) * scale.get(j * Kg + k / group);
        sum += A.get(i * K + k) * round_float(DType::BF16, static_cast<float>(weight));
      }
      reference.push_back(sum);
    }
  check_against(expected, reference, DType::BF16, 8);
}

TEST_CASE("gemv, split-k with atomics, histogram, gathered experts") {
  Bindings b;
  {
    int64_t N = 30, K = 600;
    TestTensor W(DType::F16, {N, K}), X(DType::F16, {K}), Y(DType::F16, {N});
    W.random(19);
    X.random(20);
    b.types = {{"T", DType::F16}};
    b.tunables = {{"rows", 4}, {"BK", 256}};
    auto expected = output_of(concrete_kernel(read_example("gemv"), b), {W, X, Y}, 2);
    std::vector<double> reference;
    for (int64_t n = 0; n < N; ++n) {
      double sum = 0;
      for (int64_t k = 0; k < K; ++k) sum += W.get(n * K + k) * X.get(k);
      reference.push_back(sum);
    }
    check_against(expected, reference, DType::F16, 8);
  }
  {
    int64_t M = 40, N = 50, K = 500;
    TestTensor A(DType::F16, {M, K}), B(DType::F16, {N, K}), C(DType::F32, {M, N});
    A.random(21);
    B.random(22);
    b = {};
    b.types = {{"T", DType::F16}};
    b.tunables = {{"BM", 64}, {"BN", 64}, {"BK", 64}, {"stages", 3}, {"splits", 4}};
    auto expected = output_of(concrete_kernel(read_example("matmul_splitk"), b), {A, B, C}, 2);
    std::vector<double> reference;
    for (int64_t i = 0; i < M; ++i)
      for (int64_t j = 0; j < N; ++j) {
        double sum = 0;
        for (int64_t k = 0; k < K; ++k) sum += A.get(i * K + k) * B.get(j * K + k);
        reference.push_back(sum);
      }
    check_against(expected, reference, DType::F32, 5000);
  }
  {
    int64_t N = 1000, bins = 10;
    TestTensor X(DType::I32, {N}), counts(DType::I32, {bins});
    X.random(23, -2, 12);
    counts.fill(100);
    b = {};
    b.types = {{"T", DType::I32}};
    b.tunables = {{"BN", 256}};
    auto expected = output_of(concrete_kernel(read_example("histogram"), b), {X, counts}, 1);
    for (int64_t bin = 0; bin < bins; ++bin) {
      int64_t count = 100;
      for (int64_t n = 0; n < N; ++n) count += X.get(n) == static_cast<double>(bin);
      CHECK(expected[static_cast<size_t>(bin)].bits == count);
      CHECK(!expected[static_cast<size_t>(bin)].undecided);
    }
  }
  {
    int64_t tokens = 30, K = 70, E = 3, N = 40, slots = 80;
    TestTensor X(DType::F16, {tokens, K}), W(DType::F16, {E, N, K}), index(DType::I32, {E, slots}),
        used(DType::I32, {E});
    TestTensor Y(DType::F16, {E, slots, N});
    X.random(24);
    W.random(25);
    index.random(26, -3, 34);  // some outside: zero rows
    used.list({80, 0, 33});
    b = {};
    b.types = {{"T", DType::F16}};
    b.tunables = {{"BM", 64}, {"BN", 64}, {"BK", 64}, {"stages", 3}};
    auto expected = output_of(concrete_kernel(read_example("moe_gather"), b), {X, W, index, used, Y}, 4);
    int wrong = 0;
    for (int64_t e = 0; e < E; ++e)
      for (int64_t s = 0; s < slots; ++s)
        for (int64_t n = 0; n < N; ++n) {
          const Expected& got = expected[static_cast<size_t>((e * slots + s) * N + n)];
          bool written = static_cast<double>(s) < used.get(e);
          auto token = static_cast<int64_t>(index.get(e * slots + s));
          double sum = 0;
          for (int64_t k = 0; k < K && token >= 0 && token < tokens; ++k)
            sum += X.get(token * K + k) * W.get((e * N + n) * K + k);
          if (got.written != written) ++wrong;
          if (written && !(std::abs(got.value - sum) <= got.bound + ulp_at(DType::F16, sum))) ++wrong;
        }
    CHECK(wrong == 0);
  }
}

}  // namespace
}  // namespace kachel::ir
