#include "runtime/engine/specialise/configurations.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "lowering/space/space.h"
#include "tuner/space.h"

namespace kachel::runtime {

std::string configuration_text(const KernelModel& model, const TunableValues& values) {
  std::string text;
  for (size_t i = 0; i < values.size(); ++i)
    text += fmt::format("{}{}={}", i ? "," : "", model.tunables[i].name, values[i]);
  return text;
}

Result<TunableValues> parse_configuration(const KernelModel& model, std::string_view text) {
  auto parsed = tuner::Configuration::parse(text);
  if (!parsed.ok())
    return invalid(fmt::format("'{}' is not a configuration: {}; write it like \"BM=64,BN=128\"", text,
                               parsed.status().message()));
  auto names = [&] {
    std::string list;
    for (const TunableModel& tunable : model.tunables)
      list += fmt::format("{}{}", list.empty() ? "" : ", ", tunable.name);
    return list.empty() ? "none" : list;
  };
  for (const tuner::Setting& setting : parsed->settings())
    if (std::none_of(model.tunables.begin(), model.tunables.end(),
                     [&](const TunableModel& tunable) { return tunable.name == setting.name; }))
      return invalid(
          fmt::format("kernel `{}` has no tunable `{}`; it has {}", model.kernel.name, setting.name, names()));
  TunableValues values;
  for (const TunableModel& tunable : model.tunables) {
    const auto value = parsed->get(tunable.name);
    if (!value)
      return invalid(
          fmt::format("configuration '{}' gives no value to `{}`; name all of {}", text, tunable.name, names()));
    if (!tunable.allows(*value) && tunable.automatic())
      return invalid(
          fmt::format("{} is not a value of the tunable `{}`; use one of 1 to {}", *value, tunable.name, tunable.most));
    if (!tunable.allows(*value))
      return invalid(fmt::format("{} is not a value of the tunable `{}`; use one of {}", *value, tunable.name,
                                 fmt::join(tunable.values, ", ")));
    values.push_back(*value);
  }
  return values;
}

tuner::Configuration to_configuration(const TunableValues& values) {
  std::vector<tuner::Setting> settings;
  for (size_t i = 0; i < values.size(); ++i) settings.push_back({fmt::format("t{}", i), values[i]});
  return *tuner::Configuration::make(std::move(settings));
}

bool from_configuration(const KernelModel& model, const tuner::Configuration& configuration, TunableValues& out) {
  out.clear();
  const auto& settings = configuration.settings();
  if (settings.size() != model.tunables.size()) return false;
  for (size_t i = 0; i < settings.size(); ++i) {
    if (settings[i].name != fmt::format("t{}", i) || !model.tunables[i].allows(settings[i].value)) return false;
    out.push_back(settings[i].value);
  }
  return true;
}

bool is_admitted(const KernelModel& model, const HostInputs& inputs, const TunableValues& values) {
  const HostInputs all{inputs.dims, inputs.scalars, values.data()};
  return std::all_of(model.conditions.begin(), model.conditions.end(),
                     [&](const Condition& condition) { return condition.program.run(all) != 0; });
}

namespace {

Result<std::vector<TunableValues>> listed(const KernelModel& model, const HostInputs& inputs) {
  if (model.configurations > tuner::SearchSpace::kMaxPoints)
    return unsupported(fmt::format("kernel `{}` has more than {} configurations; list fewer values in `tune`",
                                   model.kernel.name, tuner::SearchSpace::kMaxPoints));
  std::vector<TunableValues> admitted;
  std::vector<size_t> at(model.tunables.size(), 0);
  TunableValues values(model.tunables.size());
  for (size_t point = 0; point < model.configurations; ++point) {
    for (size_t i = 0; i < at.size(); ++i) values[i] = model.tunables[i].values[at[i]];
    if (is_admitted(model, inputs, values)) admitted.push_back(values);
    for (size_t i = at.size(); i-- > 0;) {  // the last tunable varies fastest
      if (++at[i] < model.tunables[i].values.size()) break;
      at[i] = 0;
    }
    if (admitted.size() > tuner::SearchSpace::kMaxConfigurations)
      return unsupported(fmt::format("kernel `{}` has more than {} configurations here; prune them with `where`",
                                     model.kernel.name, tuner::SearchSpace::kMaxConfigurations));
  }
  return admitted;
}

// What the key tells of dimensions: all launches of a key are to have one space.
void add_key_dims(const KernelModel& model, const HostInputs& inputs, std::map<std::string, int64_t>* dims) {
  for (size_t i = 0; i < model.keys.size(); ++i) {
    ir::ExprRef expr = model.kernel.key[i];
    if (expr->kind == ir::ExprKind::kApply && expr->op == ir::Op::kBucket) expr = expr->args[0];
    if (expr->kind == ir::ExprKind::kVar && expr->var->kind == ir::VarKind::kDim)
      dims->emplace(expr->var->name, model.keys[i].run(inputs));
  }
}

std::vector<TunableValues> derived(const KernelModel& model, const DeviceProperties& device, const Point& point,
                                   const HostInputs& inputs) {
  lowering::SpaceQuestion question{.kernel = model.kernel, .is_program = model.is_program};
  for (size_t i = 0; i < model.types.size(); ++i)
    question.bindings.types[model.types[i]] = static_cast<ir::DType>(point.types >> (4 * i) & 15);
  question.bindings.int_consts = model.int_consts;
  question.bindings.float_consts = model.float_consts;
  for (size_t i = 0; i < model.static_dims.size(); ++i)
    question.bindings.dims[model.dims[model.static_dims[i]]] = point.static_dims[i];
  add_key_dims(model, inputs, &question.bindings.dims);
  question.target = target_of(device, model, point, TunableValues(model.tunables.size(), 1));
  question.multiprocessors = device.multiprocessors;
  question.admitted = [&](const TunableValues& values) { return is_admitted(model, inputs, values); };
  return lowering::derive_space(question);
}

}  // namespace

Result<std::vector<TunableValues>> admitted_configurations(const KernelModel& model, const DeviceProperties& device,
                                                           const Point& point, const HostInputs& inputs) {
  std::vector<TunableValues> admitted;
  if (model.automatic) {
    admitted = derived(model, device, point, inputs);
  } else {
    KACHEL_ASSIGN(admitted, listed(model, inputs));
  }
  if (!admitted.empty()) return admitted;
  std::string conditions;
  for (const Condition& condition : model.conditions)
    conditions += fmt::format("{}`{}`", conditions.empty() ? "" : " and ", condition.text);
  std::string dims;
  for (size_t i = 0; i < model.dims.size(); ++i)
    dims += fmt::format("{}{} = {}", i ? ", " : "", model.dims[i], inputs.dims[i]);
  if (model.automatic)
    return invalid(
        fmt::format("kernel `{}`: none of the values that `tune auto` derives for {} fit{}{}{}: a tile is too "
                    "large, or a dimension, of which a program's tunable may decide, suits none of them; cut "
                    "the tile, pass other values, or list those of the tunables",
                    model.kernel.name, device.architecture.empty() ? device.name : device.architecture,
                    conditions.empty() ? "" : ", with ", conditions, dims.empty() ? "" : ", " + dims));
  return invalid(
      fmt::format("kernel `{}`: no configuration satisfies {} for {}; list other values in `tune`, or pass "
                  "other shapes",
                  model.kernel.name, conditions, dims.empty() ? "these arguments" : dims));
}

}  // namespace kachel::runtime
