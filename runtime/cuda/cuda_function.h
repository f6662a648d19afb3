// A kernel resolved on one device: the hot path.
#pragma once
#include "runtime/cuda/cuda_context.h"
#include "runtime/device.h"

namespace kachel::runtime::cuda {

// Immutable. Borrows the context that its module holds.
class CudaFunction : public DeviceFunction {
 public:
  // params_bytes: of the kernel's one parameter, 0 if it has none, -1 if the driver is too old to say.
  CudaFunction(const CudaContext& context, FunctionRef function, int64_t params_bytes, ResourceUsage usage)
      : context_(context),
        launch_kernel_(context.api().launch_kernel),
        function_(function),
        params_bytes_(params_bytes),
        usage_(usage) {}

  Status launch(const LaunchDims& dims, const void* params, size_t params_bytes, void* stream) const override;
  Result<int32_t> occupancy(uint32_t threads, uint32_t shared_bytes) const override;
  Result<int32_t> resident_clusters(uint32_t threads, uint32_t shared_bytes, uint32_t blocks) const override;
  // As the driver counts; spill_bytes is local memory a thread, thus also holds arrays indexed at run time.
  ResourceUsage usage() const override { return usage_; }

 private:
  DriverResult enqueue(const LaunchDims& dims, const void* params, void* stream) const;
  DriverResult enqueue_overlapping(const LaunchDims& dims, void** values, void* stream) const;
  Status enqueue_in_context(const LaunchDims& dims, const void* params, void* stream) const;
  [[gnu::cold]] Status too_few(size_t params_bytes) const;

  const CudaContext& context_;
  decltype(DriverApi::launch_kernel) const launch_kernel_;
  const FunctionRef function_;
  const int64_t params_bytes_;
  const ResourceUsage usage_;
};

}  // namespace kachel::runtime::cuda
