#include <set>

#include "tuner/run.h"
#include "tuner/sessions.h"

namespace kachel::tuner {
namespace {

// Whether what is known of a candidate may take part in a decision. Where one was pruned, the protocol had seen enough.
bool stands(const CandidateRecord& known, const std::vector<SampleSet>& samples) {
  if (!is_served(known) || samples.empty()) return false;
  return known.state == CandidateState::kPruned || samples.back().ns.size() >= kFewestSamples;
}

}  // namespace

void TuningRun::load_known() {
  std::map<std::string, const CandidateRecord*> by_key;
  std::set<uint64_t> sessions;
  for (const CandidateRecord& known : request_.known) {
    by_key[known.configuration.key()] = &known;
    for (const SampleSet& set : known.samples) sessions.insert(set.session);
  }
  // A number that no known session has; a series takes two, and there are at most a few of them.
  next_session_ = static_cast<uint64_t>(start_ns_);
  while (!sessions.empty() && sessions.lower_bound(next_session_) != sessions.end() &&
         *sessions.lower_bound(next_session_) < next_session_ + 64)
    next_session_ = *sessions.lower_bound(next_session_) + 1;
  if (is_of_blocks(next_session_)) ++next_session_;

  for (size_t i = 0; i < request_.candidates.size(); ++i) {
    CandidateRecord& mine = result_.candidates.emplace_back();
    mine.configuration = request_.candidates[i];
    auto found = by_key.find(mine.configuration.key());
    if (found == by_key.end()) continue;
    const CandidateRecord& known = *found->second;
    mine.samples = known.samples;
    std::erase_if(mine.samples, [](const SampleSet& set) { return set.ns.empty(); });
    mine.flaw = known.flaw;
    const bool rejected = known.state == CandidateState::kRejectedWrong || is_harmful(known.state);
    if (rejected || (!request_.remeasure && stands(known, mine.samples))) {
      mine.state = known.state;
      mine.message = known.message;
    }
    if (!mine.flaw.empty() && !rejected) set_aside(i);
  }
  admit_known();
}

// Those that are served, of which this call has sampled none.
void TuningRun::admit_known() {
  bool any_measured = false;
  for (size_t i = 0; i < result_.candidates.size(); ++i) {
    if (!is_served(record(i))) continue;
    known_.push_back(i);
    any_measured |= record(i).state == CandidateState::kMeasured;
  }
  // A pruned candidate ranks behind one that beat it, or is tried anew.
  std::vector<Standing> ranked = standings(known_);
  for (const Standing& standing : ranked) {
    CandidateRecord& mine = record(standing.index);
    if (mine.state != CandidateState::kPruned || (any_measured && standing.ratio > 1)) continue;
    mine.state = CandidateState::kUntried;
    mine.message.clear();
    std::erase(known_, standing.index);
  }
}

void TuningRun::set_aside(size_t index) {
  CandidateRecord& mine = record(index);
  aside_[index] = mine.state;
  mine.state = CandidateState::kRejectedFlaw;
  mine.message = mine.flaw;
}

// REQUIRES: nobody is served.
void TuningRun::take_up_again() {
  flaws_count_ = false;
  for (auto [index, state] : aside_) {
    record(index).state = state;
    record(index).message.clear();
  }
  aside_.clear();
  known_.clear();
  admit_known();
}

// The one that their tie goes to and, last, the fastest, which may be the same.
std::vector<size_t> TuningRun::leaders_of(const std::vector<size_t>& indices) const {
  const std::vector<Standing> ranked = standings(indices);
  if (ranked.empty()) return {};
  const auto fastest = std::min_element(ranked.begin(), ranked.end(),
                                        [](const Standing& a, const Standing& b) { return a.ratio < b.ratio; });
  if (fastest->index == ranked[0].index) return {ranked[0].index};
  return {ranked[0].index, fastest->index};
}

// Between those whose samples came with the request and those that were sampled since, where no series has both.
Status TuningRun::contest() {
  std::vector<size_t> fresh, old;
  for (size_t i = 0; i < result_.candidates.size(); ++i) {
    if (record(i).state != CandidateState::kMeasured) continue;
    bool is_known = std::binary_search(known_.begin(), known_.end(), i);
    (is_known ? old : fresh).push_back(i);
  }
  if (fresh.empty() || old.empty()) return {};
  std::vector<size_t> leaders = leaders_of(old), newer = leaders_of(fresh);
  const auto last = [this](size_t index) -> const SampleSet& { return record(index).samples.back(); };
  if (last(leaders.back()).session == last(newer.back()).session) return {};
  const double best_ns[] = {median(last(leaders.back()).ns), median(last(newer.back()).ns)};
  leaders.insert(leaders.end(), newer.begin(), newer.end());
  double gap = best_ns[0] > best_ns[1] ? best_ns[0] / best_ns[1] : best_ns[1] / best_ns[0];
  if (gap > 1 + options_.contest_band) return {};
  if (deadline_.passed()) {
    result_.budget_exhausted = true;
    return {};
  }
  std::sort(leaders.begin(), leaders.end());
  KACHEL_TRY(compile(leaders, deadline_));
  KACHEL_TRY(check(leaders));
  std::erase_if(leaders, [&](size_t index) { return !passed_[index]; });
  if (leaders.size() < 2) return {};  // a failure or the deadline left nobody to compare with
  return measure(leaders, true);
}

}  // namespace kachel::tuner
