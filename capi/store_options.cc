// What an engine's options say of stores: where they are, what of them is trusted, and the host's callbacks.
#include <string.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "cache/default_path.h"
#include "cache/mac_key_file.h"
#include "capi/boundary.h"
#include "capi/handles.h"
#include "runtime/engine/engine.h"

using namespace kachel;

namespace {

constexpr size_t kWhyBytes = 256;

cache::RemoteAnswer answer_of(int32_t given, const char (&why)[kWhyBytes]) {
  if (given == KACHEL_REMOTE_DONE) return {cache::RemoteAnswer::kDone, {}};
  if (given == KACHEL_REMOTE_ABSENT) return {cache::RemoteAnswer::kAbsent, {}};
  return {cache::RemoteAnswer::kFailed, std::string(why, ::strnlen(why, kWhyBytes))};
}

int32_t give(void* sink, const void* bytes, size_t size) {
  const auto& append = *static_cast<const cache::RemoteOptions::Append*>(sink);
  return append({static_cast<const char*>(bytes), bytes ? size : 0}) ? 0 : 1;
}

cache::RemoteOptions remote_options(const kachel_engine_options& given) {
  cache::RemoteOptions options;
  if (given.remote_get)
    options.get = [get = given.remote_get, user = given.remote_user](const std::string& name,
                                                                     const cache::RemoteOptions::Append& append) {
      char why[kWhyBytes] = "";
      auto* sink = const_cast<cache::RemoteOptions::Append*>(&append);
      return answer_of(get(user, name.c_str(), name.size(), give, sink, why, sizeof why), why);
    };
  if (given.remote_put)
    options.put = [put = given.remote_put, user = given.remote_user](const std::string& name, std::string_view value) {
      char why[kWhyBytes] = "";
      return answer_of(put(user, name.c_str(), name.size(), value.data(), value.size(), why, sizeof why), why);
    };
  if (given.remote_wait_ns != 0) options.wait_us = std::max<uint64_t>(given.remote_wait_ns / 1000, 1);
  return options;
}

// Wiped when they go.
struct Secrets {
  ~Secrets() {
    for (std::string& secret : read) ::explicit_bzero(secret.data(), secret.size());
  }
  std::vector<std::string> read;
  std::vector<std::string_view> all;
};

Status read_keys(const kachel_engine_options& given, std::shared_ptr<const cache::MacKeys>& out) {
  Secrets secrets;
  if (given.accepted_store_key_size != 0 && (!given.accepted_store_key || given.store_key_size == 0))
    return invalid("accepted_store_key_size is set without accepted_store_key and store_key; set all of them");
  if (given.store_key) {
    secrets.all.push_back({static_cast<const char*>(given.store_key), given.store_key_size});
    if (given.store_key_size == 0) return {};
    if (given.accepted_store_key_size != 0)
      secrets.all.push_back({static_cast<const char*>(given.accepted_store_key), given.accepted_store_key_size});
  } else {
    if (given.store_key_size != 0) return invalid("store_key_size is set without store_key; set both or neither");
    const std::vector<std::string> paths = cache::split_paths(cache::default_mac_key_files());
    const char* set = std::getenv("KACHEL_STORE_KEY_FILE");
    // Not read in processes with more rights than their user, and nothing goes on without a key by mistake.
    if (paths.empty() && set && *set)
      return invalid(
          "KACHEL_STORE_KEY_FILE names no file, or may not be read here, where the process has rights that "
          "its user has not; pass store_key");
    if (paths.empty()) return {};
    secrets.read.reserve(paths.size());
    for (const std::string& path : paths) {
      KACHEL_ASSIGN(std::string secret, cache::read_mac_key(path));
      secrets.all.push_back(secrets.read.emplace_back(std::move(secret)));
    }
  }
  KACHEL_ASSIGN(out, cache::MacKeys::create(secrets.all));
  return {};
}

}  // namespace

Status capi::store_options(const kachel_engine_options& given, runtime::EngineOptions& options) {
  options.store_path = given.store_path ? given.store_path : cache::default_store_path();
  options.store_max_bytes = given.store_max_bytes;
  options.store_layers = cache::split_paths(given.system_stores ? given.system_stores : cache::default_store_layers());
  options.store_remote = remote_options(given);
  return read_keys(given, options.store_mac_keys);
}
