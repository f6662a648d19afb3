#include "capi/tuning_options.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/engine/specialise/configurations.h"

namespace kachel::capi {
namespace {

using runtime::TrialRuns;
using runtime::TunableValues;
using runtime::TuningCase;

constexpr uint32_t kMostSamples = 4096;
constexpr uint32_t kMostRuns = 1 << 20;

// The flat arrays that a callback is shown. Keeps what they point to.
class Shown {
 public:
  Shown(const TuningCase& tuning, const std::vector<TunableValues>& configurations) {
    const runtime::KernelModel& model = tuning.model;
    for (const TunableValues& values : configurations) {
      text_.push_back(runtime::configuration_text(model, values));
      values_.insert(values_.end(), values.begin(), values.end());
    }
    for (const std::string& text : text_) texts_.push_back(text.c_str());
    for (const runtime::TunableModel& tunable : model.tunables) tunables_.push_back(tunable.name.c_str());
    for (const std::string& dim : model.dims) dims_.push_back(dim.c_str());
    shown_.struct_size = sizeof shown_;
    shown_.kernel = model.kernel.name.c_str();
    shown_.device = {tuning.device.type, tuning.device.id};
    shown_.count = static_cast<uint32_t>(configurations.size());
    shown_.tunable_count = static_cast<uint32_t>(tunables_.size());
    shown_.dim_count = static_cast<uint32_t>(dims_.size());
    shown_.texts = texts_.data();
    shown_.tunables = tunables_.data();
    shown_.values = values_.data();
    shown_.dims = dims_.data();
    shown_.dim_values = tuning.dims;
  }
  Shown(const Shown&) = delete;
  Shown& operator=(const Shown&) = delete;

  const kachel_configurations* get() const { return &shown_; }

 private:
  std::vector<std::string> text_;
  std::vector<const char*> texts_, tunables_, dims_;
  std::vector<int64_t> values_;
  kachel_configurations shown_{};
};

Status went_on(const char* callback, int32_t returned) {
  if (returned == 0) return {};
  return {Code::kCancelled, fmt::format("the callback `{}` ended the tuning: it returned {}", callback, returned)};
}

// The functions of a kachel_trial.
kachel_status restore(void* self) {
  return guarded(nullptr, [&] { return static_cast<TrialRuns*>(self)->restore(); });
}
kachel_status flush(void* self) {
  return guarded(nullptr, [&] { return static_cast<TrialRuns*>(self)->flush(); });
}
kachel_status launch(void* self, uint32_t times) {
  return guarded(nullptr, [&] { return static_cast<TrialRuns*>(self)->launch(times); });
}
kachel_status synchronize(void* self) {
  return guarded(nullptr, [&] { return static_cast<TrialRuns*>(self)->synchronize(); });
}

void take_benchmark(const kachel_tuning_options& given, runtime::TuningHooks* hooks) {
  if (!given.benchmark) return;
  hooks->benchmark = [call = given.benchmark, user = given.user](const TuningCase& tuning, const TunableValues& values,
                                                                 TrialRuns& runs) -> Result<std::vector<double>> {
    const Shown one(tuning, {values});
    const kachel_trial trial{sizeof trial, &runs, runs.stream(), restore, flush, launch, synchronize};
    std::vector<double> samples(kMostSamples, 0);
    uint32_t count = 0;
    KACHEL_TRY(went_on("benchmark", call(user, one.get(), &trial, samples.data(), kMostSamples, &count)));
    if (count > kMostSamples)
      return invalid(fmt::format("the callback `benchmark` says that it gave {} samples, where there is room for {}",
                                 count, kMostSamples));
    samples.resize(count);
    return samples;
  };
}

template <class Call>
auto around_run(const char* name, Call call, void* user) {
  return [=](const TuningCase& tuning, const TunableValues& values, void* stream) {
    const Shown one(tuning, {values});
    return went_on(name, call(user, one.get(), stream));
  };
}

}  // namespace

Result<std::shared_ptr<const runtime::TuningHooks>> tuning_hooks(const kachel_tuning_options* given) {
  std::shared_ptr<const runtime::TuningHooks> none;
  if (!given) return none;
  kachel_tuning_options known;
  KACHEL_TRY(read_struct(given, known, "tuning"));
  if (known.max_runs != 0 && known.min_runs > known.max_runs)
    return invalid(fmt::format("min_runs ({}) is more than max_runs ({}); give the same or fewer", known.min_runs,
                               known.max_runs));
  auto hooks = std::make_shared<runtime::TuningHooks>();
  auto runs = [](uint32_t count) { return static_cast<int>(std::min(count, kMostRuns)); };
  hooks->warmup_runs = runs(known.warmup_runs);
  hooks->min_runs = runs(known.min_runs);
  hooks->max_runs = runs(known.max_runs);
  void* const user = known.user;
  if (known.prune)
    hooks->prune = [call = known.prune, user](const TuningCase& tuning, const std::vector<TunableValues>& all,
                                              std::vector<uint8_t>* keep) {
      return went_on("prune", call(user, Shown(tuning, all).get(), keep->data()));
    };
  if (known.predict)
    hooks->predict = [call = known.predict, user](const TuningCase& tuning, const std::vector<TunableValues>& all,
                                                  std::vector<double>* ns) {
      return went_on("predict", call(user, Shown(tuning, all).get(), ns->data()));
    };
  take_benchmark(known, hooks.get());
  if (known.before_run) hooks->before_run = around_run("before_run", known.before_run, user);
  if (known.after_run) hooks->after_run = around_run("after_run", known.after_run, user);
  return std::shared_ptr<const runtime::TuningHooks>(std::move(hooks));
}

}  // namespace kachel::capi
