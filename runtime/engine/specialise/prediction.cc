#include "runtime/engine/specialise/prediction.h"

#include <algorithm>

#include "lowering/machine/launched_blocks.h"

namespace kachel::runtime {
namespace {

// Tiles, most, that are looked at; of more, these stand for all.
constexpr int64_t kSampledTiles = 16;
constexpr int kGroupThreads = 128;  // of a warp group

double products(const lowering::Work& work, const lowering::Rates& rates) {
  double clocks = 0;
  for (size_t kind = 0; kind < lowering::kProductKinds; ++kind)
    if (work.multiply_adds[kind] > 0) clocks += work.multiply_adds[kind] / std::max(rates.multiply_adds[kind], 1.0);
  return clocks;
}

tuner::PartCost cost_of(const lowering::Work& work, const lowering::Rates& rates) {
  tuner::PartCost cost;
  cost.products = products(work, rates);
  cost.operands = work.operand_bytes / rates.shared_bytes;
  cost.shared = (work.shared_bytes + work.filled_bytes) / rates.shared_bytes;
  cost.scalar = work.scalar_operations / rates.scalar_operations;
  cost.special = work.special_operations / rates.special_operations;
  cost.l2 = work.port_bytes / rates.l2_bytes;
  // A special function keeps a scheduler for two instructions' time.
  cost.thread = work.thread_operations + 2 * work.thread_specials;
  cost.barriers = work.barriers * rates.barrier_clocks;
  cost.rounds = work.rounds;
  cost.fills = work.fills;
  cost.transfer = work.filled_port_bytes / rates.l2_bytes;
  return cost;
}

}  // namespace

std::optional<LaunchPrediction> predict_launch(const lowering::Lowered& lowered, int architecture, int multiprocessors,
                                               const lowering::WorkInputs& given) {
  if (!lowered.work || given.tiles <= 0) return std::nullopt;
  const lowering::WorkProfile& profile = *lowered.work;
  lowering::WorkInputs inputs = given;
  if (!profile.cluster.empty())
    inputs.tiles = lowering::filled_tiles(profile.cluster, {given.grid.begin(), given.grid.end()});
  const lowering::Rates& rates = lowering::rates_of(architecture);
  lowering::BlockWork mean;  // of a block
  double longest = 0, fills = 0;
  const int64_t samples = std::min(inputs.tiles, kSampledTiles);
  for (int64_t i = 0; i < samples; ++i) {
    // The first and the last are among them.
    const int64_t tile = samples > 1 ? i * (inputs.tiles - 1) / (samples - 1) : 0;
    const auto work = lowering::work_of(profile, inputs, tile);
    if (!work) return std::nullopt;
    mean.loops.add(work->loops, 1.0 / static_cast<double>(samples));
    mean.rest.add(work->rest, 1.0 / static_cast<double>(samples));
    mean.assumed = std::max(mean.assumed, work->assumed);
    longest = std::max(longest, work->loops.fills);
    fills += work->loops.fills / static_cast<double>(samples);
  }
  for (lowering::Work* part : {&mean.loops, &mean.rest})
    for (size_t tensor = 0; tensor < part->straddle_bytes.size(); ++tensor) {
      if (!lowering::rows_straddle(profile, tensor, inputs)) continue;
      part->port_bytes += part->straddle_bytes[tensor];
      part->filled_port_bytes += part->straddle_bytes[tensor];
    }
  for (lowering::Work* part : {&mean.loops, &mean.rest}) part->part(profile.tile_blocks);
  const int64_t blocks = inputs.tiles * profile.tile_blocks;
  LaunchPrediction prediction;
  prediction.residency = lowering::residency_of(profile, architecture);
  prediction.blocks = blocks;
  prediction.assumed = mean.assumed;
  prediction.flawed = prediction.residency.spills || !lowered.flaw.empty();

  using lowering::ProductKind;
  auto multiply_adds = [&](ProductKind kind) { return mean.loops.multiply_adds[static_cast<size_t>(kind)]; };
  tuner::LaunchCost launch;
  launch.loops = cost_of(mean.loops, rates);
  launch.rest = cost_of(mean.rest, rates);
  if (fills > 0) launch.longest = longest / fills;
  launch.blocks = blocks;
  launch.resident = prediction.residency.blocks * profile.teams;
  const int together = std::max(lowering::blocks_of(profile.cluster), profile.tile_blocks);
  const double reached = together > 2 ? lowering::kReachedByClusters : 1;
  launch.multiprocessors = std::max(static_cast<int>(multiprocessors * reached), 1);
  launch.persistent = profile.resident;
  const int64_t at_once = static_cast<int64_t>(prediction.residency.blocks) * multiprocessors;
  if (!launch.persistent)
    launch.begins =
        lowering::kBlockClocks * static_cast<double>(lowering::launched_blocks(blocks, profile.threads, at_once));
  launch.warp_groups = multiply_adds(ProductKind::kGroup16) + multiply_adds(ProductKind::kGroup8) +
                           multiply_adds(ProductKind::kGroup32) >
                       0;
  launch.releases_later = profile.releases_later;
  launch.groups = launch.warp_groups ? std::max(profile.threads / kGroupThreads, 1) : 1;
  // What several blocks read comes from memory once.
  double bytes = 0;
  for (size_t tensor = 0; tensor < profile.tensors.size(); ++tensor) {
    const double all = lowering::tensor_bytes(profile, tensor, inputs), all_blocks = static_cast<double>(blocks);
    auto moved = [&](std::vector<double> lowering::Work::*by) {
      double each = 0;
      for (const lowering::Work* part : {&mean.loops, &mean.rest})
        if (tensor < (part->*by).size()) each += (part->*by)[tensor];
      return all > 0 ? std::min(each * all_blocks, all) : each * all_blocks;
    };
    bytes += moved(&lowering::Work::read_bytes) + moved(&lowering::Work::written_bytes);
  }
  launch.memory = bytes / (rates.dram_bytes * std::max(multiprocessors, 1));
  launch.latency = rates.latency_clocks;
  launch.launch = lowering::kLaunchClocks + (together > 1 ? lowering::kClusterClocks : 0);
  launch.clock_mhz = rates.clock_mhz;
  prediction.time = tuner::predict(launch);
  return prediction;
}

std::optional<LaunchPrediction> predict_launch(const lowering::Lowered& lowered, const KernelModel& model,
                                               const DeviceProperties& properties, const HostInputs& inputs) {
  if (!lowered.work || properties.compute_major == 0) return std::nullopt;
  std::vector<int64_t> dims, scalars, grid;
  // Dimensions of the kernel that was lowered go by their names in the model.
  for (const lowering::WorkProfile::Input& input : lowered.work->inputs) {
    if (input.slot.kind != lowering::Slot::Kind::kDim) continue;
    const auto found = std::find(model.dims.begin(), model.dims.end(), input.var->name);
    if (found == model.dims.end()) return std::nullopt;
    const auto index = static_cast<size_t>(input.slot.index);
    if (dims.size() <= index) dims.resize(index + 1);
    dims[index] = inputs.dims[found - model.dims.begin()];
  }
  for (size_t i = 0; i < model.params.size(); ++i)
    scalars.push_back(inputs.scalars ? static_cast<int64_t>(inputs.scalars[i]) : 0);
  int64_t tiles = 1;
  for (const HostProgram& extent : model.grid) {
    grid.push_back(extent.run(inputs));
    if (grid.back() <= 0 || tiles > INT32_MAX / grid.back()) return std::nullopt;
    tiles *= grid.back();
  }
  return predict_launch(lowered, 10 * properties.compute_major + properties.compute_minor, properties.multiprocessors,
                        {dims, scalars, grid, tiles});
}

}  // namespace kachel::runtime
