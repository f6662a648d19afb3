#include "runtime/cuda/driver_api.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>
#include <stdlib.h>

#include <fstream>
#include <mutex>
#include <vector>

#include "runtime/cuda/driver_error.h"

namespace kachel::runtime::cuda {
namespace {

constexpr const char* kMend = "install the NVIDIA driver; nvidia-smi should list a GPU";

// The first is what the loader's own configuration knows; the others are where container tools, WSL and NixOS put it.
constexpr const char* kLibraries[] = {
    "libcuda.so.1",
    "/usr/local/nvidia/lib64/libcuda.so.1",
    "/usr/lib/wsl/lib/libcuda.so.1",
    "/run/opengl-driver/lib/libcuda.so.1",
};

// "580.159.04" of libcuda.so.580.159.04, the name behind the link that was opened. Empty where the file is not named
// so.
std::string version_of_file(void* library) {
  link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0 || !map || !map->l_name) return {};
  char* resolved = realpath(map->l_name, nullptr);
  if (!resolved) return {};
  std::string path = resolved;
  ::free(resolved);
  const size_t at = path.rfind(".so.");
  if (at == std::string::npos) return {};
  std::string version = path.substr(at + 4);
  const bool numeric = version.find_first_not_of("0123456789.") == std::string::npos;
  return numeric && version.find('.') >= 3 && version.find('.') != std::string::npos ? version : std::string();
}

std::string version_of_module() {
  std::ifstream file("/sys/module/nvidia/version");
  std::string version;
  std::getline(file, version);
  return version;
}

Status bind(void* library, const std::string& path, DriverApi& api) {
#define KACHEL_DRIVER_BIND(member, symbol, parameters) \
  api.member = reinterpret_cast<decltype(api.member)>(dlsym(library, #symbol));
  KACHEL_DRIVER_REQUIRED(KACHEL_DRIVER_BIND)
  KACHEL_DRIVER_OPTIONAL(KACHEL_DRIVER_BIND)
#undef KACHEL_DRIVER_BIND
#define KACHEL_DRIVER_DEMAND(member, symbol, parameters) \
  if (!api.member)                                       \
    return {Code::kNoDevice, fmt::format("{} lacks {}: update the NVIDIA driver (CUDA 11 or newer)", path, #symbol)};
  KACHEL_DRIVER_REQUIRED(KACHEL_DRIVER_DEMAND)
#undef KACHEL_DRIVER_DEMAND
  return {};
}

// Starting the driver while some other thread captures would destroy that capture, hence the relaxed mode around it.
Status start(DriverApi& api) {
  CaptureMode mode = CaptureMode::kRelaxed;
  const bool exchanged = api.thread_exchange_capture_mode(&mode) == DriverResult::kSuccess;
  const DriverResult result = api.init(0);
  if (exchanged) (void)api.thread_exchange_capture_mode(&mode);
  if (result == DriverResult::kSuccess) return {};
  Status status = driver_status(api, result, "the CUDA driver does not start");
  return {Code::kNoDevice, status.message() + "; " + kMend};
}

}  // namespace

Result<const DriverApi*> open_driver_api(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* reason = dlerror();
    return {Code::kNoDevice, fmt::format("no CUDA driver: {}; {}", reason ? reason : path, kMend)};
  }
  auto api = std::make_unique<DriverApi>();
  Status status = bind(library, path, *api);
  if (status.ok()) status = start(*api);
  if (status.ok()) status = driver_status(*api, api->driver_get_version(&api->cuda_version), "cuDriverGetVersion");
  if (!status.ok()) return status;  // the library stays mapped: a driver that has been started must not be unmapped
  std::string version = version_of_file(library);
  if (version.empty()) version = version_of_module();
  api->version = fmt::format("{}{}cuda-{}.{}", version, version.empty() ? "" : "/", api->cuda_version / 1000,
                             api->cuda_version % 1000 / 10);
  return api.release();
}

Result<const DriverApi*> driver_api() {
  static std::mutex mutex;
  static const DriverApi* opened = nullptr;
  std::lock_guard lock(mutex);
  if (opened) return opened;
  Status first;
  for (const char* path : kLibraries) {
    Result<const DriverApi*> api = open_driver_api(path);
    if (api.ok()) {
      opened = *api;
      return opened;
    }
    if (first.ok()) first = api.status();
    // A driver that is there but does not start will not start under another name either.
    if (void* there = dlopen(path, RTLD_NOW | RTLD_NOLOAD)) {
      dlclose(there);
      return api.status();
    }
  }
  return first;
}

}  // namespace kachel::runtime::cuda
