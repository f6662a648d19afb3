#include "cache/default_path.h"

#include <algorithm>
#include <cstdlib>

namespace kachel::cache {
namespace {

const char* look_up_in(const Environment& environment, const char* name) {
  return environment ? environment(name) : secure_getenv(name);
}

}  // namespace

std::string default_store_path(const Environment& environment) {
  auto look_up = [&](const char* name) { return look_up_in(environment, name); };
  if (const char* chosen = look_up("KACHEL_CACHE")) return chosen;
  const char* cache = look_up("XDG_CACHE_HOME");
  if (cache && cache[0] == '/') return std::string(cache) + "/kachel";
  const char* home = look_up("HOME");
  if (home && home[0] == '/') return std::string(home) + "/.cache/kachel";
  return {};
}

std::string default_store_layers(const Environment& environment) {
  const char* paths = look_up_in(environment, "KACHEL_SYSTEM_CACHE");
  return paths ? paths : "";
}

std::string default_mac_key_files(const Environment& environment) {
  const char* paths = look_up_in(environment, "KACHEL_STORE_KEY_FILE");
  return paths ? paths : "";
}

std::vector<std::string> split_paths(std::string_view paths) {
  std::vector<std::string> split;
  while (!paths.empty()) {
    const size_t end = std::min(paths.find(':'), paths.size());
    if (end > 0) split.emplace_back(paths.substr(0, end));
    paths.remove_prefix(std::min(end + 1, paths.size()));
  }
  return split;
}

}  // namespace kachel::cache
