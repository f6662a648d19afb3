// One NVRTC compilation, from text to binary, log and resources.
#pragma once
#include <chrono>
#include <optional>
#include <string>

#include "runtime/cuda/nvrtc_api.h"
#include "runtime/cuda/nvrtc_target.h"
#include "runtime/device.h"

namespace kachel::runtime::cuda {

// Owns all it needs, so that it may outlive the caller. Used by one thread.
struct NvrtcJob {
  const NvrtcApi* api = nullptr;
  std::string text, entry;
  NvrtcTarget target;
  std::optional<std::chrono::steady_clock::time_point> deadline;
  int64_t limit_ns = 0;  // what made the deadline, for the message

  Result<CompileResult> run() const;
  Status time_limit_exceeded(std::string log) const;
};

}  // namespace kachel::runtime::cuda
