// What a driver's error means to the engine, and in words.
#pragma once
#include <string_view>

#include "runtime/cuda/driver_api.h"

namespace kachel::runtime::cuda {

// The category alone. Faults that poison the context are kDeviceLost: no later call on it can succeed.
Code driver_error_code(DriverResult result);

// OK for kSuccess. Otherwise "<what>: CUDA_ERROR_X (700): <driver's text>; <what to do>". Enqueuing calls may report
// the fault of an earlier kernel, as the driver does.
Status driver_status(const DriverApi& api, DriverResult result, std::string_view what);

}  // namespace kachel::runtime::cuda

// Returns from the enclosing function with the driver's error as a Status.
#define KACHEL_DRIVER_TRY(api, call, what)                                                  \
  do {                                                                                      \
    if (auto kachel_driver_ = (call); kachel_driver_ != decltype(kachel_driver_)::kSuccess) \
      return ::kachel::runtime::cuda::driver_status((api), kachel_driver_, (what));         \
  } while (0)
