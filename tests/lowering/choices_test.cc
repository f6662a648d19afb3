// What schedule, layout inference and instruction choice make of small programs, read off their printed values.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/lowering/lowered_text.h"

namespace kachel::lowering {
namespace {

std::string product(const std::string& type, const std::string& accumulator, const std::string& multiply) {
  return fmt::format(R"(tile 1
kernel k(A: {0}[M, K], B: {0}[N, K], Bt: {0}[K, N], C: out {1}[M, N])
tune BM = 64 | 16 | 20 | 2 | 128 | 256, BN = 64 | 128 | 256, BK = 64 | 32, stages = 3 | 1
grid i < ceildiv(M, BM), j < ceildiv(N, BN)
{{
  shared a: {0}[BM, BK], b: {0}[BN, BK], bt: {0}[BK, BN]
  fragment c: {1}[BM, BN] = 0
  pipelined k < ceildiv(K, BK), stages {{
    a = A[i*BM +: BM, k*BK +: BK]
    b = B[j*BN +: BN, k*BK +: BK]
    bt = Bt[k*BK +: BK, j*BN +: BN]
    c += {2}
  }}
  C[i*BM +: BM, j*BN +: BN] = c
}}
)",
                     type, accumulator, multiply);
}

TEST_CASE("the instruction follows types, shapes and what the program allows") {
  auto notes = [](const std::string& type, const std::string& sum, const std::string& multiply, int64_t bm = 64) {
    return lowered({product(type, sum, multiply), {{"BM", bm}}}).notes;
  };
  CHECK(has(notes("f16", "f32", "a @ b^T"), "gemm c: mma.m16n8k16, 2 x 2 warps"));
  CHECK(has(notes("bf16", "f32", "a @ bt"), "gemm c: mma.m16n8k16"));
  CHECK(has(notes("i8", "i32", "a @ b^T"), "gemm c: mma.m16n8k32"));
  CHECK(has(notes("i8", "i32", "a @ bt"),
            "fma in blocks of 8 x 4 registers (8-bit operands cannot be stored with k down their rows)"));
  CHECK(has(notes("f8e4m3", "f32", "a @ b^T"),
            "gemm c: mma.m16n8k32, 2 x 2 warps, widened to f16 (`precision fast` would not widen)"));
  CHECK(has(notes("f8e4m3", "f32", "a @ b^T precision fast"), "gemm c: mma.m16n8k32, 2 x 2 warps, short sums\n"));
  CHECK(has(notes("f32", "f32", "a @ b^T precision tf32"), "gemm c: mma.m16n8k8, 2 x 2 warps\n"));
  CHECK(has(notes("f32", "f32", "a @ bt precision tf32"), "gemm c: mma.m16n8k8, 2 x 2 warps, B by words\n"));
  CHECK(has(notes("f32", "f32", "a @ b^T"),
            "fma in blocks of 8 x 4 registers (f32 operands; `precision tf32` would allow tensor cores)"));
  CHECK(has(notes("f16", "f32", "a @ b^T", 16), "gemm c: mma.m16n8k16, 1 x 4 warps"));
  CHECK(has(notes("f16", "f32", "a @ b^T", 20), "tile c: f32 in registers, layout [32, 64]"));
  CHECK(has(notes("f16", "f32", "a @ b^T", 2), "(2 x 64 x 64 is no multiple of the instruction's 16 x 8 x 16)"));
  Request old{product("f8e4m3", "f32", "a @ b^T")};
  old.target.architecture = 80;
  CHECK(has(lowered(old).notes, "registers (the architecture's tensor cores do not know these types)"));
  Request generic{product("f16", "f32", "a @ b^T")};
  generic.target.generic = true;
  CHECK(!has(lowered(generic).loop_ir, " mma "));
  CHECK(!has(lowered(generic).loop_ir, "from_end"));
  Request sums{
      "tile 1\nkernel k(X: f32[64, 200], Y: out f32[64])\n{\n  fragment x: f32[64, 200], y: f32[64]\n  x = X\n"
      "  parallel i < 64 { y[i] = sum[j < 200](x[i, j]) }\n  Y = y\n}\n"};
  sums.target.generic = true;
  CHECK(!has(lowered(sums).loop_ir, "from_end"));
  generic.target.reversed = sums.target.reversed = true;
  CHECK(has(lowered(generic).loop_ir, "from_end"));
  CHECK(has(lowered(sums).loop_ir, "from_end"));
}

TEST_CASE("products without tensor cores are made in blocks of registers") {
  auto run = [](const std::string& type, int64_t rows, int64_t columns, const std::string& multiply) {
    const std::string sum = type == "i8" || type == "u8" || type == "i32" ? "i32" : "f32";
    return lowered({product(type, sum, multiply), {{"BM", rows}, {"BN", columns}, {"BK", 32}}});
  };
  const Lowered square = run("f32", 128, 128, "a @ b^T");
  CHECK(square.threads == 256);
  CHECK(has(square.notes, "fma in blocks of 8 x 8 registers"));
  CHECK(has(square.loop_ir, "copy_vector a_part[row * 4 +: 4], a["));
  CHECK(has(square.loop_ir, "copy_vector b_part[column * 4 +: 4], b["));
  CHECK(has(square.notes, "tile c: f32 in registers, layout [128, 128] on 256 threads: 2 t2 2 t8"));
  // Strips of four columns where rows of the tile go along them, loaded for each k.
  const Lowered strips = run("f32", 128, 128, "a @ bt");
  CHECK(has(strips.notes, "2 t2 2 t8 4 t32 8 r8; 4 r1 2 t1 2 t4 2 t16 2 t128 2 r4"));
  CHECK(has(strips.loop_ir, "copy_vector b_part[k * 8 + column * 4 +: 4], bt["));
  const Lowered wide = run("f32", 128, 256, "a @ b^T");
  CHECK(wide.threads == 256);
  CHECK(has(wide.notes, "fma in blocks of 16 x 8 registers"));
  CHECK(run("f32", 256, 256, "a @ b^T").threads == 512);

  const Lowered dots = run("i8", 2, 64, "a @ b^T");
  CHECK(has(dots.notes, "dp4a in blocks of 1 x 1 registers (2 x 64 x 32 is no multiple of"));
  CHECK(has(dots.loop_ir, "dot4 i8 i8 c["));
  CHECK(has(dots.text, "kachel_dot4_i8_i8(c_ + "));
  CHECK(has(run("u8", 2, 64, "a @ b^T").loop_ir, "dot4 u8 u8 c["));
  CHECK(!has(run("i8", 20, 64, "a @ bt").loop_ir, "dot4"));  // k goes down the rows of bt
  CHECK(!has(run("i32", 20, 64, "a @ b^T").loop_ir, "dot4"));
}

TEST_CASE("copies run ahead as far as facts, memory and the program allow") {
  const std::string text = product("f16", "f32", "a @ b^T");
  CHECK(has(lowered({text}).notes, "pipeline k: depth 3, asynchronous copies into {a, b, bt}"));
  CHECK(has(lowered({text, {{"stages", 1}}}).notes, "in order (one stage is asked for)"));
  Request none{text};
  none.facts = 1;
  CHECK(has(lowered(none).notes, "the facts allow no access of 4 bytes or more to A"));
  Request small{text};
  small.target.shared_limit = 60 * 1024;
  CHECK(has(lowered(small).notes, "depth 2, asynchronous copies into {a, b, bt} (shared memory holds no more stages)"));
  small.target.shared_limit = 16 * 1024;  // less than one stage: scratch, and no asynchronous copies
  const Lowered spilled = lowered(small);
  CHECK(spilled.workspace_bytes > 0);
  CHECK(!has(spilled.notes, "asynchronous copies into"));
  CHECK(has(lowered({text}).loop_ir, "async_wait 1\n"));
  CHECK(has(lowered({text}).loop_ir, "copy_async a["));
}

constexpr const char* kChain = R"(tile 1
kernel chain(Q: f16[M, D], K: f16[N, D], V: f16[N, D], O: out f16[M, D])
tune BM = 64 | 128, BN = 64
grid i < ceildiv(M, BM)
{
  shared q: f16[BM, D], k: f16[BN, D], v: f16[BN, D]
  fragment s: f32[BM, BN], p: f16[BM, BN], o: f32[BM, D] = 0, m: f32[BM] = -inf
  let last = min(N, (i + 1) * BM)
  q = Q[i*BM +: BM, :]
  pipelined n < ceildiv(last, BN), 2 {
    k = K[n*BN +: BN, :]
    v = V[n*BN +: BN, :]
    s = q @ k^T
    parallel r < BM, c < BN { s[r, c] = n*BN + c < N && n*BN + c <= i*BM + r ? s[r, c] : -inf }
    parallel r < BM { m[r] = max(m[r], max[c < BN](s[r, c])) }
    parallel r < BM, c < BN { s[r, c] = exp2(s[r, c] - m[r]) }
    p = s
    o += p @ v
  }
  O[i*BM +: BM, :] = o
}
)";

