// Compiles candidates on worker threads. Compiling ends before the first measurement starts: compilers on every core
// would share its cores and caches with a CPU candidate, and its launch path with a GPU candidate. Outputs are compared
// meanwhile (see TuningRun::compile).
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "support/status.h"
#include "tuner/clock.h"
#include "tuner/runner.h"

namespace kachel::tuner {

struct CompileOutcome {
  bool tried = false;  // false: the deadline came first
  Status status;
  int64_t ns = 0;
};

// Called on the caller's thread after each candidate, in the order in which they finish; `at` is a position in `order`.
// A failure stops the compiling.
using OnCompiled = std::function<Status(size_t at, const CompileOutcome&)>;

// Compiles the candidates `order` in that order on up to `workers` threads and waits for all of them; with
// `reference`, what they will be compared with goes first, since nothing is measured without. Past the deadline
// no further one is started as soon as one has succeeded. Returns one outcome per position, or the status that ended
// it: kDeviceLost or kCancelled from the runner, or the failure of `on_compiled`. Compilations that have begun run to
// their end in every case, so that no thread outlives the call.
Result<std::vector<CompileOutcome>> compile_candidates(const std::vector<size_t>& order, CandidateRunner& runner,
                                                       Clock& clock, const Deadline& deadline, unsigned workers,
                                                       bool reference, const OnCompiled& on_compiled);

}  // namespace kachel::tuner
