#include "tuner/tuner.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <thread>

#include "tuner/compile_pool.h"
#include "tuner/space.h"

namespace kachel::tuner {
namespace {

// Fewer are what a budget left over. Where a candidate was pruned, the protocol had seen enough.
constexpr size_t kMinKnownSamples = 3;

Status validate(const TuneRequest& request) {
  if (request.candidates.empty()) return invalid("there is no configuration to tune; give at least one");
  if (request.candidates.size() > SearchSpace::kMaxConfigurations)
    return invalid(fmt::format("{} configurations are more than the {} that one tuning takes; prune them with 'where'",
                               request.candidates.size(), SearchSpace::kMaxConfigurations));
  if (request.default_index >= request.candidates.size())
    return invalid("the default configuration is not one of the candidates");
  std::set<std::string> keys;
  for (const Configuration& configuration : request.candidates)
    if (!keys.insert(configuration.key()).second)
      return invalid(fmt::format("configuration {} is listed twice; remove one of them", configuration.text()));
  return {};
}

bool is_served(const CandidateRecord& record) {
  return record.state == CandidateState::kMeasured || record.state == CandidateState::kPruned;
}

// Whether what is known of a candidate may take part in a decision.
bool stands(const CandidateRecord& known, const std::vector<SampleSet>& samples) {
  if (!is_served(known) || samples.empty()) return false;
  return known.state == CandidateState::kPruned || samples.back().ns.size() >= kMinKnownSamples;
}

// The state of one call of Tuner::tune.
class Run {
 public:
  Run(const TunerOptions& options, const TuneRequest& request, CandidateRunner& runner, Clock& clock,
      const Progress& progress)
      : options_(options),
        request_(request),
        runner_(runner),
        clock_(clock),
        reporter_(progress, clock),
        start_ns_(clock.now_ns()),
        compile_deadline_(clock, start_ns_, compile_budget()),
        deadline_(clock, start_ns_, request.budget_ns),
        compiled_(request.candidates.size(), false),
        passed_(request.candidates.size(), false),
        sampled_(request.candidates.size(), false) {}

  Result<TuningResult> run();

 private:
  int64_t compile_budget() const {
    if (request_.budget_ns == Deadline::kNever) return Deadline::kNever;
    return static_cast<int64_t>(options_.compile_share * static_cast<double>(request_.budget_ns));
  }
  CandidateRecord& record(size_t index) { return result_.candidates[index]; }

  void load_known();
  void admit_known();
  void set_aside(size_t index);
  void take_up_again();
  bool any_served() const;
  std::vector<size_t> missing() const;
  Status try_missing();
  Status contest();
  Status compile(const std::vector<size_t>& indices, const Deadline& deadline);
  Status check(const std::vector<size_t>& indices);
  Status measure(const std::vector<size_t>& indices, bool may_stop_empty);
  std::vector<Standing> standings(const std::vector<size_t>& indices) const;
  void finish();
  Status nothing_serves() const;

  const TunerOptions& options_;
  const TuneRequest& request_;
  CandidateRunner& runner_;
  Clock& clock_;
  Reporter reporter_;
  const int64_t start_ns_;
  const Deadline compile_deadline_;
  const Deadline deadline_;

