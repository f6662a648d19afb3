#include "tuner/measurement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace kachel::tuner {
namespace {

bool ends_tuning(Code code) {
  return code == Code::kDeviceLost || code == Code::kCancelled;
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
  bool late = false;
  for (int run = 0; run < env_.limits.warmup_runs && !late; ++run) {
    std::vector<std::pair<Trial, double>> taken;
    double fastest = std::numeric_limits<double>::infinity();
    for (const Trial& trial : live_) {
      late = env_.deadline.passed();  // the rounds find out whether a sample is still owed
      if (late) break;
      KACHEL_ASSIGN(std::optional<double> ns, run_once(trial, Caches::kEvicted));
      if (ns) taken.emplace_back(trial, *ns);
      if (ns) fastest = std::min(fastest, *ns);
      KACHEL_TRY(report(&trial.record->configuration, false));
    }
    drop_failed();
    if (run + 1 == env_.limits.warmup_runs && fastest < env_.limits.long_run_ns && env_.runner.rotate(fastest))
      caches_ = Caches::kRotated;
    if (run > 0 || taken.empty() || fastest < env_.limits.slow_run_ns) continue;
    slow_ = true;
    for (const auto& [trial, ns] : taken) keep(trial, ns);
    rounds_done_ = 1;
    break;
  }
  return {};
}

// Looking costs a sort per candidate, so it happens at every round while candidates leave fast, later at every fourth.
bool Measurement::is_time_to_look(int rounds) const {
  const MeasurementLimits& limits = env_.limits;
  if (rounds < (slow_ ? limits.slow_first_prune_round : limits.first_prune_round)) return false;
  return rounds <= 12 || rounds % 4 == 0 || rounds == limits.long_run_rounds;
}

bool Measurement::rounds_suffice(int rounds) const {
  const MeasurementLimits& limits = env_.limits;
  const bool blocks = blocks_follow(best_ns_);
  if (!slow_ && !blocks) return rounds >= limits.min_rounds && rounds * best_ns_ >= limits.rounds_ns;
  if (rounds >= limits.long_run_rounds) return true;
  if (!slow_ || rounds < limits.slow_min_rounds) return false;
  return live_.size() <= (blocks ? limits.max_finalists : 1) || rounds * best_ns_ >= limits.slow_rounds_ns;
}

Status Measurement::short_rounds() {
  for (int round = static_cast<int>(rounds_done_); round < env_.limits.max_rounds && !live_.empty(); ++round) {
    for (size_t at : round_order(live_.size(), round)) {
      if (out_of_time()) return {};
      KACHEL_TRY(time(live_[at], true, caches_));
      KACHEL_TRY(report(&live_[at].record->configuration, false));
    }
    drop_failed();
    ++rounds_done_;
    KACHEL_TRY(report(nullptr, true));
    if (!live_.empty() && is_time_to_look(round + 1) && prune(round + 1)) break;
  }
  return {};
}

bool Measurement::prune(int rounds) {
  const MeasurementLimits& limits = env_.limits;
  std::vector<Standing> ranked = standings();
  const auto best = std::min_element(live_.begin(), live_.end(), [](const Trial& a, const Trial& b) {
    return median(a.record->samples.back().ns) < median(b.record->samples.back().ns);
  });
  best_ns_ = median(best->record->samples.back().ns);
  const std::vector<double>& best_runs = best->record->samples.back().ns;
  const double slowest_of_best = *std::max_element(best_runs.begin(), best_runs.end());
  const double margin = slow_ || blocks_follow(best_ns_) ? limits.long_run_margin : env_.rules.min_tie_band;

  std::vector<Trial> kept;
  for (const Trial& trial : live_) {
    const Standing& standing =
        *std::find_if(ranked.begin(), ranked.end(), [&](const Standing& s) { return s.index == trial.index; });
    const std::vector<double>& mine = trial.record->samples.back().ns;
    const double fastest = *std::min_element(mine.begin(), mine.end());
    bool far_off = fastest > limits.prune_ratio * best_ns_;
    bool surely_slower = standing.ratio_interval && standing.ratio_interval->low > 1 + margin;
    if (slow_ && rounds >= limits.slow_min_rounds) surely_slower |= fastest > (1 + margin) * slowest_of_best;
    if (far_off || surely_slower)
      lose(trial, fmt::format("took {:.3f} times the best after {} runs", standing.ratio, rounds));
    else
      kept.push_back(trial);
  }
  live_ = std::move(kept);
  std::erase_if(ranked, [&](const Standing& s) {
    return std::none_of(live_.begin(), live_.end(), [&](const Trial& t) { return t.index == s.index; });
  });
  return rounds_suffice(rounds) || (rounds >= limits.min_rounds && settled(ranked));
}

bool Measurement::settled(const std::vector<Standing>& standings) const {
  return std::all_of(standings.begin(), standings.end(), [&](const Standing& standing) {
    if (!standing.ratio_interval) return false;
    auto [low, high] = *standing.ratio_interval;
    double band = env_.rules.min_tie_band;
    return low > 1 + band || high < 1 + band || (high - low) / 2 <= env_.limits.target_half_width;
  });
}

// Who is known to have lost need not be known to half a percent.
void Measurement::drop_slower(const std::vector<Standing>& ranked) {
  for (const Standing& standing : ranked) {
    if (!standing.ratio_interval || standing.ratio_interval->low <= 1 + env_.rules.min_tie_band) continue;
    const auto trial =
        std::find_if(live_.begin(), live_.end(), [&](const Trial& one) { return one.index == standing.index; });
    lose(*trial, fmt::format("took {:.3f} times the best in blocks and rounds", standing.ratio));
    live_.erase(trial);
  }
}

const Effort& Measurement::effort_of(size_t index) const {
  return std::find_if(live_.begin(), live_.end(), [&](const Trial& trial) { return trial.index == index; })->effort;
}

// The fastest by its samples, the one that a tie would go to, then by rank, kinds that are not there yet first. More
// than the fastest alone would let noise choose; more than a few would make the blocks too dear.
void Measurement::choose_finalists() {
  std::vector<Standing> ranked = standings();
  auto fastest = std::min_element(ranked.begin(), ranked.end(), [](const Standing& a, const Standing& b) {
    return std::make_pair(a.ratio, a.index) < std::make_pair(b.ratio, b.index);
  });
  std::vector<size_t> chosen{fastest->index};
  for (const bool of_any_kind : {false, true})
    for (const Standing& standing : ranked) {
      if (chosen.size() >= env_.limits.max_finalists) break;
      const bool is_like_one = std::any_of(chosen.begin(), chosen.end(), [&](size_t other) {
        return other == standing.index || (!of_any_kind && alike(effort_of(other), effort_of(standing.index)));
      });
      if (!is_like_one) chosen.push_back(standing.index);
    }
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
    if (around + 1 < limits.min_blocks) continue;
    const std::vector<Standing> ranked = standings();
    if (settled(ranked)) break;
    drop_slower(ranked);
  }
  return {};
}

