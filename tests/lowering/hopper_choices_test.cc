// What sm_90a's schedule makes of programs whose blocks go from tile to tile, read off its printed values.
#include <doctest/doctest.h>

#include "tests/lowering/lowered_text.h"

namespace kachel::lowering {
namespace {

// Rows of Q against all of K, `width` elements each; `causal` ends the loop where the rows do.
std::string attend(bool causal, const std::string& width = "64") {
  std::string text = R"(tile 1
kernel attend(Q: f16[B, M, WIDTH], K: f16[B, N, WIDTH], V: f16[B, N, WIDTH], O: out f16[B, M, WIDTH])
tune BM = 128 | 64, stages = 2 | 3
grid i < ceildiv(M, BM), b < B
{
  shared q: f16[BM, WIDTH], k: f16[64, WIDTH], v: f16[64, WIDTH]
  fragment s: f32[BM, 64], p: f16[BM, 64], o: f32[BM, WIDTH] = 0, m: f32[BM] = -1e30, a: f32[BM]
  q = Q[b, i*BM +: BM, :]
  pipelined n < ceildiv(LAST, 64), stages {
    k = K[b, n*64 +: 64, :]
    v = V[b, n*64 +: 64, :]
    s = q @ k^T
    parallel r < BM { let next = max(m[r], max[c < 64](s[r, c]))  a[r] = exp2(m[r] - next)  m[r] = next }
    parallel r < BM, c < 64 { s[r, c] = exp2(s[r, c] - m[r]) }
    parallel r < BM, c < WIDTH { o[r, c] *= a[r] }
    p = s
    o += p @ v
  }
  O[b, i*BM +: BM, :] = o
}
)";
  for (const auto& [word, meaning] :
       {std::pair<std::string, std::string>("WIDTH", width), {"LAST", causal ? "min(N, (i + 1) * BM)" : "N"}})
    for (size_t at = 0; (at = text.find(word, at)) != text.npos;) text.replace(at, word.size(), meaning);
  return text;
}

Lowered on_hopper(const std::string& text, std::map<std::string, int64_t> tunables = {}) {
  Request request{text, std::move(tunables)};
  request.target.architecture = 90;
  return lowered(request);
}

TEST_CASE("heads that are no multiple of a slab are multiplied by wgmma too") {
  for (const char* width : {"16", "32", "48", "80", "96", "160"}) {
    CAPTURE(width);
    const Lowered result = on_hopper(attend(false, width));
    CAPTURE(result.notes);
    CHECK(has(result.notes, "gemm s: wgmma"));
    CHECK(has(result.notes, "gemm o: wgmma"));
    CHECK(has(result.notes, "the copy engine into {k, v}"));
  }
}

TEST_CASE("what a block loads once is loaded for the next tile, as long as there is memory") {
  const Lowered both = on_hopper(attend(false));
  CAPTURE(both.notes);
  CHECK(has(both.notes, "pipeline once: depth 2, the copy engine into {q}"));
  CHECK(has(both.notes, "pipeline n: depth 2, the copy engine into {k, v}"));
  CHECK(both.resident);
  CHECK(both.maps.size() == 3);
  // The outer pipeline gives way first: the program asks for the stages of the inner one.
  Request small{attend(false), {{"stages", 3}}};
  small.target.architecture = 90;
  small.target.shared_limit = (16 + 3 * 16 + 8) * 1024;
  CHECK(has(lowered(small).notes, "pipeline once: depth 1, in order (shared memory holds no more stages)"));
  CHECK(has(lowered(small).notes, "pipeline n: depth 3, the copy engine into {k, v}"));
  // Rows that the copy engine cannot read leave both to the threads.
  Request unaligned{attend(false)};
  unaligned.target.architecture = 90;
  unaligned.facts = 1;
  CHECK(lowered(unaligned).maps.empty());
}

TEST_CASE("so is what a block loads once under a condition that all of its work depends on") {
  const auto notes = [](const std::string& otherwise) {
    std::string text = attend(false);
    const size_t from = text.find("  q = Q["), to = text.rfind("}");
    text =
        text.substr(0, from) + "  if i * BM < N - 3 {\n" + text.substr(from, to - from) + "  }" + otherwise + "\n}\n";
    return on_hopper(text).notes;
  };
  CHECK(has(notes(""), "pipeline once: depth 2, the copy engine into {q}"));
  CHECK(has(notes(""), "pipeline n: depth 2, the copy engine into {k, v}"));
  CHECK(!has(notes(" else { O[b, i*BM +: BM, :] = o }"), "pipeline once"));
}

TEST_CASE("tiles that read the same follow each other; from the end, as many rows as the L2 holds") {
  const Lowered full = on_hopper(attend(false)), causal = on_hopper(attend(true));
  CHECK(has(full.notes, "grid: axis 0 fastest, whose tiles read the same"));
  CHECK(!has(full.notes, "rows of tiles together"));
  CHECK(has(causal.notes, "grid axis 0: from its end, where loops are longer"));
  CHECK(has(causal.loop_ir, "for tile tile, back and forth"));
  CHECK(causal.resident);
  CHECK(has(causal.notes, "grid: 64 rows of tiles together at most, as the L2 holds"));
  CHECK(has(causal.loop_ir, "let most_rows: "));
}

TEST_CASE("the producer works out where a tile lies, if that takes a division") {
  const std::string causal = on_hopper(attend(true)).loop_ir;
  const std::string consumers =
      causal.substr(causal.find("for tile"), causal.find("producer") - causal.find("for tile"));
  CHECK(has(causal, "shared places: i64[8]"));
  CHECK(has(consumers, "let i: i64 = places["));
  CHECK(has(consumers, "let b: i64 = places["));
  CHECK(!has(consumers, "group_tiles"));
  CHECK(has(causal, "phases given: 4 of 1 arrivals"));
  // One tile a block is worked out by all at once.
  Request request{attend(true)};
  request.target.architecture = 90;
  request.target.one_tile = true;
  CHECK(!has(lowered(request).loop_ir, "places"));
  // And where there is no memory left for it.
  request.target.one_tile = false;
  request.target.shared_limit = on_hopper(attend(true)).shared_bytes - 1;
  CHECK(!has(lowered(request).loop_ir, "places"));
}

TEST_CASE("tiles that share a loop's iterations out read nothing alike") {
  const std::string shares[] = {"p*share .. min(ceildiv(K, 64), (p + 1)*share)", "p*share .. p*share + share",
                                "p*share .. ceildiv(K, 64)", "0 .. (p + 1)*share"};
  for (const std::string& bounds : shares) {
    const std::string text = R"(tile 1
kernel parts(A: f16[M, K], B: f16[N, K], C: inout f32[M, N])
grid p < 4, i < ceildiv(M, 128), j < ceildiv(N, 128)
{
  shared a: f16[128, 64], b: f16[128, 64]
  fragment c: f32[128, 128] = 0
  let share = ceildiv(ceildiv(K, 64), 4)
  pipelined k in )" + bounds +
                             R"(, 4 {
    a = A[i*128 +: 128, k*64 +: 64]
    b = B[j*128 +: 128, k*64 +: 64]
    c += a @ b^T
  }
  atomic C[i*128 +: 128, j*128 +: 128] += c
}
)";
    CAPTURE(bounds);
    const bool parted = &bounds < &shares[2];
    const std::string notes = on_hopper(text).notes;
    CHECK(has(notes, "grid: axis 0 fastest") == !parted);
  }
}

