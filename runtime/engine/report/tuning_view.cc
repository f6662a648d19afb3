#include "runtime/engine/report/tuning_view.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/engine/specialise/configurations.h"

namespace kachel::runtime {

Result<TuningView> read_tuning(const Launchable& kernel, std::span<const Arg> args) {
  BoundArguments arguments;
  KACHEL_TRY(kernel.bind_arguments(args, arguments));
  Engine& engine = kernel.engine();
  const KernelModel& model = kernel.model();
  KACHEL_ASSIGN(Device * device, engine.devices().get(arguments.device));
  const Point point = point_of(model, arguments);
  const DeviceProperties& properties = device->properties();
  KACHEL_ASSIGN(std::vector<TunableValues> admitted,
                admitted_configurations(model, properties, point, arguments.inputs()));
  const TuningStore store(engine.store(), {model, point, properties});
  const auto decision = store.decision();
  // Of one configuration nothing has to be decided.
  const bool alone = admitted.size() == 1;
  if (!decision && !alone)
    return Status(Code::kNotCached,
                  fmt::format("kernel `{}` has not been tuned for this key on {}; launch or prepare it "
                              "with the policy blocking",
                              model.kernel.name, properties.name));
  TuningView view;
  if (decision) view.total_ns = static_cast<double>(decision->winner.total_ns);
  view.from_store = decision && !engine.tuned_here(tuning_key(model, point, properties));
  for (const TunableValues& values : admitted) {
    TuningView::Candidate& candidate = view.candidates.emplace_back();
    candidate.configuration = configuration_text(model, values);
    if (!model.is_program) {
      candidate.usage = engine.plans().usage({*device, model, point, values});
      if (const auto predicted = engine.plans().predict({*device, model, point, values}, arguments))
        candidate.predicted_ns = predicted->time.ns;
    }
    if (auto record = store.sample(values)) {
      record->summarize();
      candidate.message = record->message;
      candidate.state = record->state;
      candidate.samples = record->samples.empty() ? 0 : static_cast<uint32_t>(record->samples.back().ns.size());
      candidate.median_ns = record->median_ns;
      candidate.low_ns = record->ci.low;
      candidate.high_ns = record->ci.high;
      candidate.compile_ns = static_cast<double>(record->compile_ns);
    }
  }
  if (alone) view.winner = 0;
  // The first of the ranking that is admitted now; one whose launch has failed since serves only where no other is
  // left.
  for (size_t i = decision ? decision->winner.ranked.size() : 0; i-- > 0;) {
    TunableValues ranked;
    if (!from_configuration(model, decision->winner.ranked[i].configuration, ranked)) continue;
    auto found = std::find(admitted.begin(), admitted.end(), ranked);
    if (found == admitted.end()) continue;
    const auto at = static_cast<size_t>(found - admitted.begin());
    const bool failed = view.candidates[at].state == tuner::CandidateState::kLaunchFailed;
    if (!failed || view.winner < 0) view.winner = static_cast<int>(at);
  }
  return view;
}

}  // namespace kachel::runtime
