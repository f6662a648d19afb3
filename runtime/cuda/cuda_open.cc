// The public ways in: open_cuda_device, cuda_device_count, make_cuda_compiler.
#include "runtime/cuda/cuda_device.h"

namespace kachel::runtime {

Result<std::unique_ptr<Device>> open_cuda_device(int32_t id, const DeviceOptions& options) {
  KACHEL_ASSIGN(const cuda::DriverApi* api, cuda::driver_api());
  return cuda::CudaDevice::open(*api, id, options);
}

int32_t cuda_device_count() {
  const Result<const cuda::DriverApi*> api = cuda::driver_api();
  int count = 0;
  if (!api.ok() || (*api)->device_get_count(&count) != cuda::DriverResult::kSuccess) return 0;
  return count;
}

std::unique_ptr<Compiler> make_cuda_compiler(const DeviceOptions& options) {
  return std::make_unique<cuda::NvrtcCompiler>(options.nvrtc_path);
}

}  // namespace kachel::runtime
