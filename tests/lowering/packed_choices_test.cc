// Tiles of 4-bit elements, right operands that the block computes, and loads that a loop would repeat, as printed.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/lowering/lowered_text.h"

namespace kachel::lowering {
namespace {

// `w` is made of `q` and multiplied with 16 rows; with 128, which turns the product; or with more than wgmma has
// columns.
std::string dequantised(const std::string& type = "u4", const std::string& more = "",
                        const std::string& start = "k*64") {
  return fmt::format(R"(tile 1
kernel k(A: f16[M, K], W: {0}[N, K], S: f16[N, G], C: out f16[M, N])
tune BM = 16 | 128 | 320
grid i < ceildiv(M, BM), j < ceildiv(N, 64)
{{
  shared a: f16[BM, 64], q: {0}[64, 64]
  fragment w: f16[64, 64], c: f32[BM, 64] = 0
  pipelined k < ceildiv(K, 64), 3 {{
    a = A[i*BM +: BM, k*64 +: 64]
    q = W[j*64 +: 64, {2} +: 64]
    {1}
    parallel n < 64, d < 64 {{ w[n, d] = (f16(q[n, d]) - 8) * S[j*64 + n, (k*64 + d) / 64] }}
    c += a @ w^T
  }}
  C[i*BM +: BM, j*64 +: 64] = c
}}
)",
                     type, more, start);
}

Lowered on(int architecture, const std::string& text, std::map<std::string, int64_t> tunables = {},
           uint64_t facts = ~uint64_t{0}) {
  Request request{text, std::move(tunables)};
  request.target.architecture = architecture;
  request.facts = facts;
  return lowered(request);
}

TEST_CASE("tiles of 4-bit elements are copied ahead as the bytes they are stored in") {
  for (const char* type : {"u4", "i4"}) {
    const Lowered ampere = on(80, dequantised(type)), hopper = on(90, dequantised(type));
    CHECK(has(ampere.notes, "pipeline k: depth 3, asynchronous copies into {a, q}\n"));
    CHECK(has(hopper.notes, "pipeline k: depth 3, the copy engine into {a, q}\n"));
    CHECK(has(hopper.notes, "tile q: u8 in memory of the block, 3 stages, layout [64, 32]"));
    REQUIRE(hopper.maps.size() == 2);
    CHECK(hopper.maps[1].box == std::vector<int32_t>{64, 32});
  }
}

TEST_CASE("what keeps 4-bit elements one a byte") {
  auto apart = [](const Lowered& result) {
    return has(result.notes, "tile q: u8 in memory of the block, layout [64, 64]");
  };
  CHECK(apart(on(90, dequantised(), {}, 1)));               // rows of no whole words
  CHECK(apart(on(90, dequantised("u4", "", "k*64 + 1"))));  // between two bytes
  CHECK(apart(on(90, dequantised("u4", "q = 1"))));         // filled in another way
  CHECK(apart(on(90, dequantised("u4", "parallel n < 64, d < 64 { q[n, d] = 1 }"))));
  CHECK(!apart(on(90, dequantised("u4", "", "k*64 + 2"))));
}

TEST_CASE("a right operand that the block computes is held in registers where few rows meet it") {
  std::string shared = dequantised();
  shared.replace(shared.find("  fragment w: f16[64, 64], c"), 28, "  shared w: f16[64, 64]\n  fragment c");
  for (int architecture : {80, 90})
    for (const std::string& text : {dequantised(), shared})
      CHECK(has(on(architecture, text).notes, "gemm c: mma.m16n8k16, 1 x 8 warps, B in registers"));
  CHECK(!has(on(90, shared, {{"BM", 320}}).notes, "B in registers"));
  const Lowered many = on(90, dequantised(), {{"BM", 320}});
  CHECK(has(many.notes, "gemm c: wgmma.m64k16, 5 x 1 warp groups\n"));
  CHECK(has(many.notes, "tile w: f16 in memory of the block"));
  CHECK(has(many.notes, "(it is the right operand of a gemm)"));
}

TEST_CASE("a right operand that is unpacked for many rows is a left one, and its product's sums turn behind the loop") {
  const Lowered result = on(90, dequantised(), {{"BM", 128}});
  CAPTURE(result.notes);
  CHECK(has(result.notes, "gemm c_turned: wgmma.m64k16, 1 x 1 warp groups, A in registers\n"));
  CHECK(has(result.notes, "tile c_turned: f32 in registers, layout [64, 128] on 128 threads"));
  const std::string& text = result.loop_ir;
  const size_t loop = text.find("for k in"), first = text.find("packed * w[", loop),
               product = text.find("w[0 +:", first), second = text.find("packed * w_other[", first),
               turned = text.find("turn_matrix c[");
  CHECK(first < product);
  CHECK(product < second);
  CHECK(second < turned);
  // Half of k is unpacked while the products of the half before run.
  CHECK(text.find("group_wait 1\n", loop) < first);
  CHECK(text.find("group_wait 1\n", product) < second);
  // Not where the work wants the sums, where there are more products to them, or where the left operand is made too.
  const auto turns = [](const char* from, const char* to) {
    std::string other = dequantised();
    other.replace(other.find(from), std::string(from).size(), to);
    return has(on(90, other, {{"BM", 128}}).notes, "c_turned");
  };
  CHECK(!turns("c += a @ w^T", "c += a @ w^T\n    parallel x < BM, y < 64 { c[x, y] = c[x, y] * 2 }"));
  CHECK(!turns("  C[", "  for l < 2 { c += a @ w^T }\n  C["));
  CHECK(!turns("c += a @ w^T", "parallel x < BM, y < 64 { a[x, y] = a[x, y] * 2 }\n    c += a @ w^T"));
  CHECK(!turns("c += a @ w^T", "c += a @ w"));
  CHECK(turns("  C[", "  parallel x < BM, y < 64 { c[x, y] = c[x, y] + S[y, 0] }\n  C["));
}

TEST_CASE("elements of 8 bits are unpacked in pairs, as a copy or a region says") {
  const auto text_of = [](const std::string& source, const std::string& made, int64_t rows) {
    const std::string text = "tile 1\nkernel k(X: bf16[M, K], W: " + source +
                             R"([N, K], Z: i8[N], V: i16[N], C: out bf16[M, N])
tune BM = 64 | 16
grid m < ceildiv(M, BM), n < ceildiv(N, 64)
{
  shared x: bf16[BM, 64], q: )" +
                             source + R"([64, 64]
  fragment w: bf16[64, 64], c: f32[BM, 64] = 0
  pipelined k < ceildiv(K, 64), 4 {
    x = X[m*BM +: BM, k*64 +: 64]
    q = W[n*64 +: 64, k*64 +: 64]
    )" + made + R"(
    c += x @ w^T
  }
  C[m*BM +: BM, n*64 +: 64] = c
})";
    const Lowered result = on(90, text, {{"BM", rows}});
    return result.notes + result.loop_ir;
  };
  for (const std::string made : {"w = q", "parallel i < 64, j < 64 { w[i, j] = bf16(q[i, j]) }"})
    for (const std::string source : {"i8", "u8", "f8e4m3", "f8e5m2"}) {
      const std::string text = text_of(source, made, 64);
      CAPTURE(text);
      CHECK(has(text, "unpack bf16 " + source + " w["));
      CHECK(has(text, "gemm c_turned: wgmma.m64k16, 1 x 1 warp groups, A in registers"));
      CHECK(has(text_of(source, made, 16), "mma.m16n8k16"));
    }
  // What is subtracted goes along, as long as bf16 has what is left of 128.
  const std::string fits =
      text_of("i8", "parallel i < 64, j < 64 { w[i, j] = bf16(i32(q[i, j]) - i32(Z[n*64 + i])) }", 64);
  CHECK(has(fits, "+: 2], one[0 +: 1]"));
  const std::string wide =
      text_of("u8", "parallel i < 64, j < 64 { w[i, j] = bf16(i32(q[i, j]) - i32(V[n*64 + i])) }", 64);
  CHECK(has(wide, "copy_vector raw[0 +: 2], q["));
  CHECK(!has(wide, "unpack bf16"));
}

