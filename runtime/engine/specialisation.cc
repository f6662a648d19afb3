#include "runtime/engine/specialisation.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace kachel::runtime {

using SlotKind = lowering::Slot::Kind;

Status evaluate_grid(const std::vector<HostProgram>& extents, const HostInputs& inputs, uint64_t block_limit,
                     LaunchGrid& out) {
  uint64_t total = 1;
  bool empty = false, overflow = false;
  for (size_t i = 0; i < extents.size(); ++i) {
    const int64_t extent = extents[i].run(inputs);
    out.extents[i] = extent;
    empty |= extent <= 0;
    overflow |= __builtin_mul_overflow(total, static_cast<uint64_t>(extent), &total);
  }
  out.total = empty ? 0 : total;
  if (!empty && (overflow || total > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))) [[unlikely]]
    return invalid("the grid has more than 2^63 blocks; check the dimensions");
  out.blocks = static_cast<uint32_t>(std::min(out.total, block_limit));
  return {};
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
  if (step.slots.size() > kMaxSlots)
    return unsupported("the kernel has more than 512 parameter words; use fewer tensors");
  KACHEL_ASSIGN(made->module_, device.load(step.binary));
  step.binary.clear();
  step.binary.shrink_to_fit();
  KACHEL_ASSIGN(made->function_, made->module_->function(step.entry, static_cast<uint32_t>(step.shared_bytes)));
  const ResourceUsage loaded = made->function_->usage();
  if (step.usage.registers < 0) step.usage.registers = loaded.registers;
  if (step.usage.spill_bytes < 0) step.usage.spill_bytes = loaded.spill_bytes;
  if (step.usage.shared_bytes < 0) step.usage.shared_bytes = step.shared_bytes;
  made->grid_ = model.grid;
  made->block_limit_ = std::numeric_limits<int32_t>::max();
  if (step.workspace_bytes > 0) {
    // Scratch is per launched block, so no more are launched than can run at once.
    KACHEL_ASSIGN(int32_t resident, made->function_->occupancy(static_cast<uint32_t>(step.threads),
                                                               static_cast<uint32_t>(step.shared_bytes)));
    made->block_limit_ =
        static_cast<uint64_t>(std::max(resident, 1)) * static_cast<uint64_t>(std::max(properties.multiprocessors, 1));
  }
  return made;
}

Status Specialisation::grid(const HostInputs& inputs, LaunchGrid& out) const {
  return evaluate_grid(grid_, {inputs.dims, inputs.scalars, values_.data()}, block_limit_, out);
}

size_t Specialisation::fill_slots(const BoundArguments& arguments, const LaunchGrid& grid, void* workspace,
                                  uint64_t* out) const {
  size_t at = 0;
  for (const lowering::Slot& slot : step_.slots) {
    uint64_t value = 0;
    switch (slot.kind) {
      case SlotKind::kPointer:
        value = reinterpret_cast<uintptr_t>(arguments.tensors[slot.index].data);
        break;
      case SlotKind::kStride:
        value = static_cast<uint64_t>(arguments.tensors[slot.index].strides[slot.axis]);
        break;
      case SlotKind::kDim:
        value = static_cast<uint64_t>(arguments.dims[slot.index]);
        break;
      case SlotKind::kScalar:
        value = arguments.scalars[slot.index];
        break;
      case SlotKind::kGrid:
        value = static_cast<uint64_t>(grid.extents[slot.index]);
        break;
      case SlotKind::kBlocks:
        value = grid.total;
        break;
      case SlotKind::kWorkspace:
        value = reinterpret_cast<uintptr_t>(workspace);
        break;
    }
    out[at++] = value;
  }
  return at;
}

Status Specialisation::launch_slots(const LaunchGrid& grid, const uint64_t* slots, size_t count, void* stream) const {
  const LaunchDims dims{grid.blocks, static_cast<uint32_t>(step_.threads), static_cast<uint32_t>(step_.shared_bytes)};
  return function_->launch(dims, slots, count * sizeof(uint64_t), stream);
}

Status Specialisation::launch(const BoundArguments& arguments, const LaunchGrid& grid, void* workspace,
                              void* stream) const {
  if (grid.blocks == 0) return {};
  uint64_t slots[kMaxSlots];
  const size_t count = fill_slots(arguments, grid, workspace, slots);
  return launch_slots(grid, slots, count, stream);
}

}  // namespace kachel::runtime
