#include <algorithm>
#include <cmath>
#include <utility>

#include "tuner/compile_pool.h"
#include "tuner/run.h"

namespace kachel::tuner {

void TuningRun::note_failure(size_t index, CandidateState otherwise, std::string message) {
  CandidateRecord& mine = record(index);
  const Verdict verdict = runner_.verdict(index);
  if (verdict == Verdict::kNotTried && is_served(mine)) return;
  mine.state = state_after(verdict, otherwise);
  mine.message = std::move(message);
  tell_dropped(index);
}

void TuningRun::tell_dropped(size_t index) const {
  const CandidateRecord& mine = result_.candidates[index];
  if (mine.state == CandidateState::kUntried) return;
  const auto& tell = is_harmful(mine.state) ? request_.on_harm : request_.on_dropped;
  if (tell) tell(index, mine);
}

// Whoever has samples already loses its place by it.
void TuningRun::note_harms() {
  for (CandidateRunner::Harm& harm : runner_.take_harms()) {
    CandidateRecord& mine = record(harm.index);
    if (is_harmful(mine.state)) continue;
    mine.state = state_after(harm.verdict, mine.state);
    mine.message = std::move(harm.how);
    aside_.erase(harm.index);
    if (request_.on_harm) request_.on_harm(harm.index, mine);
  }
}

Status TuningRun::compile(const std::vector<size_t>& indices, const Deadline& deadline) {
  std::vector<size_t> order;
  for (size_t index : indices)
    if (!compiled_[index]) order.push_back(index);
  if (order.empty()) return {};
  if (order.size() < indices.size() && deadline.passed()) {  // some are compiled, and that has to do
    result_.budget_exhausted = true;
    return {};
  }
  const bool reference = !std::exchange(reference_compiled_, true);
  // Which has a thread to itself where nobody asked for fewer: else the candidate that follows it is waited for alone.
  const unsigned threads = workers() + (reference && request_.workers == 0);
  // Where all are compiled in any case, what takes longest begins first, so that it is not waited for at the end.
  if (!forecasts_.empty() && (unlimited() || order.size() + reference <= threads))
    std::stable_sort(order.begin(), order.end(),
                     [this](size_t a, size_t b) { return forecasts_[a].text_bytes > forecasts_[b].text_bytes; });
  const bool checks = workers() > 1 && runner_.checks_beside_compiling();
  size_t done = 0;
  auto on_compiled = [&](size_t at, const CompileOutcome& outcome) -> Status {
    CandidateRecord& mine = record(order[at]);
    mine.compile_ns = outcome.ns;
    if (outcome.status.ok()) {
      compiled_[order[at]] = true;
      ++result_.counters.compiled;
      mine.flaw = runner_.flaw(order[at]);
      if (flaws_count_ && !mine.flaw.empty()) {
        set_aside(order[at]);
        tell_dropped(order[at]);
      }
    } else {
      note_failure(order[at], CandidateState::kCompileFailed, outcome.status.message());
      ++result_.counters.compile_failed;
    }
    KACHEL_TRY(reporter_.report(
        {.phase = Phase::kCompiling, .done = ++done, .total = order.size(), .configuration = &mine.configuration}));
    // As long as others compile it costs no time.
    const bool now =
        checks && compiled_[order[at]] && !aside_.count(order[at]) && (done < order.size() || !deadline.passed());
    return now ? check_one(order[at]) : Status();
  };
  KACHEL_ASSIGN(auto outcomes, compile_candidates(order, runner_, clock_, deadline, threads, reference, on_compiled));
  for (size_t i = 0; i < outcomes.size(); ++i) {
    if (outcomes[i].tried) continue;
    result_.budget_exhausted = true;
    if (record(order[i]).state == CandidateState::kUntried)
      record(order[i]).message = "the budget ended before its turn";
  }
  return {};
}

Status TuningRun::check(const std::vector<size_t>& indices) {
  std::vector<size_t> unchecked;
  for (size_t index : indices)
    if (compiled_[index] && !checked_[index] && !aside_.count(index)) unchecked.push_back(index);
  size_t done = 0;
  const Deadline deadline(clock_, clock_.now_ns(), share_of(options_.check_share, left_ns()));
  for (size_t index : unchecked) {
    CandidateRecord& mine = record(index);
    const bool any_passed = std::any_of(indices.begin(), indices.end(), [this](size_t i) {
      return passed_[i] && (record(i).state == CandidateState::kUntried || is_served(record(i)));
    });
    if ((any_passed || !known_.empty()) && deadline.passed()) {
      result_.budget_exhausted = true;
      if (mine.state == CandidateState::kUntried) mine.message = "the budget ended before it was checked";
      continue;
    }
    KACHEL_TRY(check_one(index));
    KACHEL_TRY(reporter_.report(
        {.phase = Phase::kChecking, .done = ++done, .total = unchecked.size(), .configuration = &mine.configuration}));
  }
  note_harms();
  return {};
}

Status TuningRun::check_one(size_t index) {
  if (!prepared_) {
    Status prepared = runner_.prepare();
    note_harms();
    KACHEL_TRY(std::move(prepared));
  }
  prepared_ = true;
  if (is_harmful(record(index).state)) return {};
  Status status = runner_.check(index);
  const Code code = status.code();
  if (code == Code::kDeviceLost || code == Code::kCancelled) return status;
  ++result_.counters.checked;
  checked_[index] = true;
  passed_[index] = status.ok();
  if (status.ok()) return {};
  const bool could_not_run = code == Code::kLaunch || code == Code::kNoMemory;
  note_failure(index, could_not_run ? CandidateState::kLaunchFailed : CandidateState::kRejectedWrong, status.message());
  if (!could_not_run) ++result_.counters.rejected;
  return {};
}

Status TuningRun::measure(const std::vector<size_t>& indices, bool may_stop_empty) {
  std::vector<Trial> trials;
  std::vector<size_t> sets_before;
  for (size_t index : indices) {
    const CandidateState state = record(index).state;
    if (!passed_[index] || state == CandidateState::kLaunchFailed || is_harmful(state)) continue;
    trials.push_back({index, &record(index), forecasts_.empty() ? Effort() : forecasts_[index].effort});
    sets_before.push_back(record(index).samples.size());
  }
  if (trials.empty()) return {};
  if (request_.own_benchmark) return benchmark(trials);
  Measurement measurement({runner_, clock_, reporter_, options_.limits, options_.rules, deadline_}, trials,
                          next_session_, may_stop_empty);
  next_session_ += 2;
  Status status = measurement.run();
  result_.counters.timed_runs += measurement.timed_runs();
  result_.budget_exhausted |= measurement.cut_short();
  for (size_t i = 0; i < trials.size(); ++i) {
    CandidateRecord& mine = *trials[i].record;
    if (is_harmful(mine.state) || mine.state == CandidateState::kLaunchFailed) tell_dropped(trials[i].index);
    // Too few to be compared by.
    const bool cut_off = measurement.cut_short() && !known_.empty() && mine.samples.size() == sets_before[i] + 1 &&
                         mine.samples.back().ns.size() < kFewestSamples && !sampled_[trials[i].index];
    if (cut_off && is_served(mine)) {
      mine.state = CandidateState::kUntried;
      mine.message = "the budget ended while it was measured";
    } else if (mine.samples.size() == sets_before[i]) {
      if (mine.state == CandidateState::kUntried && mine.message.empty())
        mine.message = "the budget ended before it was measured";
    } else if (!sampled_[trials[i].index] && std::binary_search(known_.begin(), known_.end(), trials[i].index)) {
      ++result_.counters.remeasured;
    } else if (!sampled_[trials[i].index]) {
      sampled_[trials[i].index] = true;
      ++result_.counters.measured;
    }
  }
  note_harms();
  return status;
}

// One series, as if sample i of each candidate had been taken in the same round: whoever takes them owes that they can
// be compared.
Status TuningRun::benchmark(const std::vector<Trial>& trials) {
  const uint64_t session = std::exchange(next_session_, next_session_ + 2);
  size_t done = 0;
  for (const Trial& trial : trials) {
    CandidateRecord& mine = *trial.record;
    if (done > 0 && deadline_.passed()) {
      result_.budget_exhausted = true;
      if (mine.state == CandidateState::kUntried) mine.message = "the budget ended before it was measured";
      continue;
    }
    Result<std::vector<double>> samples = runner_.benchmark(trial.index);
    const Code code = samples.status().code();
    if (code == Code::kDeviceLost || code == Code::kCancelled) return samples.status();
    const bool sound =
        samples.ok() && !samples->empty() &&
        std::all_of(samples->begin(), samples->end(), [](double ns) { return std::isfinite(ns) && ns > 0; });
    if (sound) {
      result_.counters.timed_runs += samples->size();
      ++(mine.samples.empty() ? result_.counters.measured : result_.counters.remeasured);
      mine.samples.push_back({session, *std::move(samples)});
      mine.state = CandidateState::kMeasured;
      sampled_[trial.index] = true;
    } else {
      mine.state = CandidateState::kLaunchFailed;
      mine.message =
          samples.ok() ? "the host's benchmark gave no samples, or some that are no times" : samples.status().message();
      tell_dropped(trial.index);
    }
    KACHEL_TRY(reporter_.report(
        {.phase = Phase::kMeasuring, .done = ++done, .total = trials.size(), .configuration = &mine.configuration}));
  }
  return {};
}

std::vector<Standing> TuningRun::standings(const std::vector<size_t>& indices) const {
  std::vector<Contender> contenders;
  for (size_t index : indices) {
    const CandidateRecord& mine = result_.candidates[index];
    contenders.push_back({index, mine.state == CandidateState::kMeasured, &mine.samples});
  }
  return rank(contenders, options_.rules);
}

}  // namespace kachel::tuner
