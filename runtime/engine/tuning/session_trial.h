// A session's candidate in the hands of the host's own benchmark.
#pragma once
#include <functional>
#include <utility>
#include <vector>

#include "runtime/engine/specialise/plan_builder.h"
#include "runtime/engine/tuning_hooks.h"

namespace kachel::runtime {

class SessionTrial final : public TrialRuns {
 public:
  struct Steps {
    std::function<Status()> restore, flush, run, synchronize;
  };
  SessionTrial(void* stream, Steps steps) : stream_(stream), steps_(std::move(steps)) {}

  // Samples by hooks.benchmark. What it left running is waited for. A step that failed is what is wrong, whatever the
  // host makes of it.
  Result<std::vector<double>> measure(const EngineServices& services, const TuningHooks& hooks,
                                      const TuningCase& tuning, const TunableValues& values) {
    auto samples = hooks.benchmark(tuning, values, *this);
    (void)synchronize();
    services.counters.measurements.fetch_add(launches_, std::memory_order_relaxed);
    if (!failed_.ok()) return services.noticed(failed_);
    return samples;
  }

  void* stream() const override { return stream_; }
  Status restore() override { return noted(steps_.restore()); }
  Status flush() override { return noted(steps_.flush()); }
  Status launch(uint32_t times) override {
    for (uint32_t i = 0; i < times; ++i) KACHEL_TRY(noted(steps_.run()));
    launches_ += times;
    return {};
  }
  Status synchronize() override { return noted(steps_.synchronize()); }

 private:
  Status noted(Status status) {
    if (failed_.ok()) failed_ = status;
    return status;
  }

  void* stream_;
  Steps steps_;
  Status failed_;
  uint64_t launches_ = 0;
};

}  // namespace kachel::runtime
