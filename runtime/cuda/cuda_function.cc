#include "runtime/cuda/cuda_function.h"

#include <fmt/format.h>

namespace kachel::runtime::cuda {

DriverResult CudaFunction::enqueue(const LaunchDims& dims, const void* params, void* stream) const {
  void* values[] = {const_cast<void*>(params)};  // the driver only reads
  if (dims.overlaps) return enqueue_overlapping(dims, values, stream);
  return launch_kernel_(function_, dims.blocks, 1, 1, dims.threads, 1, 1, dims.shared_bytes, to_stream(stream), values,
                        nullptr);
}

DriverResult CudaFunction::enqueue_overlapping(const LaunchDims& dims, void** values, void* stream) const {
  LaunchAttributeValue attribute{LaunchAttribute::kProgrammaticStreamSerialization, 0, {1}};
  const LaunchConfig config{dims.blocks, 1, 1, dims.threads, 1, 1, dims.shared_bytes, to_stream(stream), &attribute, 1};
  return context_.api().launch_kernel_ex(&config, function_, values, nullptr);
}

[[gnu::noinline]] Status CudaFunction::enqueue_in_context(const LaunchDims& dims, const void* params,
                                                          void* stream) const {
  CudaContext::Current current(context_);
  KACHEL_TRY(current.status());
  return driver_status(context_.api(), enqueue(dims, params, stream), "launching a kernel");
}

Status CudaFunction::too_few(size_t params_bytes) const {
  return invalid(fmt::format("the kernel's parameters are {} bytes, {} were given", params_bytes_, params_bytes));
}

[[gnu::hot]] Status CudaFunction::launch(const LaunchDims& dims, const void* params, size_t params_bytes,
                                         void* stream) const {
  if (dims.blocks == 0) return {};
  // The driver reads as many bytes as the kernel declares, whatever the caller has.
  if (params_bytes_ > static_cast<int64_t>(params_bytes)) [[unlikely]]
    return too_few(params_bytes);
  if (is_default_stream(stream)) [[unlikely]]
    return enqueue_in_context(dims, params, stream);
  // An explicit stream names its context, so nothing needs to be current.
  const DriverResult result = enqueue(dims, params, stream);
  if (result == DriverResult::kSuccess) [[likely]]
    return {};
  // Drivers older than cuLibrary* want a current context all the same.
  if (result == DriverResult::kInvalidContext) return enqueue_in_context(dims, params, stream);
  return driver_status(context_.api(), result, "launching a kernel");
}

Result<int32_t> CudaFunction::occupancy(uint32_t threads, uint32_t shared_bytes) const {
  const DriverApi& api = context_.api();
  CudaContext::Current current(context_);
  KACHEL_TRY(current.status());
  int blocks = 0;
  KACHEL_DRIVER_TRY(api, api.occupancy(&blocks, function_, static_cast<int>(threads), shared_bytes),
                    "cuOccupancyMaxActiveBlocksPerMultiprocessor");
  return blocks;
}

Result<int32_t> CudaFunction::resident_clusters(uint32_t threads, uint32_t shared_bytes, uint32_t blocks) const {
  const DriverApi& api = context_.api();
  if (!api.occupancy_of_clusters) return unsupported("the driver is too old for clusters; update it to 520 or later");
  CudaContext::Current current(context_);
  KACHEL_TRY(current.status());
  LaunchAttributeValue attribute{LaunchAttribute::kClusterDimension, 0, {static_cast<int32_t>(blocks), 1, 1}};
  const LaunchConfig config{blocks, 1, 1, threads, 1, 1, shared_bytes, nullptr, &attribute, 1};
  int clusters = 0;
  KACHEL_DRIVER_TRY(api, api.occupancy_of_clusters(&clusters, function_, &config), "cuOccupancyMaxActiveClusters");
  return clusters;
}

}  // namespace kachel::runtime::cuda
