#include "runtime/engine/specialise/plan_record.h"

#include <random>

#include "runtime/engine/specialise/specialisation.h"
#include "tests/runtime/engine/engine_fixture.h"

namespace kachel::runtime {
namespace {

std::shared_ptr<const KernelModel> scale_model() {
  auto module = ir::load(kScale);
  REQUIRE(module.ok());
  auto model = KernelModel::create(module->kernels[0], {});
  REQUIRE(model.ok());
  return *model;
}

PlanRecord plan() {
  using Slot = lowering::Slot;
  PlanRecord record{"scale", "BM=16,BN=32", "fake_1", "fake 1", false, 1234, {}};
  record.steps.push_back({"kachel_kernel",
                          128,
                          4096,
                          256,
                          {{Slot::Kind::kPointer, 0, 0},
                           {Slot::Kind::kStride, 1, 1},
                           {Slot::Kind::kDim, 1, 0},
                           {Slot::Kind::kScalar, 2, 0},
                           {Slot::Kind::kGrid, 1, 0},
                           {Slot::Kind::kBlocks, 0, 0},
                           {Slot::Kind::kWorkspace, 0, 0}},
                          {{0, {64, 32}, 64}},
                          true,
                          {2, 1},
                          1,
                          {42, 0, 4096},
                          "spills",
                          std::string("bin\0ary", 7)});
  return record;
}

TEST_CASE("which view a map is of survives, and is at most one") {
  auto model = scale_model();
  for (const bool as_one : {false, true})
    for (const bool transposed : {false, true}) {
      PlanRecord record = plan();
      record.steps[0].maps[0].as_one = as_one;
      record.steps[0].maps[0].transposed = transposed;
      const auto read = decode_plan(encode_plan(record), *model);
      REQUIRE(read.ok() == !(as_one && transposed));
      if (!read.ok()) continue;
      CHECK(read->steps[0].maps[0].as_one == as_one);
      CHECK(read->steps[0].maps[0].transposed == transposed);
    }
}

TEST_CASE("a plan survives its encoding") {
  auto model = scale_model();
  const std::string bytes = encode_plan(plan());
  auto read = decode_plan(bytes, *model);
  REQUIRE_MESSAGE(read.ok(), read.status().message());
  CHECK(encode_plan(*read) == bytes);
  CHECK(read->steps[0].slots.size() == 7);
  REQUIRE(read->steps[0].maps.size() == 1);
  CHECK(read->steps[0].maps[0].box == std::vector<int32_t>{64, 32});
  CHECK(read->steps[0].maps[0].swizzle == 64);
  CHECK(read->steps[0].resident);
  CHECK(read->steps[0].cluster == std::vector<int32_t>{2, 1});
  CHECK(read->steps[0].usage.registers == 42);
  CHECK(read->steps[0].flaw == "spills");
  CHECK(read->steps[0].binary.size() == 7);
  CHECK_FALSE(read->deterministic);
  auto summary = summarise_plan(bytes);
  REQUIRE(summary.ok());
  CHECK(summary->kernel == "scale");
  CHECK(summary->configuration == "BM=16,BN=32");
}

TEST_CASE("clusters are launched whole") {
  auto module = ir::load(
      "tile 1\nkernel k(x: f32[N], y: out f32[N])\ngrid i < ceildiv(N, 16)\n{\n  fragment t: f32[16]\n"
      "  t = x[i*16 +: 16]\n  y[i*16 +: 16] = t\n}\n");
  REQUIRE_MESSAGE(module.ok(), module.status().message());
  auto model = KernelModel::create(module->kernels[0], {});
  REQUIRE_MESSAGE(model.ok(), model.status().message());
  auto blocks = [&](int64_t n, BlockLimit limit) {
    BoundArguments arguments{};
    arguments.dims[0] = n;
    LaunchGrid grid;
    CHECK(evaluate_grid((*model)->grid, arguments.inputs(), limit, grid).ok());
    CHECK(grid.extents[0] == (n + 15) / 16);
    CHECK(grid.total ==
          (static_cast<uint64_t>(grid.extents[0]) + limit.fill[0]) / (limit.fill[0] + 1) * (limit.fill[0] + 1));
    return grid.blocks;
  };
  CHECK(blocks(80, {}) == 5);
  CHECK(blocks(80, {.fill = {1}}) == 6);
  CHECK(blocks(80, BlockLimit::of({2}, 1)) == 6);
  CHECK(blocks(80, BlockLimit::of({}, 1)) == 5);
  CHECK(blocks(80, BlockLimit::of({}, 4)) == 20);
  CHECK(blocks(0, BlockLimit::of({}, 4)) == 0);
  CHECK(blocks(96, {.fill = {1}}) == 6);
  CHECK(blocks(80, {.fill = {7}}) == 8);
  CHECK(blocks(0, {.fill = {1}}) == 0);
  CHECK(blocks(160, {.fill = {1}, .blocks = 4}) == 4);
  CHECK(blocks(48, {.fill = {3}, .blocks = 4}) == 4);
}

TEST_CASE("a grid of more blocks than a device counts is an error that says so") {
  auto module = ir::load(
      "tile 1\nkernel k(x: f32[N, N], y: out f32[N, N])\ngrid i < N, j < N\n{\n  fragment t: f32[1, 1]\n"
      "  t = x[i +: 1, j +: 1]\n  y[i +: 1, j +: 1] = t\n}\n");
  REQUIRE_MESSAGE(module.ok(), module.status().message());
  auto model = KernelModel::create(module->kernels[0], {});
  REQUIRE_MESSAGE(model.ok(), model.status().message());
  auto grid = [&](int64_t n, uint64_t total) {
    BoundArguments arguments{};
    arguments.dims[0] = n;
    LaunchGrid out;
    return evaluate_grid((*model)->grid, arguments.inputs(), {.total = total}, out);
  };
  constexpr uint64_t kOfGpu = std::numeric_limits<int32_t>::max();
  CHECK(grid(46340, kOfGpu).ok());  // 46340^2 < 2^31 <= 46341^2
  const Status many = grid(46341, kOfGpu);
  CHECK(many.code() == Code::kInvalid);
  CHECK(many.message().find("more than 2147483647 blocks") != std::string::npos);
  CHECK(grid(46341, BlockLimit().total).ok());
  CHECK(grid(int64_t{1} << 33, BlockLimit().total).code() == Code::kInvalid);  // 2^66: counted by nothing
}

TEST_CASE("a plan that refers to nothing is refused") {
  auto model = scale_model();
  using Kind = lowering::Slot::Kind;
  const lowering::Slot bad[] = {{Kind::kPointer, 2, 0}, {Kind::kPointer, 3, 0}, {Kind::kPointer, -1, 0},
                                {Kind::kStride, 0, 2},  {Kind::kStride, 0, -1}, {Kind::kDim, 2, 0},
                                {Kind::kScalar, 0, 0},  {Kind::kGrid, 2, 0},    {static_cast<Kind>(99), 0, 0}};
  for (const lowering::Slot& slot : bad) {
    PlanRecord record = plan();
    record.steps[0].slots[3] = slot;
    CHECK_FALSE(decode_plan(encode_plan(record), *model).ok());
  }
  auto refused = [&](const std::function<void(PlanRecord&)>& spoil) {
    PlanRecord record = plan();
    spoil(record);
    auto read = decode_plan(encode_plan(record), *model);
    return !read.ok() && read.status().code() == Code::kStore;
  };
  CHECK(refused([](PlanRecord& r) { r.steps[0].maps[0].param = 2; }));
  for (const std::vector<int32_t>& cluster :
       {std::vector<int32_t>{1, 3}, {2, 0}, {2}, {1, 1}, {4, 4}, {2, 1, 1}, {-2, -1}, {1, 16}})
    CHECK(refused([&](PlanRecord& r) { r.steps[0].cluster = cluster; }));
  const auto of_tiles = [](int32_t blocks) {
    return [blocks](PlanRecord& r) {
      r.steps[0].cluster.clear();
      r.steps[0].resident = false;
      r.steps[0].workspace_bytes = 0;
      r.steps[0].tile_blocks = blocks;
    };
  };
  for (const int32_t blocks : {-2, 0, 3, 16}) CHECK(refused(of_tiles(blocks)));
  CHECK_FALSE(refused(of_tiles(8)));
  CHECK(refused([&](PlanRecord& r) { of_tiles(8)(r), r.steps[0].cluster = {2, 1}; }));
  CHECK(refused([&](PlanRecord& r) { of_tiles(8)(r), r.steps[0].resident = true; }));
  CHECK(refused([](PlanRecord& r) { r.steps[0].maps[0].param = -1; }));
  CHECK(refused([](PlanRecord& r) { r.steps[0].maps[0].box = {64}; }));
  CHECK(refused([](PlanRecord& r) { r.steps[0].maps[0].box = {64, 257}; }));
  CHECK(refused([](PlanRecord& r) { r.steps[0].maps[0].swizzle = 16; }));
  CHECK(refused([](PlanRecord& r) { r.steps[0].maps.resize(40, r.steps[0].maps[0]); }));
  CHECK(refused([](PlanRecord& r) { r.steps[0].threads = 0; }));
  CHECK(refused([](PlanRecord& r) { r.steps[0].threads = 2048; }));
  CHECK(refused([](PlanRecord& r) { r.steps[0].shared_bytes = -1; }));
  CHECK(refused([](PlanRecord& r) { r.steps[0].workspace_bytes = int64_t{1} << 50; }));
  CHECK(refused([](PlanRecord& r) { r.steps[0].entry.clear(); }));
  CHECK(refused([](PlanRecord& r) { r.steps[0].entry = std::string("a\0b", 3); }));
  CHECK(refused([](PlanRecord& r) { r.steps.clear(); }));
  CHECK(refused([](PlanRecord& r) { r.steps.push_back(r.steps[0]); }));
  CHECK_FALSE(decode_plan(encode_plan(plan()) + "x", *model).ok());
  CHECK_FALSE(decode_plan("", *model).ok());
}

TEST_CASE("damaged plans decode to the same bytes or to nothing") {
  auto model = scale_model();
  const std::string bytes = encode_plan(plan());
  for (size_t size = 0; size < bytes.size(); ++size) CHECK_FALSE(decode_plan(bytes.substr(0, size), *model).ok());
  std::mt19937_64 random(3);
  for (int round = 0; round < 20000; ++round) {
    std::string damaged = bytes;
    for (uint64_t i = 0, n = 1 + random() % 4; i < n; ++i)
      damaged[random() % damaged.size()] = static_cast<char>(random());
    auto read = decode_plan(damaged, *model);
    if (read.ok()) REQUIRE(encode_plan(*read) == damaged);
  }
}

}  // namespace
}  // namespace kachel::runtime
