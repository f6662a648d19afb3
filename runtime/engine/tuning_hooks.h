// What a host may decide in a tuning: which configurations are worth trying, what they are expected to take, how they
// are timed.
#pragma once
#include <functional>
#include <vector>

#include "runtime/device.h"
#include "runtime/engine/bind/argument_binder.h"
#include "runtime/engine/bind/kernel_model.h"
#include "support/status.h"

namespace kachel::runtime {

// The tuning that a hook is asked about.
struct TuningCase {
  const KernelModel& model;
  DeviceRef device;
  const int64_t* dims;  // as KernelModel::dims
};

// A candidate that is compiled and whose output is right, on private copies of what it writes.
class TrialRuns {
 public:
  virtual ~TrialRuns() = default;
  virtual void* stream() const = 0;
  virtual Status restore() = 0;               // in-out tensors to the caller's contents
  virtual Status flush() = 0;                 // the operands out of the caches
  virtual Status launch(uint32_t times) = 0;  // in the order of the stream
  virtual Status synchronize() = 0;
};

// A hook that is empty leaves its part to the tuner. Any failure ends the tuning with that status. Called on the thread
// that tunes.
class TuningHooks {
 public:
  using Candidates = std::vector<TunableValues>;

  // Which of the candidates to keep: all on entry.
  std::function<Status(const TuningCase&, const Candidates&, std::vector<uint8_t>* keep)> prune;
  // Nanoseconds: NaN on entry, which stands for no expectation.
  std::function<Status(const TuningCase&, const Candidates&, std::vector<double>* ns)> predict;
  // Samples of one candidate, in nanoseconds.
  std::function<Result<std::vector<double>>(const TuningCase&, const TunableValues&, TrialRuns&)> benchmark;
  // Around each timed run.
  std::function<Status(const TuningCase&, const TunableValues&, void* stream)> before_run, after_run;

  int warmup_runs = 0, min_runs = 0, max_runs = 0;  // 0: as the tuner does
};

}  // namespace kachel::runtime