TEST_CASE("an operand in memory is computed in a fragment of wide rows, and stored as vectors") {
  const Lowered result = on(90, dequantised(), {{"BM", 320}});
  CHECK(has(result.notes, "tile w_part: f16 in registers, layout [64, 64] on 640 threads: 40 t16 2 r4; 4 r1 16 t1"));
  CHECK(has(result.loop_ir, "copy_vector w["));
  // Not where the region reads what it writes.
  std::string symmetric = dequantised();
  symmetric.replace(symmetric.find("w: f16[64, 64]"), 14, "w: f16[64, 64] = 0");
  symmetric.replace(symmetric.find("w[n, d] = "), 10, "w[n, d] = w[d, n] + ");
  CHECK(!has(on(90, symmetric, {{"BM", 320}}).notes, "w_part"));
}

// What comes between `parallel` and the loops of the region.
std::string before_loops(const Lowered& result) {
  const size_t region = result.loop_ir.find("# parallel n"), loop = result.loop_ir.find("unroll", region);
  REQUIRE(loop != result.loop_ir.npos);
  return result.loop_ir.substr(region, loop - region);
}

TEST_CASE("loads that no iteration changes stand before the loop") {
  std::string text = dequantised();
  text.replace(text.find("f16(q[n, d]) - 8"), 16, "f16(q[n, d] - 8)");
  text.replace(text.find("S: "), 3, "S: inout ");  // what may be written is not loaded in front of regions
  const Lowered result = on(80, text);
  CAPTURE(result.loop_ir);
  CHECK(has(before_loops(result), "S["));
  CHECK(!has(before_loops(result), "q["));
}

