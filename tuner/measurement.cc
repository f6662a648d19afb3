#include "tuner/measurement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace kachel::tuner {
namespace {

bool ends_tuning(Code code) {
  return code == Code::kDeviceLost || code == Code::kCancelled;
}

// Looking costs a sort per candidate, so it happens at every round while candidates leave fast, later at every fourth.
bool is_time_to_look(int rounds, const MeasurementLimits& limits) {
  if (rounds < limits.first_prune_round) return false;
  return rounds <= 12 || rounds % 4 == 0 || rounds == limits.long_run_rounds;
}

}  // namespace

std::vector<size_t> round_order(size_t n, size_t round) {
  std::vector<size_t> order(n);
  for (size_t i = 0; i < n; ++i) order[i] = (i + round / 2) % n;
  if (round % 2 == 1) std::reverse(order.begin(), order.end());
  return order;
}

Measurement::Measurement(const Environment& environment, std::vector<Trial> trials, uint64_t first_session,
                         bool may_stop_empty)
    : env_(environment), live_(std::move(trials)), session_(first_session), has_sample_(may_stop_empty) {}

Status Measurement::run() {
  KACHEL_TRY(warm_up());
  KACHEL_TRY(short_rounds());
  if (cut_short_) return {};
  if (live_.size() < 2 || !blocks_follow(best_ns_)) return {};
  choose_finalists();
  if (live_.size() < 2) return {};
  ++session_;
  return blocks();
}

Status Measurement::warm_up() {
  for (int run = 0; run < env_.limits.warmup_runs; ++run) {
    for (const Trial& trial : live_) {
      if (env_.deadline.passed()) return {};  // the rounds find out whether a sample is still owed
      KACHEL_TRY(time(trial, false));
      KACHEL_TRY(report(&trial.record->configuration, false));
    }
    drop_failed();
  }
  return {};
}

Status Measurement::short_rounds() {
  for (int round = 0; round < env_.limits.max_rounds && !live_.empty(); ++round) {
    for (size_t at : round_order(live_.size(), round)) {
      if (out_of_time()) return {};
      KACHEL_TRY(time(live_[at], true));
      KACHEL_TRY(report(&live_[at].record->configuration, false));
    }
    drop_failed();
    ++rounds_done_;
    KACHEL_TRY(report(nullptr, true));
    if (!live_.empty() && is_time_to_look(round + 1, env_.limits) && prune(round + 1)) break;
  }
  return {};
}

bool Measurement::prune(int rounds) {
  const MeasurementLimits& limits = env_.limits;
  std::vector<Standing> ranked = standings();
  best_ns_ = median(live_[0].record->samples.back().ns);
  for (const Trial& trial : live_) best_ns_ = std::min(best_ns_, median(trial.record->samples.back().ns));
  bool is_long = blocks_follow(best_ns_);
  double margin = is_long ? limits.long_run_margin : env_.rules.min_tie_band;

  std::vector<Trial> kept;
  for (const Trial& trial : live_) {
    const Standing& standing =
        *std::find_if(ranked.begin(), ranked.end(), [&](const Standing& s) { return s.index == trial.index; });
    const std::vector<double>& mine = trial.record->samples.back().ns;
    bool far_off = *std::min_element(mine.begin(), mine.end()) > limits.prune_ratio * best_ns_;
    bool surely_slower = standing.ratio_interval && standing.ratio_interval->low > 1 + margin;
    if (far_off || surely_slower)
      lose(trial, fmt::format("took {:.3f} times the best after {} runs", standing.ratio, rounds));
    else
      kept.push_back(trial);
  }
  live_ = std::move(kept);
  std::erase_if(ranked, [&](const Standing& s) {
    return std::none_of(live_.begin(), live_.end(), [&](const Trial& t) { return t.index == s.index; });
  });
  if (is_long && rounds >= limits.long_run_rounds) return true;
  return rounds >= limits.min_rounds && settled(ranked);
}

bool Measurement::settled(const std::vector<Standing>& standings) const {
  return std::all_of(standings.begin(), standings.end(), [&](const Standing& standing) {
    if (!standing.ratio_interval) return false;
    auto [low, high] = *standing.ratio_interval;
    double band = env_.rules.min_tie_band;
    return low > 1 + band || high < 1 + band || (high - low) / 2 <= env_.limits.target_half_width;
  });
}

