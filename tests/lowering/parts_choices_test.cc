// What keeps products on tensor cores and their sums in registers: parts of tiles, groups of columns, lives.
#include "tests/lowering/lowered_text.h"

namespace kachel::lowering {
namespace {

constexpr Target kHopper{.kind = Target::Kind::kCuda, .architecture = 90, .shared_limit = 227 * 1024};

TEST_CASE("products of columns of a shared tile take whole tiles of those columns") {
  const auto latent = [](const std::string& more) {
    return Request{R"(tile 1
kernel latent(Q: f16[M, 192], K: f16[N, 192], O: out f32[M, 128])
grid i < ceildiv(M, 64)
{
  shared q: f16[64, 192], k: f16[64, 192]
  fragment s: f32[64, 64], p: f16[64, 64], o: f32[64, 128] = 0
  q = Q[i*64 +: 64, :]
  pipelined t < ceildiv(N, 64), 2 {
    k = K[t*64 +: 64, :]
    s = q @ k^T
    p = s
    o += p @ k[:, 0 +: 128]
    )" + more + R"(
  }
  O[i*64 +: 64, :] = o
}
)",
                   {},
                   kHopper};
  };
  const Lowered parted = lowered(latent(""));
  CAPTURE(parted.notes);
  CHECK(has(parted.notes, "tile q_128"));
  CHECK(has(parted.notes, "the copy engine into {k_0, k_128}"));
  CHECK(has(parted.notes, "gemm o: wgmma"));
  // What regions read stays whole.
  CHECK(has(lowered(latent("parallel r < 64, d < 64 { o[r, d] += k[r, d] }")).notes, "tile k: "));
}

TEST_CASE("warp groups share columns where a group cannot hold all sums of its rows") {
  const auto product = [](int64_t columns) {
    Request request{R"(tile 1
kernel product(A: f16[M, K], B: f16[K, N], C: out f32[M, N])
tune BN = 256 | 512
grid i < ceildiv(M, 64), j < ceildiv(N, BN)
{
  shared a: f16[64, 64], b: f16[64, BN]
  fragment c: f32[64, BN] = 0
  pipelined k < ceildiv(K, 64), 2 {
    a = A[i*64 +: 64, k*64 +: 64]
    b = B[k*64 +: 64, j*BN +: BN]
    c += a @ b
  }
  C[i*64 +: 64, j*BN +: BN] = c
}
)",
                    {},
                    kHopper};
    request.tunables = {{"BN", columns}};
    return lowered(request).notes;
  };
  CHECK(has(product(512), "gemm c: wgmma.m64k16, 1 x 2 warp groups"));
  CHECK(has(product(256), "gemm c: wgmma.m64k16, 1 x 1 warp groups"));
}

TEST_CASE("groups of columns are reduced in the registers that hold them") {
  const Lowered result = lowered({R"(tile 1
kernel groups(A: f16[M, K], B: f16[N, K], G: out f32[1, M])
grid i < ceildiv(M, 128)
{
  shared a: f16[128, 64], b: f16[128, 64]
  fragment c: f32[128, 128] = 0, most: f32[1, 128]
  pipelined k < ceildiv(K, 64), 3 {
    a = A[i*128 +: 128, k*64 +: 64]
    b = B[0 +: 128, k*64 +: 64]
    c += a @ b^T
  }
  parallel g < 1, r < 128 { most[g, r] = max[j < 128](c[r, g*128 + j]) }
  G[:, i*128 +: 128] = most
}
)",
                                  {},
                                  kHopper});
  CAPTURE(result.notes);
  CHECK(has(result.notes, "tile c: f32 in registers"));
  CHECK(!has(result.notes, "c_moved"));
}

TEST_CASE("fragments that do not live at the same time are not counted together; such loops are not skewed") {
  const auto sums = [](int64_t columns) {
    Request request{R"(tile 1
kernel sums(Q: f16[M, 128], G: f16[M, 128], K: f16[N, 128], V: f16[N, 128], O: out f32[N, 128], P: out f32[N, 128])
tune BM = 64 | 32
grid n < ceildiv(N, 128)
{
  shared q: f16[BM, 128], g: f16[BM, 128], k: f16[128, 128], v: f16[128, 128]
  fragment s: f32[128, BM], d: f32[128, BM], p: f16[128, BM], t: f16[128, BM], a: f32[128, 128] = 0, b: f32[128, 128] = 0
  k = K[n*128 +: 128, :]
  v = V[n*128 +: 128, :]
  pipelined m < ceildiv(M, BM), 2 {
    q = Q[m*BM +: BM, :]
    g = G[m*BM +: BM, :]
    s = k @ q^T
    d = v @ g^T
    parallel i < 128, j < BM {
      let w = exp(s[i, j])
      p[i, j] = w
      t[i, j] = w * d[i, j]
    }
    a += p @ g
    b += t @ q
  }
  O[n*128 +: 128, :] = a
  P[n*128 +: 128, :] = b
}
)",
                    {},
                    kHopper};
    request.tunables = {{"BM", columns}};
    return lowered(request);
  };
  const Lowered both = sums(64), few = sums(32);
  for (const char* gemm : {"gemm s: wgmma", "gemm d: wgmma", "gemm a: wgmma", "gemm b: wgmma"}) {
    CHECK(has(both.notes, gemm));
    CHECK(has(few.notes, gemm));
  }
  // A skewed loop begins with the second iteration.
  CHECK(has(both.loop_ir, "for m in 0 .. "));
  CHECK(!has(both.loop_ir, "for m in 1 .. "));
  CHECK(has(few.loop_ir, "for m in 1 .. "));
}

TEST_CASE("products of f32 with 16-bit operands are products of parts") {
  const auto product = [](const std::string& type, int architecture) {
    Request request{"tile 1\nkernel k(Q: " + type + "[M, 64], V: " + type +
                        "[64, 64], O: out f32[M, 64])\ngrid i < ceildiv(M, 64)\n{\n  shared q: " + type +
                        "[64, 64], v: " + type +
                        "[64, 64]\n  fragment s: f32[64, 64], o: f32[64, 64]\n  q = Q[i*64 +: 64, :]\n  v = V\n"
                        "  s = q @ v\n  parallel r < 64, c < 64 { s[r, c] = exp(s[r, c]) }\n  o = s @ v\n"
                        "  O[i*64 +: 64, :] = o\n}\n",
                    {},
                    kHopper};
    request.target.architecture = architecture;
    return lowered(request).notes;
  };
  CHECK(count(product("bf16", 90), "gemm o: wgmma.m64k16, 1 x 1 warp groups, A in registers") == 3);
  CHECK(count(product("f16", 90), "gemm o: wgmma") == 5);
  CHECK(count(product("f16", 80), "gemm o: mma") == 5);
  CHECK(!has(product("f32", 90), "gemm o: wgmma"));
  // A row is no matrix.
  const std::string row = lowered({"tile 1\nkernel k(S: f32[M, 64], V: f16[64, 64], O: out f32[M, 64])\ngrid i < M\n{\n"
                                   "  shared s: f32[1, 64], v: f16[64, 64]\n  fragment o: f32[1, 64]\n"
                                   "  s = S[i +: 1, :]\n  v = V\n  o = s @ v\n  O[i +: 1, :] = o\n}\n",
                                   {},
                                   kHopper})
                              .notes;
  CHECK(count(row, "gemm o: ") == 1);
}

}  // namespace
}  // namespace kachel::lowering