// The region and what is done with what it makes.
std::string consumed(const Lowered& result) {
  return result.loop_ir.substr(result.loop_ir.find("# parallel n"));
}
std::string with(const std::string& value) {
  std::string text = dequantised();
  const size_t from = text.find("w[n, d] = ") + 10;
  text.replace(from, text.find(" }}", from) == text.npos ? text.find(" }", from) - from : 0, value);
  return text;
}

TEST_CASE("4-bit integers become 16-bit floats two at a time where that rounds as f32 does") {
  for (const int64_t rows : {16, 320}) {
    const std::string region = consumed(on(90, dequantised(), {{"BM", rows}}));
    CAPTURE(region);
    if (rows == 16) {
      CHECK(has(region, "unpack f16 u4 4 pairs[0 +: 2], q_words["));  // of four bytes the lane's own
    } else {
      CHECK(has(region, "unpack f16 u4 pairs[0 +: 4], raw[0 +: 2], one[0 +: 1]"));
    }
    CHECK(has(region, "packed * w"));
  }
  auto packed = [](const std::string& value) { return has(consumed(on(90, with(value))), "packed "); };
  CHECK(packed("f16(q[n, d] - 8) * S[j*64 + n, 0]"));
  CHECK(packed("f16(q[n, d]) * S[j*64 + n, 0]"));
  CHECK(packed("S[j*64 + n, 0] * (f16(q[n, d]) + 3)"));
  CHECK(packed("S[j*64 + n, 0] - f16(q[n, d])"));
  CHECK(packed("f16((f16(q[n, d]) - 8) * S[j*64 + n, 0]) + S[j*64 + n, 0]"));
  CHECK(packed("f16(q[n, d]) * S[j*64 + n, d]"));  // neighbours have numbers of their own
  // No number of f16 in between, two roundings in f32, an operand that is none.
  CHECK(!packed("(f16(q[n, d]) - S[j*64 + n, 0]) * S[j*64 + n, 0]"));
  CHECK(!packed("f16(q[n, d]) * S[j*64 + n, 0] + S[j*64 + n, 0]"));
  CHECK(!packed("f16(q[n, d]) * 0.1"));
  CHECK(!packed("(f16(q[n, d]) - 2040) * S[j*64 + n, 0] * 2"));
  // They are unpacked without packed arithmetic.
  CHECK(has(consumed(on(90, with("f16(q[n, d]) * 0.1"))), "unpack f16 u4 4 numbers"));
}

