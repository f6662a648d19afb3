#include "tuner/decision.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "tuner/sessions.h"

namespace kachel::tuner {
namespace {

struct Entry {
  const Contender* contender;
  Standing standing;
  double level = 1;
  const SampleSet& last() const { return contender->samples->back(); }
  // The rounds of the series whose blocks are the last set; null: there are none.
  const SampleSet* rounds() const {
    const std::vector<SampleSet>& sets = *contender->samples;
    const bool both =
        sets.size() > 1 && is_of_blocks(last().session) && sets[sets.size() - 2].session + 1 == last().session;
    return both ? &sets[sets.size() - 2] : nullptr;
  }
};

struct Ratio {
  double value = 1;
  std::optional<Interval> interval;
};

// Of samples of one session.
Ratio paired(const SampleSet& mine, const SampleSet& theirs, const DecisionRules& rules) {
  std::vector<double> ratios(std::min(mine.ns.size(), theirs.ns.size()));
  for (size_t i = 0; i < ratios.size(); ++i) ratios[i] = mine.ns[i] / theirs.ns[i];
  const double value = median(ratios);
  return {value, median_interval(std::move(ratios), rules.confidence)};
}

// The noise stays that of the blocks: of the rounds there are few.
Ratio of_series(const Ratio& blocks, const Ratio& rounds) {
  const double factor = std::sqrt(rounds.value / blocks.value);
  Ratio both{blocks.value * factor, blocks.interval};
  if (both.interval) both.interval->low *= factor, both.interval->high *= factor;
  return both;
}

void compare(Entry& entry, const Entry& best, const DecisionRules& rules) {
  const SampleSet& mine = entry.last();
  const SampleSet& theirs = best.last();
  Standing& standing = entry.standing;
  if (&entry == &best) {
    standing.ratio = 1;
    standing.ratio_interval = Interval{1, 1};
    return;
  }
  if (mine.session == theirs.session) {
    Ratio ratio = paired(mine, theirs, rules);
    if (entry.rounds() && best.rounds()) ratio = of_series(ratio, paired(*entry.rounds(), *best.rounds(), rules));
    standing.ratio = ratio.value;
    standing.ratio_interval = ratio.interval;
    return;
  }
  standing.ratio = standing.median_ns / best.standing.median_ns;
  standing.ratio_interval.reset();
  auto a = median_interval(mine.ns, rules.confidence);
  auto b = median_interval(theirs.ns, rules.confidence);
  if (a && b) {
    double scale = entry.level / best.level;
    standing.ratio_interval = Interval{a->low * scale / b->high, a->high * scale / b->low};
  }
}

// Between sessions the interval speaks of the noise within each, not of the clock between them, and widens nothing.
double tie_band(const Standing& standing, bool paired, const DecisionRules& rules) {
  if (!paired) return rules.min_tie_band;
  double noise = rules.max_tie_band;
  if (standing.ratio_interval) noise = (standing.ratio_interval->high - standing.ratio_interval->low) / 2;
  return std::clamp(noise, rules.min_tie_band, rules.max_tie_band);
}

// The smallest `value` among those that may win, or among all where none may; the declared order breaks equality.
template <class Value>
const Entry& smallest(const std::vector<Entry>& entries, Value value) {
  const Entry* best = nullptr;
  auto order = [&](const Entry& e) { return std::make_tuple(!e.contender->may_win, value(e), e.standing.index); };
  for (const Entry& entry : entries)
    if (!best || order(entry) < order(*best)) best = &entry;
  return *best;
}

}  // namespace

std::vector<Standing> rank(const std::vector<Contender>& contenders, const DecisionRules& rules) {
  if (contenders.empty()) return {};
  std::vector<const std::vector<SampleSet>*> histories;
  for (const Contender& contender : contenders) histories.push_back(contender.samples);
  const std::map<uint64_t, double> levels = session_levels(histories);

  std::vector<Entry> entries;
  for (const Contender& contender : contenders) {
    Entry entry{&contender, {.index = contender.index}};
    entry.level = levels.at(entry.last().session);
    entry.standing.median_ns = median(entry.last().ns) * entry.level;
    entries.push_back(std::move(entry));
  }
  // The smallest median is only a first guess: under drift the smallest paired ratio is the better judge.
  const Entry* best = &smallest(entries, [](const Entry& e) { return e.standing.median_ns; });
  for (int pass = 0; pass < 2; ++pass) {
    for (Entry& entry : entries) compare(entry, *best, rules);
    const Entry* better = &smallest(entries, [](const Entry& e) { return e.standing.ratio; });
    if (pass == 1 || better == best) break;
    best = better;
  }
  for (Entry& entry : entries) {
    Standing& standing = entry.standing;
    bool paired = entry.last().session == best->last().session;
    bool close = standing.ratio <= 1 + tie_band(standing, paired, rules);
    standing.tied = &entry == best || (entry.contender->may_win && close);
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    const auto place = [](const Entry& e) {
      return std::make_tuple(!e.standing.tied, e.standing.tied ? 0 : e.standing.ratio, e.standing.index);
    };
    return place(a) < place(b);
  });
  std::vector<Standing> standings;
  for (const Entry& entry : entries) standings.push_back(entry.standing);
  return standings;
}

}  // namespace kachel::tuner