TEST_CASE("a name that the producer needs both for the outer pipeline and beyond it") {
  std::string text = attend(false);
  text.replace(text.find("  q = Q[b"), 2, "  let first = i*BM\n  ");
  text.replace(text.find("O[b, i*BM"), 9, "O[b, first");
  text.replace(text.find("K[b, n*64"), 9, "K[b, (first - i*BM) + n*64");
  const Lowered result = on_hopper(text);
  CHECK(has(result.notes, "pipeline once: depth 2, the copy engine into {q}"));
}

TEST_CASE("warp groups take turns, and a tile is scaled only where a factor is not 1") {
  const Lowered result = on_hopper(attend(false));
  CAPTURE(result.loop_ir);
  CHECK(has(result.loop_ir, "phases turn: 2 of 4 arrivals"));
  CHECK(has(result.loop_ir, "phase_wait turn[thread / 128 +: 1]"));
  CHECK(has(result.loop_ir, "any_lane a[0] != 1.0 || a[1] != 1.0"));
  CHECK(!has(on_hopper(attend(false), {{"BM", 64}}).loop_ir, "phase_wait turn"));
}

std::string scaled(const std::string& use) {
  return R"(tile 1
kernel scaled(X: f16[M, K], B: f16[N, K], G: f32[M], C: out f16[M, N])
tune BN = 256 | 1024
grid i < ceildiv(M, 128), j < ceildiv(N, BN)
{
  shared x: f16[128, 64], b: f16[BN, 64], a: f16[128, 64]
  fragment g: f32[128], c: f32[128, BN] = 0
  g = G[i*128 +: 128]
  pipelined k < ceildiv(K, 64), 3 {
    x = X[i*128 +: 128, k*64 +: 64]
    b = B[j*BN +: BN, k*64 +: 64]
    parallel r < 128, d < 64 { a[r, d] = x[r, d] * g[r] }
)" + use +
         R"(
  }
  C[i*128 +: 128, j*BN +: BN] = c
}
)";
}