TEST_CASE("what a column has one of is made once for its rows") {
  const auto loops = [](const std::string& value) {
    return on(90, fmt::format(R"(tile 1
kernel k(A: f16[M, K], W: u4[K, N], S: f16[G, N], Z: u4[G, N], C: out f16[M, N])
grid i < ceildiv(M, 128), j < ceildiv(N, 128)
{{
  shared a: f16[128, 64], q: u4[64, 128]
  fragment w: f16[64, 128], c: f32[128, 128] = 0
  pipelined k < ceildiv(K, 64), 3 {{
    a = A[i*128 +: 128, k*64 +: 64]
    q = W[k*64 +: 64, j*128 +: 128]
    parallel d < 64, n < 128 {{ w[d, n] = {} }}
    c += a @ w
  }}
  C[i*128 +: 128, j*128 +: 128] = c
}}
)",
                              value))
        .loop_ir;
  };
  // Where fields[] and numbers[] are filled: in front of the rows, or for each of them.
  const auto in_front = [](const std::string& text, const char* what) {
    CAPTURE(text);
    const size_t made = text.find(what, text.find("# parallel d")), rows = text.rfind("for d_r", text.find("packed *"));
    REQUIRE(made != text.npos);
    REQUIRE(rows != text.npos);
    return made < rows;
  };
  const std::string of_tile =
      loops("(f16(q[d, n]) - f16(Z[(k*64 + d) / 64, j*128 + n])) * S[(k*64 + d) / 64, j*128 + n]");
  CHECK(in_front(of_tile, "fields[0] ="));
  CHECK(in_front(of_tile, "numbers[0] ="));
  CHECK(count(of_tile, "unpack f16 u32 4 pairs") == 1);
  const std::string of_half = loops("(f16(q[d, n]) - f16(Z[k, j*128 + n])) * S[(k*64 + d) / 32, j*128 + n]");
  CHECK(in_front(of_half, "fields[0] ="));
  CHECK(!in_front(of_half, "numbers[0] ="));
}

TEST_CASE("words of 4-bit integers are loaded as many together as lie beside each other") {
  auto loads = [](const std::string& text) {
    const std::string region = consumed(on(90, text));
    const size_t at = region.find("copy_vector q_words[");
    return at == region.npos ? "" : region.substr(at, region.find('\n', at) - at);
  };
  CHECK(has(loads(dequantised()), " +: 16], q[from * 2048"));
  CHECK(loads(with("f16(q[n, (d + 2) % 64]) * 0.5")).empty());
  CHECK(loads(with("f16(q[n, d] - 8) * 0.5")).empty());  // an integer has a use of its own
}

TEST_CASE("what a region reads of a tensor for the next iteration is loaded in front of it") {
  const Lowered result = on(90, dequantised());
  const std::string& text = result.loop_ir;
  CAPTURE(text);
  const size_t first = text.find("copy_vector S_next"), region = text.find("# parallel n"),
               moved = text.find("copy_vector S_part[0 +: 1], S_next[0 +: 1]", region),
               next = text.find("let next", region), again = text.find("copy_vector S_next", region);
  CHECK(first < region);
  CHECK(moved < next);
  CHECK(next < again);
  CHECK(again < text.find("packed", region));
  // Groups of 16: four for each row of 64.
  std::string groups = dequantised();
  groups.replace(groups.find("/ 64]"), 5, "/ 16]");
  CHECK(has(on(90, groups).loop_ir, "registers S_part: f16[4]"));
  CHECK(has(on(90, groups, {{"BM", 128}}).loop_ir, "registers S_part: f16[8]"));
  // A name of the body is of this iteration; what follows from it is loaded by another pass, into other registers.
  std::string named = dequantised("u4", "let at = k");
  named.replace(named.find("(k*64 + d) / 64]"), 16, "k + at - at]");
  CHECK(!has(on(90, named).loop_ir, "copy_vector S_part"));
  CHECK(has(on(90, named).loop_ir, "ahead["));
  // What does not follow the loop is loaded in front of the region.
  CHECK(!has(on(90, with("f16(q[n, d]) * S[j*64 + n, 0]")).loop_ir, "let next"));
}

TEST_CASE("an operand is made in one half of its memory while products read the other") {
  const Lowered result = on(90, dequantised(), {{"BM", 320}});
  CHECK(has(result.notes, "tile w: f16 in memory of the block, 2 stages"));
  const std::string loop = result.loop_ir.substr(result.loop_ir.find("let half"));
  CAPTURE(loop);
  const size_t stored = loop.find("copy_vector w"), waited = loop.find("group_wait"), barrier = loop.find("barrier"),
               product = loop.find("group_mma");
  CHECK(stored < waited);
  CHECK(waited < barrier);
  CHECK(barrier < product);
  CHECK(loop.find("group_wait", product) > loop.find("consumed[0] =", product));  // none in the loop behind them
  // Not where the work wants the sums.
  std::string sums = dequantised();
  sums.replace(sums.find("c += a @ w^T"), 12, "c += a @ w^T\n    parallel x < BM, y < 64 { c[x, y] = c[x, y] * 2 }");
  CHECK(!has(on(90, sums, {{"BM", 320}}).notes, "tile w: f16 in memory of the block, 2 stages"));
}

