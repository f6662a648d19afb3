#include "runtime/cuda/nvrtc_api.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <link.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>

#include "runtime/cuda/nvrtc_search.h"

namespace kachel::runtime::cuda {
namespace {

constexpr const char* kMend =
    "install the CUDA toolkit, or `pip install nvidia-cuda-nvrtc`, or set KACHEL_NVRTC to libnvrtc.so or its folder";

std::string path_of(void* library, const std::string& fallback) {
  link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0 || !map || !map->l_name || !*map->l_name) return fallback;
  return map->l_name;
}

Status bind(void* library, NvrtcApi& api) {
#define KACHEL_NVRTC_BIND(member, symbol, result, parameters) \
  api.member = reinterpret_cast<decltype(api.member)>(dlsym(library, #symbol));
  KACHEL_NVRTC_REQUIRED(KACHEL_NVRTC_BIND)
  KACHEL_NVRTC_OPTIONAL(KACHEL_NVRTC_BIND)
#undef KACHEL_NVRTC_BIND
#define KACHEL_NVRTC_DEMAND(member, symbol, result, parameters) \
  if (!api.member)                                              \
    return {Code::kNoDevice, fmt::format("{} lacks {}: NVRTC 11.2 or newer is needed", api.path, #symbol)};
  KACHEL_NVRTC_REQUIRED(KACHEL_NVRTC_DEMAND)
#undef KACHEL_NVRTC_DEMAND
  int count = 0;
  bool answers = api.version(&api.major, &api.minor) == NvrtcResult::kSuccess &&
                 api.get_num_supported_archs(&count) == NvrtcResult::kSuccess && count > 0;
  if (answers) {
    api.architectures.resize(count);
    answers = api.get_supported_archs(api.architectures.data()) == NvrtcResult::kSuccess;
  }
  if (!answers) return {Code::kNoDevice, fmt::format("{} does not answer; {}", api.path, kMend)};
  std::sort(api.architectures.begin(), api.architectures.end());
  return {};
}

// NVRTC opens its second half by bare name when it compiles. Opened here by its full path, it is found even where no
// loader path leads to the folder; where it is not beside NVRTC, the loader still has its chance.
void preload_builtins(const NvrtcApi& api) {
  const size_t slash = api.path.rfind('/');
  if (slash == std::string::npos) return;
  const std::string file =
      fmt::format("{}/libnvrtc-builtins.so.{}.{}", api.path.substr(0, slash), api.major, api.minor);
  (void)dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
}

Result<std::unique_ptr<NvrtcApi>> open_file(const std::string& file) {
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* reason = dlerror();
    return {Code::kNoDevice, reason ? reason : file};
  }
  auto api = std::make_unique<NvrtcApi>();
  api->path = path_of(library, file);
  if (Status status = bind(library, *api); !status.ok()) {
    dlclose(library);
    return status;
  }
  preload_builtins(*api);
  return api;
}

}  // namespace

std::string NvrtcApi::name() const {
  return fmt::format("nvrtc {}.{}", major, minor);
}

Result<const NvrtcApi*> open_nvrtc(const std::string& explicit_path) {
  static std::mutex mutex;
  static auto& opened = *new std::map<std::string, std::unique_ptr<NvrtcApi>>;  // outlives every static destructor
  const NvrtcSearch search = NvrtcSearch::from_process(explicit_path);
  std::lock_guard lock(mutex);
  if (auto found = opened.find(search.explicit_path); found != opened.end()) return found->second.get();
  std::vector<std::string> refusals;
  for (const std::string& file : search.candidates()) {
    Result<std::unique_ptr<NvrtcApi>> api = open_file(file);
    if (api.ok()) return (opened[search.explicit_path] = *std::move(api)).get();
    // Of a name that the loader does not know there is nothing to say; of a file that is there, there is.
    if (!search.explicit_path.empty() || file.find('/') != std::string::npos)
      refusals.push_back(api.status().message());
  }
  const std::string where = search.explicit_path.empty()
                                ? "not in the loader's path, in /usr/local/cuda* or among Python's packages"
                                : fmt::format("not at {}", search.explicit_path);
  return {Code::kNoDevice, fmt::format("no CUDA compiler: libnvrtc is {}{}{}; {}", where, refusals.empty() ? "" : ": ",
                                       fmt::join(refusals, ", "), kMend)};
}

}  // namespace kachel::runtime::cuda