TEST_CASE("a left operand that the block computes is held in registers, rounded once") {
  const Lowered result = on_hopper(scaled("c += a @ b^T"));
  CAPTURE(result.loop_ir);
  CHECK(has(result.notes, "tile a: f16 in registers"));
  CHECK(has(result.notes, "gemm c: wgmma.m64k16, 2 x 1 warp groups, A in registers"));
  CHECK(!has(result.loop_ir, "f16(f16("));
  // Not where it is used in another way as well.
  CHECK(has(on_hopper(scaled("c += a @ b^T  parallel r < 128, d < 64 { c[r, d] += a[r, d] }")).notes,
            "tile a: f16 in memory"));
}

TEST_CASE("accumulators are stored by the copy engine where facts and memory allow it") {
  // 128 x 256 in four stages: one block a multiprocessor. `end` comes behind the loop, C is written at `place`.
  auto product = [](const std::string& end, const std::string& place = "i*128 +: 128, j*256 +: 256",
                    const std::string& direction = "out", int64_t depth = 4) {
    return Request{R"(tile 1
kernel product(A: f16[M, K], B: f16[N, K], R: f16[M, N], C: )" +
                       direction + R"( f16[M, N])
grid i < ceildiv(M, 128), j < ceildiv(N, 256)
{
  shared a: f16[128, 64], b: f16[256, 64]
  fragment c: f32[128, 256] = 0
  pipelined k < ceildiv(K, 64), )" +
                       std::to_string(depth) + R"( {
    a = A[i*128 +: 128, k*64 +: 64]
    b = B[j*256 +: 256, k*64 +: 64]
    c += a @ b^T
  }
  )" + end + R"(
  C[)" + place + R"(] = c
}
)",
                   {},
                   {.kind = Target::Kind::kCuda, .architecture = 90, .shared_limit = 227 * 1024}};
  };
  const std::string by_engine = "by the copy engine, 2 boxes of 16 x 64 a warp";
  const Lowered stored = lowered(product(""));
  CAPTURE(stored.notes);
  CHECK(has(stored.notes, "store C[i * 128 +: 128, j * 256 +: 256]: " + by_engine));
  CHECK(has(stored.loop_ir, "bulk_store 2 C[0 +: 1024], boxes["));
  CHECK(has(stored.loop_ir, "map 2 of parameter 3: boxes [16, 64], 128 swizzle"));
  CHECK(!has(stored.loop_ir, "barrier"));  // neither in front of the store nor between tiles
  CHECK(has(lowered(product("parallel r < 128, d < 256 { c[r, d] += R[i*128 + r, j*256 + d] }")).notes, by_engine));
  auto reason = [&](const Request& request) {
    const Lowered result = lowered(request);
    CHECK(!has(result.loop_ir, "bulk_store"));
    const size_t at = result.notes.find("by threads (");
    return at == std::string::npos ? result.notes : result.notes.substr(at, result.notes.find(')', at) + 1 - at);
  };
  CHECK(reason(product("", "i*128 +: 128, j*256 + 4 +: 256")) ==
        "by threads (columns of C may not begin at a multiple of 16 bytes)");
  CHECK(reason(product("parallel r < 128, d < 256 { c[r, d] += C[i*128 + r, j*256 + d] }", "i*128 +: 128, j*256 +: 256",
                       "inout")) == "by threads (C is touched more than once)");
  Request crowded = product("");
  crowded.target.shared_limit = (4 * 48 + 4) * 1024;
  CHECK(reason(crowded) == "by threads (shared memory has no room for its boxes)");
  Request unaligned = product("");
  unaligned.facts = 1;
  CHECK(reason(unaligned) == "by threads (the facts allow no 16-byte rows of C)");
  // With two stages there is room for two blocks, but then for one box a warp.
  CHECK(has(lowered(product("", "i*128 +: 128, j*256 +: 256", "out", 2)).notes,
            "by the copy engine, 1 boxes of 16 x 64"));
}

