// Binaries for devices that are elsewhere.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <new>

#include "runtime/engine/programs/program_handle.h"
#include "runtime/engine/specialise/configurations.h"
#include "runtime/engine/threads.h"

namespace kachel::runtime {
namespace {

// Best first, as far as that is known without measuring; then the others as they are listed.
Result<std::vector<TunableValues>> wanted(Engine& engine, Device& device, const KernelModel& model,
                                          const BoundArguments& arguments, const LaunchSettings& settings,
                                          size_t most) {
  LaunchSettings unhurried = settings;
  unhurried.policy = tuner::Policy::kOff;  // nobody waits here for what compiles soonest
  Ranking ranking(engine, device, model, arguments, unhurried, {});
  KACHEL_ASSIGN(std::vector<TunableValues> order, ranking.without_tuning());
  if (settings.has_configuration) return order;
  KACHEL_ASSIGN(const std::vector<TunableValues> admitted,
                admitted_configurations(model, device.properties(), point_of(model, arguments), arguments.inputs()));
  for (const TunableValues& values : admitted)
    if (std::find(order.begin(), order.end(), values) == order.end() && ranking.may_serve(values))
      order.push_back(values);
  if (most && order.size() > most) order.resize(most);
  return order;
}

}  // namespace

void CompiledAhead::add(const CompiledAhead& other) {
  compiled += other.compiled;
  present += other.present;
  refused += other.refused;
}

Result<CompiledAhead> KernelHandle::compile(std::span<const Arg> args, const LaunchSettings& settings, size_t most) {
  BoundArguments arguments;
  KACHEL_TRY(bind_arguments(args, arguments));
  KACHEL_ASSIGN(Device * device, engine_->devices().get(arguments.device));
  KACHEL_ASSIGN(const std::vector<TunableValues> order, wanted(*engine_, *device, *model_, arguments, settings, most));
  const Point point = point_of(*model_, arguments);
  std::vector<Result<bool>> results(order.size(), Result<bool>(false));
  std::atomic<size_t> next{0};
  on_threads(std::min(order.size(), engine_->compile_threads()), [&] {
    for (size_t i = next++; i < order.size(); i = next++) {
      try {
        results[i] = engine_->plans().compile({*device, *model_, point, order[i]});
      } catch (const std::bad_alloc&) {
        results[i] = Status(Code::kNoMemory, "there is no memory to compile");
      } catch (const std::exception& failure) {
        results[i] = internal(failure.what());
      }
    }
  });
  CompiledAhead made;
  for (size_t i = 0; i < results.size(); ++i) {
    const Result<bool>& result = results[i];
    if (result.ok()) {
      ++(*result ? made.compiled : made.present);
      continue;
    }
    // A configuration that this device has no room for is one less; a compiler that is not there is a failure.
    const Code code = result.status().code();
    if (code != Code::kInvalid && code != Code::kUnsupported && code != Code::kCompile) return result.status();
    ++made.refused;
    const std::string configuration = configuration_text(*model_, order[i]);
    engine_->log().write({.kind = EventKind::kCandidateFailed,
                          .level = LogLevel::kInfo,
                          .message = fmt::format("kernel `{}`: configuration {} cannot be built: {}",
                                                 model_->kernel.name, configuration, result.status().message()),
                          .kernel = model_->kernel.name,
                          .fields = {{"configuration", configuration},
                                     {"state", std::string(tuner::state_name(tuner::CandidateState::kCompileFailed))},
                                     {"reason", result.status().message()}}});
  }
  if (made.refused == results.size()) return results.front().status();
  return made;
}

Result<CompiledAhead> ProgramHandle::compile(std::span<const Arg> args, const LaunchSettings& settings, size_t most) {
  BoundArguments arguments;
  KACHEL_TRY(bind_arguments(args, arguments));
  KACHEL_ASSIGN(Device * device, engine_->devices().get(arguments.device));
  KACHEL_ASSIGN(const std::vector<TunableValues> order, wanted(*engine_, *device, *model_, arguments, settings, most));
  const LaunchSettings each = step_settings(settings, steps_.size());
  CompiledAhead made;
  for (const TunableValues& values : order) {
    ProgramLayout layout;
    KACHEL_TRY(lay_out(*program_, arguments, values, layout));
    KACHEL_ASSIGN(const LastingScratch scratch,
                  LastingScratch::allocate(engine_, *device, layout.bytes));  // its address decides facts
    StepArguments step_arguments(*program_, arguments, values, layout, scratch.get(), args);
    for (size_t i = 0; i < steps_.size(); ++i) {
      if (!layout.runs(i)) continue;
      KACHEL_ASSIGN(const CompiledAhead step, steps_[i]->compile(step_arguments.of(program_->steps[i]), each, most));
      made.add(step);
    }
  }
  return made;
}

}  // namespace kachel::runtime
