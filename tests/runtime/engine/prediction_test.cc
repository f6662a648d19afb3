#include "runtime/engine/specialise/prediction.h"

#include "ir/parse.h"
#include "tests/runtime/engine/engine_fixture.h"

namespace kachel::runtime {
namespace {

// D is static, so that the concrete kernel has fewer dimensions than the generic one, and the grid needs the tunables.
constexpr const char* kText = R"(tile 1
kernel scale(A: f32[D, M, N], limit: i32, C: out f32[D, M, N])
tune BM = 4 | 8
grid d < D, by < ceildiv(M, BM)
{
  fragment x: f32[BM, 128], y: f32[D]
  parallel i < D { y[i] = 1 }
  for n < min(ceildiv(N, 128), i64(limit)) {
    x = A[d, by*BM +: BM, n*128 +: 128]
    C[d, by*BM +: BM, n*128 +: 128] = x
  }
}
)";

struct Lowering {
  std::shared_ptr<const KernelModel> model;
  lowering::Lowered lowered;
};

Lowering lowered(int64_t bm) {
  auto module = ir::load(kText);
  REQUIRE_MESSAGE(module.ok(), module.status().message());
  auto model = KernelModel::create(module->kernels[0], {});
  REQUIRE_MESSAGE(model.ok(), model.status().message());
  ir::Bindings bindings;
  bindings.tunables["BM"] = bm;
  bindings.dims["D"] = 3;
  auto concrete = ir::instantiate(module->kernels[0], bindings);
  REQUIRE_MESSAGE(concrete.ok(), concrete.status().message());
  auto result = lowering::lower(*concrete, {.shared_limit = 227 * 1024}, ~uint64_t{0});
  REQUIRE_MESSAGE(result.ok(), result.status().message());
  return {*model, *std::move(result)};
}

std::optional<LaunchPrediction> predict(const Lowering& kernel, int64_t bm, std::vector<int64_t> dims, uint64_t limit,
                                        int major = 9) {
  DeviceProperties properties;
  properties.compute_major = major;
  properties.multiprocessors = 132;
  const uint64_t scalars[] = {0, limit, 0};
  return predict_launch(kernel.lowered, *kernel.model, properties, {dims.data(), scalars, &bm});
}

TEST_CASE("dimensions by name, grid extents by tunable, scalars by parameter") {
  const Lowering four = lowered(4), eight = lowered(8);
  REQUIRE(four.model->dims == std::vector<std::string>{"D", "M", "N"});
  const auto first = predict(four, 4, {3, 4096, 65536}, 1 << 20);
  REQUIRE(first);
  CHECK(first->blocks == 3 * 1024);
  CHECK(predict(eight, 8, {3, 4096, 65536}, 1 << 20)->blocks == 3 * 512);
  // Every byte is read and written once: the memory's 20 bytes a clock and multiprocessor at 1755 MHz are its time.
  const double bytes = 2.0 * 3 * 4096 * 65536 * 4, memory_ns = bytes / (20 * 132) / 1.755;
  CHECK(first->time.ns >= memory_ns);
  CHECK(first->time.ns < 1.5 * memory_ns);
  CHECK(!first->flawed);
  CHECK(predict(four, 4, {3, 4096, 65536}, 256)->time.ns < 0.6 * first->time.ns);  // half as many trips
  CHECK(predict(four, 4, {3, 4096, 131072}, 1 << 20)->time.ns > 1.8 * first->time.ns);
}

TEST_CASE("what fills clusters up takes its time, and a profile alone knows of it") {
  const std::string text = R"(tile 1
kernel product(A: f16[M, K], B: f16[N, K], C: out f16[M, N])
grid i < ceildiv(M, 64), j < ceildiv(N, 64)
{
  shared a: f16[64, 64], b: f16[64, 64]
  fragment c: f32[64, 64] = 0
  pipelined k < ceildiv(K, 64), 4 {
    a = A[i*64 +: 64, k*64 +: 64]
    b = B[j*64 +: 64, k*64 +: 64]
    c += a @ b^T
  }
  C[i*64 +: 64, j*64 +: 64] = c
}
)";
  auto module = ir::load(text);
  REQUIRE_MESSAGE(module.ok(), module.status().message());
  auto model = KernelModel::create(module->kernels[0], {});
  REQUIRE(model.ok());
  auto concrete = ir::instantiate(module->kernels[0], {});
  REQUIRE_MESSAGE(concrete.ok(), concrete.status().message());
  auto predicted = [&](int cluster, int64_t rows) {
    auto whole = lowering::lower(
        *concrete,
        {.architecture = 90, .cluster = cluster, .cluster_columns = 1, .one_tile = true, .shared_limit = 227 * 1024},
        ~uint64_t{0});
    REQUIRE_MESSAGE(whole.ok(), whole.status().message());
    Lowering kernel{*model, {}};
    kernel.lowered.work = whole->work;  // as it is kept
    return *predict(kernel, 0, {rows, 4096, 4096}, 0);
  };
  CHECK(predicted(1, 64).blocks == 64);
  CHECK(predicted(8, 64).blocks == 8 * 64);
  CHECK(predicted(8, 64).time.ns > 2 * predicted(1, 64).time.ns);
  CHECK(predicted(8, 512).blocks == 8 * 64);
}

TEST_CASE("nothing is predicted for an empty grid, a device without rates, and a lowering without a profile") {
  Lowering kernel = lowered(4);
  CHECK(!predict(kernel, 4, {3, 0, 65536}, 8));
  CHECK(!predict(kernel, 4, {3, 4096, 65536}, 8, 0));
  kernel.lowered.work = nullptr;
  CHECK(!predict(kernel, 4, {3, 4096, 65536}, 8));
}

}  // namespace
}  // namespace kachel::runtime
