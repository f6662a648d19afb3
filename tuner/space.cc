#include "tuner/space.h"

#include <fmt/format.h>

#include <algorithm>

namespace kachel::tuner {

Result<size_t> SearchSpace::count_points() const {
  size_t points = 1;
  for (size_t i = 0; i < axes_.size(); ++i) {
    const Axis& axis = axes_[i];
    if (!is_setting_name(axis.name))
      return invalid(fmt::format("'{}' is not a name for a tunable; use letters, digits and '_'", axis.name));
    for (size_t j = 0; j < i; ++j)
      if (axes_[j].name == axis.name)
        return invalid(fmt::format("tunable '{}' is declared twice; merge its values into one list", axis.name));
    if (axis.values.empty())
      return invalid(
          fmt::format("tunable '{}' has no values; give it at least one, as in {} = 64", axis.name, axis.name));
    std::vector<int64_t> sorted = axis.values;
    std::sort(sorted.begin(), sorted.end());
    auto twin = std::adjacent_find(sorted.begin(), sorted.end());
    if (twin != sorted.end())
      return invalid(fmt::format("tunable '{}' lists {} twice; remove one of them", axis.name, *twin));
    if (axis.values.size() > kMaxPoints / points)
      return invalid(fmt::format(
          "the search space has more than {} points before 'where' prunes it; list fewer values per tunable "
          "or fix one of them",
          kMaxPoints));
    points *= axis.values.size();
  }
  return points;
}

Result<std::vector<Configuration>> SearchSpace::enumerate() const {
  KACHEL_ASSIGN(size_t points, count_points());
  std::vector<Configuration> kept;
  std::vector<size_t> digits(axes_.size(), 0);  // an odometer; the last axis turns fastest
  for (size_t point = 0; point < points; ++point) {
    std::vector<Setting> settings(axes_.size());
    for (size_t i = 0; i < axes_.size(); ++i) settings[i] = {axes_[i].name, axes_[i].values[digits[i]]};
    Configuration configuration(std::move(settings));
    if (!where_ || where_(configuration)) {
      if (kept.size() == kMaxConfigurations)
        return invalid(
            fmt::format("the search space has more than {} configurations; list fewer values per tunable or "
                        "add a 'where' that prunes those not worth trying",
                        kMaxConfigurations));
      kept.push_back(std::move(configuration));
    }
    for (size_t i = axes_.size(); i-- > 0;) {
      if (++digits[i] < axes_[i].values.size()) break;
      digits[i] = 0;
    }
  }
  if (kept.empty())
    return invalid(fmt::format("'where' drops all {} configurations; loosen it or list other values", points));
  return kept;
}

}  // namespace kachel::tuner
