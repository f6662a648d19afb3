#include "runtime/engine/specialise/configurations.h"

#include <fmt/format.h>

#include <algorithm>

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
    if (std::find(tunable.values.begin(), tunable.values.end(), *value) == tunable.values.end())
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
    const std::vector<int64_t>& values = model.tunables[i].values;
    if (settings[i].name != fmt::format("t{}", i)) return false;
    if (std::find(values.begin(), values.end(), settings[i].value) == values.end()) return false;
    out.push_back(settings[i].value);
  }
  return true;
}

bool is_admitted(const KernelModel& model, const HostInputs& inputs, const TunableValues& values) {
  const HostInputs all{inputs.dims, inputs.scalars, values.data()};
  return std::all_of(model.conditions.begin(), model.conditions.end(),
                     [&](const Condition& condition) { return condition.program.run(all) != 0; });
}

Result<std::vector<TunableValues>> admitted_configurations(const KernelModel& model, const HostInputs& inputs) {
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
  if (!admitted.empty()) return admitted;
  std::string conditions;
  for (const Condition& condition : model.conditions)
    conditions += fmt::format("{}`{}`", conditions.empty() ? "" : " and ", condition.text);
  std::string dims;
  for (size_t i = 0; i < model.dims.size(); ++i)
    dims += fmt::format("{}{} = {}", i ? ", " : "", model.dims[i], inputs.dims[i]);
  return invalid(
      fmt::format("kernel `{}`: no configuration satisfies {} for {}; list other values in `tune`, or pass "
                  "other shapes",
                  model.kernel.name, conditions, dims.empty() ? "these arguments" : dims));
}

}  // namespace kachel::runtime
