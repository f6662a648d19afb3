// Into how many parts sums are dealt out, by shapes and device alone.
#include "runtime/engine/programs/parts_of_sums.h"

#include <doctest/doctest.h>

#include "ir/parse.h"

namespace kachel::runtime {
namespace {

constexpr int kMultiprocessors = 132;

constexpr const char* kProduct = R"(tile 1
kernel k<T: f16 | i8>(A: T[H, M, K], B: T[N, K], C: out f32[H, M, N])
key H, M, N, K
tune BM = 64 | 128, BN = 64 | 128, BK = 32 | 64
grid h < H, m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  shared a: T[BM, BK], b: T[BN, BK]
  fragment c: acc(T)[BM, BN] = 0
  pipelined k < ceildiv(K, BK) {
    a = A[h, m*BM +: BM, k*BK +: BK]
    b = B[n*BN +: BN, k*BK +: BK]
    c += a @ b^T
  }
  C[h, m*BM +: BM, n*BN +: BN] = c
}
)";

PartsOfSums parts(int64_t h, int64_t m, int64_t n, int64_t k, ir::DType type = ir::DType::F16) {
  auto module = ir::load(kProduct);
  REQUIRE_MESSAGE(module.ok(), module.status().message());
  auto model = KernelModel::create(module->kernels[0], {});
  REQUIRE_MESSAGE(model.ok(), model.status().message());
  const auto loop = derive::sum_loop(module->kernels[0]);
  REQUIRE(loop);
  BoundArguments arguments{};
  arguments.types = static_cast<uint64_t>(type);
  const std::map<std::string, int64_t> values = {{"H", h}, {"M", m}, {"N", n}, {"K", k}};
  for (size_t i = 0; i < (*model)->dims.size(); ++i) arguments.dims[i] = values.at((*model)->dims[i]);
  return parts_of_sums(**model, module->kernels[0], *loop, arguments, kMultiprocessors);
}

TEST_CASE("few tiles and a long sum take as many parts as fill the device") {
  CHECK(parts(1, 128, 128, 1 << 16).parts == 128);  // the most there are
  CHECK(parts(1, 128, 128, 1 << 13).parts == 40);   // more would take longer to add up
  CHECK(parts(1, 512, 512, 1 << 16).parts == 8);
  CHECK(parts(1, 200, 600, 1 << 16).parts == 12);  // thirteen of ten tiles each, in three bits
  CHECK(parts(4, 256, 256, 1 << 16).parts == 8);
  CHECK(parts(1, 1024, 1024, 1 << 16).parts == 2);
}

TEST_CASE("many tiles, or a short sum, take one") {
  CHECK(parts(1, 2048, 2048, 1 << 16).parts == 1);
  CHECK(parts(200, 16, 16, 1 << 16).parts == 1);
  CHECK(parts(1, 128, 128, 128).parts == 1);
  CHECK(parts(1, 128, 128, 32 * 8).parts == 2);  // four iterations each
}

TEST_CASE("what parts take in memory is known") {
  const PartsOfSums made = parts(2, 100, 200, 1 << 14);
  CHECK(made.steps == (1 << 14) / 32);
  CHECK(made.bytes == made.parts * 2 * 100 * 200 * 4);
  CHECK(parts(2, 100, 200, 1 << 14, ir::DType::I8).bytes == made.bytes);
}

TEST_CASE("extents that are fixed for the sake of the parts follow the shape") {
  auto module = ir::load(R"(tile 1
kernel gram(X: f32[N, F], C: out f32[F, F])
key N, F
tune BF = 32 | 64 | 128 | 256
grid a < ceildiv(F, BF), b < ceildiv(F, BF)
{
  shared x: f32[32, BF], y: f32[32, BF]
  fragment c: f32[BF, BF] = 0
  pipelined k < ceildiv(N, 32) {
    x = X[k*32 +: 32, a*BF +: BF]
    y = X[k*32 +: 32, b*BF +: BF]
    c += x^T @ y precision tf32
  }
  parallel i < BF, j < BF { c[i, j] = i == j ? c[i, j] * 0.5 : c[i, j] }
  C[a*BF +: BF, b*BF +: BF] = c
}
)");
  REQUIRE_MESSAGE(module.ok(), module.status().message());
  auto model = KernelModel::create(module->kernels[0], {});
  REQUIRE_MESSAGE(model.ok(), model.status().message());
  const auto fixed = derive::with_fixed_extents(module->kernels[0]);
  REQUIRE(fixed);
  const auto loop = derive::sum_loop(*fixed);
  REQUIRE(loop);
  const auto extent = [&](int64_t features) {
    BoundArguments arguments{};
    const std::map<std::string, int64_t> values = {{"N", 1 << 16}, {"F", features}};
    for (size_t i = 0; i < (*model)->dims.size(); ++i) arguments.dims[i] = values.at((*model)->dims[i]);
    return parts_of_sums(**model, *fixed, *loop, arguments, kMultiprocessors).extent;
  };
  CHECK(extent(17) == 32);
  CHECK(extent(64) == 64);
  CHECK(extent(65) == 128);
  CHECK(extent(1000) == 128);
}

}  // namespace
}  // namespace kachel::runtime
