// What a tuning found out.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tuner/candidate.h"

namespace kachel::tuner {

// Of one tuning; what was known before it counts in none of them.
struct TuningCounters {
  uint64_t compiled = 0;  // successes of CandidateRunner::compile, whether it compiled or loaded
  uint64_t compile_failed = 0;
  uint64_t checked = 0;  // including those rejected
  uint64_t rejected = 0;
  uint64_t measured = 0;    // candidates without known samples that got some
  uint64_t remeasured = 0;  // candidates with known samples that took part in a new contest
  uint64_t timed_runs = 0;  // warm-up and lead-ins included
  friend bool operator==(const TuningCounters&, const TuningCounters&) = default;
};

struct TuningResult {
  size_t winner = 0;  // into `candidates`
  // Whoever may serve, best first: the winner, then the alternatives for when it fails. Pruned candidates rank too.
  std::vector<size_t> ranking;
  std::vector<CandidateRecord> candidates;  // one per configuration of the request, in its order
  TuningCounters counters;
  int64_t total_ns = 0;
  bool budget_exhausted = false;  // some candidate was not tried or not measured to the end

  const CandidateRecord& best() const { return candidates[winner]; }
};

// The part of a result that serving needs, stored under the tuning key. The samples are stored one record per
// configuration, with encode_candidate, so that the list of configurations may change without losing any.
struct WinnerRecord {
  static constexpr size_t kRanked = 3;

  struct Ranked {
    Configuration configuration;
    double median_ns = 0;
    Interval ci;
  };
  std::vector<Ranked> ranked;  // 1 to kRanked, the winner first
  uint64_t candidates = 0;     // how many there were to choose from
  TuningCounters counters;
  int64_t total_ns = 0;
  bool budget_exhausted = false;
};

WinnerRecord winner_record(const TuningResult& result);

// Versioned bytes; the same promises as encode_candidate and decode_candidate.
std::string encode_winner(const WinnerRecord& record);
std::optional<WinnerRecord> decode_winner(std::string_view bytes);

}  // namespace kachel::tuner