  TuningResult result_;
  std::vector<bool> compiled_;
  std::vector<bool> passed_;
  std::vector<bool> sampled_;               // by this call
  std::vector<size_t> known_;               // whose samples came with the request and stand
  std::map<size_t, CandidateState> aside_;  // for their flaws; the state to which each would return
  bool flaws_count_ = true;
  uint64_t next_session_ = 0;
  bool prepared_ = false;
};

Result<TuningResult> Run::run() {
  load_known();
  KACHEL_TRY(try_missing());
  if (!aside_.empty() && !any_served()) {
    take_up_again();
    KACHEL_TRY(try_missing());
  }
  KACHEL_TRY(contest());
  finish();
  if (result_.ranking.empty()) return nothing_serves();
  KACHEL_TRY(reporter_.report({.phase = Phase::kDone,
                               .done = result_.candidates.size(),
                               .total = result_.candidates.size(),
                               .configuration = &result_.best().configuration,
                               .best_ns = result_.best().median_ns}));
  return std::move(result_);
}

void Run::load_known() {
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

  for (size_t i = 0; i < request_.candidates.size(); ++i) {
    CandidateRecord& mine = result_.candidates.emplace_back();
    mine.configuration = request_.candidates[i];
    auto found = by_key.find(mine.configuration.key());
    if (found == by_key.end()) continue;
    const CandidateRecord& known = *found->second;
    mine.samples = known.samples;
    std::erase_if(mine.samples, [](const SampleSet& set) { return set.ns.empty(); });
    mine.flaw = known.flaw;
    if (known.state == CandidateState::kRejectedWrong || stands(known, mine.samples)) {
      mine.state = known.state;
      mine.message = known.message;
    }
    if (!mine.flaw.empty() && mine.state != CandidateState::kRejectedWrong) set_aside(i);
  }
  admit_known();
}

// Those that are served, of which this call has sampled none.
void Run::admit_known() {
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

void Run::set_aside(size_t index) {
  CandidateRecord& mine = record(index);
  aside_[index] = mine.state;
  mine.state = CandidateState::kRejectedFlaw;
  mine.message = mine.flaw;
}

// REQUIRES: nobody is served.
void Run::take_up_again() {
  flaws_count_ = false;
  for (auto [index, state] : aside_) {
    record(index).state = state;
    record(index).message.clear();
  }
  aside_.clear();
  known_.clear();
  admit_known();
}

bool Run::any_served() const {
  return std::any_of(result_.candidates.begin(), result_.candidates.end(), is_served);
}

std::vector<size_t> Run::missing() const {
  std::vector<size_t> indices;
  for (size_t i = 0; i < result_.candidates.size(); ++i)
    if (result_.candidates[i].state == CandidateState::kUntried) indices.push_back(i);
  auto first = std::find(indices.begin(), indices.end(), request_.default_index);
  if (first != indices.end()) std::rotate(indices.begin(), first, first + 1);
  return indices;
}

// One pass, unless the budget cut it short before any candidate had samples: then on with those that remain, until one
// has, or until only flaws and no time are left. Each pass takes at least one candidate out of `missing`, so this ends.
Status Run::try_missing() {
  for (std::vector<size_t> todo = missing(); !todo.empty(); todo = missing()) {
    KACHEL_TRY(compile(todo, compile_deadline_));
    KACHEL_TRY(check(todo));
    KACHEL_TRY(measure(todo, !known_.empty()));
    if (any_served() || (!aside_.empty() && deadline_.passed())) break;
  }
  return {};
}

Status Run::contest() {
  std::vector<size_t> fresh, old;
  for (size_t i = 0; i < result_.candidates.size(); ++i) {
    if (record(i).state != CandidateState::kMeasured) continue;
    bool is_known = std::binary_search(known_.begin(), known_.end(), i);
    (is_known ? old : fresh).push_back(i);
  }
  if (fresh.empty() || old.empty()) return {};
  // Each side is represented by the one that its own tie goes to and by its fastest.
  std::vector<size_t> leaders;
  double best_ns[2];
  for (int side = 0; side < 2; ++side) {
    std::vector<Standing> ranked = standings(side == 0 ? old : fresh);
    auto fastest = std::min_element(ranked.begin(), ranked.end(),
                                    [](const Standing& a, const Standing& b) { return a.ratio < b.ratio; });
    best_ns[side] = median(record(fastest->index).samples.back().ns);
    leaders.push_back(ranked[0].index);
    if (fastest->index != ranked[0].index) leaders.push_back(fastest->index);
  }
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

Status Run::compile(const std::vector<size_t>& indices, const Deadline& deadline) {
  std::vector<size_t> order;
  for (size_t index : indices)
    if (!compiled_[index]) order.push_back(index);
  if (order.empty()) return {};
  if (order.size() < indices.size() && deadline.passed()) {  // some are compiled, and that has to do
    result_.budget_exhausted = true;
    return {};
  }
  unsigned workers = request_.workers;
  if (workers == 0) workers = std::clamp(std::thread::hardware_concurrency(), 1u, 16u);
  size_t done = 0;
  auto on_compiled = [&](size_t at, const CompileOutcome& outcome) -> Status {
    CandidateRecord& mine = record(order[at]);
    mine.compile_ns = outcome.ns;
    if (outcome.status.ok()) {
      compiled_[order[at]] = true;
      ++result_.counters.compiled;
      mine.flaw = runner_.flaw(order[at]);
      if (flaws_count_ && !mine.flaw.empty()) set_aside(order[at]);
    } else {
      mine.state = CandidateState::kCompileFailed;
      mine.message = outcome.status.message();
      ++result_.counters.compile_failed;
    }
    return reporter_.report(
        {.phase = Phase::kCompiling, .done = ++done, .total = order.size(), .configuration = &mine.configuration});
  };
  KACHEL_ASSIGN(auto outcomes, compile_candidates(order, runner_, clock_, deadline, workers, on_compiled));
  for (size_t i = 0; i < outcomes.size(); ++i) {
    if (outcomes[i].tried) continue;
    result_.budget_exhausted = true;
    if (record(order[i]).state == CandidateState::kUntried)
      record(order[i]).message = "the budget ended before its turn";
  }
  return {};
}

Status Run::check(const std::vector<size_t>& indices) {
  std::vector<size_t> todo;
  for (size_t index : indices)
    if (compiled_[index] && !passed_[index] && !aside_.count(index)) todo.push_back(index);
  bool any_passed = !known_.empty();
  size_t done = 0;
  for (size_t index : todo) {
    CandidateRecord& mine = record(index);
    if (any_passed && deadline_.passed()) {
      result_.budget_exhausted = true;
      if (mine.state == CandidateState::kUntried) mine.message = "the budget ended before it was checked";
      continue;
    }
    if (!prepared_) KACHEL_TRY(runner_.prepare());
    prepared_ = true;
    Status status = runner_.check(index);
    Code code = status.code();
    if (code == Code::kDeviceLost || code == Code::kCancelled) return status;
    ++result_.counters.checked;
    if (status.ok()) {
      passed_[index] = any_passed = true;
    } else {
      bool could_not_run = code == Code::kLaunch || code == Code::kNoMemory;
      mine.state = could_not_run ? CandidateState::kLaunchFailed : CandidateState::kRejectedWrong;
      mine.message = status.message();
      if (!could_not_run) ++result_.counters.rejected;
    }
    KACHEL_TRY(reporter_.report(
        {.phase = Phase::kChecking, .done = ++done, .total = todo.size(), .configuration = &mine.configuration}));
  }
  return {};
}

Status Run::measure(const std::vector<size_t>& indices, bool may_stop_empty) {
  std::vector<Trial> trials;
  std::vector<size_t> sets_before;
  for (size_t index : indices) {
    if (!passed_[index] || record(index).state == CandidateState::kLaunchFailed) continue;
    trials.push_back({index, &record(index)});
    sets_before.push_back(record(index).samples.size());
  }
  if (trials.empty()) return {};
  Measurement measurement({runner_, clock_, reporter_, options_.limits, options_.rules, deadline_}, trials,
                          next_session_, may_stop_empty);
  next_session_ += 2;
  Status status = measurement.run();
  result_.counters.timed_runs += measurement.timed_runs();
  result_.budget_exhausted |= measurement.cut_short();
  for (size_t i = 0; i < trials.size(); ++i) {
    CandidateRecord& mine = *trials[i].record;
    if (mine.samples.size() == sets_before[i]) {
      if (mine.state == CandidateState::kUntried) mine.message = "the budget ended before it was measured";
    } else if (std::binary_search(known_.begin(), known_.end(), trials[i].index)) {
      ++result_.counters.remeasured;
    } else if (!sampled_[trials[i].index]) {
      sampled_[trials[i].index] = true;
      ++result_.counters.measured;
    }
  }
  return status;
}

std::vector<Standing> Run::standings(const std::vector<size_t>& indices) const {
  std::vector<Contender> contenders;
  for (size_t index : indices) {
    const CandidateRecord& mine = result_.candidates[index];
    contenders.push_back({index, mine.state == CandidateState::kMeasured, &mine.samples});
  }
  return rank(contenders, options_.rules);
}

void Run::finish() {
  std::vector<size_t> served;
  bool any_measured = false;
  for (size_t i = 0; i < result_.candidates.size(); ++i) {
    CandidateRecord& mine = record(i);
    mine.summarize();
    if (!is_served(mine)) continue;
    served.push_back(i);
    any_measured |= mine.state == CandidateState::kMeasured;
  }
  // Whoever beat the pruned ones has failed since, so that they are the best there is.
  if (!any_measured)
    for (size_t index : served) {
      record(index).state = CandidateState::kMeasured;
      record(index).message.clear();
    }
  for (const Standing& standing : standings(served)) result_.ranking.push_back(standing.index);
  if (!result_.ranking.empty()) result_.winner = result_.ranking[0];
  result_.total_ns = clock_.now_ns() - start_ns_;
}

Status Run::nothing_serves() const {
  std::string log;
  bool all_failed_to_compile = true;
  for (const CandidateRecord& mine : result_.candidates) {
    log += fmt::format("{}: {}: {}\n", mine.configuration.text(), state_name(mine.state), mine.message);
    all_failed_to_compile &= mine.state == CandidateState::kCompileFailed;
  }
  const CandidateRecord& first = result_.candidates[request_.default_index];
  std::string what = all_failed_to_compile ? "compiled" : "compiled, gave the right result and could be launched";
  return {all_failed_to_compile ? Code::kCompile : Code::kLaunch,
          fmt::format("none of the {} configurations {}; {}: {}: {}", result_.candidates.size(), what,
                      first.configuration.text(), state_name(first.state), first.message),
          std::move(log)};
}

}  // namespace

Result<TuningResult> Tuner::tune(const TuneRequest& request, CandidateRunner& runner, Clock& clock,
                                 const Progress& progress) const {
  KACHEL_TRY(validate(request));
  return Run(options_, request, runner, clock, progress).run();
}

}  // namespace kachel::tuner
