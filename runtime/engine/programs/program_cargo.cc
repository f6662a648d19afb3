#include "runtime/engine/programs/program_cargo.h"

#include <algorithm>
#include <set>
#include <utility>

#include "runtime/engine/specialise/configurations.h"
#include "runtime/engine/tuning/resolver.h"
#include "support/bytes.h"

namespace kachel::runtime {
namespace {

// What serves the step, under the keys by which it is found.
Status add_step(const KernelHandle& step, Device& device, std::span<const Arg> args, const LaunchSettings& settings,
                void* stream, std::vector<cache::Entry>* entries) {
  Engine& engine = step.engine();
  const KernelModel& model = step.model();
  BoundArguments arguments;
  KACHEL_TRY(step.bind_arguments(args, arguments));
  const Point point = point_of(model, arguments);
  LaunchSettings known = settings;
  known.policy = tuner::Policy::kOff;
  KACHEL_ASSIGN(const Resolver::Outcome outcome, Resolver(engine, device, model, arguments, known, stream).run());
  if (!outcome.specialisation) return {};
  const DeviceProperties& properties = device.properties();
  auto add = [&](cache::Key key) {
    if (auto bytes = engine.store().get_here(key)) entries->push_back({std::move(key), *std::move(bytes)});
  };
  add(tuning_key(model, point, properties));
  // Samples say which of the ranking may not serve.
  if (const auto decision = TuningStore(engine.store(), {model, point, properties}).decision())
    for (const auto& ranked : decision->winner.ranked) {
      TunableValues values;
      if (from_configuration(model, ranked.configuration, values)) add(sample_key(model, point, values, properties));
    }
  const TunableValues& values = outcome.specialisation->values();
  if (auto plan = engine.plans().stored({device, model, point, values}))
    entries->push_back({plan_key(model, point, values, properties), *std::move(plan)});
  return {};
}

}  // namespace

bool passes_integers(const ProgramModel& program, const BoundArguments& arguments) {
  using Kind = ProgramModel::Argument::Kind;
  std::set<std::pair<Kind, int>> made;
  for (const ProgramModel::Step& step : program.steps) {
    std::set<std::pair<Kind, int>> written;
    for (size_t i = 0; i < step.arguments.size(); ++i) {
      const ProgramModel::Argument& argument = step.arguments[i];
      if (argument.kind == Kind::kScalar) continue;
      const std::pair tensor{argument.kind, argument.index};
      const ir::DType type = argument.kind == Kind::kTemp
                                 ? program.type_of(program.temps[static_cast<size_t>(argument.index)], arguments)
                                 : arguments.tensors[argument.index].dtype;
      const ir::Direction direction = step.kernel->params[i].direction;
      if (direction != ir::Direction::kOut && !ir::is_float(type) && made.count(tensor)) return true;
      if (direction != ir::Direction::kIn) written.insert(tensor);
    }
    made.merge(written);
  }
  return false;
}

Result<std::unique_ptr<ProgramCargo>> ProgramCargo::create(const ProgramHandle& program, Device& device,
                                                           const BoundArguments& arguments, std::span<const Arg> args,
                                                           const std::vector<TunableValues>& candidates,
                                                           const LaunchSettings& settings, void* stream) {
  const ProgramModel& model = program.program();
  std::vector<ProgramLayout> layouts(candidates.size());
  int64_t bytes = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    KACHEL_TRY(lay_out(model, arguments, candidates[i], layouts[i]));
    bytes = std::max(bytes, layouts[i].bytes);
  }
  Workspace scratch;
  if (bytes > 0) {
    KACHEL_ASSIGN(scratch, Workspace::allocate(device, program.engine().options().scratch, bytes, stream));
  }
  std::unique_ptr<ProgramCargo> made(new ProgramCargo);
  made->text_ = model.text;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const LaunchSettings each = candidate_settings(settings, model.steps.size(), i, candidates.size());
    StepArguments of(model, arguments, candidates[i], layouts[i], scratch.get(), args);
    std::vector<cache::Entry> entries;
    Status status;
    for (size_t at = 0; at < model.steps.size() && status.ok(); ++at) {
      if (!layouts[i].runs(at)) continue;
      const std::span<const Arg> step = of.of(model.steps[at]);
      status = program.step(at).prepare(step, each, stream);
      if (status.ok()) status = add_step(program.step(at), device, step, each, stream, &entries);
    }
    if (status.code() == Code::kCancelled || status.code() == Code::kDeviceLost) return status;
    made->entries_.push_back(status.ok() ? Result<std::string>(encode_entries(entries)) : status);
  }
  return made;
}

std::string encode_entries(std::span<const cache::Entry> entries) {
  ByteWriter out;
  out.put<uint64_t>(entries.size());
  for (const cache::Entry& entry : entries) {
    out.put_bytes(entry.key.bytes);
    out.put_bytes(entry.payload);
  }
  return out.take();
}

bool keep_entries(cache::Store& store, std::string_view bytes) {
  ByteReader in(bytes);
  std::vector<cache::Entry> entries(in.get_count(2 * sizeof(uint64_t)));
  for (cache::Entry& entry : entries) {
    entry.key.bytes = in.get_bytes();
    entry.payload = in.get_bytes();
    const auto parsed = cache::parse_key(entry.key.bytes);
    if (!parsed.ok()) return false;
    entry.key.kind = parsed->kind;
    entry.key.digest = cache::digest_of(entry.key.bytes);
  }
  if (!in.at_end()) return false;
  (void)store.put_many(entries);
  return true;
}

}  // namespace kachel::runtime
