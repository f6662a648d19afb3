#include "tuner/tuner.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tuner/run.h"
#include "tuner/space.h"

namespace kachel::tuner {
namespace {

Status validate(const TuneRequest& request) {
  if (request.candidates.empty()) return invalid("there is no configuration to tune; give at least one");
  if (request.candidates.size() > SearchSpace::kMaxConfigurations)
    return invalid(fmt::format("{} configurations are more than the {} that one tuning takes; prune them with 'where'",
                               request.candidates.size(), SearchSpace::kMaxConfigurations));
  if (request.default_index >= request.candidates.size())
    return invalid("the default configuration is not one of the candidates");
  if (request.favourite.value_or(0) >= request.candidates.size())
    return invalid("the configuration that is tried first is not one of the candidates");
  if (!request.forecasts.empty() && request.forecasts.size() != request.candidates.size())
    return invalid("there is not one forecast for each candidate");
  std::set<std::string> keys;
  for (const Configuration& configuration : request.candidates)
    if (!keys.insert(configuration.key()).second)
      return invalid(fmt::format("configuration {} is listed twice; remove one of them", configuration.text()));
  return {};
}

}  // namespace

Result<TuningResult> TuningRun::run() {
  Result<TuningResult> decided = decide();
  if (!decided.ok()) note_harms();
  if (decided.status().code() == Code::kCancelled && request_.on_cancelled) hand_over();
  return decided;
}

// Whoever has been sampled counts as measured: how many samples make it known is the later tuning's to say.
void TuningRun::hand_over() {
  for (CandidateRecord& mine : result_.candidates) {
    std::erase_if(mine.samples, [](const SampleSet& set) { return set.ns.empty(); });
    // One whose turn had not come is what it was.
    for (const CandidateRecord& known : request_.known)
      if (mine.state == CandidateState::kUntried && known.configuration == mine.configuration)
        mine.state = known.state, mine.message = known.message;
    if (mine.state == CandidateState::kUntried && !mine.samples.empty()) mine.state = CandidateState::kMeasured;
    mine.summarize();
  }
  request_.on_cancelled(result_.candidates);
}

Result<TuningResult> TuningRun::decide() {
  load_known();
  if (request_.trials > 0 && request_.trials < request_.candidates.size()) choose_trials();
  KACHEL_TRY(try_missing());
  while (wants_more() && widen(request_.trials)) KACHEL_TRY(try_missing());
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

bool TuningRun::any_served() const {
  return std::any_of(result_.candidates.begin(), result_.candidates.end(), is_served);
}

// Whether those for whom others were set aside are worth a trial: nobody serves, or so few that what was expected says
// little.
bool TuningRun::wants_more() const {
  if (!any_served()) return aside_.empty() || !deadline_.passed();
  const auto served = std::count_if(result_.candidates.begin(), result_.candidates.end(), is_served);
  return 2 * static_cast<size_t>(served) < request_.trials && !deadline_.passed() && !out_of_time_;
}

// Those to try, in this order.
std::vector<size_t> TuningRun::missing() {
  std::vector<size_t> indices;
  for (size_t i = 0; i < result_.candidates.size(); ++i) {
    const bool untried = result_.candidates[i].state == CandidateState::kUntried;
    if (untried && !twin_[i] && !beyond_[i] && runner_.verdict(i) != Verdict::kNotTried) indices.push_back(i);
  }
  auto first = std::find(indices.begin(), indices.end(), request_.default_index);
  if (first != indices.end()) std::rotate(indices.begin(), first, first + 1);
  if (indices.size() > 1) put_in_order(indices);
  (void)prefer_favourite(indices);
  return indices;
}

// By their forecasts, which are asked for first if nobody was; without twins.
void TuningRun::put_in_order(std::vector<size_t>& indices) {
  if (forecasts_.empty()) {
    forecasts_.resize(request_.candidates.size());
    const Deadline deadline(clock_, start_ns_, share_of(options_.forecast_share, request_.budget_ns));
    const std::vector<Forecast> found = forecast_all(indices, runner_, deadline, workers());
    for (size_t i = 0; i < indices.size(); ++i) forecasts_[indices[i]] = found[i];
    find_twins();
    std::erase_if(indices, [this](size_t index) { return twin_[index]; });
  }
  std::vector<Forecast> forecasts;
  for (size_t index : indices) forecasts.push_back(forecasts_[index]);
  order_by_forecast(forecasts, &indices);
}

// The favourite to the front; returns its place before.
size_t TuningRun::prefer_favourite(std::vector<size_t>& indices) const {
  const auto favourite = std::find(indices.begin(), indices.end(), request_.favourite.value_or(SIZE_MAX));
  if (favourite == indices.end()) return 0;
  const auto place = static_cast<size_t>(favourite - indices.begin());
  std::rotate(indices.begin(), favourite, favourite + 1);
  return place;
}

// By what is expected of all candidates, those that are known included, so that more trials add to fewer.
void TuningRun::choose_trials() {
  std::vector<size_t> indices{request_.default_index};
  for (size_t i = 0; i < request_.candidates.size(); ++i)
    if (i != request_.default_index) indices.push_back(i);
  put_in_order(indices);
  // It takes no other's place, so that who the others are hangs on no other key.
  const bool beside = prefer_favourite(indices) >= request_.trials;
  expected_ = std::move(indices);
  (void)widen(request_.trials + beside);
}

// By so many. False: there is nobody left to try.
bool TuningRun::widen(size_t count) {
  if (reach_ >= expected_.size()) return false;
  reach_ = std::min(reach_ + count, expected_.size());
  for (size_t at = 0; at < expected_.size(); ++at) {
    CandidateRecord& mine = record(expected_[at]);
    beyond_[expected_[at]] = at >= reach_;
    if (mine.state != CandidateState::kUntried) continue;
    mine.message = at < reach_ ? "" : fmt::format("not among the {} from which most is expected", reach_);
  }
  return true;
}

// Depths that memory has no room for, mostly.
void TuningRun::find_twins() {
  std::map<uint64_t, size_t> first;
  for (size_t i = 0; i < forecasts_.size(); ++i) {
    if (forecasts_[i].code == 0) continue;
    const auto [twin, fresh] = first.try_emplace(forecasts_[i].code, i);
    twin_[i] = !fresh;
    if (!fresh) record(i).message = fmt::format("the same code as {}", record(twin->second).configuration.text());
  }
}

// Pass by pass, as long as candidates are missing and there is time. Until one has samples, or until only flaws and no
// time are left, time does not matter. Each pass takes at least one candidate out of `missing`, so this ends.
Status TuningRun::try_missing() {
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

// The next pass's, or all of `todo` where the budget allows that.
Status TuningRun::try_first(const std::vector<size_t>& todo, size_t count) {
  const int64_t start_ns = clock_.now_ns(), budget_ns = share_of(options_.compile_share, left_ns());
  const Deadline deadline(clock_, start_ns, budget_ns);
  auto [batch, listed] = next_pass(todo, count);
  out_of_time_ = batch.empty();
  if (!out_of_time_) KACHEL_TRY(compile(batch, deadline));
  const double each_ns = static_cast<double>(clock_.now_ns() - start_ns) / static_cast<double>(batch.size());
  if (listed && each_ns * static_cast<double>(todo.size()) <= static_cast<double>(budget_ns) &&
      batch.size() < todo.size()) {
    batch = todo;
    KACHEL_TRY(compile(batch, deadline));
  }
  for (size_t index : todo)
    if (std::find(batch.begin(), batch.end(), index) == batch.end())
      record(index).message = "the budget ended before its turn";
  if (out_of_time_) return {};
  allow_a_look(batch);
  Status status = check(batch);
  std::vector<size_t> together = leaders_so_far();
  for (size_t index : batch)
    if (std::find(together.begin(), together.end(), index) == together.end()) together.push_back(index);
  if (status.ok()) status = measure(together, !known_.empty());
  set_budget(request_.budget_ns);
  return status;
}

// Of those that this call has sampled, the one that a tie goes to and the fastest. They run beside the next ones, so
// that these are compared with the best there is.
std::vector<size_t> TuningRun::leaders_so_far() const {
  std::vector<size_t> sampled;
  for (size_t index : known_)
    if (sampled_[index] && passed_[index] && result_.candidates[index].state == CandidateState::kMeasured)
      sampled.push_back(index);
  return leaders_of(sampled);
}

void TuningRun::finish() {
  std::vector<size_t> served;
  bool any_measured = false;
  for (size_t i = 0; i < result_.candidates.size(); ++i) {
    CandidateRecord& mine = record(i);
    mine.summarize();
    if (!is_served(mine)) continue;
    served.push_back(i);
    any_measured |= mine.state == CandidateState::kMeasured;
  }
  for (size_t i = 0; i < result_.candidates.size(); ++i)
    result_.budget_exhausted |= record(i).state == CandidateState::kUntried && !twin_[i] && !beyond_[i];
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

Status TuningRun::nothing_serves() const {
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

Result<TuningResult> Tuner::tune(const TuneRequest& request, CandidateRunner& runner, Clock& clock,
                                 const Progress& progress) const {
  KACHEL_TRY(validate(request));
  return TuningRun(options_, request, runner, clock, progress).run();
}

}  // namespace kachel::tuner
