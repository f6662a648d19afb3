// Private copies of what a launch writes, so that candidates of a tuning leave the caller's tensors as they are and
// none sees what another one left.
#pragma once
#include <vector>

#include "runtime/engine/bind/argument_binder.h"
#include "runtime/engine/tuning/output_check.h"
#include "runtime/engine/workspace.h"

namespace kachel::runtime {

// What two orders of sums make of an output, beyond what any program's roundings explain.
struct Apart {
  double share = 0;     // of elements
  double distance = 0;  // of an element at most, of the largest magnitude
};

class OutputCopies {
 public:
  // Redirects the out and inout tensors of `arguments` to memory of their size, on `stream`. Borrows all but them.
  Status open(Device& device, const ScratchCallbacks& scratch, const KernelModel& model, BoundArguments* arguments,
              void* stream);
  // Gives the copies back, in the order of the stream.
  void close();

  // As the caller has them: all, or the inout ones.
  Status restore(bool inout_only) const;
  // What they hold now is what others are compared with. Waits for the stream.
  Status keep();
  // kInvalid, with where and by how much, if they hold something else than reordering explains (output_check.h).
  // `spare`: by output, how many elements may, and how far those are from each other that are not too far; empty: none.
  Status compare(const Roundings& roundings, const std::string& configuration, const std::vector<Apart>& spare = {});
  // By output, how far what they hold now is from that.
  Result<std::vector<Apart>> apart(const Roundings& roundings);

 private:
  struct Output {
    int param = 0;
    bool restore_always = false;  // inout
    ir::DType type;
    int64_t bytes = 0;
    void* original = nullptr;
    Workspace copy;
    OutputReference reference;
    OutputSample sample;       // of what was compared last
    std::vector<char> passed;  // the latest sample that differed from the one before it and was within tolerance
  };
  Status fetch(Output* output);

  Device* device_ = nullptr;
  const KernelModel* model_ = nullptr;
  void* stream_ = nullptr;
  std::vector<Output> outputs_;
  Workspace gathered_;  // the pieces of an output on their way to the host; none where there was no memory for it
};

}  // namespace kachel::runtime
