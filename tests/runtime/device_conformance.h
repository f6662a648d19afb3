// One suite for every implementation of runtime/device.h. What differs between devices, a way to open one and the text
// of three small kernels, is a ConformanceTarget; the suite itself names no device.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "runtime/device.h"

namespace kachel::runtime {

// Parameters of the kernel "probe_scale": block b adds in[i] * factor + offset to out[i] for i = b, b + blocks, ...
// below count. Adding shows blocks that ran twice.
struct ScaleParams {
  const int32_t* in;
  int32_t* out;
  int64_t count;
  int32_t factor;
  int32_t offset;
};

// Parameters of the kernel "probe_arena": block b fills its shared memory with the byte b, reads it back and writes to
// out[b] how many bytes differ, plus 1'000'000 if the memory is not 64-byte aligned on the CPU or 16-byte elsewhere.
struct ArenaParams {
  int32_t* out;
  int64_t bytes;
};

struct ConformanceTarget {
  std::string name;
  // kNoDevice: the suite says loudly that it was skipped.
  std::function<Result<std::unique_ptr<Device>>()> open;
  std::string scale_text;
  std::string arena_text;
  std::string broken_text;  // does not compile as "probe_scale"
  uint32_t threads = 1;     // per block
};

// Runs the suite as subcases of the enclosing doctest test case.
void check_device_conformance(const ConformanceTarget& target);

// As the suite compiles them; for tests of one device that need a kernel.
Result<CompileResult> compile_probe(Device& device, const std::string& text, const std::string& entry);

ConformanceTarget cpu_conformance_target(const DeviceOptions& options);
ConformanceTarget fake_conformance_target();
ConformanceTarget cuda_conformance_target(const DeviceOptions& options);

}  // namespace kachel::runtime
