#include "runtime/engine/specialise/keys.h"

#include <set>

#include "runtime/engine/specialise/configurations.h"
#include "runtime/engine/specialise/grid_size.h"
#include "tests/runtime/engine/engine_fixture.h"

namespace kachel::runtime {
namespace {

std::shared_ptr<const KernelModel> model_of(const std::string& text, std::vector<ConstValue> consts = {{"c", 3, 0}}) {
  auto module = ir::load(text);
  REQUIRE_MESSAGE(module.ok(), module.status().message());
  auto model = KernelModel::create(module->kernels[0], consts);
  REQUIRE_MESSAGE(model.ok(), model.status().message());
  return *model;
}

constexpr const char* kText = R"(tile 1
kernel k<T: f32 | f16, const c: i32>(A: T[M, D], C: out T[M, D])
where c > 0
key M, bucket(D)
tune BM = 16 | 32, BN = 8
grid by < ceildiv(M, BM)
{
  fragment x: T[BM, D]
  x = A[by*BM +: BM, :]
  parallel i < BM, d < D { x[i, d] = x[i, d] * c + BN }
  C[by*BM +: BM, :] = x
}
)";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  size_t at = 0, count = 0;
  while ((at = text.find(from, at)) != text.npos) {
    text.replace(at, from.size(), to);
    at += to.size();
    ++count;
  }
  REQUIRE(count > 0);
  return text;
}

DeviceProperties device() {
  DeviceProperties properties;
  properties.kind = DeviceKind::kCuda;
  properties.architecture = "sm_90a";
  properties.model = "H200";
  properties.driver = "580";
  properties.compute_major = 9;
  properties.shared_bytes_per_block = 1 << 16;
  return properties;
}

struct Inputs {
  std::string text = kText;
  int64_t c = 3;
  Point point{0, 3, {64}, {128, 64}};
  TunableValues values{16, 8};
  DeviceProperties machine = device();

  std::string plan() const { return plan_key(*model_of(text, {{"c", c, 0}}), point, values, machine).bytes; }
  std::string tuning() const { return tuning_key(*model_of(text, {{"c", c, 0}}), point, machine).bytes; }
  std::string sample() const { return sample_key(*model_of(text, {{"c", c, 0}}), point, values, machine).bytes; }
};

TEST_CASE("each ingredient changes the keys that it must change, and no other") {
  struct Case {
    const char* name;
    bool plan, tuning, sample;
    std::function<void(Inputs&)> vary;
  };
  const Case cases[] = {
      {"body", true, true, true, [](Inputs& in) { in.text = replaced(in.text, "* c", "- c"); }},
      {"a bound of a loop in the grid", true, true, true,
       [](Inputs& in) { in.text = replaced(in.text, "ceildiv(M, BM)", "M / BM"); }},
      {"const", true, true, true, [](Inputs& in) { in.c = 4; }},
      {"type", true, true, true, [](Inputs& in) { in.point.types = 1; }},
      {"static dimension", true, true, true, [](Inputs& in) { in.point.static_dims = {65}; }},
      {"facts", true, true, true, [](Inputs& in) { in.point.facts = 1; }},
      {"configuration", true, false, true, [](Inputs& in) { in.values = {32, 8}; }},
      {"architecture", true, false, false, [](Inputs& in) { in.machine.architecture = "sm_80"; }},
      {"streaming stores", true, false, false, [](Inputs& in) { in.machine.streaming_stores = false; }},
      {"shared memory", true, false, false, [](Inputs& in) { in.machine.shared_bytes_per_block = 1; }},
      {"key value", false, true, true, [](Inputs& in) { in.point.key_values = {129, 64}; }},
      {"model", false, true, true, [](Inputs& in) { in.machine.model = "H100"; }},
      {"driver", false, true, true, [](Inputs& in) { in.machine.driver = "581"; }},
      {"name of the device", false, false, false,
       [](Inputs& in) {
         in.machine.name = "other";
         in.machine.id = 3;
       }},
      {"names", false, false, false,
       [](Inputs& in) {
         in.text = replaced(replaced(replaced(in.text, "BM", "tile_m"), "kernel k", "kernel other"), "A", "Input");
       }},
      {"comments and space", false, false, false,
       [](Inputs& in) { in.text = replaced(in.text, "{\n", "{  # words\n\n"); }},
      {"the list of configurations", false, false, false,
       [](Inputs& in) { in.text = replaced(in.text, "16 | 32", "32 | 16 | 64"); }},
      {"which values are keys", false, false, false,
       [](Inputs& in) { in.text = replaced(in.text, "key M, bucket(D)", "key D"); }},
      {"where", false, false, false, [](Inputs& in) { in.text = replaced(in.text, "c > 0", "c > 1"); }},
      {"options of a type", false, false, false,
       [](Inputs& in) { in.text = replaced(in.text, "f32 | f16", "f32 | f16 | bf16"); }},
      {"a tunable that is the engine's knob", true, true, true,
       [](Inputs& in) { in.text = replaced(in.text, "BN", "threads"); }},
  };
  const Inputs base;
  REQUIRE(base.plan() == Inputs().plan());
  for (const Case& c : cases) {
    CAPTURE(c.name);
    Inputs varied;
    c.vary(varied);
    CHECK((varied.plan() != base.plan()) == c.plan);
    CHECK((varied.tuning() != base.tuning()) == c.tuning);
    CHECK((varied.sample() != base.sample()) == c.sample);
  }
  CHECK(base.plan() != base.sample());
  CHECK(base.tuning() != base.sample());
}

