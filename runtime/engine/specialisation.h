// A loaded plan: what a launch needs besides its arguments. Immutable and usable from any thread; the engine keeps
// every one until it ends, so that launches hold plain pointers.
#pragma once
#include <atomic>
#include <memory>
#include <string>

#include "runtime/device.h"
#include "runtime/engine/argument_binder.h"
#include "runtime/engine/plan_record.h"

namespace kachel::runtime {

inline constexpr size_t kMaxSlots = 512;

// The grid of one launch.
struct LaunchGrid {
  int64_t extents[kMaxGrid];
  uint64_t total = 0;   // product of the extents; 0 where one of them is not positive
  uint32_t blocks = 0;  // how many are launched; each walks the grid in steps of this
};

// Evaluates grid extents; `blocks` is the total, at most `block_limit`.
Status evaluate_grid(const std::vector<HostProgram>& extents, const HostInputs& inputs, uint64_t block_limit,
                     LaunchGrid& out);

class Specialisation {
 public:
  // Loads the plan onto `device`, which must outlive the result.
  static Result<std::unique_ptr<Specialisation>> load(Device& device, const KernelModel& model, PlanRecord plan,
                                                      TunableValues values);
  ~Specialisation();
  Specialisation(const Specialisation&) = delete;
  Specialisation& operator=(const Specialisation&) = delete;

  // kInvalid if the grid has more blocks than can be counted.
  Status grid(const HostInputs& inputs, LaunchGrid& out) const;
  // Scratch that a launch of `grid` needs, in bytes; 0: none.
  int64_t workspace_bytes(const LaunchGrid& grid) const { return step_.workspace_bytes * grid.blocks; }
  // No locks, no allocation. `workspace`: that many bytes, 256-byte aligned, or null.
  Status launch(const BoundArguments& arguments, const LaunchGrid& grid, void* workspace, void* stream) const;

  // The parts that a bound call keeps for itself.
  size_t fill_slots(const BoundArguments& arguments, const LaunchGrid& grid, void* workspace, uint64_t* out) const;
  Status launch_slots(const LaunchGrid& grid, const uint64_t* slots, size_t count, void* stream) const;

  Device& device() const { return device_; }
  const PlanStep& step() const { return step_; }    // without its binary
  const PlanRecord& plan() const { return plan_; }  // without its steps
  const TunableValues& values() const { return values_; }
  uint64_t block_limit() const { return block_limit_; }

  // Set once a caller's launch may refer to the loaded code (a captured graph does so for ever): it is then never
  // unloaded on devices where that would hurt.
  void pin() const { pinned_.store(true, std::memory_order_relaxed); }
  // Set when a launch of it failed where that of another configuration succeeded: it is not chosen again.
  void demote() const { demoted_.store(true, std::memory_order_relaxed); }
  bool demoted() const { return demoted_.load(std::memory_order_relaxed); }

 private:
  Specialisation(Device& device, PlanRecord plan, TunableValues values);

  Device& device_;
  PlanRecord plan_;
  PlanStep step_;
  TunableValues values_;
  std::vector<HostProgram> grid_;
  uint64_t block_limit_ = 0;
  std::unique_ptr<DeviceModule> module_;
  std::unique_ptr<DeviceFunction> function_;
  mutable std::atomic<bool> pinned_{false}, demoted_{false};
};

}  // namespace kachel::runtime
