// A launch with everything but pointers and scalars fixed: its slots are filled once, and a launch copies them to the
// stack and patches what it was given.
#pragma once
#include <memory>
#include <vector>

#include "runtime/engine/launchable.h"

namespace kachel::runtime {

class BoundCall final : public BoundLaunch {
 public:
  // `specialisation` null: nothing is to be launched, since the grid is empty. Reserves scratch.
  static Result<std::unique_ptr<BoundCall>> create(std::shared_ptr<Engine> engine,
                                                   std::shared_ptr<const KernelModel> model,
                                                   const Specialisation* specialisation,
                                                   const BoundArguments& arguments, bool follows = false);

  Status launch(void* const* pointers, const int64_t* scalars, void* stream) const override {
    if (!specialisation_) return {};
    if (dynamic_) return launch_dynamic(pointers, scalars, stream);
    alignas(128) uint64_t slots[kMaxSlots];
    patch(pointers, scalars, slots);
    if (!map_patches_.empty()) KACHEL_TRY(move_maps(pointers, slots));
    Status launched = specialisation_->launch_slots(grid_, slots, slots_.size(), stream);
    if (!launched.ok()) [[unlikely]]
      return engine_->services().noticed(std::move(launched));
    engine_->counters().launches.add();
    return launched;
  }

 private:
  struct Patch {
    uint16_t slot, source;  // source: position among the pointers or the scalars
  };
  BoundCall() = default;
  void patch(void* const* pointers, const int64_t* scalars, uint64_t* slots) const {
    std::memcpy(slots, slots_.data(), slots_.size() * sizeof(uint64_t));
    for (const Patch& patch : pointer_patches_) slots[patch.slot] = reinterpret_cast<uintptr_t>(pointers[patch.source]);
    for (const Patch& patch : scalar_patches_) slots[patch.slot] = static_cast<uint64_t>(scalars[patch.source]);
  }
  Status move_maps(void* const* pointers, uint64_t* slots) const;
  // Where scalars decide whether `where` holds or how large the grid is.
  Status launch_dynamic(void* const* pointers, const int64_t* scalars, void* stream) const;

  std::shared_ptr<Engine> engine_;
  std::shared_ptr<const KernelModel> model_;
  const Specialisation* specialisation_ = nullptr;
  LaunchGrid grid_;
  std::vector<uint64_t> slots_;
  std::vector<Patch> pointer_patches_, scalar_patches_, map_patches_;
  bool dynamic_ = false;
  bool follows_ = false;                       // LaunchSettings::follows
  std::unique_ptr<BoundArguments> arguments_;  // where dynamic
  LastingScratch workspace_;
};

}  // namespace kachel::runtime
