// One point of a search space: an ordered list of named integers, "BM=64,BN=128".
#pragma once
#include <compare>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "support/status.h"

namespace kachel::tuner {

struct Setting {
  std::string name;
  int64_t value = 0;
  friend auto operator<=>(const Setting&, const Setting&) = default;
};

// Immutable value. Two configurations are equal when they set the same names to the same values in the same order.
class Configuration {
 public:
  Configuration() = default;
  // Fails unless every name is an identifier (letters, digits, '_' and '.', no digit first) that occurs once.
  static Result<Configuration> make(std::vector<Setting> settings);
  // The inverse of text(). "" is the configuration of a kernel that has nothing to tune.
  static Result<Configuration> parse(std::string_view text);

  const std::vector<Setting>& settings() const { return settings_; }
  std::optional<int64_t> get(std::string_view name) const;
  std::string text() const;
  // text() with the names sorted: what samples are filed under, so that reordering a tune list loses none of them.
  std::string key() const;
  size_t hash() const;

  friend auto operator<=>(const Configuration&, const Configuration&) = default;

 private:
  friend class SearchSpace;
  explicit Configuration(std::vector<Setting> settings) : settings_(std::move(settings)) {}

  std::vector<Setting> settings_;
};

bool is_setting_name(std::string_view name);

}  // namespace kachel::tuner

template <>
struct std::hash<kachel::tuner::Configuration> {
  size_t operator()(const kachel::tuner::Configuration& configuration) const { return configuration.hash(); }
};