TEST_CASE("a chain of products stays in registers") {
  for (int64_t rows : {64, 128}) {
    const Lowered result = lowered({kChain, {{"BM", rows}}});
    CAPTURE(result.notes);
    CHECK(result.threads == 2 * rows);  // a warp for each sixteen rows
    CHECK(has(result.notes, "gemm o: mma.m16n8k16, " + std::to_string(rows / 16) + " x 1 warps, A in registers"));
    for (const char* tile : {"s: f32", "p: f16", "o: f32", "m: f32", "reduced: f32"})
      CHECK_MESSAGE(has(result.notes, fmt::format("tile {} in registers", tile)), tile);
    CHECK(has(result.loop_ir, "shuffle_xor"));
    CHECK(!has(result.loop_ir, "shared partial"));  // rows are in one warp each
  }
}

TEST_CASE("sm_90a multiplies by warp groups") {
  auto on_hopper = [](const std::string& text, std::map<std::string, int64_t> tunables, int threads = 0) {
    Request request{text, std::move(tunables)};
    request.target.architecture = 90;
    request.target.threads = threads;
    return lowered(request);
  };
  auto note = [&](const char* type, const char* sum, const char* multiply, int64_t rows = 64) {
    const std::string notes = on_hopper(product(type, sum, multiply), {{"BM", rows}}).notes;
    const size_t at = notes.find("gemm c: ");
    return notes.substr(at + 8, notes.find('\n', at) - at - 8);
  };
  CHECK(note("f16", "f32", "a @ b^T") == "wgmma.m64k16, 1 x 1 warp groups");
  CHECK(note("bf16", "f32", "a @ bt") == "wgmma.m64k16, 1 x 1 warp groups");
  CHECK(note("u8", "i32", "a @ b^T") == "wgmma.m64k32, 1 x 1 warp groups");
  CHECK(note("f32", "f32", "a @ b^T precision tf32") == "wgmma.m64k8, 1 x 1 warp groups");
  CHECK(note("f8e4m3", "f32", "a @ b^T precision fast") == "wgmma.m64k32, 1 x 1 warp groups, short sums");
  CHECK(note("f8e4m3", "f32", "a @ b^T") ==
        "wgmma.m64k32, 1 x 1 warp groups, sums of runs of k (`precision fast` would leave out the runs)");
  CHECK(note("f8e5m2", "f32", "a @ b^T precision fast", 16) ==
        "mma.m16n8k32, 1 x 4 warps, widened to f16 (wgmma wants whole blocks of 64 rows)");
  CHECK(note("f16", "f32", "a @ b^T", 16) == "mma.m16n8k16, 1 x 4 warps (wgmma wants whole blocks of 64 rows)");
  CHECK(on_hopper(product("f16", "f32", "a @ b^T"), {}, 64).notes.find("wgmma.") == std::string::npos);

  // The sum of a run takes 64 registers beside the 128 of c.
  const std::string beside = on_hopper(R"(tile 1
kernel k(A: f8e4m3[64, K], B: f8e4m3[256, K], X: f32[64, 64], Y: out f32[64, 64], C: out f32[64, 256])
{
  shared a: f8e4m3[64, 128], b: f8e4m3[256, 128]
  fragment c: f32[64, 256] = 0, x: f32[64, 64]
  x = X
  for k < ceildiv(K, 128) {
    a = A[:, k*128 +: 128]
    b = B[:, k*128 +: 128]
    c += a @ b^T
  }
  C = c
  Y = x
}
)",
                                       {})
                                 .notes;
  CHECK(has(beside, "widened to f16 (no registers are left for the sums of runs)"));

  // The copy engine fills what lies in slabs, for a warp of its own; here `bt` does, but is no operand.
  const std::string plain = R"(tile 1