// The fastest by its samples, the one that a tie would go to, then by rank. More than the fastest alone would let noise
// choose; more than a few would make the blocks too dear.
void Measurement::choose_finalists() {
  std::vector<Standing> ranked = standings();
  auto fastest = std::min_element(ranked.begin(), ranked.end(), [](const Standing& a, const Standing& b) {
    return std::make_pair(a.ratio, a.index) < std::make_pair(b.ratio, b.index);
  });
  std::vector<size_t> chosen{fastest->index};
  for (const Standing& standing : ranked)
    if (chosen.size() < env_.limits.max_finalists && standing.index != fastest->index) chosen.push_back(standing.index);
  std::vector<Trial> kept;
  for (const Trial& trial : live_) {
    if (std::find(chosen.begin(), chosen.end(), trial.index) != chosen.end())
      kept.push_back(trial);
    else
      lose(trial, fmt::format("not among the {} finalists after {} rounds", chosen.size(), rounds_done_));
  }
  live_ = std::move(kept);
}

Status Measurement::blocks() {
  const MeasurementLimits& limits = env_.limits;
  const int64_t lead_in_ns = static_cast<int64_t>(limits.lead_in * static_cast<double>(limits.block_ns));
  const double recorded_ns = static_cast<double>(limits.block_ns - lead_in_ns);
  const int samples = static_cast<int>(std::clamp(recorded_ns / best_ns_, 1.0, double(limits.max_block_samples)));
  for (int around = 0; around < limits.max_blocks; ++around) {
    std::vector<Trial> turn = live_;
    if (around % 2 == 1) std::reverse(turn.begin(), turn.end());
    for (const Trial& trial : turn) {
      KACHEL_TRY(block(trial, samples, lead_in_ns));
      if (cut_short_) return {};
    }
    drop_failed();
    ++rounds_done_;
    KACHEL_TRY(report(nullptr, true));
    if (live_.size() < 2) break;
    if (around + 1 >= limits.min_blocks && settled(standings())) break;
  }
  return {};
}

Status Measurement::block(const Trial& trial, int samples, int64_t lead_in_ns) {
  auto goes_on = [&] { return trial.record->state != CandidateState::kLaunchFailed && !out_of_time(); };
  Deadline lead_in(env_.clock, env_.clock.now_ns(), lead_in_ns);
  while (!lead_in.passed() && goes_on()) {
    KACHEL_TRY(time(trial, false));
    KACHEL_TRY(report(&trial.record->configuration, false));
  }
  for (int i = 0; i < samples && goes_on(); ++i) {
    KACHEL_TRY(time(trial, true));
    KACHEL_TRY(report(&trial.record->configuration, false));
  }
  return {};
}

Status Measurement::time(const Trial& trial, bool keep) {
  CandidateRecord& record = *trial.record;
  env_.runner.flush();
  Result<double> ns = env_.runner.time_once_ns(trial.index);
  ++timed_runs_;
  if (!ns.ok()) {
    if (ends_tuning(ns.status().code())) return ns.status();
    record.state = CandidateState::kLaunchFailed;
    record.message = ns.status().message();
    return {};
  }
  if (!std::isfinite(*ns) || *ns <= 0) {
    record.state = CandidateState::kLaunchFailed;
    record.message = fmt::format("the device reported a run of {} ns", *ns);
    return {};
  }
  if (!keep) return {};
  if (record.samples.empty() || record.samples.back().session != session_) record.samples.push_back({session_, {}});
  record.samples.back().ns.push_back(*ns);
  record.state = CandidateState::kMeasured;
  record.message.clear();
  has_sample_ = true;
  return {};
}

Status Measurement::report(const Configuration* configuration, bool always) {
  const MeasurementLimits& limits = env_.limits;
  ProgressEvent event{.phase = Phase::kMeasuring, .done = rounds_done_, .configuration = configuration};
  event.total = static_cast<size_t>(limits.max_rounds + limits.max_blocks);
  if (best_ns_ > 0) event.best_ns = best_ns_;
  return always ? env_.reporter.report(event) : env_.reporter.tick(event);
}

bool Measurement::out_of_time() {
  if (cut_short_) return true;
  cut_short_ = has_sample_ && env_.deadline.passed();
  return cut_short_;
}

void Measurement::drop_failed() {
  std::erase_if(live_, [](const Trial& trial) { return trial.record->state == CandidateState::kLaunchFailed; });
}

void Measurement::lose(const Trial& trial, std::string why) {
  trial.record->state = CandidateState::kPruned;
  trial.record->message = std::move(why);
}

bool Measurement::blocks_follow(double best_ns) const {
  return env_.limits.block_ns > 0 && best_ns >= env_.limits.long_run_ns;
}

std::vector<Standing> Measurement::standings() const {
  std::vector<Contender> contenders;
  for (const Trial& trial : live_) contenders.push_back({trial.index, true, &trial.record->samples});
  return rank(contenders, env_.rules);
}

}  // namespace kachel::tuner
