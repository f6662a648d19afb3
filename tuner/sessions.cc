#include "tuner/sessions.h"

#include "tuner/statistics.h"

namespace kachel::tuner {
namespace {

using Medians = std::map<uint64_t, double>;  // of one candidate, by session

// How much slower the levelled sessions ran than `session`, by the candidates that took part in both.
std::vector<double> links(const std::vector<Medians>& candidates, const std::map<uint64_t, double>& levels,
                          uint64_t session) {
  std::vector<double> factors;
  for (const Medians& medians : candidates) {
    auto here = medians.find(session);
    if (here == medians.end()) continue;
    for (const auto& [other, other_median] : medians) {
      auto level = levels.find(other);
      if (level != levels.end()) factors.push_back(other_median * level->second / here->second);
    }
  }
  return factors;
}

}  // namespace

std::map<uint64_t, double> session_levels(const std::vector<const std::vector<SampleSet>*>& histories) {
  std::map<uint64_t, double> pending;  // the sessions without a level; the values are unused
  for (const auto* history : histories)
    for (const SampleSet& set : *history) pending[set.session] = 1;
  if (pending.size() <= 1) return pending;

  std::vector<Medians> candidates;
  for (const auto* history : histories) {
    if (history->size() < 2) continue;  // links nothing
    Medians& medians = candidates.emplace_back();
    for (const SampleSet& set : *history) medians[set.session] = median(set.ns);
  }
  std::map<uint64_t, double> levels;
  while (!pending.empty()) {
    // A linked session if there is one, else the first opens a group of its own.
    auto next = pending.begin();
    double level = 1;
    for (auto it = pending.begin(); it != pending.end(); ++it) {
      std::vector<double> factors = links(candidates, levels, it->first);
      if (factors.empty()) continue;
      next = it;
      level = median(std::move(factors));
      break;
    }
    levels[next->first] = level;
    pending.erase(next);
  }
  return levels;
}

}  // namespace kachel::tuner
