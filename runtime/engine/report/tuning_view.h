// A tuning as a tool wants to see it: every configuration with its state, times and resources.
#pragma once
#include <string>
#include <vector>

#include "runtime/engine/tuning/ranking.h"

namespace kachel::runtime {

struct TuningView {
  struct Candidate {
    std::string configuration;  // with the program's names
    std::string message;
    tuner::CandidateState state = tuner::CandidateState::kUntried;
    uint32_t samples = 0;
    double median_ns = 0, low_ns = 0, high_ns = 0;
    double compile_ns = 0;
    double predicted_ns = 0;  // by the cost model; 0: it cannot tell
    ResourceUsage usage;
  };
  std::vector<Candidate> candidates;  // in declared order
  int winner = -1;
  double total_ns = 0;
  bool from_store = true;
};

// The tuning that decided for these arguments' key. kNotCached if there is none. A sole configuration wins without one.
Result<TuningView> read_tuning(const Launchable& kernel, std::span<const Arg> args);

}  // namespace kachel::runtime