kernel k(A: f16[M, K], B: f16[N, K], C: out f32[M, N])
tune BM = 128, BN = 256
grid i < ceildiv(M, BM), j < ceildiv(N, BN)
{
  shared a: f16[BM, 64], b: f16[BN, 64]
  fragment c: f32[BM, BN] = 0
  pipelined k < ceildiv(K, 64), 4 {
    a = A[i*BM +: BM, k*64 +: 64]
    b = B[j*BN +: BN, k*64 +: 64]
    c += a @ b^T
  }
  C[i*BM +: BM, j*BN +: BN] = c
}
)";
  const Lowered bulk = on_hopper(plain, {});
  CAPTURE(bulk.notes);
  CHECK(bulk.threads == 256 + 128);  // 128 accumulators and more need what a whole warp group hands on
  CHECK(has(bulk.notes, "role consumer: threads 0..256, 232 registers"));
  CHECK(has(bulk.notes, "role producer: threads 256..384, 40 registers"));
  REQUIRE(bulk.maps.size() == 2);
  CHECK(bulk.maps[1].box == std::vector<int32_t>{256, 64});
  CHECK(has(bulk.loop_ir, "phase_wait empty[into +: 1] at parity ^ 1\n    phase_expect 49152 full[into +: 1]"));
  CHECK(has(bulk.loop_ir, "group_wait 1\n    if 0 < k {\n      phase_arrive by group empty"));
  Request unaligned{plain};
  unaligned.target.architecture = 90;
  unaligned.facts = 0b11;  // offsets in 32 bits, a unit stride of A
  CHECK(lowered(unaligned).maps.empty());
  CHECK(has(lowered(unaligned).loop_ir, "proxy_fence\n    barrier\n"));

  const Lowered run = on_hopper(product("f16", "f32", "a @ b^T"), {{"stages", 3}});
  CAPTURE(run.loop_ir);
  // One batch stays under way over the back edge; after the loop nothing does.
  CHECK(has(run.loop_ir, "    group_wait 1\n"));
  CHECK(has(run.loop_ir, "  group_wait c[0 +: 32]\n"));

  for (int64_t rows : {64, 128}) {
    const Lowered chain = on_hopper(kChain, {{"BM", rows}});
    CAPTURE(chain.notes);
    CHECK(has(chain.notes, fmt::format("role consumer: threads 0..{}", 2 * rows)));
    CHECK(has(chain.notes, fmt::format("gemm o: wgmma.m64k16, {} x 1 warp groups, A in registers", rows / 64)));
    CHECK(has(chain.notes, "tile s: f32 in registers"));
    CHECK(!has(chain.loop_ir, "shared partial"));
  }
}

