#include "runtime/engine/launch/bound_call.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/engine/bind/tensor_maps.h"

namespace kachel::runtime {

using SlotKind = lowering::Slot::Kind;

namespace {

// The facts that the scalar decides.
uint64_t multiples_of(const ScalarEntry& scalar) {
  return scalar.multiple[std::size(scalar.multiple) - 1];
}

}  // namespace

Result<std::unique_ptr<BoundCall>> BoundCall::create(std::shared_ptr<Engine> engine,
                                                     std::shared_ptr<const KernelModel> model,
                                                     const Specialisation* specialisation,
                                                     const BoundArguments& arguments, bool follows) {
  std::unique_ptr<BoundCall> call(new BoundCall);
  call->engine_ = std::move(engine);
  call->model_ = std::move(model);
  call->specialisation_ = specialisation;
  if (!specialisation) return call;
  const KernelModel& kernel = *call->model_;
  KACHEL_TRY(specialisation->grid(arguments.inputs(), call->grid_));
  call->follows_ = follows;
  call->grid_.overlaps = specialisation->begins_early(arguments, call->grid_.blocks, follows);
  auto reads_scalars = [](const HostProgram& program) { return program.mentions_scalars(); };
  call->dynamic_ = std::any_of(kernel.grid.begin(), kernel.grid.end(), reads_scalars) ||
                   std::any_of(kernel.where.begin(), kernel.where.end(),
                               [&](const Condition& condition) { return reads_scalars(condition.program); }) ||
                   !kernel.condition_scalars.empty() ||
                   std::any_of(kernel.table.scalar, kernel.table.scalar + kernel.table.scalars,
                               [&](const ScalarEntry& scalar) { return multiples_of(scalar) & arguments.facts; });
  int64_t workspace_bytes = specialisation->workspace_bytes(call->grid_);
  // The grid may grow with the scalars; its scratch cannot: then it is reserved for as many blocks as ever run.
  if (call->dynamic_) {
    LaunchGrid most;
    most.blocks = static_cast<uint32_t>(specialisation->block_limit());
    workspace_bytes = specialisation->workspace_bytes(most);
  }
  KACHEL_ASSIGN(call->workspace_, LastingScratch::allocate(call->engine_, specialisation->device(), workspace_bytes));
  call->grid_.workspace = call->workspace_.get();
  alignas(128) uint64_t words[kMaxSlots];
  KACHEL_ASSIGN(const size_t count, specialisation->fill_slots(arguments, call->grid_, words));
  call->slots_.assign(words, words + count);
  const auto& slots = specialisation->step().slots;
  auto position = [](const std::vector<int>& list, int param) {
    return static_cast<uint16_t>(std::find(list.begin(), list.end(), param) - list.begin());
  };
  for (size_t i = 0; i < slots.size(); ++i) {
    const auto at = static_cast<uint16_t>(i);
    if (slots[i].kind == SlotKind::kPointer)
      call->pointer_patches_.push_back({at, position(kernel.tensors, slots[i].index)});
    if (slots[i].kind == SlotKind::kScalar)
      call->scalar_patches_.push_back({at, position(kernel.scalars, slots[i].index)});
  }
  const auto& maps = specialisation->step().maps;
  for (size_t i = 0; i < maps.size(); ++i)
    call->map_patches_.push_back({static_cast<uint16_t>(first_map_word(slots.size()) + kTensorMapWords * i),
                                  position(kernel.tensors, maps[i].param)});
  if (call->dynamic_) call->arguments_ = std::make_unique<BoundArguments>(arguments);
  return call;
}

Status BoundCall::move_maps(void* const* pointers, uint64_t* slots) const {
  for (const Patch& patch : map_patches_)
    KACHEL_TRY(specialisation_->device().move_map(slots + patch.slot, pointers[patch.source]));
  return {};
}

Status BoundCall::launch_dynamic(void* const* pointers, const int64_t* scalars, void* stream) const {
  uint64_t values[kMaxParams];
  for (size_t i = 0; i < model_->scalars.size(); ++i) values[model_->scalars[i]] = static_cast<uint64_t>(scalars[i]);
  const HostInputs inputs{arguments_->dims, values, specialisation_->values().data()};
  KACHEL_TRY(admit_scalars(*model_, inputs));
  for (int i = 0; i < model_->table.scalars; ++i)
    if (const ScalarEntry& entry = model_->table.scalar[i];
        arguments_->facts & multiples_of(entry) & ~entry.facts_of(static_cast<int64_t>(values[entry.param])))
      return invalid(
          fmt::format("`{0}` is {1}, and was {2} when the call was bound, a multiple of what {1} is none of: "
                      "bind another call for it",
                      model_->params[entry.param].name, static_cast<int64_t>(values[entry.param]),
                      static_cast<int64_t>(arguments_->scalars[entry.param])));
  LaunchGrid grid;
  KACHEL_TRY(specialisation_->grid(inputs, grid));
  grid.overlaps = specialisation_->begins_early(*arguments_, grid.blocks, follows_);
  if (grid.blocks == 0) return {};
  alignas(128) uint64_t slots[kMaxSlots];
  patch(pointers, scalars, slots);
  KACHEL_TRY(move_maps(pointers, slots));
  const auto& kinds = specialisation_->step().slots;
  for (size_t i = 0; i < kinds.size(); ++i) {
    if (kinds[i].kind == SlotKind::kGrid) slots[i] = static_cast<uint64_t>(grid.extents[kinds[i].index]);
    if (kinds[i].kind == SlotKind::kBlocks) slots[i] = grid.total;
  }
  Status launched = specialisation_->launch_slots(grid, slots, slots_.size(), stream);
  if (launched.ok()) engine_->counters().launches.add();
  return launched;
}

}  // namespace kachel::runtime
