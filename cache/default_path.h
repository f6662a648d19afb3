// Where the store, and what belongs to it, lies when the host does not say.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace kachel::cache {

using Environment = std::function<const char*(const char* name)>;

// $KACHEL_CACHE, else $XDG_CACHE_HOME/kachel, else $HOME/.cache/kachel, else "" (memory only). KACHEL_CACHE set to
// nothing asks for memory only. A relative XDG_CACHE_HOME or HOME is ignored. Without an argument, the process
// environment; in a set-user-id process that environment counts as empty.
std::string default_store_path(const Environment& environment = {});

// $KACHEL_SYSTEM_CACHE, paths with colons between them: stores that are read beneath the user's. Empty in a
// set-user-id process.
std::string default_store_layers(const Environment& environment = {});
// $KACHEL_STORE_KEY_FILE, likewise: files of keys for records, the first of which signs.
std::string default_mac_key_files(const Environment& environment = {});
std::vector<std::string> split_paths(std::string_view paths);

}  // namespace kachel::cache
