// Private copies of a launch's tensors, so that the key can be tuned when the caller has long overwritten or freed
// them.
#pragma once
#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "runtime/engine/bind/argument_binder.h"
#include "runtime/engine/workspace.h"

namespace kachel::runtime {

class Snapshot {
 public:
  // Copies what the launch reads in the order of `stream`, which is not captured, and gives outputs memory of their
  // own: the copies satisfy the same facts as the originals. kNoMemory where that would take more than `room` has,
  // kBusy where it has less now than that.
  struct Room {
    int64_t most_bytes;
    std::atomic<int64_t>& taken_bytes;  // by all snapshots that share it, which it outlives
  };
  static Result<std::unique_ptr<Snapshot>> take(Device& device, const ScratchCallbacks& scratch,
                                                const KernelModel& model, const BoundArguments& arguments,
                                                std::span<const Arg> args, const Room& room, void* stream);

  ~Snapshot();
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

  // Until the copies are there. From any thread.
  Status wait() { return copied_->elapsed_ns().status(); }
  std::span<const Arg> args() const { return args_; }

 private:
  struct Copy {
    Workspace memory;
    TensorArg tensor;
    std::vector<int64_t> shape, strides;
  };
  Snapshot(Device& device, std::atomic<int64_t>& taken_bytes, int64_t bytes)
      : device_(device), taken_bytes_(taken_bytes), bytes_(bytes) {}

  Device& device_;
  std::atomic<int64_t>& taken_bytes_;
  const int64_t bytes_;
  std::vector<Arg> args_;
  std::vector<std::unique_ptr<Copy>> copies_;
  std::unique_ptr<Device::Timer> copied_;  // its stop mark lies behind the copies
};

}  // namespace kachel::runtime
