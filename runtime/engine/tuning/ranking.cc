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

Status Ranking::read_decision() {
  ranked_.clear();
  complete_ = false;
  const TuningStore store(engine_.store(), {model_, point_, key_values_, device_.properties()});
  const auto decision = store.decision();
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
  return order(tuner::Policy::kOff);
}

std::vector<TunableValues> Ranking::without_decision() {
  const TuningStore store(engine_.store(), {model_, point_, key_values_, device_.properties()});
  if (const auto nearest = store.nearest_decision()) {
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
      return ranked_;
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
  // What is left serves when all of the ranking fail.
  const size_t ranked = order.size();
  for (const TunableValues& values : candidates_) {
    if (order.size() >= ranked + kMaxAttempts) break;
    if (!contains(order, values)) order.push_back(values);
  }
  return order;
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
  const std::unique_ptr<tuner::CandidateRunner> session = session_(candidates_);
  tuner::TunerOptions options = engine_.options().tuner;
  // Blocks are for clocks that power limits: not on a CPU, and not with pauses between the runs.
  if (device_.properties().kind == DeviceKind::kCpu || settings_.share < 1) options.limits.block_ns = 0;
  auto tuned = tuner::Tuner(options).tune(request, *session, engine_.clock(), progress);
  if (!tuned.ok()) {
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