TEST_CASE("a mask that holds for a whole tile is not evaluated, and long loops begin first") {
  const Lowered result = lowered({kChain});
  CAPTURE(result.loop_ir);
  CHECK(has(result.loop_ir, "if n * 64 + 63 < i32(N) && n * 64 + 63 <= i32(i) * 64 {"));
  CHECK(has(result.notes, "grid axis 0: from its end, where loops are longer"));
}

TEST_CASE("rows that span warps are reduced through shared memory, others are not") {
  auto loops = [](int64_t rows) {
    return lowered({R"(tile 1
kernel norm(X: f32[N, D], Y: out f32[N, D])
tune rows = 1 | 16, threads = 128
grid r < ceildiv(N, rows)
{
  fragment x: f32[rows, D]
  x = X[r*rows +: rows, :]
  parallel i < rows, d < D { x[i, d] = x[i, d] / sum[k < D](x[i, k]) }
  Y[r*rows +: rows, :] = x
}
)",
                    {{"rows", rows}}})
        .loop_ir;
  };
  CHECK(has(loops(1), "+: 4], X["));
  CHECK(has(loops(1), "shuffle_xor 16"));
  CHECK(!has(loops(1), "shared partial"));  // 128 elements are one warp's
  CHECK(!has(loops(16), "shared partial"));
}

