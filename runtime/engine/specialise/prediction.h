// What the cost model expects of a launch: the work that lowering counts, at the rates of the architecture.
#pragma once
#include <optional>
#include <span>

#include "lowering/lower.h"
#include "lowering/machine/rates.h"
#include "runtime/device.h"
#include "runtime/engine/bind/kernel_model.h"
#include "tuner/runner.h"

namespace kachel::runtime {

struct LaunchPrediction {
  tuner::Prediction time;
  lowering::Residency residency;
  int64_t blocks = 0;
  int64_t assumed = 0;    // lowering::BlockWork::assumed
  bool flawed = false;    // lowering has found a flaw, or the compiler is likely to find one
  uint64_t code = 0;      // of what is compiled and launched
  size_t text_bytes = 0;  // of what is compiled; of one kernel's configurations, what a compilation takes goes with it

  tuner::Forecast forecast() const { return {time.ns, flawed, code, time.effort, text_bytes}; }
};

// Nothing on a device without rates (the CPU), for an empty grid, and where what a block does cannot be worked out from
// the launch, or from lengths of which something may be assumed. `inputs` belong to the kernel that was lowered.
std::optional<LaunchPrediction> predict_launch(const lowering::Lowered& lowered, int architecture, int multiprocessors,
                                               const lowering::WorkInputs& inputs);

// The same for the arguments of a launch. Grid extents may depend on the tunables.
std::optional<LaunchPrediction> predict_launch(const lowering::Lowered& lowered, const KernelModel& model,
                                               const DeviceProperties& properties, const HostInputs& inputs);

}  // namespace kachel::runtime
