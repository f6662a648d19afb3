#include "tuner/configuration.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace kachel::tuner {
namespace {

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

std::string join(const std::vector<Setting>& settings) {
  std::string out;
  for (const Setting& setting : settings) {
    if (!out.empty()) out.push_back(',');
    out += setting.name;
    out.push_back('=');
    out += fmt::to_string(setting.value);
  }
  return out;
}

}  // namespace

bool is_setting_name(std::string_view name) {
  if (name.empty() || !is_letter(name[0])) return false;
  return std::all_of(name.begin(), name.end(), [](char c) { return is_letter(c) || is_digit(c) || c == '.'; });
}

Result<Configuration> Configuration::make(std::vector<Setting> settings) {
  for (size_t i = 0; i < settings.size(); ++i) {
    if (!is_setting_name(settings[i].name))
      return invalid(fmt::format("'{}' is not a name for a tunable; use letters, digits and '_'", settings[i].name));
    for (size_t j = 0; j < i; ++j)
      if (settings[j].name == settings[i].name)
        return invalid(fmt::format("the configuration sets '{}' twice; keep one of them", settings[i].name));
  }
  return Configuration(std::move(settings));
}

Result<Configuration> Configuration::parse(std::string_view text) {
  std::vector<Setting> settings;
  std::string_view rest = text;
  while (!rest.empty()) {
    size_t comma = rest.find(',');
    std::string_view item = rest.substr(0, comma);
    item.remove_prefix(std::min(item.find_first_not_of(' '), item.size()));
    item = item.substr(0, item.find_last_not_of(' ') + 1);
    size_t equals = item.find('=');
    Setting setting;
    bool good = equals != std::string_view::npos;
    if (good) {
      std::string_view number = item.substr(equals + 1);
      const char* end = number.data() + number.size();
      auto [stop, error] = std::from_chars(number.data(), end, setting.value);
      good = error == std::errc() && stop == end;
      setting.name = item.substr(0, equals);
    }
    bool trailing_comma = comma != std::string_view::npos && comma + 1 == rest.size();
    if (!good || trailing_comma)
      return invalid(fmt::format("'{}' is not a configuration; write NAME=NUMBER, separated by commas", text));
    settings.push_back(std::move(setting));
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
  }
  return make(std::move(settings));
}

std::optional<int64_t> Configuration::get(std::string_view name) const {
  for (const Setting& setting : settings_)
    if (setting.name == name) return setting.value;
  return std::nullopt;
}

std::string Configuration::text() const {
  return join(settings_);
}

std::string Configuration::key() const {
  std::vector<Setting> sorted = settings_;
  std::sort(sorted.begin(), sorted.end());
  return join(sorted);
}

size_t Configuration::hash() const {
  return std::hash<std::string>()(text());
}

}  // namespace kachel::tuner
