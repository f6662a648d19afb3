// What the CUDA tests share: compilers and devices that may be absent, which is said loudly, and a small kernel.
#pragma once
#include <doctest/doctest.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "runtime/device.h"

namespace kachel::runtime::cuda {

constexpr const char* kAddText = R"(
struct Params { int* data; int count; int value; };
extern "C" __global__ void add(const __grid_constant__ Params p) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < p.count; i += gridDim.x * blockDim.x) p.data[i] += p.value;
}
)";

struct AddParams {
  int* data;
  int count;
  int value;
};

// A file of the build that lies beside the test, wherever both were moved to.
inline std::string beside_this_program(const std::string& name) {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path));
  REQUIRE(length > 0);
  const std::string program(path, static_cast<size_t>(length));
  return program.substr(0, program.rfind('/') + 1) + name;
}

// Null, and a message that cannot be overlooked, where this machine has no NVRTC.
inline std::unique_ptr<Compiler> compiler_or_skip() {
  auto compiler = make_cuda_compiler({});
  Result<CompileResult> probe = compiler->compile({kAddText, "add", "sm_90a", 0});
  if (!probe.ok() && probe.status().code() == Code::kNoDevice) {
    MESSAGE("SKIPPED: ", probe.status().message());
    return nullptr;
  }
  INFO(probe.status().message());
  INFO(probe.status().log());
  REQUIRE(probe.ok());
  return make_cuda_compiler({});
}

inline std::unique_ptr<Device> device_or_skip(int32_t id = 0) {
  Result<std::unique_ptr<Device>> device = open_cuda_device(id, {});
  if (!device.ok() && device.status().code() == Code::kNoDevice) {
    MESSAGE("SKIPPED: no CUDA device: ", device.status().message());
    return nullptr;
  }
  INFO(device.status().message());
  REQUIRE(device.ok());
  return *std::move(device);
}

template <class T>
T value_of(Result<T> result) {
  INFO(result.status().message());
  INFO(result.status().log());
  REQUIRE(result.ok());
  return *std::move(result);
}

inline void require_ok(const Status& status) {
  INFO(status.message());
  REQUIRE(status.ok());
}

}  // namespace kachel::runtime::cuda
