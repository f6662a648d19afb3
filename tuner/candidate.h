// What is known of one configuration for one key on one device: how far it got, and every sample ever taken.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tuner/configuration.h"
#include "tuner/statistics.h"

namespace kachel::tuner {

// Stored; values are never reused.
enum class CandidateState : uint8_t {
  kUntried = 0,
  kCompileFailed = 1,
  kRejectedWrong = 2,  // ran, and its output differs from the generic lowering's; never wins, never tried again
  kLaunchFailed = 3,
  kPruned = 4,  // measured until it was clear that it loses
  kMeasured = 5,
  kRejectedFlaw = 6,  // has a flaw that another candidate, which is served, has not; neither checked nor measured
  kCrashed = 7,       // took the process down that tried it; never tried again
  kTimedOut = 8,      // its compilation or its run took longer than the limit, and was ended; never tried again
};

// "untried", "compile_failed", "rejected_wrong", "launch_failed", "pruned", "measured", "rejected_flaw", "crashed",
// "timed_out".
std::string_view state_name(CandidateState state);

// What tries it may not survive that.
inline bool is_harmful(CandidateState state) {
  return state == CandidateState::kCrashed || state == CandidateState::kTimedOut;
}

// The runs of one candidate within one session. A session is one interleaved series: sample i of each of its candidates
// was taken in the same round, so samples of one session pair by index, and pairs share the clock of that moment.
struct SampleSet {
  uint64_t session = 0;
  std::vector<double> ns;  // in the order taken; finite and positive
};

struct CandidateRecord {
  Configuration configuration;
  CandidateState state = CandidateState::kUntried;
  std::string flaw;                // what its compiler holds against it: "spills 96 bytes"
  std::string message;             // why it failed or was pruned, for people
  int64_t compile_ns = 0;          // 0 if it was not compiled by the tuning that wrote this
  std::vector<SampleSet> samples;  // oldest first; a decision looks at the last
  double median_ns = 0;            // of the last set, 0 without samples
  Interval ci;                     // 95 % of that median; the extremes where there are too few samples to claim that

  // Sets median_ns and ci from the samples.
  void summarize();
};

// Versioned bytes of one record; median and interval are derived, not stored. Anything that encode_candidate cannot
// have written decodes to nothing; whatever decodes encodes to the same bytes again.
std::string encode_candidate(const CandidateRecord& record);
std::optional<CandidateRecord> decode_candidate(std::string_view bytes);

}  // namespace kachel::tuner
