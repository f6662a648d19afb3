// A cubin loaded on one device, and its functions.
#pragma once
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "runtime/cuda/cuda_context.h"
#include "runtime/device.h"

namespace kachel::runtime::cuda {

// Loaded through cuLibrary* where the driver has it, which binds the kernel to no context until it is resolved, else as
// a module of the device's context. Thread-safe.
class CudaModule : public DeviceModule {
 public:
  static Result<std::unique_ptr<DeviceModule>> load(std::shared_ptr<const CudaContext> context,
                                                    int64_t shared_limit_bytes, std::string_view binary);
  ~CudaModule() override;

  // The code is on the device when this returns: a launch never loads, so it may come under capture.
  Result<std::unique_ptr<DeviceFunction>> function(const std::string& entry, uint32_t shared_bytes) override;

 private:
  CudaModule(std::shared_ptr<const CudaContext> context, int64_t shared_limit_bytes)
      : context_(std::move(context)), shared_limit_bytes_(shared_limit_bytes) {}
  Result<FunctionRef> resolve(const std::string& entry) const;
  Status raise_shared_limit(FunctionRef function, const std::string& entry, uint32_t shared_bytes);

  const std::shared_ptr<const CudaContext> context_;
  const int64_t shared_limit_bytes_;
  LibraryRef library_ = nullptr;
  ModuleRef module_ = nullptr;
  std::mutex limit_mutex_;  // the dynamic shared memory limit is one per kernel, and only ever raised
};

}  // namespace kachel::runtime::cuda
