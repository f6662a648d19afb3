#include "runtime/engine/tuning/resolver.h"

#include <fmt/format.h>

#include "runtime/engine/specialise/configurations.h"
#include "runtime/engine/tuning/choose_runner.h"
#include "runtime/engine/tuning/trials.h"
#include "runtime/engine/tuning/tune_session.h"
#include "runtime/engine/worker/worker_session.h"

namespace kachel::runtime {

Resolver::Resolver(Engine& engine, Device& device, const KernelModel& model, const BoundArguments& arguments,
                   const LaunchSettings& settings, void* stream)
    : engine_(engine),
      device_(device),
      model_(model),
      arguments_(arguments),
      settings_(settings),
      stream_(stream),
      point_(point_of(model, arguments)),
      ranking_(
          engine, device, model, arguments, settings,
          [this](const std::vector<TunableValues>& candidates) { return runner(candidates); },
          [this] { return compiler_missing(); }) {}

Result<Ranking::Runner> Resolver::runner(const std::vector<TunableValues>& candidates) {
  const TuningHooks* hooks = hooks_of(model_, settings_);
  return choose_runner(
      engine_, hooks,
      [&]() -> Result<std::unique_ptr<tuner::CandidateRunner>> {
        KACHEL_ASSIGN(auto session, WorkerSession::open({engine_, device_, model_, point_, arguments_, candidates,
                                                         stream_, settings_.share, settings_.cancelled}));
        return std::unique_ptr<tuner::CandidateRunner>(std::move(session));
      },
      [&]() -> std::unique_ptr<tuner::CandidateRunner> {
        return std::make_unique<TuneSession>(
            TuneSession::Setup{engine_.services(), engine_.plans(), engine_.options().scratch, device_, model_, point_,
                               arguments_, candidates, stream_, settings_.share, hooks,
                               engine_.background_bytes(device_) - engine_.background_taken()});
      });
}

// Where no candidate compiled for want of a compiler, that is what is wrong.
Status Resolver::compiler_missing() {
  auto first = engine_.plans().get({device_, model_, point_, ranking_.candidates()[0]});
  return !first.ok() && first.status().code() == Code::kNoDevice ? first.status() : Status();
}

bool Resolver::grid_is_empty() const {
  LaunchGrid grid;
  return evaluate_grid(model_.grid, arguments_.inputs(ranking_.candidates()[0].data()), {}, grid).ok() &&
         grid.total == 0;
}

Result<bool> Resolver::needs_tuning() {
  if (settings_.has_configuration) return false;
  KACHEL_TRY(ranking_.admit());
  if (grid_is_empty()) return false;
  return ranking_.needs_tuning();
}

Result<bool> Resolver::recheck() {
  RelaxedCapture relaxed(device_);
  KACHEL_TRY(ranking_.admit());
  if (grid_is_empty()) return false;
  return ranking_.recheck();
}

void Resolver::tell_undecided(const TunableValues& values, bool later) {
  constexpr const char* kSources[] = {"incomplete_decision", "nearest_key", "cost_model", "compiled_soon", "list"};
  constexpr const char* kWords[] = {"a decision that did not choose from all", "the decision of the nearest key",
                                    "what the cost model expects", "what is compiled soon", "what is listed first"};
  const auto source = static_cast<size_t>(ranking_.source());
  const std::string configuration = configuration_text(model_, values);
  engine_.log().write(
      {.kind = EventKind::kServedUndecided,
       .level = LogLevel::kDebug,
       .message = fmt::format("kernel `{}` is served by {}: {}", model_.kernel.name, kWords[source], configuration),
       .kernel = model_.kernel.name,
       .key = ranking_.key().hex(),
       .fields = {{"configuration", configuration},
                  {"source", std::string(kSources[source])},
                  {"tuned_later", later ? 1 : 0}}});
}

Result<PlanBuilder::Soon> Resolver::get(const PlanBuilder::Request& request, bool soon) {
  if (soon) return engine_.plans().get_soon(request);
  KACHEL_ASSIGN(const Specialisation* made, engine_.plans().get(request));
  return PlanBuilder::Soon{made, false};
}

Result<Resolver::Outcome> Resolver::run() {
  if (engine_.device_lost())
    return Status(Code::kDeviceLost, "a device has failed for good in this process; restart the process");
  RelaxedCapture relaxed(device_);
  if (settings_.has_configuration) {
    KACHEL_ASSIGN(TunableValues values, ranking_.given());
    KACHEL_ASSIGN(const Specialisation* made, engine_.plans().get({device_, model_, point_, values}));
    return Outcome{made};
  }
  KACHEL_TRY(ranking_.admit());
  tuner::Policy policy = settings_.policy;
  if (grid_is_empty()) {
    if (!settings_.needs_code) return Outcome{};
    // There is nothing to measure.
    if (policy == tuner::Policy::kBlocking || policy == tuner::Policy::kBackground) policy = tuner::Policy::kOff;
  }
  KACHEL_ASSIGN(std::vector<TunableValues> order, ranking_.order(policy));
  const bool may_compile = settings_.policy != tuner::Policy::kCachedOnly;
  bool others_tried = false;
  Status why;
  for (size_t i = 0; i < kMaxAttempts; ++i) {
    if (i == order.size()) {
      if (!may_compile || others_tried) break;
      for (TunableValues& values : ranking_.others(order)) order.push_back(std::move(values));
      others_tried = true;
      if (i == order.size()) break;
    }
    const bool later = policy == tuner::Policy::kBackground && !engine_.frozen();
    auto made = get({device_, model_, point_, order[i], may_compile}, later && !ranking_.decided());
    if (made.ok()) {
      if (made->specialisation->demoted()) continue;
      if (!ranking_.decided() && engine_.log().heard()) tell_undecided(order[i], later);
      return Outcome{made->specialisation, ranking_.decided(), ranking_.found(), later, made->compact};
    }
    const Code code = made.status().code();
    if (why.ok()) why = made.status();
    if (code != Code::kCompile && code != Code::kUnsupported && code != Code::kInvalid && code != Code::kNotCached)
      break;
    const std::string configuration = configuration_text(model_, order[i]);
    engine_.log().write({.kind = EventKind::kCandidateFailed,
                         .level = LogLevel::kInfo,
                         .message = fmt::format("kernel `{}`: configuration {} cannot be used: {}", model_.kernel.name,
                                                configuration, made.status().message()),
                         .kernel = model_.kernel.name,
                         .key = ranking_.key().hex(),
                         .fields = {{"configuration", configuration}, {"reason", made.status().message()}}});
  }
  if (why.ok())
    why =
        Status(Code::kLaunch, fmt::format("kernel `{}`: every configuration has failed to launch", model_.kernel.name));
  return why;
}

}  // namespace kachel::runtime