TEST_CASE("rows of one axis keep their wide accesses when they are reduced to one element") {
  const std::string notes = lowered({R"(tile 1
kernel k(X: f16[N, D], Y: out f16[N, D])
tune BD = 2048
grid r < N
{
  fragment x: f32[BD], m: f32[1] = -1e30
  for k < ceildiv(D, BD) {
    x = X[r, k*BD +: BD] pad -inf
    parallel i < 1 { m[i] = max(m[i], max[j < BD](x[j])) }
  }
  for k < ceildiv(D, BD) {
    x = X[r, k*BD +: BD]
    parallel j < BD { x[j] = x[j] - m[0] }
    Y[r, k*BD +: BD] = x
  }
}
)"})
                                .notes;
  CHECK(has(notes, "tile x: f32 in registers, layout [2048] on 128 threads: 8 r1 128 t1 2 r8"));
}

TEST_CASE("a fragment that is accessed in halves is two, where nothing needs it whole") {
  auto notes = [](const std::string& region, const std::string& after = "") {
    return lowered({fmt::format(R"(tile 1
kernel k(X: inout f16[S, H, 128], C: f32[S, 64])
grid s < ceildiv(S, 4), h < H
{{
  fragment x: f32[4, 128], y: f32[4] = 0
  x = X[s*4 +: 4, h, :]
  parallel i < 4, d < 64 {{ {} }}
  {}
  X[s*4 +: 4, h, :] = x
}}
)",
                                region, after)})
        .notes;
  };
  const std::string turned = "let a = x[i, d], b = x[i, 64 + d] x[i, d] = a * C[s*4 + i, d] - b x[i, d + 64] = a + b";
  const std::string halves = notes(turned);
  CHECK(has(halves, "tile x: f32 in registers, layout [4, 64]"));
  CHECK(!has(halves, "[4, 128]"));
  CHECK(has(notes("x[i, d] = x[i, d + 64]"), "tile x: f32 in registers, layout [4, 64]"));
  // What runs over all of it does so in parts, unless an iteration reads what another one writes.
  CHECK(!has(notes(turned, "parallel i < 4 { y[i] = sum[e < 128](x[i, e]) }"), "[4, 128]"));
  CHECK(!has(notes(turned, "parallel i < 4, e < 128 { x[i, e] = x[i, e] * y[i] + e }"), "[4, 128]"));
  CHECK(has(notes(turned, "parallel i < 4, e < 128 { x[i, e] = x[i, e] + x[i, (e + 1) % 128] }"), "layout [4, 128]"));
  // In pieces that overlap, with neighbours, an element outside of regions.
  CHECK(has(notes("x[i, d] = x[i, d + 32]"), "layout [4, 128]"));
  CHECK(has(notes("x[i, 2 * d] = x[i, 2 * d + 1]"), "layout [4, 128]"));
  CHECK(has(notes(turned, "let z = x[0, 1] X[s*4, h, 0 +: 4] = y"), "layout [4, 128]"));
}

TEST_CASE("what waits to be written is in registers where these have room for it, else in local memory") {
  const auto loops = [](int threads) {
    Request request{R"(tile 1
kernel k(X: f32[64, 100], Y: out f32[64, 100])
{
  shared t: f32[64, 100]
  t = X[:, :]
  parallel i < 64, j < 99 { t[i, j + 1] = t[i / 2, j] }
  Y[:, :] = t
}
)"};
    request.target.threads = threads;
    return lowered(request).loop_ir;
  };
  CHECK(has(loops(256), "registers pending: f32[25]"));
  CHECK(has(loops(256), "threads e < 6336, slot r unroll {"));
  CHECK(has(loops(32), "registers pending: f32[198]"));
  CHECK(!has(loops(32), "slot r unroll {"));
}