TEST_CASE("what the first and the second products of a skewed loop read has barriers of its own") {
  const std::string text = on_hopper(attend(false)).loop_ir;
  CAPTURE(text);
  size_t expects = 0;
  for (size_t at = text.find("phase_expect 8192 full"); at != std::string::npos;
       at = text.find("phase_expect 8192 full", at + 1))
    ++expects;
  CHECK(expects == 2);  // of k and of v
  const size_t loop = text.find("for n in 1 .. "), first = text.find("group_wait 1", loop),
               work = text.find("shuffle_xor", loop);
  REQUIRE(work != std::string::npos);
  const size_t released = text.find("phase_arrive by group empty", first);
  CHECK(first < released);
  CHECK(released < work);  // k, in front of the work on its product
}

TEST_CASE("the copy engine begins at columns that are multiples of 16 bytes") {
  auto product = [](const std::string& start) {
    return on_hopper(R"(tile 1
kernel product(A: f16[M, K], B: f16[K, N], C: out f32[M, N])
grid i < ceildiv(M, 64), j < ceildiv(N, 64)
{
  shared a: f16[64, 64], b: f16[64, 64]
  fragment c: f32[64, 64] = 0
  let column = )" + start +
                     R"(
  pipelined k < ceildiv(K, 64), 3 {
    a = A[i*64 +: 64, k*64 +: 64]
    b = B[k*64 - 1 +: 64, column +: 64]
    c += a @ b
  }
  C[i*64 +: 64, j*64 +: 64] = c
}
)")
        .notes;
  };
  CHECK(has(product("j*64"), "pipeline k: depth 3, the copy engine into {a, b}"));
  CHECK(has(product("j*64 - 8"), "pipeline k: depth 3, the copy engine into {a, b}"));
  const std::string notes = product("j*64 - 1");
  CAPTURE(notes);
  CHECK(
      has(notes,
          "pipeline k: depth 3, the copy engine into {a, b} (in part by the producer's threads, by way of registers"));
  CHECK(has(notes, "columns of B may not begin at a multiple of 16 bytes"));
}

TEST_CASE("the copy engine counts along axes: tensors of many elements are no reason against it") {
  Request request{attend(false)};
  request.target.architecture = 90;
  request.facts &= ~uint64_t{1};  // index32
  CHECK(has(lowered(request).notes, "pipeline n: depth 2, the copy engine into {k, v}"));
  const auto module = ir::load(request.text);
  REQUIRE(module.ok());
  request.facts &= ~(uint64_t{1} << (facts_of(module->kernels[0]).size() - 1));  // extent32
  CHECK(has(lowered(request).notes, "extents may not fit in 32 bits"));
}

TEST_CASE("left operands are made beside the products of the iteration before, and rounded behind them") {
  auto product =
      [](const std::string& operand, const std::string& work, int rows = 128) {
        const std::string bm = std::to_string(rows);
        return on_hopper(R"(tile 1
kernel product(X: f16[M, K], W: f16[N, K], C: out f16[M, N])
grid i < ceildiv(M, )" + bm +
                         R"(), j < ceildiv(N, 128)
{
  shared x: f16[)" + bm + R"(, 64], w: f16[128, 64]
  fragment a: f16[)" + bm +
                         R"(, 64] = 0, c: f32[)" + bm + R"(, 128] = 0, s: f32[)" + bm + R"(] = 0
  pipelined k < ceildiv(K, 64), 6 {
    x = X[i*)" + bm +
                         " +: " + bm + R"(, k*64 +: 64]
    w = W[j*128 +: 128, k*64 +: 64]
    )" + work + R"(
    c += )" + operand + R"( @ w^T
  }
  parallel r < )" + bm + R"(, n < 128 { c[r, n] += s[r] }
  C[i*)" + bm + " +: " + bm +
                         R"(, j*128 +: 128] = c
}
)")
            .loop_ir;
      };
  const std::string made = product("a", "parallel r < 64, d < 64 { a[r, d] = max(x[r, d], 0) }", 64);
  CAPTURE(made);
  const size_t loop = made.find("for k in 1 ..");
  REQUIRE(loop != std::string::npos);
  const std::string body = made.substr(loop, made.find("\n  }\n", loop) - loop);
  const char* in_order[] = {"convert_pair a[", "group_mma", "group_commit", "load_matrix 4 x_part",
                            "a_exact[",        "in_order",  "group_wait c["};
  size_t at = 0;
  for (const char* next : in_order) {
    CAPTURE(next);
    at = body.find(next, at);
    REQUIRE(at != std::string::npos);
  }
  // Two warp groups issue them in turn, so that one multiplies beside the other's rounding.
  const std::string turns = product("a", "parallel r < 128, d < 64 { a[r, d] = max(x[r, d], 0) }");
  CAPTURE(turns);
  at = turns.find("for k in 1 ..");
  for (const char* next : {"convert_pair a[", "phase_wait turn[", "group_mma", "group_commit", "phase_arrive turn[",
                           "load_matrix 4 x_part"}) {
    CAPTURE(next);
    at = turns.find(next, at);
    REQUIRE(at != std::string::npos);
  }
  // Not work on the sums, nor operands that are read again.
  for (const char* other :
       {"parallel r < 128, n < 128 { c[r, n] *= 0.5 }", "parallel r < 128, d < 64 { a[r, d] = max(x[r, d], a[r, d]) }"})
    CHECK(!has(product("a", other), "in_order"));
  // Nor much work.
  CHECK(!has(product("a", "parallel r < 64, d < 64 { a[r, d] = f32(x[r, d]) / (1 + exp(-f32(x[r, d]))) }", 64),
             "in_order"));
}

