// Which of the configurations a tuning tries, and in which order it expects them: what the host's hooks say of them.
#pragma once
#include <vector>

#include "runtime/engine/launchable.h"
#include "runtime/engine/tuning_hooks.h"
#include "tuner/runner.h"

namespace kachel::runtime {

struct Trials {
  std::vector<TunableValues> candidates;
  std::vector<tuner::Forecast> forecasts;  // one for each candidate, by the host; empty: it has nothing to say
};

// Null for what is derived as well: a host is not asked about what it does not know.
const TuningHooks* hooks_of(const KernelModel& model, const LaunchSettings& settings);

// How many of `candidates` are to be measured; 0: all, and so it is of forms that are derived, which are few.
uint64_t wanted_trials(const KernelModel& model, const LaunchSettings& settings, size_t candidates);

// `hooks` may be null. Of a program, whose candidates are all run before they are timed, no more than `wanted` are
// left, where that is not 0. kInvalid where the host keeps none.
Result<Trials> choose_trials(const TuningHooks* hooks, const TuningCase& tuning,
                             const std::vector<TunableValues>& candidates, uint64_t wanted);

// What the host asks of the protocol of measurement.
void apply_limits(const TuningHooks* hooks, tuner::MeasurementLimits* limits);

}  // namespace kachel::runtime
