// Loops that become one (join_loops.h), as printed.
#include "lowering/tile_ir/join_loops.h"

#include <fmt/format.h>

#include "ir/print.h"
#include "tests/lowering/lowered_text.h"

namespace kachel::lowering {
namespace {

// Two loops of which each has `ranges`, copies `copies` and works on the product with `works`.
struct Loops {
  std::string ranges[2] = {"b < n", "b in n .. S / 32"};
  int stages[2] = {2, 2};
  std::string copies[2] = {"k = K[b*32 +: 32, :]", "k = K[b*32 +: 32, :]"};
  std::string works[2] = {"p = x", "parallel r < 64, c < 32 { x[r, c] = b*32 + c <= i*64 + r ? x[r, c] : 0 }  p = x"};
  std::string behind[2] = {"", ""};
  std::string between;
};
std::string joined(const Loops& loops) {
  std::string text = R"(tile 1
kernel k(Q: f16[S, 64], K: f16[S, 64], L: f16[S, 64], O: out f32[S, 64])
grid i < ceildiv(S, 64)
{
  shared   q: f16[64, 64], k: f16[32, 64]
  fragment x: f32[64, 32], p: f16[64, 32], acc: f32[64, 64] = 0
  q = Q[i*64 +: 64, :]
  let n = i*2
)";
  for (int at = 0; at < 2; ++at)
    text += fmt::format("  {}\n  pipelined {}, {} {{\n  {}\n  x = q @ k^T\n  {}\n  acc += p @ k\n  {}\n  }}\n",
                        at ? loops.between : "", loops.ranges[at], loops.stages[at], loops.copies[at], loops.works[at],
                        loops.behind[at]);
  auto module = ir::load(text + "  O[i*64 +: 64, :] = acc\n}\n");
  REQUIRE_MESSAGE(module.ok(), module.status().message());
  auto concrete = ir::instantiate(module->kernels[0], {});
  REQUIRE_MESSAGE(concrete.ok(), concrete.status().message());
  return ir::print(join_loops(*concrete));
}
TEST_CASE("blocks without masks, and then those with them, are one loop") {
  const std::string text = joined({});
  CAPTURE(text);
  CHECK(count(text, "pipelined") == 1);
  CHECK(has(text, "pipelined b < max(n, S / 32), 2 {"));
  CHECK(count(text, "if b < n {") == 1);
  CHECK(count(text, "p = x") == 1);  // alike at the end
  CHECK(count(text, "@") == 2);
}

TEST_CASE("a second loop that counts from 0 has its places behind the first one's") {
  Loops loops;
  loops.ranges[1] = "c < S / 32 - n";
  loops.copies[1] = "k = K[(n + c)*32 +: 32, :]";
  loops.works[1] = "parallel r < 64, d < 32 { x[r, d] = (c + n)*32 + d <= i*64 + r ? x[r, d] : 0 }  p = x";
  const std::string text = joined(loops);
  CAPTURE(text);
  CHECK(count(text, "pipelined") == 1);
  CHECK(has(text, "k = K[b * 32 +: 32, :]"));
  CHECK(has(text, "(b - n + n) * 32 + d <="));
}

TEST_CASE("loops that do the same are one without a branch") {
  Loops loops;
  loops.works[1] = loops.works[0];
  const std::string text = joined(loops);
  CAPTURE(text);
  CHECK(count(text, "pipelined") == 1);
  CHECK(!has(text, "if "));
}

TEST_CASE("a loop that may end before it begins") {
  Loops loops;
  loops.ranges[0] = "b in 3 .. n";
  CHECK(has(joined(loops), "pipelined b in min(3, n) .. max(n, S / 32), 2 {"));
}

TEST_CASE("loops that differ elsewhere stay two") {
  auto stay = [](auto change) {
    Loops loops;
    change(&loops);
    const std::string text = joined(loops);
    CAPTURE(text);
    CHECK(count(text, "pipelined") == 2);
  };
  SUBCASE("of another tensor") {
    stay([](Loops* loops) { loops->copies[1] = "k = L[b*32 +: 32, :]"; });
  }
  SUBCASE("from other rows") {
    stay([](Loops* loops) { loops->copies[1] = "k = K[b*32 + 1 +: 32, :]"; });
  }
  SUBCASE("rows left out") {
    stay([](Loops* loops) { loops->ranges[1] = "b in n + 1 .. S / 32"; });
  }
  SUBCASE("behind the products") {
    stay([](Loops* loops) { loops->behind[1] = "parallel r < 64, c < 64 { acc[r, c] *= 2 }"; });
  }
  SUBCASE("of other stages") {
    stay([](Loops* loops) { loops->stages[1] = 3; });
  }
  SUBCASE("with work between them") {
    stay([](Loops* loops) { loops->between = "parallel r < 64, c < 64 { acc[r, c] *= 2 }"; });
  }
  SUBCASE("with bounds that the first one computes") {
    stay([](Loops* loops) { loops->between = "let m = i32(p[0, 0])", loops->ranges[1] = "b in n .. m"; });
  }
}

}  // namespace
}  // namespace kachel::lowering
