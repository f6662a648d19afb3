#include "runtime/engine/specialise/specialisation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>

#include "lowering/machine/launched_blocks.h"
#include "runtime/engine/bind/tensor_maps.h"

namespace kachel::runtime {

using SlotKind = lowering::Slot::Kind;

namespace {

// False where there are more than the limit allows.
inline bool evaluate(const HostForm* extents, size_t count, const HostInputs& inputs, const BlockLimit& limit,
                     LaunchGrid& out) {
  uint64_t total = 1, blocks = 0;
  bool empty = false, overflow = false;
  for (size_t i = 0; i < count; ++i) {
    const int64_t extent = extents[i].run(inputs);
    out.extents[i] = extent;
    empty |= extent <= 0;
    const uint64_t fill = limit.fill[i], filled = (static_cast<uint64_t>(extent) + fill) & ~fill;
    overflow |= __builtin_mul_overflow(total, filled, &total);
  }
  overflow |= __builtin_mul_overflow(total, limit.tile_blocks, &blocks);
  out.total = empty ? 0 : total;
  out.blocks = static_cast<uint32_t>(empty ? 0 : std::min(blocks, limit.blocks));
  return empty || !(overflow || blocks > limit.total);
}

[[gnu::cold]] Status too_many_blocks(const BlockLimit& limit) {
  return invalid(
      fmt::format("the grid has more than {} blocks; check the dimensions, or take larger tiles", limit.total));
}

}  // namespace

BlockLimit BlockLimit::of(const std::vector<int32_t>& cluster, int32_t tile_blocks) {
  BlockLimit limit;
  limit.tile_blocks = static_cast<uint8_t>(tile_blocks);
  for (size_t axis = 0; axis < cluster.size(); ++axis) limit.fill[axis] = static_cast<uint8_t>(cluster[axis] - 1);
  return limit;
}

Status evaluate_grid(const std::vector<HostProgram>& extents, const HostInputs& inputs, const BlockLimit& limit,
                     LaunchGrid& out) {
  HostForm forms[kMaxGrid];
  for (size_t i = 0; i < extents.size(); ++i) forms[i] = extents[i].form();
  return evaluate(forms, extents.size(), inputs, limit, out) ? Status() : too_many_blocks(limit);
}

Specialisation::Specialisation(Device& device, PlanRecord plan, TunableValues values)
    : device_(device), plan_(std::move(plan)), step_(std::move(plan_.steps[0])), values_(std::move(values)) {
  plan_.steps.clear();
}

Specialisation::~Specialisation() {
  if (device_.properties().kind != DeviceKind::kCuda || !pinned_.load(std::memory_order_relaxed)) return;
  // A graph that a host captured may still launch it.
  (void)function_.release();
  (void)module_.release();
}

Result<std::unique_ptr<Specialisation>> Specialisation::load(Device& device, const KernelModel& model, PlanRecord plan,
                                                             TunableValues values) {
  std::unique_ptr<Specialisation> made(new Specialisation(device, std::move(plan), std::move(values)));
  PlanStep& step = made->step_;
  const DeviceProperties& properties = device.properties();
  if (step.threads > properties.max_threads_per_block || step.shared_bytes > properties.shared_bytes_per_block)
    return unsupported(
        fmt::format("configuration {} needs {} threads and {} bytes of shared memory a block; {} has {} and {}",
                    made->plan_.configuration, step.threads, step.shared_bytes, properties.name,
                    properties.max_threads_per_block, properties.shared_bytes_per_block));
  if (first_map_word(step.slots.size()) + kTensorMapWords * step.maps.size() > kMaxSlots)
    return unsupported("the kernel has more than 512 parameter words; use fewer tensors");
  KACHEL_ASSIGN(made->module_, device.load(step.binary));
  step.binary.clear();
  step.binary.shrink_to_fit();
  KACHEL_ASSIGN(made->function_, made->module_->function(step.entry, static_cast<uint32_t>(step.shared_bytes)));
  const ResourceUsage loaded = made->function_->usage();
  if (step.usage.registers < 0) step.usage.registers = loaded.registers;
  if (step.usage.spill_bytes < 0) step.usage.spill_bytes = loaded.spill_bytes;
  if (step.usage.shared_bytes < 0) step.usage.shared_bytes = step.shared_bytes;
  made->prepare(model);
  made->hot_.limit = BlockLimit::of(step.cluster, step.tile_blocks);
  auto cluster = static_cast<uint32_t>(step.tile_blocks);
  for (int32_t along : step.cluster) cluster *= static_cast<uint32_t>(along);
  if (properties.kind == DeviceKind::kCuda) made->hot_.limit.total = std::numeric_limits<int32_t>::max();
  const bool few = properties.kind != DeviceKind::kCpu && step.threads <= lowering::kFewThreads && cluster == 1;
  if (step.workspace_bytes > 0 || step.resident || few) {
    // Scratch is per launched block, so no more are launched than can run at once.
    const auto threads = static_cast<uint32_t>(step.threads), shared = static_cast<uint32_t>(step.shared_bytes);
    KACHEL_ASSIGN(const int32_t resident, cluster > 1 ? made->function_->resident_clusters(threads, shared, cluster)
                                                      : made->function_->occupancy(threads, shared));
    const int32_t times = cluster > 1 ? static_cast<int32_t>(cluster) : std::max(properties.multiprocessors, 1);
    const uint64_t blocks = static_cast<uint64_t>(std::max(resident, 1)) * static_cast<uint64_t>(times);
    uint64_t& limit = made->hot_.limit.blocks;
    limit = few && !step.workspace_bytes && !step.resident
                ? static_cast<uint64_t>(lowering::launched_blocks(static_cast<int64_t>(limit), step.threads,
                                                                  static_cast<int64_t>(blocks)))
                : blocks;
  }
  if (properties.overlapping_launches) KACHEL_TRY(made->allow_overlaps());
  return made;
}

// Blocks that begin early take what places are free, and keep to them. Where several fit on a multiprocessor and there
// are not enough of them for all, some get two and others none, and what waits for memory takes up to twice as long.
// Where one fits, some kernels take up to a quarter longer, others less; why is not known
// (docs/measurements/changes.md). A launch that reads and writes little is too short to lose, and gains what a launch
// costs. One that follows a launch of this library's is often a fold of what that left, and waits for little: there
// where blocks begin matters less.
Status Specialisation::allow_overlaps() {
  KACHEL_ASSIGN(const int32_t each, function_->occupancy(hot_.threads, hot_.shared_bytes));
  const DeviceProperties& properties = device_.properties();
  hot_.overlaps_from = each > 1 ? static_cast<uint32_t>(each * std::max(properties.multiprocessors, 1)) : 1;
  hot_.overlaps_within_bytes = properties.l2_bytes / 4;
  hot_.follows_within_bytes = properties.l2_bytes / 16;
  return {};
}

bool Specialisation::begins_early(const BoundArguments& arguments, uint32_t blocks, bool follows) const {
  const int64_t within = blocks >= hot_.overlaps_from ? hot_.overlaps_within_bytes
                         : follows                    ? hot_.follows_within_bytes
                                                      : -1;
  if (within < 0) return false;
  int64_t bytes = 0;
  for (int tensor : tensors_) bytes += arguments.tensors[tensor].bytes;
  return bytes <= within;
}

void Specialisation::prepare(const KernelModel& model) {
  hot_.function = function_.get();
  tensors_ = model.tensors;
  hot_.threads = static_cast<uint32_t>(step_.threads);
  hot_.shared_bytes = static_cast<uint32_t>(step_.shared_bytes);
  hot_.workspace_bytes = step_.workspace_bytes;
  for (const HostProgram& extent : model.grid) grid_.push_back(extent.with_tunables(values_.data()));
  for (const HostProgram& extent : grid_) hot_.grid[hot_.grid_rank++] = extent.form();
  for (const lowering::Slot& slot : step_.slots) hot_.sources[hot_.slots++] = source_of(slot);
  hot_.words = hot_.slots;
  if (!step_.maps.empty())
    hot_.words = static_cast<uint32_t>(first_map_word(hot_.slots) + kTensorMapWords * step_.maps.size());
}

uint16_t Specialisation::source_of(const lowering::Slot& slot) {
  static_assert(sizeof(BoundArguments) / 8 < kOfGrid && sizeof(BoundTensor) % 8 == 0);
  const auto index = static_cast<size_t>(slot.index);
  const size_t tensor = offsetof(BoundArguments, tensors) + index * sizeof(BoundTensor);
  const auto word = [](size_t offset) { return static_cast<uint16_t>(offset / 8); };
  switch (slot.kind) {
    case SlotKind::kPointer:
      return word(tensor + offsetof(BoundTensor, data));
    case SlotKind::kStride:
      return word(tensor + offsetof(BoundTensor, strides) + static_cast<size_t>(slot.axis) * 8);
    case SlotKind::kDim:
      return word(offsetof(BoundArguments, dims) + index * 8);
    case SlotKind::kScalar:
      return word(offsetof(BoundArguments, scalars) + index * 8);
    case SlotKind::kGrid:
      return word(offsetof(LaunchGrid, extents) + index * 8) | kOfGrid;
    case SlotKind::kBlocks:
      return word(offsetof(LaunchGrid, total)) | kOfGrid;
    case SlotKind::kWorkspace:
      break;
  }
  return word(offsetof(LaunchGrid, workspace)) | kOfGrid;
}

Status Specialisation::grid(const HostInputs& inputs, LaunchGrid& out) const {
  return evaluate(hot_.grid, hot_.grid_rank, inputs, hot_.limit, out) ? Status() : too_many_blocks(hot_.limit);
}

Result<size_t> Specialisation::fill_slots(const BoundArguments& arguments, const LaunchGrid& grid,
                                          uint64_t* out) const {
  const char* const bases[2] = {reinterpret_cast<const char*>(&arguments), reinterpret_cast<const char*>(&grid)};
  for (uint32_t i = 0; i < hot_.slots; ++i) {
    const uint16_t source = hot_.sources[i];
    std::memcpy(&out[i], bases[source / kOfGrid] + size_t{8} * (source % kOfGrid), 8);
  }
  if (hot_.words != hot_.slots)
    KACHEL_TRY(encode_maps(device_, step_.maps, arguments, out + first_map_word(hot_.slots)));
  return size_t{hot_.words};
}

inline Status Specialisation::enqueue(uint32_t blocks, bool overlaps, const uint64_t* slots, size_t count,
                                      void* stream) const {
  const LaunchDims dims{blocks, hot_.threads, hot_.shared_bytes, overlaps};
  return hot_.function->launch(dims, slots, count * sizeof(uint64_t), stream);
}

[[gnu::hot]] Status Specialisation::launch_slots(const LaunchGrid& grid, const uint64_t* slots, size_t count,
                                                 void* stream) const {
  return enqueue(grid.blocks, grid.overlaps, slots, count, stream);
}

Status Specialisation::launch(const BoundArguments& arguments, const LaunchGrid& grid, void* stream,
                              bool follows) const {
  if (grid.blocks == 0) return {};
  alignas(128) uint64_t slots[kMaxSlots];
  KACHEL_ASSIGN(const size_t count, fill_slots(arguments, grid, slots));
  return enqueue(grid.blocks, begins_early(arguments, grid.blocks, follows), slots, count, stream);
}

[[gnu::hot]] Status Specialisation::launch(const BoundArguments& arguments, void* stream, bool follows) const {
  LaunchGrid grid;
  if (!evaluate(hot_.grid, hot_.grid_rank, arguments.inputs(), hot_.limit, grid)) [[unlikely]]
    return too_many_blocks(hot_.limit);
  return launch(arguments, grid, stream, follows);
}

}  // namespace kachel::runtime
