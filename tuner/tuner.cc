#include "tuner/tuner.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <thread>

#include "tuner/compile_pool.h"
#include "tuner/forecast.h"
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
        deadline_(clock, start_ns_, request.budget_ns),
        compiled_(request.candidates.size(), false),
        passed_(request.candidates.size(), false),
        sampled_(request.candidates.size(), false) {}

  Result<TuningResult> run();

 private:
  bool unlimited() const { return request_.budget_ns == Deadline::kNever; }
  // What is left of the budget, at least 0.
  int64_t left_ns() const {
    return unlimited() ? Deadline::kNever : std::max<int64_t>(start_ns_ + request_.budget_ns - clock_.now_ns(), 0);
  }
  int64_t share_of(double share, int64_t ns) const {
    return unlimited() ? Deadline::kNever : static_cast<int64_t>(share * static_cast<double>(ns));
  }
  unsigned workers() const {
    return request_.workers ? request_.workers : std::clamp(std::thread::hardware_concurrency(), 1u, 16u);
  }
  CandidateRecord& record(size_t index) { return result_.candidates[index]; }

  void load_known();
  void admit_known();
  void set_aside(size_t index);
  void take_up_again();
  bool any_served() const;
  std::vector<size_t> missing();
  Status try_missing();
  Status try_first(const std::vector<size_t>& todo, size_t count);
  size_t next_batch(size_t tried, int64_t pass_start_ns) const;
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
  const Deadline deadline_;

  TuningResult result_;
  std::vector<Forecast> forecasts_;  // of all candidates, once they were asked for
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

// Those to try, in this order.
std::vector<size_t> Run::missing() {
  std::vector<size_t> indices;
  for (size_t i = 0; i < result_.candidates.size(); ++i)
    if (result_.candidates[i].state == CandidateState::kUntried) indices.push_back(i);
  auto first = std::find(indices.begin(), indices.end(), request_.default_index);
  if (first != indices.end()) std::rotate(indices.begin(), first, first + 1);
  if (indices.size() < 2) return indices;
  if (forecasts_.empty()) {
    forecasts_.resize(request_.candidates.size());
    const Deadline deadline(clock_, start_ns_, share_of(options_.forecast_share, request_.budget_ns));
    const std::vector<Forecast> found = forecast_all(indices, runner_, deadline, workers());
    for (size_t i = 0; i < indices.size(); ++i) forecasts_[indices[i]] = found[i];
  }
  std::vector<Forecast> forecasts;
  for (size_t index : indices) forecasts.push_back(forecasts_[index]);
  order_by_forecast(forecasts, &indices);
  return indices;
}

// Pass by pass, as long as candidates are missing and there is time. Until one has samples, or until only flaws and no
// time are left, time does not matter. Each pass takes at least one candidate out of `missing`, so this ends.
Status Run::try_missing() {
  size_t count = std::max<size_t>(options_.batch, workers());
  for (std::vector<size_t> todo = missing(); !todo.empty(); todo = missing()) {
    const int64_t start_ns = clock_.now_ns();
    KACHEL_TRY(try_first(todo, std::min(count, todo.size())));
    if (!any_served()) {
      if (!aside_.empty() && deadline_.passed()) break;
      continue;
    }
    const size_t left = missing().size();
    count = next_batch(todo.size() - left, start_ns);
    if (left == 0 || left == todo.size() || count == 0) break;
    // What was measured so far stands for the candidates that are still to come.
    KACHEL_TRY(contest());
    known_.clear();
    for (size_t i = 0; i < result_.candidates.size(); ++i)
      if (is_served(record(i))) known_.push_back(i);
  }
  return {};
}

// The first `count` of `todo`, or all of them where the budget allows that.
Status Run::try_first(const std::vector<size_t>& todo, size_t count) {
  const int64_t start_ns = clock_.now_ns(), budget_ns = share_of(options_.compile_share, left_ns());
  const Deadline deadline(clock_, start_ns, budget_ns);
  if (unlimited()) count = todo.size();
  std::vector<size_t> batch(todo.begin(), todo.begin() + static_cast<std::ptrdiff_t>(count));
  KACHEL_TRY(compile(batch, deadline));
  const double each_ns = static_cast<double>(clock_.now_ns() - start_ns) / static_cast<double>(count);
  if (each_ns * static_cast<double>(todo.size()) <= static_cast<double>(budget_ns) && count < todo.size()) {
    batch = todo;
    KACHEL_TRY(compile(batch, deadline));
  }
  for (size_t i = batch.size(); i < todo.size(); ++i) record(todo[i]).message = "the budget ended before its turn";
  KACHEL_TRY(check(batch));
  return measure(batch, !known_.empty());
}

// How many candidates there is time for, after a pass over `tried`.
size_t Run::next_batch(size_t tried, int64_t pass_start_ns) const {
  if (unlimited()) return std::max<size_t>(options_.batch, workers());
  const double each_ns =
      static_cast<double>(clock_.now_ns() - pass_start_ns) / static_cast<double>(std::max<size_t>(tried, 1));
  const double fit = static_cast<double>(left_ns()) / std::max(each_ns, 1.0);
  return static_cast<size_t>(std::min(fit, static_cast<double>(std::max<size_t>(options_.batch, workers()))));
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
  KACHEL_ASSIGN(auto outcomes, compile_candidates(order, runner_, clock_, deadline, workers(), on_compiled));
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
    } else if (!sampled_[trials[i].index] && std::binary_search(known_.begin(), known_.end(), trials[i].index)) {
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
  for (const CandidateRecord& mine : result_.candidates)
    result_.budget_exhausted |= mine.state == CandidateState::kUntried;
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
