// Samples of different sessions, made comparable.
//
// The clock of a device moves by 15 to 19 % between a cool and a throttled hour, so 100 ns of one session and 110 ns of
// another say little. Candidates that took part in both sessions are the yardstick: the median of their ratios is how
// far the clock moved, and scales the one session to the other. Sessions that no candidate links are taken as they are;
// the tuner measures anew where that could change the winner (see Tuner).
#pragma once
#include <cstdint>
#include <map>
#include <vector>

#include "tuner/candidate.h"

namespace kachel::tuner {

// A series takes two sessions: its rounds an odd one, its blocks the next.
inline bool is_of_blocks(uint64_t session) {
  return session % 2 == 0;
}

// For each session that occurs, the factor that brings its samples to the level of its group of linked sessions. The
// session with the smallest number of each group has factor 1. Depends on the set of histories, not on their order.
std::map<uint64_t, double> session_levels(const std::vector<const std::vector<SampleSet>*>& histories);

}  // namespace kachel::tuner
