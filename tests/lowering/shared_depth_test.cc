// Chains of so few rows that the warps of a block share k, as printed.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/lowering/lowered_text.h"

namespace kachel::lowering {
namespace {

// `acc` is `first` at the beginning; `step` is in the loop, behind the products, and `end` behind that.
std::string chain(int rows, const std::string& step = "", const std::string& first = "0", const std::string& end = "",
                  int keys = 64) {
  return fmt::format(R"(tile 1
kernel k(Q: f16[M, 64], K: f16[N, 64], V: f16[N, 64], O: out f16[M, 64])
grid i < ceildiv(M, {0})
{{
  shared q: f16[{0}, 64], k: f16[{4}, 64], v: f16[{4}, 64]
  fragment s: f32[{0}, {4}], p: f16[{0}, {4}], acc: f32[{0}, 64] = {2}, m: f32[{0}] = 0
  q = Q[i*{0} +: {0}, :]
  pipelined n < ceildiv(N, {4}), 2 {{
    k = K[n*{4} +: {4}, :]
    v = V[n*{4} +: {4}, :]
    s = q @ k^T
    parallel r < {0} {{ m[r] = max(m[r], max[j < {4}](s[r, j])) }}
    p = s
    acc += p @ v
    {1}
  }}
  {3}
  O[i*{0} +: {0}, :] = acc
}}
)",
                     rows, step, first, end, keys);
}

Lowered on_hopper(const std::string& text) {
  Request request{text};
  request.target.architecture = 90;
  return lowered(request);
}
bool shares(const Lowered& result, int warps) {
  return has(result.notes, fmt::format("k shared by {} warps, A in registers", warps));
}

TEST_CASE("warps share the keys of sixteen rows") {
  const Lowered result = on_hopper(chain(16));
  CHECK(shares(result, 4));
  CHECK(has(result.notes, "gemm s: mma.m16n8k16, 1 x 4 warps"));
  CHECK(has(result.notes,
            "tile acc_parts: f32 in registers, layout [16, 64] on 128 threads: 8 t4 2 r2; 2 r1 4 t1 8 r4\n"));
  CHECK(has(result.notes,
            "tile acc: f32 in registers, layout [16, 64] on 128 threads: 8 t4 2 r2; 2 r1 4 t1 2 r4 4 t32\n"));
  CHECK(shares(on_hopper(chain(16, "", "0", "", 32)), 2));     // two steps of k
  CHECK(on_hopper(chain(16, "", "0", "", 16)).threads == 64);  // one, beside the producer
  Request one_warp{chain(16)};
  one_warp.target.architecture = 80;
  one_warp.target.threads = 32;
  const std::string notes = lowered(one_warp).notes;
  CHECK(has(notes, "tile acc_parts: f32 in registers, layout [16, 64] on 32 threads: 8 t4 2 r2; 2 r1 4 t1 8 r4\n"));
  CHECK(has(notes, "tile acc: f32 in registers, layout [16, 64] on 32 threads: 8 t4 2 r2; 2 r1 4 t1 8 r4\n"));
}

TEST_CASE("keys and values of 4 bits are unpacked in registers, and the warps share k all the same") {
  const Lowered result = on_hopper(R"(tile 1
kernel k(Q: f16[M, 64], K: u4[N, 64], V: u4[N, 64], scale: f16[N], O: out f16[M, 64])
grid i < ceildiv(M, 16)
{
  shared q: f16[16, 64], kc: u4[64, 64], vc: u4[64, 64]
  fragment k: f16[64, 64], v: f16[64, 64], s: f32[16, 64], p: f16[16, 64], acc: f32[16, 64] = 0
  q = Q[i*16 +: 16, :]
  pipelined n < ceildiv(N, 64), 2 {
    kc = K[n*64 +: 64, :]
    vc = V[n*64 +: 64, :]
    parallel j < 64, d < 64 { k[j, d] = f16(kc[j, d]) * scale[n*64 + j] }
    s = q @ k^T
    p = s
    parallel j < 64, d < 64 { v[j, d] = f16(vc[j, d]) * scale[n*64 + j] }
    acc += p @ v
  }
  O[i*16 +: 16, :] = acc
}
)");
  CAPTURE(result.notes);
  CHECK(shares(result, 4));
  CHECK(has(result.notes, "gemm s: mma.m16n8k16, 1 x 4 warps, B in registers"));
  // Values are computed eight neighbours a thread, and stored as one vector.
  CHECK(has(result.notes, "tile v_part: f16 in registers, layout [64, 64] on 128 threads"));
  CHECK(has(result.loop_ir, "+: 8], v_part["));
}

TEST_CASE("scaling leaves sums in parts, reading and adding do not") {
  CHECK(shares(on_hopper(chain(16, "parallel r < 16, d < 64 { acc[r, d] *= 0.5 + m[r] }")), 4));
  CHECK(shares(on_hopper(chain(16, "", "0", "parallel r < 16, d < 64 { acc[r, d] = max(acc[r, d], m[r]) }")), 4));
  for (const Lowered& other : {on_hopper(chain(16, "parallel r < 16, d < 64 { acc[r, d] = acc[r, d] + m[r] }")),
                               on_hopper(chain(16, "parallel r < 16, d < 64 { acc[r, d] = max(acc[r, d], 0) }")),
                               on_hopper(chain(16, "parallel r < 16, d < 64 { acc[r, d] *= acc[r, d] }")),
                               on_hopper(chain(16, "parallel r < 16 { m[r] = sum[d < 64](acc[r, d]) }")),
                               on_hopper(chain(16, "", "1")), on_hopper(chain(32))})
    CHECK(!has(other.notes, "k shared"));
}

TEST_CASE("what warps tell each other in every iteration has two halves, and so one barrier") {
  const std::string loops = on_hopper(chain(16, "parallel r < 16, d < 64 { acc[r, d] *= 0.5 + m[r] }")).loop_ir;
  const size_t begin = loops.find("for n in"), end = loops.find("parts", begin);
  REQUIRE(begin != loops.npos);
  REQUIRE(end != loops.npos);
  const std::string body = loops.substr(begin, end - begin);
  const size_t first = body.find("barrier\n");
  REQUIRE(first != body.npos);
  CHECK(body.find("barrier\n", first + 1) == body.npos);
}

}  // namespace
}  // namespace kachel::lowering