TEST_CASE("pairs of neighbours are used where they are held") {
  auto notes = [](const std::string& first, const std::string& second, int64_t width, uint64_t facts = ~uint64_t{0}) {
    return lowered({fmt::format(R"(tile 1
kernel k(X: f32[M, 32, {2}], Y: out f32[M, 32, {2}])
grid m < M
{{
  fragment x: f32[1, 32, {2}]
  x = X[m +: 1, :, :]
  parallel i < 1, h < 32, d < {3} {{
    let a = x[i, h, {0}], b = x[i, h, {1}]
    x[i, h, {0}] = a - b
    x[i, h, {1}] = a + b
  }}
  Y[m +: 1, :, :] = x
}}
)",
                                first, second, width, width / 2),
                    {},
                    {.kind = Target::Kind::kCuda, .architecture = 89, .threads = 128, .shared_limit = 227 * 1024},
                    facts})
        .notes;
  };
  CHECK(has(notes("2*d", "2*d + 1", 64), "tile x: f32 in registers, layout [1, 32, 64] on 128 threads"));
  CHECK(has(notes("d*2", "1 + d*2", 80), "tile x: f32 in registers"));
  CHECK(has(notes("2*d", "2*d + 1", 34, 1), "tile x: f32 in registers"));  // nothing known of rows: pairs all the same
  CHECK(has(notes("2*d", "2*d + 1", 2), "accessed in another order than it is held"));  // one pair
  CHECK(has(notes("2*d", "2*d + 2", 64), "accessed in another order than it is held"));
  CHECK(has(notes("3*d", "3*d + 1", 64), "accessed in another order than it is held"));
}

TEST_CASE("index arithmetic is in 32 bits where the fact allows it, else in 64") {
  const std::string text = product("f16", "f32", "a @ b^T");
  Request wide{text};
  wide.facts = 0b110;  // not the first fact, kIndex32, nor the last, kExtent32
  CHECK(has(lowered({text}).loop_ir, "let at: i32 = "));
  CHECK(!has(lowered({text}).loop_ir, "let at: i64 = "));
  CHECK(has(lowered(wide).loop_ir, "let at: i64 = "));
}

TEST_CASE("operands whose k is no multiple of the instruction's reach past the end of their tensors") {
  auto notes = [](const std::string& slice, const std::string& more) {
    return lowered({"tile 1\nkernel k(A: f16[M, 24], B: f16[N, 24], C: out f16[M, N])\n"
                    "grid i < ceildiv(M, 64), j < ceildiv(N, 64)\n{\n  shared a: f16[64, 24], b: f16[64, 24]\n"
                    "  fragment c: f32[64, 64] = 0\n  a = A[i*64 +: 64, " +
                    slice + "]\n  b = B[j*64 +: 64, :]\n  c += a @ b^T\n" + more +
                    "  C[i*64 +: 64, j*64 +: 64] = c\n}\n"})
        .notes;
  };
  CHECK(has(notes(":", ""), "gemm c: mma"));
  CHECK(has(notes("0 +: 24", ""), "gemm c: mma"));
  CHECK(has(notes(":", ""), "layout [64, 32]"));
  CHECK(has(notes("8 +: 24", ""), "gemm c: fma"));  // beyond it is more of A
  CHECK(has(notes(":", "  parallel r < 64, s < 64 { c[r, s] += a[r, s % 24] }\n"), "gemm c: mma"));
  // What regions write ends where it ended.
  CHECK(has(notes(":", "  parallel r < 64, s < 24 { a[r, s] = b[r, s] + 1 }\n"), "gemm c: mma"));
  CHECK(has(notes(":", "  parallel r < 64 { a[r, r % 24] = 0 }\n"), "gemm c: fma"));
}

TEST_CASE("warps that cannot share a product all multiply") {
  auto notes = [](int64_t columns, int threads) {
    Request request{
        fmt::format("tile 1\nkernel k(A: f16[16, K], B: f16[{0}, K], C: out f32[16, {0}])\ngrid g < 1\n{{\n"
                    "  shared a: f16[16, 64], b: f16[{0}, 64]\n  fragment c: f32[16, {0}] = 0\n"
                    "  for k < ceildiv(K, 64) {{\n    a = A[0 +: 16, k*64 +: 64]\n"
                    "    b = B[0 +: {0}, k*64 +: 64]\n    c += a @ b^T\n  }}\n  C = c\n}}\n",
                    columns)};
    request.target.threads = threads;
    return lowered(request).notes;
  };
  CHECK(has(notes(32, 128), "m16n8k16, 1 x 4 warps"));
  CHECK(has(notes(16, 128), "m16n8k16, 2 times 1 x 2 warps"));
  CHECK(has(notes(24, 128), "m16n8k16, 4 times 1 x 1 warps"));
  CHECK(has(notes(24, 96), "m16n8k16, 1 x 3 warps"));
}

}  // namespace
}  // namespace kachel::lowering
