// Words for people: what a launch would run and why.
#include <fmt/format.h>

#include <bit>

#include "runtime/engine/bind/facts.h"
#include "runtime/engine/programs/program_handle.h"
#include "runtime/engine/specialise/configurations.h"
#include "runtime/engine/specialise/prediction.h"

namespace kachel::runtime {
namespace {

// Why this configuration and no other.
std::string reason(const Launchable& kernel, const LaunchSettings& settings, size_t admitted, Ranking::Source source,
                   const TuningStore& store) {
  if (settings.has_configuration) return "as asked for";
  if (admitted == 1) return "the only one";
  const auto decision = store.decision();
  if (source == Ranking::Source::kNearestKey) return "as tuned for the nearest key; this one has not been tuned";
  const char* const how = kernel.model().automatic ? "derived" : "listed";
  if (source == Ranking::Source::kCostModel)
    return fmt::format("what the cost model expects most from, of {} {}; this key has not been tuned", admitted, how);
  if (source == Ranking::Source::kPassing)
    return fmt::format(
        "compiled soon, and expected to be little slower than the best of {} {}, until this key is tuned", admitted,
        how);
  if (!decision) return fmt::format("the first of {} {}; this key has not been tuned", admitted, how);
  TunableValues winner;
  if (!from_configuration(kernel.model(), decision->winner.ranked[0].configuration, winner))
    return "the best tuned one that is still listed";
  const uint64_t tuned = decision->trials ? decision->trials : decision->winner.candidates;
  return fmt::format("the fastest of {} tuned{}, {:.2f} us", tuned,
                     decision->trials ? fmt::format(", of {} {}", decision->considered.size(), how) : "",
                     decision->winner.ranked[0].median_ns / 1000);
}

std::string summary(KernelHandle& kernel, const BoundArguments& arguments, const LaunchSettings& settings,
                    Ranking::Source source, Device& device, const TunableValues& values,
                    const lowering::Lowered& lowered, const std::string& other_forms) {
  const KernelModel& model = kernel.model();
  const DeviceProperties& properties = device.properties();
  const Point point = point_of(model, arguments);
  const TuningStore store(kernel.engine().store(), {model, point, properties});
  auto admitted = admitted_configurations(model, properties, point, arguments.inputs());
  std::string text = fmt::format("kernel         {}\ndevice         {} ({})\n", model.kernel.name, properties.name,
                                 properties.architecture);
  std::string types, dims;
  for (size_t i = 0; i < model.types.size(); ++i)
    types += fmt::format("{}{} = {}", i ? ", " : "", model.types[i], ir::name(arguments.type_of(static_cast<int>(i))));
  for (size_t i = 0; i < model.dims.size(); ++i) {
    const bool is_static =
        std::find(model.static_dims.begin(), model.static_dims.end(), static_cast<int>(i)) != model.static_dims.end();
    dims += fmt::format("{}{} = {}{}", i ? ", " : "", model.dims[i], arguments.dims[i], is_static ? " (static)" : "");
  }
  if (!types.empty()) text += "types          " + types + "\n";
  if (!dims.empty()) text += "dimensions     " + dims + "\n";
  text += "facts          " + facts_text(model, arguments.facts) + "\n";
  if (!model.keys.empty()) text += fmt::format("key            {}\n", fmt::join(point.key_values, ", "));
  text += fmt::format("configuration  {}: {}\n", values.empty() ? "(none)" : configuration_text(model, values),
                      reason(kernel, settings, admitted.ok() ? admitted->size() : 0, source, store));
  LaunchGrid grid;
  const BlockLimit limit = BlockLimit::of(lowered.cluster, lowered.tile_blocks);
  if (evaluate_grid(model.grid, arguments.inputs(values.data()), limit, grid).ok())
    text += fmt::format("grid           {} blocks of {} threads{}\n", grid.total * limit.tile_blocks, lowered.threads,
                        lowered.tile_blocks > 1   ? fmt::format(", {} for each tile", lowered.tile_blocks)
                        : lowered.cluster.empty() ? ""
                                                  : ", those that fill clusters up included");
  if (const auto predicted = predict_launch(lowered, model, properties, arguments.inputs(values.data()))) {
    const tuner::Prediction& time = predicted->time;
    text += fmt::format("occupancy      {} blocks a multiprocessor, {:.2f} waves\n", predicted->residency.blocks,
                        time.waves);
    text += fmt::format(
        "prediction     {:.2f} us; {} alone would take {:.2f} us{}{}\n", time.ns / 1000, time.bound,
        time.bound_ns / 1000,
        predicted->assumed ? fmt::format("; for lengths of {} where memory holds them", predicted->assumed) : "",
        !predicted->flawed     ? ""
        : lowered.flaw.empty() ? "; likely to be set aside: more registers than a thread has"
                               : "; likely to be set aside: " + lowered.flaw);
  }
  text += fmt::format("shared memory  {} bytes\nworkspace      {} bytes a block\n", lowered.shared_bytes,
                      lowered.workspace_bytes);
  const ResourceUsage usage = kernel.engine().plans().usage({device, model, point, values});
  if (usage.registers >= 0)
    text +=
        fmt::format("registers      {}, {} bytes spilled\n", usage.registers, std::max<int64_t>(usage.spill_bytes, 0));
  text += fmt::format("bits           {}\n",
                      lowered.deterministic ? "the same in every run" : "float atomics: may differ between runs");
  if (!other_forms.empty()) text += fmt::format("other forms    {}: a tuning measures up to two\n", other_forms);
  if (!lowered.notes.empty()) text += "\n" + lowered.notes;
  return text;
}

// The configuration, what its temporaries take, and which steps it leaves out.
std::string summary(const ProgramHandle& handle, const BoundArguments& arguments, const LaunchSettings& settings,
                    Ranking::Source source, const Device& device, const TunableValues& values,
                    const ProgramLayout& layout) {
  const KernelModel& model = handle.model();
  const ProgramModel& program = handle.program();
  const Point point = point_of(model, arguments);
  const TuningStore store(handle.engine().store(), {model, point, device.properties()});
  auto admitted = admitted_configurations(model, device.properties(), point, arguments.inputs());
  std::string text =
      fmt::format("program        {}\ndevice         {} ({})\nconfiguration  {}: {}\ntemporaries    {} bytes\n",
                  model.kernel.name, device.properties().name, device.properties().architecture,
                  values.empty() ? "(none)" : configuration_text(model, values),
                  reason(handle, settings, admitted.ok() ? admitted->size() : 0, source, store), layout.bytes);
  for (size_t i = 0; i < program.temps.size(); ++i) {
    const ProgramModel::Temp& temp = program.temps[i];
    if (!(temp.users & layout.steps)) continue;
    text += fmt::format("  {}: {}[{}]\n", temp.name, ir::name(program.type_of(temp, arguments)),
                        fmt::join(layout.temps[i].shape, layout.temps[i].shape + temp.shape.size(), ", "));
  }
  return text;
}

}  // namespace

Result<std::string> KernelHandle::explain(std::span<const Arg> args, const LaunchSettings& settings, ExplainWhat what) {
  BoundArguments arguments;
  KACHEL_TRY(bind_arguments(args, arguments));
  KACHEL_ASSIGN(Device * device, engine_->devices().get(arguments.device));
  if (forms_ && !settings.has_configuration && what != ExplainWhat::kConfiguration) {
    LaunchSettings stored = settings;
    stored.policy = tuner::Policy::kCachedOnly;
    Signature signature;
    make_signature(model_->table, arguments, stored.mode(), signature);
    auto serving = forms_->serving(arguments, args, stored, signature, nullptr);
    if (serving.ok() && serving->program) return serving->program->explain(args, stored, what);
  }
  Resolver resolver(*engine_, *device, *model_, arguments, settings, nullptr);
  KACHEL_ASSIGN(std::vector<TunableValues> order, resolver.ranking_without_tuning());
  if (what == ExplainWhat::kConfiguration) return configuration_text(*model_, order[0]);
  const Point point = point_of(*model_, arguments);
  KACHEL_ASSIGN(lowering::Lowered lowered,
                engine_->plans().lower({*device, *model_, point, order[0]}, {.keep_stages = true}));
  switch (what) {
    case ExplainWhat::kSummary: {
      std::string other_forms;
      if (forms_ && !settings.has_configuration) {
        KACHEL_ASSIGN(other_forms, forms_->considered(arguments));
      }
      return summary(*this, arguments, settings, resolver.source(), *device, order[0], lowered, other_forms);
    }
    case ExplainWhat::kSource:
      return lowered.text;
    case ExplainWhat::kTileIr:
      return lowered.tile_ir;
    case ExplainWhat::kLoopIr:
      return lowered.loop_ir;
    case ExplainWhat::kConfiguration:
      break;
  }
  return invalid(fmt::format("{} is not something to explain; use one of KACHEL_EXPLAIN_*", static_cast<int>(what)));
}

// The choice of the program, then each step that runs.
Result<std::string> ProgramHandle::explain(std::span<const Arg> args, const LaunchSettings& settings,
                                           ExplainWhat what) {
  BoundArguments arguments;
  KACHEL_TRY(bind_arguments(args, arguments));
  KACHEL_ASSIGN(Device * device, engine_->devices().get(arguments.device));
  Ranking ranking(*engine_, *device, *model_, arguments, settings, {});
  KACHEL_ASSIGN(std::vector<TunableValues> order, ranking.without_tuning());
  if (!settings.has_configuration && !ranking.decided())
    std::swap(order[0], order[first_that_fits(arguments, order, args, settings)]);
  if (what == ExplainWhat::kConfiguration) return configuration_text(*model_, order[0]);
  ProgramLayout layout;
  KACHEL_TRY(lay_out(*program_, arguments, order[0], layout));
  std::string text;
  if (what == ExplainWhat::kSummary)
    text = summary(*this, arguments, settings, ranking.source(), *device, order[0], layout);
  KACHEL_ASSIGN(const LastingScratch scratch,
                LastingScratch::allocate(engine_, *device, layout.bytes));  // its address decides facts
  const LaunchSettings each = step_settings(settings, steps_.size());
  StepArguments step_arguments(*program_, arguments, order[0], layout, scratch.get(), args);
  const auto count = std::popcount(layout.steps);
  int number = 0;
  for (size_t i = 0; i < steps_.size(); ++i) {
    if (!layout.runs(i)) continue;
    KACHEL_ASSIGN(const std::string step, steps_[i]->explain(step_arguments.of(program_->steps[i]), each, what));
    text += fmt::format("{}{}step {} of {}\n{}", text.empty() ? "" : "\n", what == ExplainWhat::kSource ? "// " : "# ",
                        ++number, count, step);
  }
  return text;
}

}  // namespace kachel::runtime
