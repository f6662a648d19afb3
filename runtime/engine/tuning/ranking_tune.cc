// What a ranking does where it comes to a tuning, and what it notes of configurations that fail.
#include <fmt/format.h>

#include <algorithm>

#include "runtime/engine/specialise/configurations.h"
#include "runtime/engine/tuning/ranking.h"
#include "runtime/engine/tuning/trials.h"
#include "runtime/profile_range.h"

namespace kachel::runtime {
namespace {

constexpr int64_t kCancelSlice_ns = 20'000'000;  // of a wait, between two looks at whether it is still wanted
constexpr int64_t kClaimGrace_us = 30'000'000;   // beyond its budget, that another process' tuning is waited for

}  // namespace

void Ranking::note(const TunableValues& values, const tuner::CandidateRecord& record, cache::ChangeKind what) {
  if (Status saved = records().save_samples({record}, {values}, what); !saved.ok())
    engine_.log().write(LogLevel::kWarning, fmt::format("samples were not stored: {}", saved.message()));
}

void Ranking::demote(const TunableValues& values, const std::string& why) {
  tuner::CandidateRecord record = records().sample(values, true).value_or(tuner::CandidateRecord{});
  record.configuration = to_configuration(values);
  record.state = tuner::CandidateState::kLaunchFailed;
  record.message = why;
  note(values, record, cache::ChangeKind::kDemoted);
}

Status Ranking::in_program_names(const Status& status) const {
  std::vector<std::pair<std::string, std::string>> names;
  for (const TunableValues& values : candidates_)
    names.emplace_back(to_configuration(values).text(), configuration_text(model_, values));
  // Longer ones first: "t0=8,t1=3" begins "t0=8,t1=32".
  std::sort(names.begin(), names.end(), [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
  auto rename = [&](std::string text) {
    for (const auto& [from, to] : names) {
      for (size_t at = 0; !from.empty() && (at = text.find(from, at)) != text.npos; at += to.size())
        text.replace(at, from.size(), to);
    }
    return text;
  };
  return {status.code(), rename(status.message()), rename(status.log())};
}

Status Ranking::tuning_failed(const Status& status) {
  if (status.code() == Code::kCompile && cause_)
    if (Status cause = cause_(); !cause.ok()) return cause;
  const Status named = in_program_names(status);
  return engine_.services().noticed(
      {named.code(), fmt::format("kernel `{}`: {}", model_.kernel.name, named.message()), named.log()});
}

Result<std::vector<TunableValues>> Ranking::untuned(const Status& why) {
  if (why.code() == Code::kCancelled) return why;
  engine_.log().once("untuned " + model_.body,
                     {.kind = EventKind::kUntuned,
                      .level = LogLevel::kWarning,
                      .message = fmt::format("kernel `{}` is not tuned, and served as under the policy off: {}",
                                             model_.kernel.name, in_program_names(why).message()),
                      .kernel = model_.kernel.name,
                      .key = key().hex()});
  return without_decision(false);
}

void Ranking::tell_tuned(const tuner::TuningResult& result, const std::vector<TunableValues>& tried) {
  const std::string winner = configuration_text(model_, tried[result.winner]);
  engine_.log().write(
      {.kind = EventKind::kTuned,
       .level = LogLevel::kInfo,
       .message = fmt::format("kernel `{}` tuned: {} at {:.1f} us, of {} configurations", model_.kernel.name, winner,
                              result.best().median_ns / 1000, candidates_.size()),
       .kernel = model_.kernel.name,
       .key = key().hex(),
       .duration_ns = result.total_ns,
       .fields = {{"configuration", winner},
                  {"median_ns", result.best().median_ns},
                  {"candidates", candidates_.size()},
                  {"compiled", result.counters.compiled},
                  {"measured", result.counters.measured},
                  {"remeasured", result.counters.remeasured},
                  {"timed_runs", result.counters.timed_runs},
                  {"budget_exhausted", result.budget_exhausted ? 1 : 0}}});
}

// What is wrong is a defect of the library, or of what the program leaves undefined; the rest happens.
void Ranking::tell_dropped(const TunableValues& values, const tuner::CandidateRecord& record) {
  const bool wrong = record.state == tuner::CandidateState::kRejectedWrong;
  const bool flawed = record.state == tuner::CandidateState::kRejectedFlaw;
  const std::string configuration = configuration_text(model_, values);
  const std::string reason = in_program_names({Code::kLaunch, record.message}).message();
  engine_.log().write({.kind = wrong || flawed ? EventKind::kCandidateRejected : EventKind::kCandidateFailed,
                       .level = wrong ? LogLevel::kWarning : LogLevel::kDebug,
                       .message = fmt::format("kernel `{}`: configuration {} {}: {}", model_.kernel.name, configuration,
                                              wrong    ? "computes something else, and never serves"
                                              : flawed ? "serves only where none without its flaw does"
                                                       : "cannot be run",
                                              reason),
                       .kernel = model_.kernel.name,
                       .key = key().hex(),
                       .fields = {{"configuration", configuration},
                                  {"state", std::string(tuner::state_name(record.state))},
                                  {"reason", reason}}});
}

// `tried` outlives the request.
void Ranking::limit_and_watch(const std::vector<TunableValues>& tried, tuner::TuneRequest* request) {
  request->budget_ns = settings_.tune_budget_ns;
  request->workers = engine_.options().compile_threads;
  const TuningHooks* hooks = hooks_of(model_, settings_);
  request->own_benchmark = hooks && hooks->benchmark;
  request->on_harm = [&](size_t index, const tuner::CandidateRecord& record) {
    note(tried[index], record, cache::ChangeKind::kBarred);
  };
  request->on_dropped = [&](size_t index, const tuner::CandidateRecord& record) { tell_dropped(tried[index], record); };
}

tuner::TunerOptions Ranking::tuner_options() const {
  tuner::TunerOptions options = engine_.options().tuner;
  // Blocks are for clocks that power limits: not on a CPU, and not with pauses between the runs.
  if (device_.properties().kind == DeviceKind::kCpu || settings_.share < 1) options.limits.block_ns = 0;
  apply_limits(settings_.hooks.get(), &options.limits);
  return options;
}

tuner::Progress Ranking::progress() const {
  if (!engine_.options().progress && !settings_.cancelled) return {};
  return [this](const tuner::ProgressEvent& event) {
    if (cancelled()) return false;
    if (!engine_.options().progress) return true;
    TuneProgress out{model_.kernel.name.c_str(), "", event.phase, event.done, event.total, event.best_ns.value_or(0)};
    TunableValues values;
    if (event.configuration && from_configuration(model_, *event.configuration, values))
      out.configuration = configuration_text(model_, values);
    return engine_.options().progress(out);
  };
}

Result<std::vector<TunableValues>> Ranking::tune() {
  const ProfileRange range("tune {}", model_.kernel.name);
  const TuningSubject subject{model_, point_, device_.properties()};
  const cache::Key key = this->key();
  // One tuning per key at a time; who waited looks into the store again.
  std::optional<tuner::SingleFlight::Ticket> ticket;
  const int64_t slice_ns = settings_.cancelled ? kCancelSlice_ns : tuner::SingleFlight::kForever;
  do {
    if (cancelled()) return Status(Code::kCancelled, "the tuning in the background is ended");
    ticket.emplace(engine_.flights().join(key.bytes, slice_ns));
    KACHEL_TRY(read_decision());
    if (complete_) return ranked_;  // decided meanwhile
  } while (ticket->role() != tuner::SingleFlight::Role::kLeader);
  // Nor more than one among the processes that share the store.
  constexpr int64_t kMostWait_us = 600'000'000;
  const int64_t wait_us = std::min(settings_.tune_budget_ns / 1000 + kClaimGrace_us, kMostWait_us);
  const cache::Store::Claim claim =
      engine_.store().claim(key, static_cast<uint64_t>(wait_us), [this] { return cancelled(); });
  if (claim.waited()) {
    KACHEL_TRY(read_decision());
    if (complete_) return ranked_;
  }

  const TuningHooks* hooks = hooks_of(model_, settings_);
  const uint64_t wanted = wanted_trials(model_, settings_, candidates_.size());
  KACHEL_ASSIGN(Trials trials, choose_trials(hooks, {model_, arguments_.device, arguments_.dims}, candidates_, wanted));
  TuningStore store(engine_.store(), subject);
  tuner::TuneRequest request;
  // A remote store may take a tenth of the budget to say what others have measured.
  const int64_t ask_until_ns = engine_.clock().now_ns() + settings_.tune_budget_ns / 10;
  bool harmful = false;
  for (size_t i = 0; i < trials.candidates.size();) {
    auto known = store.sample(trials.candidates[i], engine_.clock().now_ns() >= ask_until_ns);
    if (known && tuner::is_harmful(known->state)) {
      harmful = true;  // not even what others are compared with is made by it
      trials.candidates.erase(trials.candidates.begin() + static_cast<std::ptrdiff_t>(i));
      if (!trials.forecasts.empty()) trials.forecasts.erase(trials.forecasts.begin() + static_cast<std::ptrdiff_t>(i));
      continue;
    }
    request.candidates.push_back(to_configuration(trials.candidates[i++]));
    if (known) request.known.push_back(*std::move(known));
  }
  const auto wrong = static_cast<size_t>(std::count_if(
      request.known.begin(), request.known.end(),
      [](const tuner::CandidateRecord& known) { return known.state == tuner::CandidateState::kRejectedWrong; }));
  if (harmful && wrong == trials.candidates.size())
    return untuned(Status(Code::kLaunch, "its configurations have done harm or computed something else before"));
  request.on_cancelled = [&](const std::vector<tuner::CandidateRecord>& records) {
    if (engine_.device_lost()) return;
    if (Status saved = store.save_samples(records, trials.candidates); !saved.ok())
      engine_.log().write(LogLevel::kWarning, fmt::format("samples were not stored: {}", saved.message()));
  };
  limit_and_watch(trials.candidates, &request);
  request.trials = wanted;
  if (const auto nearest = store.nearest_decision(); nearest && !nearest->winner.ranked.empty()) {
    const auto& winner = nearest->winner.ranked.front().configuration;
    const auto found = std::find(request.candidates.begin(), request.candidates.end(), winner);
    if (found != request.candidates.end())
      request.favourite = static_cast<size_t>(found - request.candidates.begin());
  }
  request.forecasts = std::move(trials.forecasts);
  const Result<Runner> session = session_(trials.candidates);
  if (!session.ok()) return untuned(session.status());
  auto tuned = tuner::Tuner(tuner_options()).tune(request, *session->runner, engine_.clock(), progress());
  if (!tuned.ok()) {
    if (session->elsewhere) return untuned(tuned.status());
    if (tuned.status().code() != Code::kNoMemory) return tuning_failed(tuned.status());
    engine_.log().write({.kind = EventKind::kUntuned,
                         .level = LogLevel::kWarning,
                         .message = fmt::format("kernel `{}` is not tuned, its first configuration serves: {}",
                                                model_.kernel.name, tuned.status().message()),
                         .kernel = model_.kernel.name,
                         .key = key.hex()});
    return candidates_;
  }
  engine_.counters().tunings.fetch_add(1, std::memory_order_relaxed);
  if (engine_.device_lost()) return Status(Code::kDeviceLost, "the device failed during the tuning");
  if (Status saved = store.save(*tuned, trials.candidates, candidates_, wanted); !saved.ok())
    engine_.log().write(LogLevel::kWarning, fmt::format("a tuning was not stored: {}", saved.message()));
  engine_.note_tuned(key);
  tell_tuned(*tuned, trials.candidates);
  tuned_ = true;
  std::vector<TunableValues> order;
  for (size_t index : tuned->ranking) order.push_back(trials.candidates[index]);
  return order;
}

}  // namespace kachel::runtime