Status Measurement::block(const Trial& trial, int samples, int64_t lead_in_ns) {
  auto goes_on = [&] { return !has_failed(trial) && !out_of_time(); };
  Deadline lead_in(env_.clock, env_.clock.now_ns(), lead_in_ns);
  for (Caches caches = Caches::kEvicted; !lead_in.passed() && goes_on(); caches = Caches::kAsLeft) {
    KACHEL_TRY(time(trial, false, caches));
    KACHEL_TRY(report(&trial.record->configuration, false));
  }
  for (int i = 0; i < samples && goes_on(); ++i) {
    KACHEL_TRY(time(trial, true, Caches::kAsLeft));
    KACHEL_TRY(report(&trial.record->configuration, false));
  }
  return {};
}

Result<std::optional<double>> Measurement::run_once(const Trial& trial, Caches caches) {
  env_.runner.prepare_run(caches);
  Result<double> ns = env_.runner.time_once_ns(trial.index);
  ++timed_runs_;
  if (!ns.ok() && ends_tuning(ns.status().code())) return ns.status();
  if (ns.ok() && std::isfinite(*ns) && *ns > 0) return std::optional(*ns);
  note_failure(trial, ns.ok() ? fmt::format("the device reported a run of {} ns", *ns) : ns.status().message());
  return std::optional<double>();
}

// Of one that the runner can try no more, the samples that it has stand.
void Measurement::note_failure(const Trial& trial, std::string message) {
  CandidateRecord& record = *trial.record;
  failed_.insert(trial.index);
  const Verdict verdict = env_.runner.verdict(trial.index);
  if (verdict == Verdict::kNotTried && record.state != CandidateState::kUntried) return;
  record.state = state_after(verdict, CandidateState::kLaunchFailed);
  record.message = std::move(message);
}

void Measurement::keep(const Trial& trial, double ns) {
  CandidateRecord& record = *trial.record;
  if (record.samples.empty() || record.samples.back().session != session_) record.samples.push_back({session_, {}});
  record.samples.back().ns.push_back(ns);
  record.state = CandidateState::kMeasured;
  record.message.clear();
  has_sample_ = true;
}

Status Measurement::time(const Trial& trial, bool keep_it, Caches caches) {
  KACHEL_ASSIGN(std::optional<double> ns, run_once(trial, caches));
  if (ns && keep_it) keep(trial, *ns);
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
  std::erase_if(live_, [this](const Trial& trial) { return has_failed(trial); });
}

void Measurement::lose(const Trial& trial, std::string why) {
  trial.record->state = CandidateState::kPruned;
  trial.record->message = std::move(why);
}

bool Measurement::blocks_follow(double best_ns) const {
  return best_ns >= env_.limits.long_run_ns && best_ns < static_cast<double>(env_.limits.block_ns);
}

std::vector<Standing> Measurement::standings() const {
  std::vector<Contender> contenders;
  for (const Trial& trial : live_) contenders.push_back({trial.index, true, &trial.record->samples});
  return rank(contenders, env_.rules);
}

}  // namespace kachel::tuner
