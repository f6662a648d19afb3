// A loaded plan: what a launch needs besides its arguments. Immutable and usable from any thread; the engine keeps
// every one until it ends, so that launches hold plain pointers.
#pragma once
#include <atomic>
#include <limits>
#include <memory>
#include <string>

#include "runtime/device.h"
#include "runtime/engine/bind/argument_binder.h"
#include "runtime/engine/specialise/plan_record.h"

namespace kachel::runtime {

inline constexpr size_t kMaxSlots = 512;

// The grid of one launch.
struct LaunchGrid {
  int64_t extents[kMaxGrid];
  uint64_t total = 0;         // tiles, those that fill clusters up among them; 0 where an extent is not positive
  uint32_t blocks = 0;        // how many are launched; each walks the grid in steps of this
  void* workspace = nullptr;  // scratch of that launch, 256-byte aligned
  bool overlaps = false;      // LaunchDims::overlaps, for launch_slots()
};

// Each axis is filled up to a multiple of fill[axis] + 1, a power of two. Of a grid of at most `tiles`, no more than
// `blocks` blocks are launched, a multiple of the product of those and of the `tile_blocks` that compute a tile. They
// may not be more than `total`: on a GPU what 32 bits count, with which kernels find their place.
struct BlockLimit {
  uint8_t fill[kMaxGrid] = {};
  uint8_t tile_blocks = 1;
  uint64_t total = std::numeric_limits<int64_t>::max();
  uint64_t blocks = std::numeric_limits<int32_t>::max() - 1;

  static BlockLimit of(const std::vector<int32_t>& cluster, int32_t tile_blocks);  // of lowering::Lowered
};

// Evaluates grid extents; `blocks` is the total as far as the limit allows.
Status evaluate_grid(const std::vector<HostProgram>& extents, const HostInputs& inputs, const BlockLimit& limit,
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
  int64_t workspace_bytes(const LaunchGrid& grid) const { return hot_.workspace_bytes * grid.blocks; }
  bool needs_workspace() const { return hot_.workspace_bytes != 0; }
  // No locks, no allocation. `follows`: LaunchSettings::follows.
  Status launch(const BoundArguments& arguments, const LaunchGrid& grid, void* stream, bool follows = false) const;
  // With the grid that belongs to the arguments. REQUIRES: !needs_workspace().
  Status launch(const BoundArguments& arguments, void* stream, bool follows = false) const;

  // The parts that a bound call keeps for itself.
  // `out`: room for kMaxSlots words, 128-byte aligned. Says how many there are.
  Result<size_t> fill_slots(const BoundArguments& arguments, const LaunchGrid& grid, uint64_t* out) const;
  // Whether such a launch begins before what precedes it has ended, whatever that is: where that is quicker.
  bool begins_early(const BoundArguments& arguments, uint32_t blocks, bool follows) const;
  Status launch_slots(const LaunchGrid& grid, const uint64_t* slots, size_t count, void* stream) const;

  Device& device() const { return device_; }
  const PlanStep& step() const { return step_; }    // without its binary
  const PlanRecord& plan() const { return plan_; }  // without its steps
  const TunableValues& values() const { return values_; }
  uint64_t block_limit() const { return hot_.limit.blocks; }

  // Set once a caller's launch may refer to the loaded code (a captured graph does so for ever): it is then never
  // unloaded on devices where that would hurt.
  void pin() const { pinned_.store(true, std::memory_order_relaxed); }
  // Set when a launch of it failed where that of another configuration succeeded: it is not chosen again.
  void demote() const { demoted_.store(true, std::memory_order_relaxed); }
  bool demoted() const { return demoted_.load(std::memory_order_relaxed); }

 private:
  // Where the value of a slot is, in words: from the BoundArguments, or with kOfGrid from the LaunchGrid.
  static constexpr uint16_t kOfGrid = 1 << 15;
  // What a launch reads, together, so that it finds it in few lines.
  struct alignas(64) Hot {
    const DeviceFunction* function = nullptr;
    BlockLimit limit;
    int64_t workspace_bytes = 0;
    // So many blocks begin early if the tensors are so small, and what follows if they are smaller still.
    uint32_t overlaps_from = std::numeric_limits<uint32_t>::max();
    int64_t overlaps_within_bytes = 0, follows_within_bytes = -1;
    uint32_t threads = 1, shared_bytes = 0;
    uint32_t slots = 0, grid_rank = 0;
    uint32_t words = 0;  // slots and maps
    HostForm grid[kMaxGrid];
    uint16_t sources[kMaxSlots];
  };

  Specialisation(Device& device, PlanRecord plan, TunableValues values);
  Status allow_overlaps();
  Status enqueue(uint32_t blocks, bool overlaps, const uint64_t* slots, size_t count, void* stream) const;
  void prepare(const KernelModel& model);
  static uint16_t source_of(const lowering::Slot& slot);

  Hot hot_;
  Device& device_;
  PlanRecord plan_;
  PlanStep step_;
  TunableValues values_;
  std::vector<int> tensors_;       // KernelModel::tensors
  std::vector<HostProgram> grid_;  // with the values of the tunables put in; hot_.grid may refer to it
  std::unique_ptr<DeviceModule> module_;
  std::unique_ptr<DeviceFunction> function_;
  mutable std::atomic<bool> pinned_{false}, demoted_{false};
};

}  // namespace kachel::runtime
