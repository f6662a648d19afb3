#include "runtime/engine/tuning/ranking.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/engine/specialise/configurations.h"
#include "runtime/engine/tuning/guess.h"
#include "runtime/profile_range.h"

namespace kachel::runtime {
namespace {

constexpr int64_t kCancelSlice_ns = 20'000'000;  // of a wait, between two looks at whether it is still wanted
constexpr int64_t kClaimGrace_us = 30'000'000;   // beyond its budget, that another process' tuning is waited for

bool contains(const std::vector<TunableValues>& list, const TunableValues& values) {
  return std::find(list.begin(), list.end(), values) != list.end();
}

}  // namespace

Point point_of(const KernelModel& model, const BoundArguments& arguments) {
  Point point{arguments.types, arguments.facts, {}};
  for (int dim : model.static_dims) point.static_dims.push_back(arguments.dims[dim]);
  return point;
}

std::vector<int64_t> key_values_of(const KernelModel& model, const BoundArguments& arguments) {
  std::vector<int64_t> values;
  for (const HostProgram& key : model.keys) values.push_back(key.run(arguments.inputs()));
  return values;
}

Ranking::Ranking(Engine& engine, Device& device, const KernelModel& model, const BoundArguments& arguments,
                 const LaunchSettings& settings, Session session, Cause cause)
    : engine_(engine),
      device_(device),
      model_(model),
      arguments_(arguments),
      settings_(settings),
      session_(std::move(session)),
      cause_(std::move(cause)),
      point_(point_of(model, arguments)),
      key_values_(key_values_of(model, arguments)) {}

Status Ranking::admit() {
  KACHEL_ASSIGN(candidates_, admitted_configurations(model_, arguments_.inputs()));
  return {};
}

Result<TunableValues> Ranking::given() const {
  KACHEL_ASSIGN(TunableValues values, parse_configuration(model_, settings_.configuration));
  if (!is_admitted(model_, arguments_.inputs(), values))
    return invalid(
        fmt::format("kernel `{}`: configuration {} does not satisfy `where` for these arguments; choose another",
                    model_.kernel.name, settings_.configuration));
  return values;
}

Result<bool> Ranking::needs_tuning() {
  if (candidates_.size() == 1) return false;
  KACHEL_TRY(read_decision());
  return !complete_;
}

std::vector<TunableValues> Ranking::admitted_of(const TuningDecision& decision) const {
  std::vector<TunableValues> admitted;
  for (const auto& ranked : decision.winner.ranked) {
    TunableValues values;
    if (from_configuration(model_, ranked.configuration, values) && contains(candidates_, values))
      admitted.push_back(std::move(values));
  }
  return admitted;
}

TuningStore Ranking::records() const {
  return {engine_.store(), {model_, point_, key_values_, device_.properties()}};
}

// By what is stored of each under this key.
std::vector<TunableValues> Ranking::usable(std::vector<TunableValues> order, bool* first_is_fine) const {
  const TuningStore store = records();
  std::vector<TunableValues> fine, failed;
  for (TunableValues& values : order) {
    const auto record = store.sample(values);
    const auto state = record ? record->state : tuner::CandidateState::kUntried;
    if (tuner::is_harmful(state) || state == tuner::CandidateState::kRejectedWrong) continue;
    (state == tuner::CandidateState::kLaunchFailed ? failed : fine).push_back(std::move(values));
  }
  if (first_is_fine) *first_is_fine = !fine.empty();
  for (TunableValues& values : failed) fine.push_back(std::move(values));
  return fine;
}

std::vector<TunableValues> Ranking::others(const std::vector<TunableValues>& order) const {
  std::vector<TunableValues> left;
  for (const TunableValues& values : candidates_) {
    if (left.size() == kMaxAttempts) break;
    if (!contains(order, values)) left.push_back(values);
  }
  return usable(std::move(left));
}

Status Ranking::read_decision() {
  ranked_.clear();
  complete_ = false;
  const auto decision = records().decision();
  if (!decision) return {};
  ranked_ = admitted_of(*decision);
  complete_ = !ranked_.empty() && decision->covers(candidates_);
  return {};
}

Result<std::vector<TunableValues>> Ranking::without_tuning() {
  if (settings_.has_configuration) {
    KACHEL_ASSIGN(TunableValues values, parse_configuration(model_, settings_.configuration));
    return std::vector<TunableValues>{std::move(values)};
  }
  KACHEL_TRY(admit());
  KACHEL_ASSIGN(std::vector<TunableValues> all, order(tuner::Policy::kOff));
  for (TunableValues& values : others(all)) all.push_back(std::move(values));
  return all;
}

std::vector<TunableValues> Ranking::without_decision() {
  if (const auto nearest = records().nearest_decision()) {
    std::vector<TunableValues> order = admitted_of(*nearest);
    source_ = Source::kNearestKey;
    if (!order.empty()) return order;
  }
  std::vector<TunableValues> order =
      guess(engine_.plans(), device_, model_, point_, arguments_, candidates_, engine_.options().compile_threads);
  source_ = order.empty() ? Source::kList : Source::kCostModel;
  return order;
}

Result<std::vector<TunableValues>> Ranking::order(tuner::Policy policy) {
  if (candidates_.size() == 1) {
    decided_ = true;
    return candidates_;
  }
  KACHEL_TRY(read_decision());
  std::vector<TunableValues> order;
  source_ = Source::kDecision;
  if (engine_.frozen() && policy != tuner::Policy::kCachedOnly) policy = tuner::Policy::kOff;
  switch (policy) {
    case tuner::Policy::kOff:
    case tuner::Policy::kBackground:
      order = ranked_.empty() ? without_decision() : ranked_;
      break;
    case tuner::Policy::kCachedOnly:
      if (ranked_.empty())
        return Status(Code::kNotCached,
                      fmt::format("kernel `{}`: the store has no tuning for this key on {}; prepare it with the policy "
                                  "blocking, or import a store that has it",
                                  model_.kernel.name, device_.properties().name));
      order = ranked_;
      break;
    case tuner::Policy::kBlocking: {
      if (complete_) {
        order = ranked_;
        break;
      }
      KACHEL_ASSIGN(order, tune());
      break;
    }
  }
  decided_ = complete_ || tuned_;
  bool some_fine = false;
  order = usable(std::move(order), &some_fine);
  if (some_fine || policy == tuner::Policy::kCachedOnly) {
    if (!order.empty()) return order;
  } else {
    std::vector<TunableValues> first = others(order);
    for (TunableValues& values : order) first.push_back(std::move(values));
    order = std::move(first);
  }
  if (order.empty())
    return Status(Code::kLaunch,
                  fmt::format("kernel `{}`: of {} configurations, all that were tried have crashed, timed out or "
                              "computed something else; see the tuning, or clear the store to try them again",
                              model_.kernel.name, candidates_.size()));
  return order;
}

void Ranking::note_harm(const TunableValues& values, const tuner::CandidateRecord& record) {
  if (Status saved = records().save_samples({record}, {values}); !saved.ok())
    engine_.log().write(LogLevel::kWarning, fmt::format("samples were not stored: {}", saved.message()));
}

void Ranking::demote(const TunableValues& values, const std::string& why) {
  tuner::CandidateRecord record = records().sample(values).value_or(tuner::CandidateRecord{});
  record.configuration = to_configuration(values);
  record.state = tuner::CandidateState::kLaunchFailed;
  record.message = why;
  note_harm(values, record);
}

// In the program's own names.
Status Ranking::tuning_failed(const Status& status) {
  if (status.code() == Code::kCompile && cause_)
    if (Status cause = cause_(); !cause.ok()) return cause;
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
  return engine_.services().noticed({status.code(),
                                     fmt::format("kernel `{}`: {}", model_.kernel.name, rename(status.message())),
                                     rename(status.log())});
}

Result<std::vector<TunableValues>> Ranking::untuned(const Status& why) {
  if (why.code() == Code::kCancelled) return why;
  engine_.log().once(LogLevel::kWarning, "untuned " + model_.body,
                     fmt::format("kernel `{}` is not tuned, and served as under the policy off: {}", model_.kernel.name,
                                 why.message()));
  return without_decision();
}

Result<std::vector<TunableValues>> Ranking::tune() {
  const ProfileRange range("tune {}", model_.kernel.name);
  const TuningSubject subject{model_, point_, key_values_, device_.properties()};
  const cache::Key key = tuning_key(model_, point_, key_values_, device_.properties());
  // One tuning per key at a time; who waited looks into the store again.
  std::optional<tuner::SingleFlight::Ticket> ticket;
  auto cancelled = [this] { return settings_.cancelled && settings_.cancelled->load(std::memory_order_relaxed); };
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
  const cache::Store::Claim claim = engine_.store().claim(key, static_cast<uint64_t>(wait_us), cancelled);
  if (claim.waited()) {
    KACHEL_TRY(read_decision());
    if (complete_) return ranked_;
  }

  TuningStore store(engine_.store(), subject);
  tuner::TuneRequest request;
  for (const TunableValues& values : candidates_) {
    request.candidates.push_back(to_configuration(values));
    if (auto known = store.sample(values)) request.known.push_back(*std::move(known));
  }
  request.on_harm = [&](size_t index, const tuner::CandidateRecord& record) { note_harm(candidates_[index], record); };
  request.on_cancelled = [&](const std::vector<tuner::CandidateRecord>& records) {
    if (engine_.device_lost()) return;
    if (Status saved = store.save_samples(records, candidates_); !saved.ok())
      engine_.log().write(LogLevel::kWarning, fmt::format("samples were not stored: {}", saved.message()));
  };
  request.budget_ns = settings_.tune_budget_ns;
  request.workers = engine_.options().compile_threads;
  tuner::Progress progress;
  if (engine_.options().progress || settings_.cancelled) {
    progress = [&](const tuner::ProgressEvent& event) {
      if (cancelled()) return false;
      if (!engine_.options().progress) return true;
      TuneProgress out{model_.kernel.name.c_str(), "", event.phase, event.done, event.total, event.best_ns.value_or(0)};
      TunableValues values;
      if (event.configuration && from_configuration(model_, *event.configuration, values))
        out.configuration = configuration_text(model_, values);
      return engine_.options().progress(out);
    };
  }
  const Result<Trials> trials = session_(candidates_);
  if (!trials.ok()) return untuned(trials.status());
  tuner::TunerOptions options = engine_.options().tuner;
  // Blocks are for clocks that power limits: not on a CPU, and not with pauses between the runs.
  if (device_.properties().kind == DeviceKind::kCpu || settings_.share < 1) options.limits.block_ns = 0;
  auto tuned = tuner::Tuner(options).tune(request, *trials->runner, engine_.clock(), progress);
  if (!tuned.ok()) {
    if (trials->elsewhere) return untuned(tuned.status());
    if (tuned.status().code() != Code::kNoMemory) return tuning_failed(tuned.status());
    engine_.log().write(LogLevel::kWarning, fmt::format("kernel `{}` is not tuned, its first configuration serves: {}",
                                                        model_.kernel.name, tuned.status().message()));
    return candidates_;
  }
  engine_.counters().tunings.fetch_add(1, std::memory_order_relaxed);
  if (engine_.device_lost()) return Status(Code::kDeviceLost, "the device failed during the tuning");
  if (Status saved = store.save(*tuned, candidates_); !saved.ok())
    engine_.log().write(LogLevel::kWarning, fmt::format("a tuning was not stored: {}", saved.message()));
  engine_.note_tuned(key);
  engine_.log().write(LogLevel::kInfo,
                      fmt::format("kernel `{}` tuned: {} at {:.1f} us, of {} configurations", model_.kernel.name,
                                  configuration_text(model_, candidates_[tuned->winner]),
                                  tuned->best().median_ns / 1000, candidates_.size()));
  tuned_ = true;
  std::vector<TunableValues> order;
  for (size_t index : tuned->ranking) order.push_back(candidates_[index]);
  return order;
}

}  // namespace kachel::runtime
