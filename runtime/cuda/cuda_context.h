// One device's primary context, shared by the device and everything made from it.
#pragma once
#include <cstdint>
#include <memory>

#include "runtime/cuda/driver_api.h"
#include "runtime/cuda/driver_error.h"

namespace kachel::runtime::cuda {

// NULL, and the two handles that name the legacy and the per-thread default stream: what they mean depends on the
// context that is current.
inline bool is_default_stream(const void* stream) {
  return reinterpret_cast<uintptr_t>(stream) <= 2;
}

inline StreamRef to_stream(void* stream) {
  return static_cast<StreamRef>(stream);
}
inline DevicePointer to_device_pointer(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer);
}

// Immutable after retain(), so free for all threads. Modules and timers hold it, so that the context outlives them.
class CudaContext {
 public:
  static Result<std::shared_ptr<const CudaContext>> retain(const DriverApi& api, DeviceOrdinal device);
  ~CudaContext();
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;

  const DriverApi& api() const { return api_; }
  DeviceOrdinal device() const { return device_; }
  ContextRef ref() const { return context_; }

  // Makes the context current on this thread for a scope, and puts back what was current before. Costs one query where
  // it already is.
  class Current {
   public:
    explicit Current(const CudaContext& context);
    ~Current();
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;
    const Status& status() const { return status_; }

   private:
    const DriverApi& api_;
    bool pushed_ = false;
    Status status_;
  };

 private:
  CudaContext(const DriverApi& api, DeviceOrdinal device, ContextRef context)
      : api_(api), device_(device), context_(context) {}

  const DriverApi& api_;
  const DeviceOrdinal device_;
  const ContextRef context_;
};

// Relaxed capture mode for a scope, for the calls that come before there is a Device to give to RelaxedCapture.
class RelaxedScope {
 public:
  explicit RelaxedScope(const DriverApi& api);
  ~RelaxedScope();
  RelaxedScope(const RelaxedScope&) = delete;
  RelaxedScope& operator=(const RelaxedScope&) = delete;

 private:
  const DriverApi& api_;
  CaptureMode mode_ = CaptureMode::kRelaxed;
  bool exchanged_ = false;
};

}  // namespace kachel::runtime::cuda
