// From samples to a winner: a pure function, so that the same measurements choose the same winner everywhere.
//
// Ranks by raw medians are not reproducible: one engine saw 86 of 191 tuned entries change between two runs, over gaps
// of 0.08 to 2 %, and lost 9 % of serving speed to the noise that had won. So a ranking here has two parts:
//
//  1. Each candidate is compared with the best by the median of *paired ratios*: its sample over the best's sample of
//  the
//     same round. A throttling step or a slow drift multiplies both and cancels; it would split each candidate's own
//     samples into two clusters, and then a single outlier decides in which of them the median lies.
//  2. Candidates whose ratio to the best is within max(1 %, noise) form a tie, and the first of them in declared order
//     wins. Noise is half the interval of the ratio, at most 2 %: a wider interval is a reason to measure more, not to
//     give speed away.
//
// Where a series has sustained blocks, its short rounds count as much: the ratio is the geometric mean of both. In the
// rounds all run at one clock, so they tell who needs the fewest cycles; in a block each has the clock that its own
// power leaves. A launch among others that take less power is as the rounds say, one among its like as the blocks say,
// and who is 3 % ahead in one and 3 % behind in the other (8-bit products of 8192^3, an H200) is as fast.
//
// Samples of different sessions cannot be paired; there the medians are compared after scaling by session_levels().
#pragma once
#include <cstddef>
#include <optional>
#include <vector>

#include "tuner/candidate.h"

namespace kachel::tuner {

struct DecisionRules {
  double min_tie_band = 0.01;
  double max_tie_band = 0.02;
  // High, since the protocol looks at the interval after every few rounds and each look is a chance to be misled.
  double confidence = 0.99;
};

struct Contender {
  size_t index = 0;                                 // the declared order
  bool may_win = true;                              // false: takes its rank, but neither a tie nor the first place
  const std::vector<SampleSet>* samples = nullptr;  // REQUIRES: not empty, no empty set
};

struct Standing {
  size_t index = 0;
  double median_ns = 0;                    // of the last set, at the common level
  double ratio = 1;                        // time over the time of the best, in rounds and blocks of a series alike
  std::optional<Interval> ratio_interval;  // at rules.confidence; none with too few samples
  bool tied = false;                       // with the best, which is tied with itself
};

// The standings, winner first: the tie in declared order, then the others by ratio. Does not
// depend on the order of the contenders. REQUIRES: distinct indices.
std::vector<Standing> rank(const std::vector<Contender>& contenders, const DecisionRules& rules);

}  // namespace kachel::tuner