TEST_CASE("the lowering's target follows device and configuration") {
  auto model = model_of(replaced(kText, "BN", "threads"));
  lowering::Target target = target_of(device(), *model, {}, {16, 256});
  CHECK(target.kind == lowering::Target::Kind::kCuda);
  CHECK(target.architecture == 90);
  CHECK(target.threads == 256);
  CHECK(target.shared_limit == 1 << 16);
  CHECK(target_of(device(), *model_of(kText), {}, {16, 8}).threads == lowering::Target{}.threads);
}

TEST_CASE("the size of a grid, and with it the binary, follows from the key") {
  constexpr const char* kGrid = R"(tile 1
kernel k(A: f32[M, N], scale: i32, C: out f32[M, N])
key bucket(M), N
tune BM = 64, BN = 64
grid by < ceildiv(M, BM), bx < ceildiv(N, BN)
{
  fragment x: f32[BM, BN]
  x = A[by*BM +: BM, bx*BN +: BN]
  C[by*BM +: BM, bx*BN +: BN] = x
}
)";
  auto model = model_of(kGrid, {});
  const TunableValues values{64, 64};
  auto at = [](int64_t m, int64_t n) { return Point{0, 0, {}, {m, n}}; };
  CHECK(most_tiles(*model, at(256, 130), values) == 12u);
  CHECK(most_tiles(*model, at(256, 0), values) == 0u);
  CHECK(most_tiles(*model, at(int64_t{1} << 62, int64_t{1} << 62), values) == std::nullopt);
  CHECK(most_tiles(*model, Point{}, values) == std::nullopt);
  CHECK(most_tiles(*model_of(replaced(kGrid, "key bucket(M), N", "key N"), {}), Point{0, 0, {}, {130}}, values) ==
        std::nullopt);
  CHECK(most_tiles(*model_of(replaced(kGrid, "by < ceildiv(M, BM)", "by < scale"), {}), at(256, 130), values) ==
        std::nullopt);

  DeviceProperties machine = device();
  machine.multiprocessors = 12;
  machine.tensor_maps = true;
  CHECK(target_of(machine, *model, at(256, 130), values).one_tile);
  CHECK(!target_of(machine, *model, at(512, 130), values).one_tile);
  CHECK(plan_key(*model, at(256, 130), values, machine).bytes == plan_key(*model, at(128, 64), values, machine).bytes);
  CHECK(plan_key(*model, at(256, 130), values, machine).bytes != plan_key(*model, at(512, 130), values, machine).bytes);
  machine.tensor_maps = false;
  CHECK(!target_of(machine, *model, at(256, 130), values).one_tile);
}

TEST_CASE("configurations in their three forms") {
  auto model = model_of(kText);
  CHECK(configuration_text(*model, {32, 8}) == "BM=32,BN=8");
  auto parsed = parse_configuration(*model, "BN=8,BM=32");
  REQUIRE(parsed.ok());
  CHECK(*parsed == TunableValues{32, 8});
  CHECK(to_configuration({32, 8}).text() == "t0=32,t1=8");
  TunableValues back;
  CHECK(from_configuration(*model, to_configuration({32, 8}), back));
  CHECK(back == TunableValues{32, 8});
  CHECK_FALSE(from_configuration(*model, to_configuration({48, 8}), back));  // no longer listed
  CHECK_FALSE(from_configuration(*model, to_configuration({32}), back));
  struct Bad {
    const char *text, *message;
  };
  for (const Bad& bad : {Bad{"BM=48,BN=8", "48 is not a value"}, Bad{"BM=32", "no value to `BN`"},
                         Bad{"BM=32,BN=8,BK=1", "no tunable `BK`"}, Bad{"BM", "not a configuration"},
                         Bad{"BM=32,BM=16,BN=8", "not a configuration"}}) {
    auto refused = parse_configuration(*model, bad.text);
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.status().code() == Code::kInvalid);
    CHECK_MESSAGE(refused.status().message().find(bad.message) != std::string::npos, refused.status().message());
  }
}

TEST_CASE("conditions on tunables prune, per call") {
  auto model = model_of(replaced(kText, "where c > 0", "where M % BM == 0"));
  CHECK(model->where.empty());
  REQUIRE(model->conditions.size() == 1);
  CHECK(model->condition_dims == std::vector<int>{0});
  int64_t dims[] = {48, 64};
  auto admitted = admitted_configurations(*model, {}, {}, {dims, nullptr, nullptr});
  REQUIRE(admitted.ok());
  CHECK(*admitted == std::vector<TunableValues>{{16, 8}});
  dims[0] = 64;
  CHECK(admitted_configurations(*model, {}, {}, {dims, nullptr, nullptr})->size() == 2);
  dims[0] = 7;
  auto none = admitted_configurations(*model, {}, {}, {dims, nullptr, nullptr});
  REQUIRE_FALSE(none.ok());
  CHECK(none.status().code() == Code::kInvalid);
  CHECK(none.status().message().find("M % BM == 0") != std::string::npos);
  CHECK(none.status().message().find("M = 7") != std::string::npos);
}

}  // namespace
}  // namespace kachel::runtime
