#include "cache/default_path.h"

#include <cstdlib>

namespace kachel::cache {

std::string default_store_path(const Environment& environment) {
  auto look_up = [&](const char* name) { return environment ? environment(name) : secure_getenv(name); };
  if (const char* chosen = look_up("KACHEL_CACHE")) return chosen;
  const char* cache = look_up("XDG_CACHE_HOME");
  if (cache && cache[0] == '/') return std::string(cache) + "/kachel";
  const char* home = look_up("HOME");
  if (home && home[0] == '/') return std::string(home) + "/.cache/kachel";
  return {};
}

}  // namespace kachel::cache
