// Whether a stored decision still holds: the configurations that it ranks are measured anew, all in one interleaved
// series, since what was measured then was measured at that day's clocks. The present winner is listed first, and ties
// go to whoever is; so another one replaces it only where it wins beyond the tie band.
#include <fmt/format.h>

#include <algorithm>

#include "runtime/engine/specialise/configurations.h"
#include "runtime/engine/tuning/ranking.h"
#include "runtime/engine/tuning/trials.h"
#include "runtime/profile_range.h"

namespace kachel::runtime {
namespace {

constexpr size_t kMostSets = 16;  // of samples, of each configuration: the latest

}  // namespace

Result<bool> Ranking::recheck() {
  const ProfileRange range("check {}", model_.kernel.name);
  const cache::Key key = this->key();
  // Where somebody is at it already, here or in another process, there is nothing to do.
  const tuner::SingleFlight::Ticket ticket = engine_.flights().join(key.bytes, 0);
  if (ticket.role() != tuner::SingleFlight::Role::kLeader) return false;
  const cache::Store::Claim claim = engine_.store().claim(key, 0);
  if (claim.waited()) return false;
  const auto decision = records().decision();
  if (!decision) return false;
  const std::vector<TunableValues> order = usable(admitted_of(*decision), tuner::WinnerRecord::kRanked);
  if (order.size() < 2) return false;

  tuner::TuneRequest request;
  for (const TunableValues& values : order) {
    request.candidates.push_back(to_configuration(values));
    if (auto known = records().sample(values, true)) request.known.push_back(*std::move(known));
  }
  request.remeasure = true;
  limit_and_watch(order, &request);
  const Result<Runner> session = session_(order);
  KACHEL_TRY(session.status());
  auto measured = tuner::Tuner(tuner_options()).tune(request, *session->runner, engine_.clock(), progress());
  if (!measured.ok()) return tuning_failed(measured.status());
  if (engine_.device_lost()) return Status(Code::kDeviceLost, "the device failed during the check of a decision");
  engine_.counters().drift_checks.fetch_add(1, std::memory_order_relaxed);
  // A budget that ended before the present winner's turn says nothing about it.
  if (measured->candidates[0].state == tuner::CandidateState::kUntried) return false;
  const bool replaced = measured->winner != 0;
  keep_recheck(*decision, order, *measured, replaced);
  double recorded_ns = 0;
  for (const auto& ranked : decision->winner.ranked)
    if (ranked.configuration == request.candidates[0]) recorded_ns = ranked.median_ns;
  tell_rechecked(recorded_ns, order, *measured);
  if (replaced) engine_.counters().drift_replacements.fetch_add(1, std::memory_order_relaxed);
  return replaced;
}

// Behind those that were measured stays who was not: what its launches fail or compute is known elsewhere.
void Ranking::keep_recheck(const TuningDecision& old, const std::vector<TunableValues>& order,
                           const tuner::TuningResult& measured, bool replaced) {
  std::vector<tuner::CandidateRecord> samples;
  std::vector<TunableValues> sampled;
  for (size_t i = 0; i < order.size(); ++i) {
    tuner::CandidateRecord record = measured.candidates[i];
    if (record.state == tuner::CandidateState::kUntried) continue;
    // Without another lowering, the winner is what they are compared with: which of the two errs is not known.
    if (record.state == tuner::CandidateState::kRejectedWrong && device_.properties().compute_major == 0) continue;
    if (record.samples.size() > kMostSets)
      record.samples.erase(record.samples.begin(), record.samples.end() - kMostSets);
    samples.push_back(std::move(record));
    sampled.push_back(order[i]);
  }
  TuningDecision decision = old;
  auto& ranked = decision.winner.ranked = tuner::winner_record(measured).ranked;
  for (const auto& before : old.winner.ranked) {
    const auto same = [&](const auto& each) { return each.configuration == before.configuration; };
    if (ranked.size() < tuner::WinnerRecord::kRanked && std::none_of(ranked.begin(), ranked.end(), same))
      ranked.push_back(before);
  }
  TuningStore store = records();
  Status saved = replaced ? store.replace(decision, samples, sampled, order[measured.winner])
                          : store.save_samples(samples, sampled);
  if (!saved.ok())
    engine_.log().write(LogLevel::kWarning, fmt::format("a checked decision was not stored: {}", saved.message()));
}

void Ranking::tell_rechecked(double recorded_ns, const std::vector<TunableValues>& order,
                             const tuner::TuningResult& measured) {
  const std::string was = configuration_text(model_, order[0]), is = configuration_text(model_, order[measured.winner]);
  const tuner::CandidateState state = measured.candidates[0].state;
  const bool works = state == tuner::CandidateState::kMeasured || state == tuner::CandidateState::kPruned;
  const double was_ns = works ? measured.candidates[0].median_ns : 0, is_ns = measured.best().median_ns;
  const double ratio = was_ns / recorded_ns, band = 1 + engine_.options().tuner.contest_band;
  const bool replaced = measured.winner != 0;
  const bool moved = works && recorded_ns > 0 && (ratio > band || ratio < 1 / band);  // more than clocks explain
  std::string message;
  if (replaced && works)
    message = fmt::format("kernel `{}`: {} takes {:.1f} us now, {} {:.1f}, which serves from now on",
                          model_.kernel.name, was, was_ns / 1000, is, is_ns / 1000);
  else if (replaced)
    message = fmt::format("kernel `{}`: {} does not work any more, and {} serves from now on: {}", model_.kernel.name,
                          was, is, in_program_names({Code::kLaunch, measured.candidates[0].message}).message());
  else
    message = fmt::format("kernel `{}`: {} takes {:.1f} us now, {:.1f} when it was chosen, and is still the quickest",
                          model_.kernel.name, was, was_ns / 1000, recorded_ns / 1000);
  engine_.log().write({.kind = replaced ? EventKind::kDecisionReplaced
                               : moved  ? EventKind::kDriftNoticed
                                        : EventKind::kDriftChecked,
                       .level = replaced || moved ? LogLevel::kWarning : LogLevel::kDebug,
                       .message = std::move(message),
                       .kernel = model_.kernel.name,
                       .key = key().hex(),
                       .duration_ns = measured.total_ns,
                       .fields = {{"configuration", was},
                                  {"replaced_by", replaced ? is : std::string()},
                                  {"recorded_ns", recorded_ns},
                                  {"measured_ns", was_ns},
                                  {"best_ns", is_ns},
                                  {"timed_runs", measured.counters.timed_runs}}});
}

}  // namespace kachel::runtime
