#include "tests/runtime/engine/engine_fixture.h"

#include <unistd.h>

#include <cstdlib>

namespace kachel::runtime {
namespace {

// Reads the parameters in the order in which fake_lower() lists them.
void run_scale(const FakeLaunch& launch, const EngineFixture& fixture) {
  const auto* slots = static_cast<const uint64_t*>(launch.params);
  const auto* a = reinterpret_cast<const float*>(slots[0]);
  const auto a0 = static_cast<int64_t>(slots[1]), a1 = static_cast<int64_t>(slots[2]);
  auto* c = reinterpret_cast<float*>(slots[3]);
  const auto c0 = static_cast<int64_t>(slots[4]), c1 = static_cast<int64_t>(slots[5]);
  const float s = std::bit_cast<float>(static_cast<uint32_t>(slots[6]));
  const auto m = static_cast<int64_t>(slots[7]), n = static_cast<int64_t>(slots[8]);
  const bool wrong = !fixture.wrong_tile.empty() && tile_of(launch.text) == fixture.wrong_tile;
  // Of the plain lowering in another order an element of sixteen, of candidates other ones, and perhaps more of them.
  const bool plain = launch.text.find("\nplain") != std::string_view::npos;
  const bool reversed = launch.text.find("\nreversed") != std::string_view::npos;
  const auto apart = [&](int64_t i, int64_t j) {
    if (!fixture.hangs || (plain && !reversed)) return false;
    return (i + j) % 16 == (plain ? 3 : 5) || (fixture.hangs_more && !plain && (i + j) % 2 == 0);
  };
  const float drift = !plain ? fixture.candidates_drift : reversed ? fixture.drift : 0;
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j)
      c[i * c0 + j * c1] =
          a[i * a0 + j * a1] * s + ((wrong && i == m - 1 && j == 0) || apart(i, j) ? 1.0f : 0.0f) + drift;
}

}  // namespace

std::string tile_of(std::string_view text) {
  const size_t begin = text.find("fragment x: f32[");
  if (begin == text.npos) return "";
  const size_t first = begin + 16;
  return std::string(text.substr(first, text.find(']', first) - first));
}

TempDir::TempDir() {
  std::string pattern = (std::filesystem::temp_directory_path() / "kachel-engine-XXXXXX").string();
  path_ = ::mkdtemp(pattern.data());
}
TempDir::~TempDir() {
  std::filesystem::remove_all(path_);
}

HostTensorF32::HostTensorF32(std::vector<int64_t> extents, float value, DeviceRef device) : shape(std::move(extents)) {
  int64_t count = 1;
  strides.resize(shape.size());
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = count;
    count *= shape[i];
  }
  data.assign(static_cast<size_t>(count), value);
  arg = {data.data(),    device, static_cast<int32_t>(shape.size()), to_data_type(ir::DType::F32), shape.data(),
         strides.data(), 0};
}

EngineFixture::EngineFixture(std::string store_path, const FakeOptions& device) : device_options_(device) {
  options.store_path = std::move(store_path);
  options.device_list = {kFakeRef};
  options.open_device = [this](DeviceRef) -> Result<std::unique_ptr<Device>> {
    auto made = std::make_unique<FakeDevice>(device_options_);
    device_ = made.get();
    made->state().set_default_kernel([this](const FakeLaunch& launch) { run_scale(launch, *this); });
    made->state().set_cost([this](const FakeLaunch& launch) -> int64_t {
      long long bm = 0, bn = 0;
      if (!cost || std::sscanf(tile_of(launch.text).c_str(), "%lld, %lld", &bm, &bn) != 2) return 10'000;
      return cost(bm, bn, launch);
    });
    return std::unique_ptr<Device>(std::move(made));
  };
  options.lower = [this](const ir::Kernel& concrete, const lowering::Target& target, uint64_t facts,
                         const lowering::LowerOptions&) -> Result<lowering::Lowered> {
    lowering::Lowered lowered;
    lowered.text = fmt::format("{}facts {} threads {}\n", ir::print(concrete), facts, target.threads);
    if ((hangs || drift > 0) && target.generic) lowered.text += target.reversed ? "plain\nreversed\n" : "plain\n";
    if (target.roomy) lowered.text += "roomy\n";
    lowered.blocks = target.roomy ? 1 : blocks;
    if (lowered.blocks > 1) lowered.text += "close\n";
    if (has_compact_form && target.compact) lowered.text += "compact\n";
    if (!refused_tile.empty() && tile_of(lowered.text) == refused_tile) return unsupported("the tile is refused");
    if (!long_tile.empty() && tile_of(lowered.text) == long_tile)
      lowered.text += std::string(4 * lowered.text.size(), '#');
    lowered.entry = "kachel_kernel";
    using Slot = lowering::Slot;
    for (int p = 0; p < 2; ++p) {
      lowered.slots.push_back({Slot::Kind::kPointer, p, 0});
      lowered.slots.push_back({Slot::Kind::kStride, p, 0});
      lowered.slots.push_back({Slot::Kind::kStride, p, 1});
    }
    lowered.slots.push_back({Slot::Kind::kScalar, 2, 0});
    for (size_t i = 0; i < concrete.dims.size(); ++i)
      lowered.slots.push_back({Slot::Kind::kDim, static_cast<int>(i), 0});
    lowered.slots.push_back({Slot::Kind::kBlocks, 0, 0});
    for (size_t i = 0; i < concrete.grid.size(); ++i)
      lowered.slots.push_back({Slot::Kind::kGrid, static_cast<int>(i), 0});
    if (workspace_bytes > 0) lowered.slots.push_back({Slot::Kind::kWorkspace, 0, 0});
    lowered.workspace_bytes = workspace_bytes;
    lowered.shared_bytes = shared_bytes;
    lowered.threads = threads;
    ++this->lowered;
    if (predicts) {
      KACHEL_ASSIGN(const lowering::Lowered real, lowering::lower(concrete, {.shared_limit = 227 * 1024}, facts));
      lowered.work = real.work;
    }
    return lowered;
  };
}

std::shared_ptr<Engine> EngineFixture::engine() {
  if (!engine_) {
    auto made = Engine::create(options);
    REQUIRE_MESSAGE(made.ok(), made.status().message());
    engine_ = *made;
  }
  return engine_;
}

FakeState& EngineFixture::state() {
  REQUIRE(engine()->devices().get(kFakeRef).ok());
  return device_->state();
}

std::shared_ptr<KernelHandle> EngineFixture::kernel(const std::string& text, std::vector<ConstValue> consts) {
  auto module = ir::load(text);
  REQUIRE_MESSAGE(module.ok(), module.status().message());
  auto model = KernelModel::create(module->kernels[0], consts);
  REQUIRE_MESSAGE(model.ok(), model.status().message());
  return std::make_shared<KernelHandle>(engine(), *model);
}

LaunchSettings EngineFixture::settings(tuner::Policy policy) const {
  LaunchSettings settings;
  settings.policy = policy;
  settings.tune_budget_ns = options.tune_budget_ns;
  return settings;
}

Status EngineFixture::scale(KernelHandle& kernel, int64_t m, int64_t n, tuner::Policy policy, void* stream) {
  HostTensorF32 a({m, n}, 1.5f), c({m, n}, -1);
  Arg args[] = {a.tensor(), c.tensor(), float_arg(2)};
  KACHEL_TRY(kernel.launch(args, settings(policy), stream));
  for (float value : c.data)
    if (value != 3) return internal(fmt::format("an element is {}", value));
  return {};
}

}  // namespace kachel::runtime