TEST_CASE("a load does not leave its guard behind") {
  // The place is the same for every d, whether it exists is not.
  const Lowered result = on(80, R"(tile 1
kernel k(X: f32[64], Y: out f32[64, 64])
grid g < 1
{
  shared s: f32[64, 1]
  fragment y: f32[64, 64]
  parallel n < 64, d < 1 { s[n, d] = X[n] }
  parallel n < 64, d < 64 { y[n, d] = s[n - 1, d] }
  Y = y
}
)");
  CAPTURE(result.loop_ir);
  CHECK(has(result.loop_ir, "1 - d > d_r ? s["));
  CHECK(!has(result.loop_ir, "let loaded"));
}

TEST_CASE(
    "numbers are taken out of words in the registers that products read, whichever way k goes and in several loops") {
  const std::string grid = "tune BM = 128 | 16\ngrid i < ceildiv(M, BM), j < ceildiv(N, 64)\n{\n";
  const std::string words = "tile 1\nkernel k(A: f16[M, K], W: u32[K8, N], C: out f16[M, N])\nwhere K == 8 * K8\n" +
                            grid +
                            R"(  shared a: f16[BM, 64], q: u32[8, 64]
  fragment w: f16[64, 64], c: f32[BM, 64] = 0
  pipelined k < ceildiv(K, 64), 3 {
    a = A[i*BM +: BM, k*64 +: 64]
    q = W[k*8 +: 8, j*64 +: 64]
    parallel d < 64, n < 64 { w[d, n] = f16(i32(q[d / 8, n] >> (d % 8 * 4) & 15) - 8) }
    c += a @ w
  }
  C[i*BM +: BM, j*64 +: 64] = c
}
)";
  const std::string turned = "gemm c_turned: wgmma.m64k16, 1 x 1 warp groups, A in registers\n";
  CHECK(has(on(90, words, {{"BM", 128}}).notes, turned));
  CHECK(has(on(90, words, {{"BM", 16}}).notes, "B in registers"));
  // Without a mask each element is a number of its own: k stays down the rows.
  std::string whole = words;
  whole.replace(whole.find(" & 15"), 5, "");
  CHECK(!has(on(90, whole, {{"BM", 128}}).notes, "c_turned"));

  const std::string loops =
      "tile 1\nkernel k(A: f16[M, K], B: f16[M, K], W: u4[N, K], V: u8[N, K], C: out f16[M, N])\n" + grid +
      R"(  shared a: f16[BM, 64], b: f16[BM, 64], q: u4[64, 64], p: u8[64, 64]
  fragment w: f16[64, 64], v: f16[64, 64], c: f32[BM, 64] = 0
  pipelined k < ceildiv(K, 64), 3 {
    a = A[i*BM +: BM, k*64 +: 64]
    q = W[j*64 +: 64, k*64 +: 64]
    parallel n < 64, d < 64 { w[n, d] = f16(q[n, d]) }
    c += a @ w^T
  }
  BETWEEN
  pipelined k < ceildiv(K, 64), 3 {
    b = B[i*BM +: BM, k*64 +: 64]
    p = V[j*64 +: 64, k*64 +: 64]
    parallel n < 64, d < 64 { v[n, d] = f16(p[n, d]) }
    c += b @ v^T
  }
  C[i*BM +: BM, j*64 +: 64] = c
}
)";
  const auto with = [&loops](const std::string& between) {
    std::string text = loops;
    text.replace(text.find("BETWEEN"), 7, between);
    return on(90, text, {{"BM", 128}}).notes;
  };
  CHECK(count(with(""), turned) == 2);
  CHECK(!has(with("parallel r < BM, n < 64 { c[r, n] = max(c[r, n], 0) }"), "c_turned"));
}

}  // namespace
}  // namespace kachel::lowering
