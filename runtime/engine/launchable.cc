#include "runtime/engine/launchable.h"

#include <fmt/format.h>

namespace kachel::runtime {

Launchable::Launchable(std::shared_ptr<Engine> engine, std::shared_ptr<const KernelModel> model)
    : engine_(std::move(engine)), model_(std::move(model)) {
  defaults_.policy = engine_->options().policy;
  defaults_.tune_budget_ns = engine_->options().tune_budget_ns;
  defaults_.tune_trials = engine_->options().tune_trials;
  defaults_.hooks = engine_->options().hooks;
}

Status busy_in_capture(const KernelModel& model, std::string_view what) {
  return {Code::kBusy,
          fmt::format("kernel `{}` would have to {} while the stream is captured; {}", model.kernel.name, what,
                      "call kachel_prepare or kachel_bind with these arguments before the capture begins")};
}

}  // namespace kachel::runtime
