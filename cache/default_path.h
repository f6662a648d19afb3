// Where the store lies when the host does not say.
#pragma once
#include <functional>
#include <string>

namespace kachel::cache {

using Environment = std::function<const char*(const char* name)>;

// $KACHEL_CACHE, else $XDG_CACHE_HOME/kachel, else $HOME/.cache/kachel, else "" (memory only). KACHEL_CACHE set to
// nothing asks for memory only. A relative XDG_CACHE_HOME or HOME is ignored. Without an argument, the process
// environment; in a set-user-id process that environment counts as empty.
std::string default_store_path(const Environment& environment = {});

}  // namespace kachel::cache
