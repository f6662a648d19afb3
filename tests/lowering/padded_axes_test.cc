// Products whose rows or columns are no multiples of the instruction's (padded_axes.cc, axis_classes.cc).
#include <fstream>
#include <regex>
#include <sstream>

#include "tests/lowering/lowered_text.h"

namespace kachel::lowering {
namespace {

// s = q @ k^T of `rows` rows of Q and 64 of K, with `body` behind it.
std::string notes(const std::string& rows, const std::string& body) {
  return lowered({"tile 1\nkernel k(Q: f16[G, " + rows +
                  ", 64], K: f16[N, 64], R: f32[G, N], O: out f32[G, 64, 64])\n"
                  "grid g < G\n{\n  shared q: f16[" +
                  rows + ", 64], k: f16[64, 64]\n  fragment s: f32[" + rows + ", 64], t: f32[" + rows +
                  "]\n  q = Q[g, :, :]\n  k = K[0 +: 64, :]\n  s = q @ k^T\n  " + body + "\n}\n"})
      .notes;
}
// Rows of s as columns of what is stored.
std::string transposed_store(const std::string& store, const std::string& type = "f32") {
  return lowered({"tile 1\nkernel k(Q: f16[8, 64], K: f16[64, 64], O: inout " + type +
                  "[G, 64, 64])\ngrid g < G\n{\n"
                  "  shared q: f16[8, 64], k: f16[64, 64]\n  fragment s: f32[8, 64], t: f32[64, 8]\n  q = Q\n  k = K\n"
                  "  s = q @ k^T\n  parallel j < 64, i < 8 { t[j, i] = s[i, j] }\n  " +
                  store + "\n}\n"})
      .notes;
}
const std::string kStore = "O[g, 0 +: 8, :] = s";
const std::string kFma = "gemm s: fma", kMma = "gemm s: mma.m16n8k16";

TEST_CASE("rows grow with all that is computed along them") {
  const std::string text = notes("8",
                                 "parallel i < 8 { t[i] = max[j < 64](s[i, j]) }\n"
                                 "  parallel i < 8, j < 64 { s[i, j] = s[i, j] - t[i] + R[g, i] }\n  " +
                                     kStore);
  CAPTURE(text);
  CHECK(has(text, kMma));
  CHECK(has(text, "tile s: f32 in registers, layout [16, 64]"));
  CHECK(has(text, "tile t: f32 in registers, layout [16]"));
  CHECK(has(notes("2", "O[g, 0 +: 2, :] = s"), kFma));  // a vector or two
}

TEST_CASE("regions may store what has grown where their tensors end") {
  const auto notes = [](const std::string& tensor, const std::string& store) {
    return lowered({"tile 1\nkernel k(Q: f16[M, 40], K: f16[N, 40], O: out f32" + tensor +
                    ")\ngrid m < ceildiv(M, 64)\n{\n  shared q: f16[64, 40], k: f16[64, 40]\n"
                    "  fragment s: f32[64, 64], p: f16[64, 64], c: f32[64, 40]\n"
                    "  parallel i < 64, d < 40 { q[i, d] = Q[m*64 + i, d] * 2 }\n"
                    "  parallel j < 64, d < 40 { k[j, d] = K[j, d] }\n  s = q @ k^T\n  p = s\n  c = p @ k\n"
                    "  parallel i < 64, d < 40 { " +
                    store + " }\n}\n"})
        .notes;
  };
  const std::string text = notes("[M, 40]", "O[m*64 + i, d] = c[i, d] * 3");
  CAPTURE(text);
  CHECK(has(text, "gemm s: mma"));
  CHECK(has(text, "tile c: f32 in registers, layout [64, 48]"));
  CHECK(has(notes("[M, 40]", "O[m*64 + i, 39 - d] = c[i, d]"), kFma));
}

TEST_CASE("reductions over grown rows leave out what has been added") {
  const std::string text = notes("8", "parallel j < 64 { s[0, j] = 0 }\n  " + kStore);
  CHECK(has(text, kMma));
  const Lowered sums =
      lowered({"tile 1\nkernel k(Q: f16[8, 64], K: f16[64, 64], O: out f32[64])\n{\n"
               "  shared q: f16[8, 64], k: f16[64, 64]\n  fragment s: f32[8, 64], t: f32[64]\n  q = Q\n"
               "  k = K\n  s = q @ k^T\n  parallel j < 64 { t[j] = sum[i < 8](s[i, j]) }\n  O = t\n}\n"});
  CAPTURE(sums.loop_ir);
  CHECK(has(sums.notes, kMma));
  CHECK(has(sums.loop_ir, "i_r * 8 < i32(u32(8) - u32(i)) ? s["));
}

TEST_CASE("where a tensor goes on behind a tile that has grown, its elements are stored one by one") {
  CHECK(has(transposed_store("O[g, :, 8 +: 8] = t"), kMma));
  CHECK(has(transposed_store("O[g, :, 8 +: 8] = t", "i4"), kFma));  // two elements a byte, which copies alone write
}

TEST_CASE("what products add up along grows where copies can be told where rows end") {
  const auto notes = [](const std::string& v) {
    return lowered({"tile 1\nkernel k(Q: f16[M, 64], K: f16[N, 64], V: f16[N, 64], O: out f32[M, 64], at: i32)\n"
                    "grid m < ceildiv(M, 64)\n{\n  shared q: f16[64, 64], k: f16[22, 64], v: f16[22, 64]\n"
                    "  fragment s: f32[64, 22], p: f16[64, 22], c: f32[64, 64]\n  q = Q[m*64 +: 64, :]\n"
                    "  k = K[at +: 22, :]\n  v = " +
                    v + "\n  s = q @ k^T\n  p = s\n  c = p @ v\n  O[m*64 +: 64, :] = c\n}\n"})
        .notes;
  };
  const std::string text = notes("V[at +: 22, :]");
  CAPTURE(text);
  CHECK(has(text, "tile v: f16 in memory of the block, layout [32, 64]"));
  CHECK(!has(text, kFma));
  CHECK(has(notes("V[at +: 22, :] within 0 +: 30"), kFma));
}

TEST_CASE("sums that no number of warps shares grow until those of the warp groups do") {
  // A state of D x E beside products of 64 rows of wgmma, and its sums as other products read them.
  const auto notes = [](int d, int e, bool groups) {
    const std::string columns = std::to_string(e), rows = std::to_string(d);
    Request request{"tile 1\nkernel k(Q: f16[S, " + rows + "], V: f16[S, " + columns + "], O: out f32[S, " + columns +
                    "])\n{\n  shared q: f16[64, " + rows + "], v: f16[64, " + columns + "]\n  fragment state: f32[" +
                    rows + ", " + columns + "] = 0, r: f16[" + rows + ", " + columns + "], o: f32[64, " + columns +
                    "]\n  pipelined n < ceildiv(S, 64), 2 {\n    q = Q[n*64 +: 64, :]\n    v = V[n*64 +: 64, :]\n"
                    "    r = state\n    o = q @ r\n    O[n*64 +: 64, :] = o\n    state += q^T @ v\n  }\n}\n"};
    request.target.architecture = groups ? 90 : 80;
    return lowered(request).notes;
  };
  const std::string text = notes(72, 104, true);
  CAPTURE(text);
  CHECK(has(text, "gemm state: mma.m16n8k16, 1 x 4 warps"));
  CHECK(has(text, "tile state: f32 in registers, layout [80, 128] on 128 threads"));
  CHECK(has(text, "gemm o: wgmma"));
  CHECK(has(notes(128, 104, true), "layout [128, 104]"));  // wgmma's
  CHECK(has(notes(96, 64, true), "layout [96, 64]"));      // which can be shared
  CHECK(has(notes(24, 24, true), "layout [32, 24]"));      // which two warps share, and others compute again
  CHECK(has(notes(72, 104, false), "layout [80, 104]"));
}

TEST_CASE("sums that one warp group has no registers for grow until two share them") {
  std::stringstream file;
  file << std::ifstream(std::string(KACHEL_PROGRAMS) + "/padded_axes.tile").rdbuf();
  const std::string all = file.str();
  Request request{"tile 1\n" + all.substr(all.find("kernel padded_crowd"))};
  request.target.architecture = 90;
  const std::string text = lowered(request).notes;
  CAPTURE(text);
  CHECK(has(text, "tile state: f32 in registers, layout [128, 128] on 256 threads"));
  CHECK(has(text, "gemm state: wgmma.m64k16, 2 x 1 warp groups"));
  CHECK(has(text, "gemm x: wgmma.m64k16, 1 x 2 warp groups"));
  request.target.threads = 128;  // as a program asks for: no second group
  const std::string narrow = lowered(request).notes;
  CHECK(has(narrow, "gemm state: fma"));
  CHECK(has(narrow, "layout [96, 128]"));
}

TEST_CASE("an operand that a region reads along k grows with the region, and with what follows from that") {
  std::stringstream file;
  file << std::ifstream(std::string(KACHEL_PROGRAMS) + "/padded_axes.tile").rdbuf();
  const std::string all = file.str();
  const std::string of_any = "tile 1\n" + all.substr(all.find("kernel padded_states"));
  const std::string text =
      std::regex_replace(std::regex_replace(of_any, std::regex("\\bN\\b"), "72"), std::regex("\\bP\\b"), "32");
  CAPTURE(text);
  Request request{text};
  const std::string made = lowered(request).notes;
  CAPTURE(made);
  CHECK(!has(made, "fma"));
}

TEST_CASE("rows stay where something else depends on how many there are") {
  // Another row than the iteration's, which is outside of the tile now.
  CHECK(has(notes("8", "parallel i < 8, j < 64 { s[i, j] = s[i + 1, j] }\n  " + kStore), kFma));
  // A part of them.
  CHECK(has(notes("8", "parallel i < 4, j < 64 { s[i, j] = 0 }\n  " + kStore), kFma));
  // A store that adds, and whose rows are not its first axis, cannot be bounded.
  CHECK(has(transposed_store("atomic O[g, :, 8 +: 8] += t"), kFma));
  // As many rows of memory as a tile of them names.
  CHECK(has(lowered({"tile 1\nkernel k(Q: f16[8, 64], K: f16[64, 64], R: f32[N, 64], O: out f32[8, 64])\n{\n"
                     "  shared q: f16[8, 64], k: f16[64, 64], at: i32[8]\n  fragment s: f32[8, 64], r: f32[8, 64]\n"
                     "  q = Q\n  k = K\n  s = q @ k^T\n  parallel i < 8 { at[i] = argmax[j < 64](s[i, j]) }\n"
                     "  r = R[at, :]\n  O = r\n}\n"})
                .notes,
            kFma));
  // What iterations write to a tensor themselves.
  CHECK(has(lowered({"tile 1\nkernel k(Q: f16[8, 64], K: f16[64, 64], O: inout f32[64])\n{\n"
                     "  shared q: f16[8, 64], k: f16[64, 64]\n  fragment s: f32[8, 64]\n  q = Q\n  k = K\n"
                     "  s = q @ k^T\n  parallel i < 8, j < 64 { atomic O[j] += s[i, j] }\n}\n"})
                .notes,
            kFma));
}

}  // namespace
}  // namespace kachel::lowering
