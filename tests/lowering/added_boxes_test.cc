// Sums that a loop adds to a tensor: by boxes, which come before the next tile's operands, in warp groups that hold all
// accumulators, and in tiles of which the longest come first.
#include "tests/lowering/lowered_text.h"

namespace kachel::lowering {
namespace {

// 128 rows a block against 64 at a time, with five products of 128 columns, of which two stay.
std::string backward(const std::string& loop, const std::string& add) {
  return "tile 1\nkernel k(Q: f16[H, S, 128], K: f16[H, S, 128], W: inout f32[H, S, 128], R: out f16[H, S, 128], "
         "U: out f16[H, S, 128])\ngrid n < ceildiv(S, 128), h < H\n{\n"
         "  shared k: f16[128, 128], v: f16[128, 128], q: f16[64, 128], shown: f16[128, 64]\n"
         "  fragment s: f32[128, 64], t: f32[128, 64], p: f16[128, 64], w: f32[64, 128]\n"
         "  fragment r: f32[128, 128] = 0, u: f32[128, 128] = 0\n"
         "  k = K[h, n*128 +: 128, :]\n  v = K[h, n*128 +: 128, :]\n  pipelined m in " +
         loop +
         ", 2 {\n    q = Q[h, m*64 +: 64, :]\n    s = k @ q^T\n    t = v @ q^T\n"
         "    parallel j < 128, i < 64 { p[j, i] = s[j, i] * t[j, i] }\n    shown = p\n    r += p @ q\n    u += p @ q\n"
         "    w = shown^T @ k\n    " +
         add + "\n  }\n  R[h, n*128 +: 128, :] = r\n  U[h, n*128 +: 128, :] = u\n}\n";
}
Lowered at(const std::string& text) {
  Request request{text};
  request.target = {.kind = Target::Kind::kCuda, .architecture = 90, .shared_limit = 227 * 1024};
  return lowering::lowered(request);
}

constexpr const char* kAdd = "atomic W[h, m*64 +: 64, :] += w";

TEST_CASE("additions of a loop have two boxes a warp, for which the next tile's operands make room") {
  const Lowered lowered = at(backward("n*2 .. ceildiv(S, 64)", kAdd));
  CAPTURE(lowered.notes);
  CHECK(has(lowered.notes, "store W[h, m * 64 +: 64, :]: added by the copy engine, 2 boxes of 16 x 32 a warp"));
  CHECK(has(lowered.notes, "pipeline m: depth 2, the copy engine"));
  CHECK(has(lowered.loop_ir, "bulk_store adds"));
  CHECK(!lowered.deterministic);
  CHECK(has(lowered.text, "cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.tile.bulk_group"));
  CHECK(!has(at(backward("n*2 .. ceildiv(S, 64)", "W[h, m*64 +: 64, :] = w")).loop_ir, "bulk_store adds"));
}

TEST_CASE("two warp groups where one would not hold all accumulators; those of 64 rows share its columns") {
  const Lowered lowered = at(backward("n*2 .. ceildiv(S, 64)", kAdd));
  CAPTURE(lowered.notes);
  CHECK(has(lowered.notes, "gemm w: wgmma.m64k16, 1 x 2 warp groups"));
  CHECK(has(lowered.notes, "gemm r: wgmma.m64k16, 2 x 1 warp groups, A in registers"));
}

TEST_CASE("the warps meet once in front of what they store as matrices, not between") {
  const std::string loops = at(backward("n*2 .. ceildiv(S, 64)", kAdd)).loop_ir;
  const size_t copy = loops.find("# shown = p"), stored = loops.find("store_matrix", copy);
  const std::string between = loops.substr(copy, stored - copy);
  CAPTURE(between);
  CHECK(between.find("barrier") < between.find("for matrices"));
  CHECK(between.find("barrier", between.find("for matrices")) == between.npos);
}

TEST_CASE("tiles whose loops get shorter along an axis begin with the longest") {
  const char* const order = "grid axis 0: from its beginning, where loops are longer";
  CHECK(has(at(backward("n*2 .. ceildiv(S, 64)", kAdd)).notes, order));
  const std::string rising = at(backward("0 .. n*2 + 2", kAdd)).notes;
  CHECK(!has(rising, order));
  CHECK(has(rising, "grid axis 0: from its end, where loops are longer"));
  CHECK(!has(at(backward("0 .. ceildiv(S, 64)", kAdd)).notes, "where loops are longer"));
}

}  // namespace
}  // namespace kachel::lowering
