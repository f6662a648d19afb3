// Copies of a launch's tensors that launches take in turn, so that several can follow each other, as they do in a
// host's stream, and none finds in the caches what the one before has read.
#pragma once
#include <vector>

#include "runtime/engine/bind/argument_binder.h"
#include "runtime/engine/workspace.h"

namespace kachel::runtime {

class Rotation {
 public:
  // Of one sample: launches whose time is not taken, in front of those whose time is.
  struct Launches {
    size_t ahead, timed;
    size_t all() const { return ahead + timed; }
  };
  // For runs of `run_ns` on so many bytes. The timed ones take 100 us together, but are 2 to 16; what goes ahead takes
  // the place of what a flush has left in the caches, but are 4 at most.
  static Launches launches(double run_ns, int64_t bytes, int64_t cache_bytes);
  // Of all tensors of a launch.
  static int64_t bytes(const KernelModel& model, const BoundArguments& arguments);

  // So many sets, which satisfy the same facts as `arguments`, one of them; inputs hold what its inputs do. kNoMemory
  // where there is none. REQUIRES: no tensor is inout. Borrows all but the last.
  Status open(Device& device, const ScratchCallbacks& scratch, const KernelModel& model,
              const BoundArguments& arguments, size_t sets, void* stream);
  const BoundArguments& next();
  // Gives the copies back, in the order of the stream.
  void close();

 private:
  std::vector<BoundArguments> sets_;
  Workspace memory_;
  size_t last_ = 0;
};

}  // namespace kachel::runtime
