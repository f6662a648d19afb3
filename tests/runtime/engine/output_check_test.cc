#include "runtime/engine/tuning/output_check.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <random>

#include "ir/numerics.h"
#include "tests/runtime/engine/engine_fixture.h"

namespace kachel::runtime {
namespace {

using ir::DType;

OutputSample sample(DType type, const std::vector<double>& values) {
  OutputSample made;
  made.bytes.resize(static_cast<size_t>(ir::storage_bytes(type, static_cast<int64_t>(values.size()))));
  for (size_t i = 0; i < values.size(); ++i) {
    ir::Scalar scalar;
    scalar.type = ir::compute_type(type);
    scalar.f = values[i];
    scalar.i = static_cast<int64_t>(values[i]);
    ir::store_element(type, made.bytes.data(), static_cast<int64_t>(i), scalar);
  }
  made.places = {{0, static_cast<int64_t>(made.bytes.size())}};
  return made;
}

std::string compare(DType type, DType narrowest, const std::vector<double>& want, const std::vector<double>& got) {
  return OutputReference(type, sample(type, want)).compare(tolerance_for(type, {narrowest}), sample(type, got)).what;
}

TEST_CASE("reordered sums pass, wrong values do not") {
  CHECK(compare(DType::F32, DType::F32, {1000, 1, 0}, {1000.001, 1.01, 0.02}).empty());
  CHECK(compare(DType::F32, DType::F32, {1000, 1, 0}, {1001, 1, 0}).find("element 0 is 1001, the reference has 1000") !=
        std::string::npos);
  CHECK(compare(DType::F16, DType::F16, {100, 1}, {100.125, 1.1}).empty());
  CHECK_FALSE(compare(DType::F16, DType::F16, {100, 1}, {100, 2}).empty());
  CHECK_FALSE(compare(DType::F16, DType::F32, {100, 1}, {100, 1.1}).empty());
  CHECK(compare(DType::BF16, DType::BF16, {100, 1}, {101, 1}).empty());
  CHECK_FALSE(compare(DType::BF16, DType::BF16, {100, 1}, {106, 1}).empty());
}

TEST_CASE("long sums of products may have been cut off") {
  const auto passes = [](int64_t longest, double got) {
    const Tolerance tolerance = tolerance_for(DType::F32, {.products = true, .longest = longest});
    return OutputReference(DType::F32, sample(DType::F32, {840, 1}))
        .compare(tolerance, sample(DType::F32, {got, 1}))
        .what.empty();
  };
  CHECK(!passes(4096, 840.25));
  CHECK(passes(262144, 840.25));
  CHECK(!passes(262144, 850));
  CHECK(!passes(int64_t{1} << 40, 900));
}

TEST_CASE("integers are exact, NaN is itself, infinities are not near") {
  CHECK(compare(DType::I32, DType::F32, {5, -7}, {5, -7}).empty());
  CHECK(compare(DType::I32, DType::F32, {5, -7}, {5, -6}).find("1 of 2") != std::string::npos);
  CHECK(compare(DType::U4, DType::F32, {5, 7, 1, 2}, {5, 7, 1, 3}).find("element 3 is 3") != std::string::npos);
  const double inf = INFINITY, nan = NAN;
  CHECK(compare(DType::F32, DType::F32, {nan, inf, -inf}, {nan, inf, -inf}).empty());
  CHECK_FALSE(compare(DType::F32, DType::F32, {1, 1}, {nan, 1}).empty());
  CHECK_FALSE(compare(DType::F32, DType::F32, {inf, 1}, {3e38, 1}).empty());
  CHECK_FALSE(compare(DType::F32, DType::F32, {inf, 1}, {-inf, 1}).empty());
}

// The rule of tolerance.h in f64, on two codes of the type.
bool within(DType type, uint32_t want, uint32_t got, const Tolerance& tolerance, double largest) {
  const double a = ir::decode_float(type, want), b = ir::decode_float(type, got);
  if (a == b || (std::isnan(a) && std::isnan(b))) return true;
  const double allowed = tolerance.relative * std::max(std::abs(a), std::abs(b)) + tolerance.absolute * largest;
  return std::isfinite(a) && std::isfinite(b) && std::abs(a - b) <= allowed;
}

TEST_CASE("any two codes are told apart as their values are") {
  std::mt19937 random(7);
  for (DType type : {DType::F16, DType::BF16, DType::F8E4M3, DType::F8E5M2}) {
    const uint32_t codes = 1u << ir::bits(type);
    const size_t width = static_cast<size_t>(ir::bits(type)) / 8;
    const Tolerance tolerance = tolerance_for(type, {DType::F32});
    for (int round = 0; round < 20000; ++round) {
      // The second of the two alone differs; half of the pairs are near each other.
      const uint32_t first = random() % codes, want = random() % codes;
      const uint32_t got = round % 2 ? (want + random() % 9) % codes : random() % codes;
      OutputSample expected, actual;
      expected.places = {{0, static_cast<int64_t>(2 * width)}};
      expected.bytes.resize(2 * width);
      std::memcpy(expected.bytes.data(), &first, width);
      actual = expected;
      std::memcpy(expected.bytes.data() + width, &want, width);
      std::memcpy(actual.bytes.data() + width, &got, width);
      double largest = 0;
      for (uint32_t code : {first, want})
        if (const double value = std::abs(ir::decode_float(type, code)); std::isfinite(value))
          largest = std::max(largest, value);
      const std::string wrong = OutputReference(type, expected).compare(tolerance, actual).what;
      CAPTURE(ir::name(type));
      CAPTURE(first);
      CAPTURE(want);
      CAPTURE(got);
      REQUIRE(wrong.empty() == within(type, want, got, tolerance, largest));
    }
  }
}

TEST_CASE("a wrong element is found in every batch and at a piece's end") {
  for (DType type : {DType::F32, DType::F16, DType::F8E5M2})
    for (size_t at : {size_t{0}, size_t{2047}, size_t{2048}, size_t{5000}}) {
      std::vector<double> want(5001, 1.0), got = want;
      got[at] = -4;
      const std::string wrong = compare(type, DType::F32, want, got);
      CHECK(wrong.find("1 of 5001") != std::string::npos);
      CHECK(wrong.find(fmt::format("element {} is -4,", at)) != std::string::npos);
    }
}

TEST_CASE("the narrowest rounding is that of computed values") {
  auto narrowest = [](const char* text) {
    auto module = ir::load(text);
    REQUIRE_MESSAGE(module.ok(), module.status().message());
    auto model = KernelModel::create(module->kernels[0], {});
    REQUIRE(model.ok());
    return roundings_of(**model, static_cast<uint64_t>(DType::F16)).narrowest;
  };
  // Operands are copies; only the output rounds.
  CHECK(narrowest(R"(tile 1
kernel a<T: f16>(A: f8e4m3[M, 16], C: out f32[M, 16], x: T[M])
grid m < M
{
  shared s: f8e4m3[1, 16]
  fragment c: f32[1, 16]
  s = A[m +: 1, :]
  parallel i < 1, j < 16 { c[i, j] = f32(s[i, j]) * x[m] }
  C[m +: 1, :] = c
})") == DType::F32);
  CHECK(narrowest(R"(tile 1
kernel a<T: f16>(A: T[M, 16], C: out f32[M, 16])
grid m < M
{
  fragment c: f32[1, 16], p: T[1, 16]
  c = A[m +: 1, :]
  p = c
  parallel i < 1, j < 16 { c[i, j] = f32(p[i, j]) + 1 }
  C[m +: 1, :] = c
})") == DType::F16);
  // tf32 cuts off what f16 does, and an exponential of its sums makes more of it.
  const auto product = [](const std::string& end) {
    return "tile 1\nkernel a(A: f32[16, 16], C: out f32[16, 16])\n{\n  shared a: f32[16, 16]\n  fragment c: f32[16, "
           "16]\n"
           "  a = A\n  c = a @ a^T precision tf32\n  parallel i < 16, j < 16 { c[i, j] = " +
           end + " }\n  C = c\n}\n";
  };
  CHECK(narrowest(product("c[i, j] + 1").c_str()) == DType::F16);
  CHECK(narrowest(product("exp2(c[i, j])").c_str()) == DType::BF16);
}

TEST_CASE("integers that follow from computed floats may differ where a tie is near, and nowhere else") {
  auto differ = [](const std::vector<double>& want, const std::vector<double>& got, bool computes) {
    const Tolerance tolerance = tolerance_for(DType::I32, {DType::F32, computes});
    return !OutputReference(DType::I32, sample(DType::I32, want))
                .compare(tolerance, sample(DType::I32, got))
                .what.empty();
  };
  const std::vector<double> want(2048, 100.0);
  auto with = [&](size_t count, double other) {
    std::vector<double> got = want;
    for (size_t i = 0; i < count; ++i) got[i * got.size() / count] = other;
    return got;
  };
  CHECK_FALSE(differ(want, want, false));
  CHECK(differ(want, with(1, 101), false));
  CHECK_FALSE(differ(want, with(600, 99), true));
  CHECK(differ(want, with(700, 101), true));  // one off by one index everywhere is not a matter of ties
  CHECK_FALSE(differ(want, with(4, -7), true));
  CHECK(differ(want, with(5, -7), true));
  CHECK(differ({1, 2, 3, 4}, {1, 2, 3, 9}, true));
  CHECK(differ({2147483647.0}, {-2147483648.0}, true));
}

TEST_CASE("floats that are moved and compared are not computed") {
  auto computes = [](const std::string& value) {
    auto module = ir::load(
        "tile 1\nkernel k<T: f16>(X: T[N, 64], Y: out i32[N])\ngrid n < N\n{\n  fragment x: f32[64], "
        "y: i32[1]\n  x = X[n, :]\n  parallel i < 1 { " +
        value + " }\n  Y[n +: 1] = y\n}\n");
    REQUIRE_MESSAGE(module.ok(), module.status().message());
    auto model = KernelModel::create(module->kernels[0], {});
    REQUIRE(model.ok());
    return roundings_of(**model, static_cast<uint64_t>(DType::F16)).computes;
  };
  CHECK_FALSE(computes("y[i] = 2 * n + argmax[j < 64](x[j])"));
  CHECK_FALSE(computes("y[i] = i32(max[j < 64](abs(x[j])) > 0.5 ? n * 3 : 0)"));
  CHECK(computes("y[i] = i32(x[n] * 3)"));
  CHECK(computes("y[i] = sum[j < 64](x[j]) > 0 ? 1 : 0"));
  CHECK(computes("x[0] += x[1]  y[i] = i32(x[0])"));
  CHECK(computes("let a = x[0], b = a + 1  y[i] = i32(b)"));
  CHECK(computes("y[i] = argmax[j < 64](exp(x[j]))"));
}

TEST_CASE("large outputs are compared in pieces that reach both ends") {
  CHECK(pieces_to_compare(1000).size() == 1);
  for (int64_t bytes : {int64_t{9} << 20, (int64_t{1} << 30) + 4, (int64_t{1} << 34) + 2}) {
    auto pieces = pieces_to_compare(bytes);
    CHECK(pieces.front().first == 0);
    CHECK(pieces.back().first + pieces.back().size == bytes);
    int64_t total = 0, end = 0, gap = 0;
    for (const ByteRange& range : pieces) {
      CHECK(range.first % 16 == 0);
      gap = std::max(gap, range.first - end);
      end = range.first + range.size;
      total += range.size;
    }
    CHECK(total <= (int64_t{9} << 20));
    CHECK(gap <= bytes / 200);
  }
}

TEST_CASE("a wrong element is named by its place in the output") {
  for (DType type : {DType::F32, DType::I32}) {
    OutputSample expected = sample(type, {1, 2, 3, 4, 5, 6, 7, 8}), actual = sample(type, {1, 2, 3, 4, 5, 66, 7, 8});
    expected.places = actual.places = {{64, 16}, {1024, 16}};
    const std::string what = OutputReference(type, expected).compare(tolerance_for(type, {DType::F32}), actual).what;
    CHECK(what.find("element 257 is 66, the reference has 6") != std::string::npos);
  }
}

TEST_CASE("of elements that are wrong the share is known") {
  const OutputReference reference(DType::F32, sample(DType::F32, {1, 2, 3, 4}));
  const Mismatch two = reference.compare(tolerance_for(DType::F32, {DType::F32}), sample(DType::F32, {1, 5, 3, 7}));
  CHECK(two.wrong == 2);
  CHECK(two.share() == 0.5);
  CHECK(reference.compare(tolerance_for(DType::F32, {DType::F32}), sample(DType::F32, {1, 2, 3, 4})).share() == 0);
}

}  // namespace
}  // namespace kachel::runtime
