#include "runtime/engine/tuning/trials.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tuner/forecast.h"

namespace kachel::runtime {
namespace {

Status prune(const TuningHooks& hooks, const TuningCase& tuning, std::vector<TunableValues>* candidates) {
  std::vector<uint8_t> keep(candidates->size(), 1);
  KACHEL_TRY(hooks.prune(tuning, *candidates, &keep));
  std::vector<TunableValues> kept;
  for (size_t i = 0; i < keep.size(); ++i)
    if (keep[i]) kept.push_back((*candidates)[i]);
  if (kept.empty())
    return invalid(fmt::format("kernel `{}`: the host's `prune` keeps none of {} configurations; keep one at least",
                               tuning.model.kernel.name, candidates->size()));
  *candidates = std::move(kept);
  return {};
}

}  // namespace

const TuningHooks* hooks_of(const KernelModel& model, const LaunchSettings& settings) {
  return model.derived ? nullptr : settings.hooks.get();
}

uint64_t wanted_trials(const KernelModel& model, const LaunchSettings& settings, size_t candidates) {
  if (model.derived && model.is_program) return 0;
  uint64_t wanted = settings.tune_trials;
  if (wanted == 0) wanted = model.automatic ? kAutomaticTrials : kAllTrials;
  return wanted >= kAllTrials || wanted >= candidates ? 0 : wanted;
}

Result<Trials> choose_trials(const TuningHooks* hooks, const TuningCase& tuning,
                             const std::vector<TunableValues>& candidates, uint64_t wanted) {
  Trials trials{candidates, {}};
  if (hooks && hooks->prune) KACHEL_TRY(prune(*hooks, tuning, &trials.candidates));
  if (hooks && hooks->predict) {
    std::vector<double> ns(trials.candidates.size(), std::numeric_limits<double>::quiet_NaN());
    KACHEL_TRY(hooks->predict(tuning, trials.candidates, &ns));
    for (const double each : ns)
      trials.forecasts.push_back({.ns = each > 0 ? each : std::numeric_limits<double>::quiet_NaN()});
  }
  if (!tuning.model.is_program || wanted == 0 || trials.candidates.size() <= wanted) return trials;
  std::vector<size_t> order(trials.candidates.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (!trials.forecasts.empty()) tuner::order_by_forecast(trials.forecasts, &order);
  order.resize(wanted);
  std::sort(order.begin(), order.end());
  Trials cut;
  for (size_t at : order) {
    cut.candidates.push_back(trials.candidates[at]);
    if (!trials.forecasts.empty()) cut.forecasts.push_back(trials.forecasts[at]);
  }
  return cut;
}

void apply_limits(const TuningHooks* hooks, tuner::MeasurementLimits* limits) {
  if (!hooks) return;
  if (hooks->warmup_runs > 0) limits->warmup_runs = hooks->warmup_runs;
  if (hooks->min_runs > 0) {
    limits->min_rounds = limits->slow_min_rounds = hooks->min_runs;
    limits->max_rounds = std::max(limits->max_rounds, hooks->min_runs);
    limits->long_run_rounds = std::max(limits->long_run_rounds, hooks->min_runs);
  }
  if (hooks->max_runs > 0) {
    limits->max_rounds = hooks->max_runs;
    limits->long_run_rounds = std::min(limits->long_run_rounds, hooks->max_runs);
    limits->min_rounds = std::min(limits->min_rounds, hooks->max_runs);
    limits->slow_min_rounds = std::min(limits->slow_min_rounds, hooks->max_runs);
    limits->block_ns = 0;  // blocks are as many runs as they need
  }
}

}  // namespace kachel::runtime
