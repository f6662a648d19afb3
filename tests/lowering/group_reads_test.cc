// Scales of groups of rows, whose size is a parameter: how many of them a thread loads for a tile, as printed.
#include "tests/lowering/lowered_text.h"

namespace kachel::lowering {
namespace {

constexpr const char* kText = R"(tile 1
kernel k(X: f16[M, K], Q: u8[K, N], S: f16[G, N], Y: out f32[M, N], group: i32)
grid n < ceildiv(N, 64), m < ceildiv(M, 16)
{
  shared   x: f16[16, 64], q: u8[64, 64]
  fragment w: f16[64, 64], acc: f32[16, 64] = 0
  pipelined k < ceildiv(K, 64), 2 {
    x = X[m*16 +: 16, k*64 +: 64]
    q = Q[k*64 +: 64, n*64 +: 64]
    parallel i < 64, j < 64 { w[i, j] = f16(q[i, j]) * S[(k*64 + i) / group, n*64 + j] }
    acc += x @ w
  }
  Y[m*16 +: 16, n*64 +: 64] = acc
}
)";

// Of a group that is a multiple of `known`; 0: of nothing.
std::string with_groups_of(int known) {
  auto module = ir::load(kText);
  REQUIRE_MESSAGE(module.ok(), module.status().message());
  Request request{kText};
  const std::vector<Fact> facts = facts_of(module->kernels[0]);
  for (size_t i = 0; i < facts.size(); ++i)
    if (facts[i].kind == Fact::Kind::kMultiple && facts[i].bytes > known) request.facts &= ~(uint64_t{1} << i);
  return lowered(request).loop_ir;
}

TEST_CASE("scales are loaded once a group that is as large as it is known to be, an iteration ahead") {
  CHECK(!has(with_groups_of(0), "S_part"));
  // Each thread has one column: a scale for each 16, 32, or all 64 rows.
  CHECK(has(with_groups_of(16), "registers S_part: f16[4]"));
  CHECK(has(with_groups_of(32), "registers S_part: f16[2]"));
  CHECK(has(with_groups_of(64), "registers S_part: f16[1]"));
  CHECK(with_groups_of(128) == with_groups_of(64));
}

}  // namespace
}  // namespace kachel::lowering
