#include "runtime/engine/resolver.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/engine/configurations.h"
#include "runtime/engine/tune_session.h"

namespace kachel::runtime {
namespace {

// How many configurations a launch tries to build before it gives up.
constexpr size_t kMaxAttempts = 16;

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

Resolver::Resolver(Engine& engine, Device& device, const KernelModel& model, const BoundArguments& arguments,
                   const LaunchSettings& settings, void* stream)
    : engine_(engine),
      device_(device),
      model_(model),
      arguments_(arguments),
      settings_(settings),
      stream_(stream),
      point_(point_of(model, arguments)),
      key_values_(key_values_of(model, arguments)) {}

bool Resolver::grid_is_empty() const {
  LaunchGrid grid;
  return evaluate_grid(model_.grid, arguments_.inputs(candidates_[0].data()), {}, grid).ok() && grid.total == 0;
}

Result<Resolver::Outcome> Resolver::run() {
  if (engine_.device_lost())
    return Status(Code::kDeviceLost, "a device has failed for good in this process; restart the process");
  RelaxedCapture relaxed(device_);
  if (settings_.has_configuration) {
    KACHEL_ASSIGN(TunableValues values, parse_configuration(model_, settings_.configuration));
    if (!is_admitted(model_, arguments_.inputs(), values))
      return invalid(
          fmt::format("kernel `{}`: configuration {} does not satisfy `where` for these arguments; choose another",
                      model_.kernel.name, settings_.configuration));
    KACHEL_ASSIGN(const Specialisation* made, engine_.plans().get({device_, model_, point_, values}));
    return Outcome{made, false};
  }
  KACHEL_ASSIGN(candidates_, admitted_configurations(model_, arguments_.inputs()));
  tuner::Policy policy = settings_.policy;
  if (grid_is_empty()) {
    if (!settings_.needs_code) return Outcome{};
    if (policy == tuner::Policy::kBlocking) policy = tuner::Policy::kOff;  // there is nothing to measure
  }
  KACHEL_ASSIGN(std::vector<TunableValues> order, ranking(policy));
  const bool may_compile = settings_.policy != tuner::Policy::kCachedOnly;
  Status why;
  for (size_t i = 0; i < order.size() && i < kMaxAttempts; ++i) {
    auto made = engine_.plans().get({device_, model_, point_, order[i], may_compile});
    if (made.ok()) {
      if (!(*made)->demoted()) return Outcome{*made, decided_};
      continue;
    }
    const Code code = made.status().code();
    if (why.ok()) why = made.status();
    if (code != Code::kCompile && code != Code::kUnsupported && code != Code::kInvalid && code != Code::kNotCached)
      break;
    engine_.log().write(LogLevel::kInfo,
                        fmt::format("kernel `{}`: configuration {} cannot be used: {}", model_.kernel.name,
                                    configuration_text(model_, order[i]), made.status().message()));
  }
  if (why.ok())
    why =
        Status(Code::kLaunch, fmt::format("kernel `{}`: every configuration has failed to launch", model_.kernel.name));
  return why;
}

Status Resolver::read_decision() {
  ranked_.clear();
  complete_ = false;
  const TuningStore store(engine_.store(), {model_, point_, key_values_, device_.properties()});
  const auto decision = store.decision();
  if (!decision) return {};
  for (const auto& ranked : decision->winner.ranked) {
    TunableValues values;
    if (from_configuration(model_, ranked.configuration, values) && contains(candidates_, values))
      ranked_.push_back(std::move(values));
  }
  complete_ = !ranked_.empty() && decision->covers(candidates_);
  return {};
}

Result<std::vector<TunableValues>> Resolver::ranking_without_tuning() {
  if (settings_.has_configuration) {
    KACHEL_ASSIGN(TunableValues values, parse_configuration(model_, settings_.configuration));
    return std::vector<TunableValues>{std::move(values)};
  }
  KACHEL_ASSIGN(candidates_, admitted_configurations(model_, arguments_.inputs()));
  KACHEL_TRY(read_decision());
  std::vector<TunableValues> order = ranked_;
  for (const TunableValues& values : candidates_)
    if (!contains(ranked_, values)) order.push_back(values);
  return order;
}

Result<std::vector<TunableValues>> Resolver::ranking(tuner::Policy policy) {
  if (candidates_.size() == 1) {
    decided_ = true;
    return candidates_;
  }
  KACHEL_TRY(read_decision());
  std::vector<TunableValues> order;
  switch (policy) {
    case tuner::Policy::kOff:
      order = ranked_;
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
    case tuner::Policy::kBackground:
      return unsupported(
          "the policy `background` is not in this version; use blocking, or off with kachel_prepare ahead of time");
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

// In the program's own names. Where no candidate compiled for want of a compiler, that is what is wrong.
Status Resolver::tuning_failed(const Status& status) {
  if (status.code() == Code::kCompile) {
    auto first = engine_.plans().get({device_, model_, point_, candidates_[0]});
    if (!first.ok() && first.status().code() == Code::kNoDevice) return first.status();
  }
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

Result<std::vector<TunableValues>> Resolver::tune() {
  const TuningSubject subject{model_, point_, key_values_, device_.properties()};
  const cache::Key key = tuning_key(model_, point_, key_values_, device_.properties());
  // One tuning per key at a time; who waited looks into the store again.
  std::optional<tuner::SingleFlight::Ticket> ticket;
  do {
    ticket.emplace(engine_.flights().join(key.bytes, tuner::SingleFlight::kForever));
    KACHEL_TRY(read_decision());
    if (complete_) return ranked_;  // decided meanwhile
  } while (ticket->role() != tuner::SingleFlight::Role::kLeader);

  TuningStore store(engine_.store(), subject);
  tuner::TuneRequest request;
  for (const TunableValues& values : candidates_) {
    request.candidates.push_back(to_configuration(values));
    if (auto known = store.sample(values)) request.known.push_back(*std::move(known));
  }
  request.budget_ns = settings_.tune_budget_ns;
  request.workers = engine_.options().compile_threads;
  tuner::Progress progress;
  if (engine_.options().progress) {
    progress = [&](const tuner::ProgressEvent& event) {
      TuneProgress out{model_.kernel.name.c_str(), "", event.phase, event.done, event.total, event.best_ns.value_or(0)};
      TunableValues values;
      if (event.configuration && from_configuration(model_, *event.configuration, values))
        out.configuration = configuration_text(model_, values);
      return engine_.options().progress(out);
    };
  }
  TuneSession session({engine_.services(), engine_.plans(), engine_.options().scratch, device_, model_, point_,
                       arguments_, candidates_, stream_});
  tuner::TunerOptions options = engine_.options().tuner;
  if (device_.properties().kind == DeviceKind::kCpu) options.limits.block_ns = 0;  // not limited by power: no blocks
  auto tuned = tuner::Tuner(options).tune(request, session, engine_.clock(), progress);
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
