// CudaDevice's memory: allocation, copies, fills.
#include <fmt/format.h>

#include <algorithm>

#include "runtime/cuda/cuda_device.h"

namespace kachel::runtime::cuda {
namespace {

constexpr uint64_t kKeptShare = 64;  // of the device's memory, that unused scratch may hold on to

}  // namespace

// Absurd sizes never reach the driver, whose rounding may overflow.
Status CudaDevice::check_size(size_t bytes) const {
  if (bytes <= static_cast<uint64_t>(properties_.memory_bytes)) return {};
  return {Code::kNoMemory,
          fmt::format("{} bytes were asked for, the device has {} in all", bytes, properties_.memory_bytes)};
}

// The device's default pool gives everything back when a stream is waited for, and asks for it anew at the next launch,
// which takes longer than many a kernel; and it is the host's to change. A pool of our own keeps some of it.
void CudaDevice::open_pool() {
  const DriverApi& api = context_->api();
  if (!api.mem_pool_create || !api.mem_pool_destroy || !api.mem_pool_set_attribute || !api.mem_alloc_from_pool_async ||
      !api.mem_free_async)
    return;
  CudaContext::Current current(*context_);
  if (!current.status().ok()) return;
  PoolProperties properties;
  properties.device = context_->device();
  uint64_t kept = static_cast<uint64_t>(properties_.memory_bytes) / kKeptShare;
  if (api.mem_pool_create(&pool_, &properties) != DriverResult::kSuccess) {
    pool_ = nullptr;
    return;
  }
  (void)api.mem_pool_set_attribute(pool_, PoolAttribute::kReleaseThreshold, &kept);
}

Result<void*> CudaDevice::allocate(size_t bytes) {
  KACHEL_TRY(check_size(bytes));
  const DriverApi& api = context_->api();
  CudaContext::Current current(*context_);
  KACHEL_TRY(current.status());
  DevicePointer pointer = 0;
  KACHEL_DRIVER_TRY(api, api.mem_alloc(&pointer, std::max<size_t>(bytes, 1)),
                    fmt::format("allocating {} bytes", bytes));
  return reinterpret_cast<void*>(pointer);
}

void CudaDevice::free(void* pointer) {
  if (!pointer) return;
  CudaContext::Current current(*context_);
  if (current.status().ok()) (void)context_->api().mem_free(to_device_pointer(pointer));
}

Result<void*> CudaDevice::allocate_async(size_t bytes, void* stream) {
  if (!pool_) return allocate(bytes);
  KACHEL_TRY(check_size(bytes));
  const DriverApi& api = context_->api();
  CudaContext::Current current(*context_);
  KACHEL_TRY(current.status());
  DevicePointer pointer = 0;
  KACHEL_DRIVER_TRY(api, api.mem_alloc_from_pool_async(&pointer, std::max<size_t>(bytes, 1), pool_, to_stream(stream)),
                    fmt::format("allocating {} bytes in stream order", bytes));
  return reinterpret_cast<void*>(pointer);
}

void CudaDevice::free_async(void* pointer, void* stream) {
  if (!pointer) return;
  const DriverApi& api = context_->api();
  CudaContext::Current current(*context_);
  if (!current.status().ok()) return;
  if (pool_) {
    (void)api.mem_free_async(to_device_pointer(pointer), to_stream(stream));
  } else {
    (void)api.stream_synchronize(to_stream(stream));
    (void)api.mem_free(to_device_pointer(pointer));
  }
}

// Unified addressing tells host from device by the address.
Status CudaDevice::copy(void* to, const void* from, size_t bytes, void* stream) {
  if (bytes == 0) return {};
  CudaContext::Current current(*context_);
  KACHEL_TRY(current.status());
  return driver_status(
      context_->api(),
      context_->api().memcpy_async(to_device_pointer(to), to_device_pointer(from), bytes, to_stream(stream)),
      "cuMemcpyAsync");
}

Status CudaDevice::fill(void* to, uint8_t byte, size_t bytes, void* stream) {
  if (bytes == 0) return {};
  CudaContext::Current current(*context_);
  KACHEL_TRY(current.status());
  return driver_status(context_->api(),
                       context_->api().memset_d8_async(to_device_pointer(to), byte, bytes, to_stream(stream)),
                       "cuMemsetD8Async");
}

}  // namespace kachel::runtime::cuda
