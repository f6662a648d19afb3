// A library that exports the driver functions of runtime/cuda/driver_api.h and keeps to the driver's rules on current
// contexts, so that what the CUDA device does between its calls is tested without a GPU. Device memory is host memory;
// kernels do not run, their launches are recorded.
#pragma once
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/cuda/driver_api.h"

namespace kachel::runtime::cuda {

struct FakeDriverLaunch {
  unsigned blocks = 0, threads = 0, shared_bytes = 0;
  StreamRef stream = nullptr;
  uint64_t first_param = 0;  // the first 8 bytes of the parameter struct
  bool overlaps = false;     // may begin before what precedes it has ended
};

struct FakeDriverMap {
  MapElements elements = MapElements::k8Bits;
  MapSwizzle swizzle = MapSwizzle::kNone;
  std::vector<MapExtent> extents, strides;  // innermost first
  std::vector<uint32_t> box;
};

struct FakeDriver {
  static constexpr size_t kParamsBytes = 16;      // of every kernel
  static constexpr int kSharedLimit = 100'000;    // opt-in bytes a block
  static constexpr const char* kKernel = "work";  // the one kernel of every binary

  std::mutex mutex;  // of all below
  int devices = 2;
  std::map<std::string, DriverResult> fail_next;  // by exported name; used up by the call
  int retained = 0, modules = 0, streams = 0, events = 0, pools = 0, allocations = 0;
  int dynamic_shared_limit = 48 * 1024;
  bool function_loaded = false;
  bool capturing = false;
  int synchronizations = 0;
  std::vector<FakeDriverLaunch> launches;
  std::vector<FakeDriverMap> maps;
};

// Exported as "kachel_fake_driver".
using FakeDriverAccess = FakeDriver* (*)();

}  // namespace kachel::runtime::cuda
