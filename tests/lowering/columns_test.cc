// Columns that regions name by numbers, and elements beside each other, read off loop IR.
#include "tests/lowering/lowered_text.h"

namespace kachel::lowering {
namespace {

std::string text_of(const std::string& statements, const std::string& declared = "x: f32[128, 4]") {
  const Lowered lowered = lowering::lowered({R"(tile 1
kernel k(X: f32[M, 4], W: f32[M, 2], Y: out f32[M, 4], Z: inout f32[M, 2], I: i32[M])
grid m < ceildiv(M, 128)
{
  fragment )" + declared + R"(
  )" + statements + R"(
}
)"});
  return lowered.notes + lowered.loop_ir;
}

const std::string kLoad = "x = X[m*128 +: 128, :] ", kStore = "Y[m*128 +: 128, :] = x ";

}  // namespace

TEST_CASE("a fragment whose columns regions name by numbers is one for each, moved by one access a row") {
  const std::string text = text_of(kLoad +
                                   "parallel i < 128 { x[i, 0] = x[i, 1] * x[i, 3]  x[i, 2] = x[i, 0] + 1 } "
                                   "parallel i < 128, c < 4 { x[i, c] = x[i, c] * c } " +
                                   kStore);
  CAPTURE(text);
  for (const char* column : {"x_0", "x_1", "x_2", "x_3"})
    CHECK(has(text, std::string("tile ") + column + ": f32 in registers"));
  CHECK(!has(text, "tile x:"));
  CHECK(has(text, "copy_vector near[0 +: 4], X["));
  CHECK(count(text, "copy_vector Y[") == 1);
}

TEST_CASE("a fragment with a column that nobody knows, or that an iteration takes from another, stays one") {
  for (const std::string use :
       {"parallel i < 128 { x[i, 0] = x[i, i % 4] }", "parallel i < 128, c < 4 { x[i, c] = x[i, 3 - c] + x[i, 0] }",
        "parallel i < 128, c < 4 { atomic Z[m*128 + i, 0] += x[i, c] + x[i, 0] }"}) {
    const std::string text = text_of(kLoad + use + kStore);
    CAPTURE(text);
    CHECK(has(text, "tile x: f32"));
    CHECK(!has(text, "tile x_0"));
  }
}

TEST_CASE("copies to elements beside each other leave together, those to one element or of other rows do not") {
  const std::string two = "a: f32[128] = 1, b: f32[128] = 2";
  const auto stored = [&](const std::string& copies) {
    const std::string text = text_of("parallel i < 128 { a[i] = m + i  b[i] = m - i } " + copies, two);
    return count(text, "copy_vector Z[");
  };
  CHECK(stored("Z[m*128 +: 128, 1] = a  Z[m*128 +: 128, 0] = b") == 1);
  CHECK(stored("Z[m*128 +: 128, 0] = a  Z[m*128 +: 128, 0] = b") == 0);
  CHECK(stored("Z[m*128 +: 128, 0] = a  Z[m*128 + 1 +: 128, 1] = b") == 0);
}

TEST_CASE("what a region loads and stores beside each other is moved by vectors as far as its places align them") {
  const auto text = [](const std::string& region) { return text_of(region, "unused: f32[1]"); };
  const std::string pair = text(
      "parallel i < 128 { let r = I[m*128 + i]  Z[m*128 + i, 0] = W[r, 1] * 2  Z[m*128 + i, 1] = W[r, 0] + W[r, 1] }");
  CAPTURE(pair);
  CHECK(count(pair, "+: 2], W[") == 1);
  CHECK(count(pair, " W[") == 1);
  CHECK(count(pair, "copy_vector Z[") == 1);
  // Three of four: two of them are a pair, the last ones are not.
  const std::string three =
      text("parallel i < 128 { let r = I[m*128 + i]  Z[m*128 + i, 0] = X[r, 1] + X[r, 0] * X[r, 2] }");
  CAPTURE(three);
  CHECK(count(three, "+: 2], X[") == 1);
  CHECK(count(three, " X[") == 2);
  CHECK(count(three, "copy_vector Z[") == 0);
  // A pair that begins at an odd place.
  const std::string odd = text("parallel i < 128 { let r = I[m*128 + i]  Z[m*128 + i, 0] = X[r, 1] + X[r, 2] }");
  CAPTURE(odd);
  CHECK(!has(odd, "+: 2], X["));
  CHECK(count(odd, " X[") == 2);
}

}  // namespace kachel::lowering