TEST_CASE("a stage that threads read is fenced before the copy engine may fill it again") {
  auto product = [](const std::string& rows, const std::string& use) {
    return on_hopper(R"(tile 1
kernel product(A: f16[M, K], B: f16[N, K], C: out f32[M, N])
grid i < ceildiv(M, )" +
                     rows + R"(), j < ceildiv(N, 64)
{
  shared a: f16[)" + rows +
                     R"(, 64], b: f16[64, 64]
  fragment c: f32[)" +
                     rows + R"(, 64] = 0, v: f32[64] = 0
  pipelined k < ceildiv(K, 64), 3 {
    a = A[i*)" + rows +
                     " +: " + rows + R"(, k*64 +: 64]
    b = B[j*64 +: 64, k*64 +: 64]
    c += a @ b^T
    )" + use + R"(
  }
  C[i*)" + rows +
                     " +: " + rows + R"(, j*64 +: 64] = c
}
)");
  };
  const std::string fenced = "proxy_fence\n    phase_arrive empty";
  const Lowered by_warps = product("32", ""), by_groups = product("64", "");
  CHECK(has(by_warps.notes, "pipeline k: depth 3, the copy engine into {a, b}"));
  CHECK(has(by_warps.notes, "gemm c: mma.m16n8k16"));
  CHECK(has(by_warps.loop_ir, fenced));
  CHECK(has(by_groups.notes, "gemm c: wgmma"));
  CHECK(!has(by_groups.loop_ir, "proxy_fence"));
  CHECK(has(product("64", "parallel d < 64 { v[d] += f32(b[d, 0]) }").loop_ir, fenced));
}

TEST_CASE("sums go to a shared tile of 16-bit elements as matrices, where the warp has an instruction for it") {
  auto staged = [](int architecture, const std::string& type) {
    Request request{R"(tile 1
kernel staged(A: f16[M, K], B: f16[N, K], C: out )" +
                    type + R"([M, N])
grid i < ceildiv(M, 64), j < ceildiv(N, 64)
{
  shared a: f16[64, 64], b: f16[64, 64], o: )" +
                    type + R"([64, 64]
  fragment c: f32[64, 64] = 0
  pipelined k < ceildiv(K, 64), 3 {
    a = A[i*64 +: 64, k*64 +: 64]
    b = B[j*64 +: 64, k*64 +: 64]
    c += a @ b^T
  }
  o = c
  C[i*64 +: 64, j*64 +: 64] = o
}
)"};
    request.target.architecture = architecture;
    return lowered(request);
  };
  CHECK(has(staged(90, "f16").loop_ir, "store_matrix 4 o["));
  CHECK(has(staged(120, "bf16").loop_ir, "store_matrix 4 o["));
  CHECK(!has(staged(89, "f16").loop_ir, "store_matrix"));
  CHECK(!has(staged(90, "f32").loop_ir, "store_matrix"));
}

TEST_CASE("a configuration that loses the tensor cores says so") {
  CHECK(on_hopper(scaled("c += a @ b^T")).flaw.empty());
  const std::string flaw = on_hopper(scaled("c += a @ b^T"), {{"BN", 1024}}).flaw;
  CAPTURE(flaw);
  CHECK(has(flaw, "a product without tensor cores: c is not in registers"));
}

}  // namespace
}  // namespace kachel::lowering
