// Sums that regions make, in parts (region_sums.cc, sum_loop.cc).
#include <doctest/doctest.h>

#include "derive/sum_loop.h"
#include "tests/derive/interpreted.h"

namespace kachel::derive {
namespace {

ir::Bindings tiles(int64_t rows, int64_t columns) {
  ir::Bindings bindings;
  bindings.types = {{"T", DType::F16}};
  bindings.tunables = {{"BN", rows}, {"BO", columns}};
  return bindings;
}

// Columns of several matrices: sums, counts and a sum over two axes; what is behind the loop reads another tensor.
constexpr const char* kColumns = R"(tile 1
kernel columns<T: f16 | f32>(X: T[H, N, O], R: f32[O], Y: out f32[H, O], C: out i32[H, O])
tune BN = 8 | 16, BO = 16 | 32
grid h < H, o < ceildiv(O, BO)
{
  fragment x: f32[BN, BO], s: f32[BO] = 0, c: i32[BO] = 0, w: f32[BN]
  for n < ceildiv(N, BN) {
    x = X[h, n*BN +: BN, o*BO +: BO]
    parallel i < BN { w[i] = n*BN + i < N ? 0.5 : 0 }
    parallel j < BO {
      let all = sum[i < BN](x[i, j] * w[i])
      s[j] = all + s[j]
      if all > 0 { c[j] += 1 }
    }
    for t < 2 {
      parallel i < BN, j < BO { x[i, j] = x[i, j] * 0.5 + t }
      parallel j < BO { s[j] += sum[i < BN](x[i, j]) * 0.125 }
    }
  }
  parallel j < BO { s[j] = s[j] * R[o*BO + j] }
  Y[h, o*BO +: BO] = s
  C[h, o*BO +: BO] = c
}
)";

TEST_CASE("sums of regions in parts are those of the kernel") {
  for (int64_t parts : {2, 4})
    for (int64_t rows : {8, 16}) {
      CAPTURE(parts);
      Interpreted program(kColumns, tiles(rows, 16), {{"H", 2}, {"N", 93}, {"O", 37}},
                          {.operands = false, .parts = parts});
      REQUIRE(program.derived().find("columns_prepared_part"));
      program.check();
    }
}

bool splits(const std::string& work, const std::string& behind = "", const std::string& type = "f32") {
  auto module = ir::load(
      "tile 1\nkernel k(X: f32[N, O], Y: out f32[O])\ntune BN = 8 | 16, BO = 16\n"
      "grid o < ceildiv(O, BO)\n{\n  fragment x: f32[BN, BO], t: f32[BO] = 0, s: " +
      type + "[BO] = 0\n  for n < ceildiv(N, BN) {\n    x = X[n*BN +: BN, o*BO +: BO]\n    " + work + "\n  }\n  " +
      behind + "\n  Y[o*BO +: BO] = s\n}\n");
  REQUIRE_MESSAGE(module.ok(), module.status().message());
  return sum_loop(module->kernels[0]).has_value();
}

TEST_CASE("what is no sum, or is wanted in between, is not parted") {
  const std::string sum = "parallel j < BO { s[j] += sum[i < BN](x[i, j]) }";
  CHECK(splits(sum));
  CHECK(splits(sum, "parallel j < BO { s[j] = s[j] / N }"));
  CHECK(splits("parallel j < BO { if n % 2 == 0 { s[j] = s[j] + x[0, j] } }"));
  CHECK(splits("parallel i < BN, j < BO { x[i, j] *= 2 }  " + sum));
  CHECK(splits("parallel j < BO { s[j] = max(s[j], x[0, j]) }"));
  CHECK(splits("parallel j < BO { s[j] = min(x[0, j], s[j]) }", "", "f16"));
  CHECK(!splits("parallel j < BO { s[j] = max(s[j] * 2, x[0, j]) }"));
  CHECK(!splits("parallel j < BO { s[j] = max(s[j], x[0, j]) }  " + sum));
  CHECK(!splits("parallel j < BO { s[j] = max(s[j], x[0, j]) }  parallel j < BO { s[j] = min(s[j], 2) }"));
  CHECK(!splits("parallel j < BO { s[j] = s[j] * 0.5 + x[0, j] }"));
  CHECK(!splits("parallel j < BO { s[j] += x[0, j] * s[j] }"));
  CHECK(!splits(sum + "  parallel j < BO { t[j] = s[j] }"));
  CHECK(!splits(sum + "  parallel j < BO { if s[j] > 3 { t[j] = 1 } }"));
  CHECK(splits(sum + "  parallel j < BO { t[j] = max(t[j], x[0, j]) }", "parallel j < BO { s[j] += t[j] }"));
  CHECK(!splits(sum + "  parallel j < BO { t[j] = x[0, j] }", "parallel j < BO { s[j] += t[j] }"));
  CHECK(!splits("parallel j < BO { s[j] += t[j] }  parallel j < BO { t[j] = x[0, j] }"));
  CHECK(splits(sum, "for n < 2 { parallel j < BO { s[j] += 1 } }"));
  CHECK(!splits(sum, "for n < 2 { parallel j < BO { t[j] += 1 } }"));  // which loop
  CHECK(!splits(sum, "", "f16"));                                      // rounded at every step
}

}  // namespace
}  // namespace kachel::derive
