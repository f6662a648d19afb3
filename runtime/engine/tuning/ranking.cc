#include "runtime/engine/tuning/ranking.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/engine/specialise/configurations.h"
#include "runtime/engine/tuning/guess.h"
#include "runtime/engine/tuning/trials.h"

namespace kachel::runtime {
namespace {

bool contains(const std::vector<TunableValues>& list, const TunableValues& values) {
  return std::find(list.begin(), list.end(), values) != list.end();
}

// Known to do harm or to compute something else.
bool is_barred(tuner::CandidateState state) {
  return tuner::is_harmful(state) || state == tuner::CandidateState::kRejectedWrong;
}

}  // namespace

Point point_of(const KernelModel& model, const BoundArguments& arguments) {
  Point point{arguments.types, arguments.facts, {}, {}};
  for (int dim : model.static_dims) point.static_dims.push_back(arguments.dims[dim]);
  for (const HostProgram& key : model.keys) point.key_values.push_back(key.run(arguments.inputs()));
  return point;
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
      point_(point_of(model, arguments)) {}

Status Ranking::admit() {
  KACHEL_ASSIGN(candidates_, admitted_configurations(model_, device_.properties(), point_, arguments_.inputs()));
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
  return {engine_.store(), {model_, point_, device_.properties()}};
}

bool Ranking::may_serve(const TunableValues& values) const {
  const auto record = records().sample(values, true);
  return !record || !is_barred(record->state);
}

// By what is stored of each under this key; at most so many of those that have not failed.
std::vector<TunableValues> Ranking::usable(const std::vector<TunableValues>& order, size_t most, size_t* fine) const {
  const TuningStore store = records();
  std::vector<TunableValues> kept, failed;
  for (const TunableValues& values : order) {
    if (kept.size() == most) break;
    const auto record = store.sample(values, true);
    const auto state = record ? record->state : tuner::CandidateState::kUntried;
    if (is_barred(state)) continue;
    (state == tuner::CandidateState::kLaunchFailed ? failed : kept).push_back(values);
  }
  if (fine) *fine = kept.size();
  kept.insert(kept.end(), failed.begin(), failed.end());
  return kept;
}

std::vector<TunableValues> Ranking::others(const std::vector<TunableValues>& order) const {
  std::vector<TunableValues> left;
  for (const TunableValues& values : candidates_)
    if (!contains(order, values)) left.push_back(values);
  return usable(left, kMaxAttempts);
}

Status Ranking::read_decision() {
  ranked_.clear();
  complete_ = false;
  const auto decision = records().decision();
  if (!decision) return {};
  ranked_ = admitted_of(*decision);
  complete_ = !ranked_.empty() && decision->covers(candidates_) &&
              decision->suffices(wanted_trials(model_, settings_, candidates_.size()));
  return {};
}

Result<std::vector<TunableValues>> Ranking::without_tuning() {
  if (settings_.has_configuration) {
    KACHEL_ASSIGN(TunableValues values, parse_configuration(model_, settings_.configuration));
    return std::vector<TunableValues>{std::move(values)};
  }
  KACHEL_TRY(admit());
  const bool passing = settings_.policy == tuner::Policy::kBackground;
  KACHEL_ASSIGN(std::vector<TunableValues> all, order(passing ? settings_.policy : tuner::Policy::kOff));
  for (TunableValues& values : others(all)) all.push_back(std::move(values));
  return all;
}

std::vector<TunableValues> Ranking::without_decision(bool passing) {
  if (const auto nearest = records().nearest_decision()) {
    std::vector<TunableValues> order = admitted_of(*nearest);
    source_ = Source::kNearestKey;
    if (!order.empty()) return order;
  }
  Guess guessed = guess(engine_.plans(), device_, model_, point_, arguments_, candidates_,
                        engine_.options().compile_threads, passing);
  source_ = guessed.order.empty() ? Source::kList : guessed.passing ? Source::kPassing : Source::kCostModel;
  return std::move(guessed.order);
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
      order = ranked_.empty() ? without_decision(policy == tuner::Policy::kBackground) : ranked_;
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
  size_t fine = 0;
  order = usable(order, order.size(), &fine);
  if (fine > 0 || policy == tuner::Policy::kCachedOnly) {
    if (!order.empty()) return order;
  } else {
    std::vector<TunableValues> first = others(order);
    for (TunableValues& values : order) first.push_back(std::move(values));
    order = std::move(first);
  }
  if (order.empty())
    return Status(Code::kLaunch,
                  fmt::format("kernel `{}`: none of its {} configurations may serve, since they crashed, timed out or "
                              "computed something else when they were tuned. See the tuning; name one to run it in "
                              "spite of that, or clear the store, with a longer limit for runs if they are but slow",
                              model_.kernel.name, candidates_.size()));
  return order;
}

}  // namespace kachel::runtime
