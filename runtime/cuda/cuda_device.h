// The CUDA device: the driver behind the device boundary.
#pragma once
#include <memory>
#include <mutex>

#include "runtime/cuda/cuda_context.h"
#include "runtime/cuda/nvrtc_compiler.h"
#include "runtime/device.h"

namespace kachel::runtime::cuda {

// Holds no lock on the way to a launch. Every method that needs the context current makes it so for its own duration.
class CudaDevice : public Device {
 public:
  static Result<std::unique_ptr<Device>> open(const DriverApi& api, int32_t id, const DeviceOptions& options);
  ~CudaDevice() override;

  const DeviceProperties& properties() const override { return properties_; }
  Compiler& compiler() override { return compiler_; }
  Result<std::unique_ptr<DeviceModule>> load(std::string_view binary) override;

  Result<void*> allocate(size_t bytes) override;
  void free(void* pointer) override;
  Result<void*> allocate_async(size_t bytes, void* stream) override;
  void free_async(void* pointer, void* stream) override;
  Status copy(void* to, const void* from, size_t bytes, void* stream) override;
  Status fill(void* to, uint8_t byte, size_t bytes, void* stream) override;

  Result<void*> create_stream() override;
  void destroy_stream(void* stream) override;
  Status synchronize(void* stream) override;
  Result<bool> is_capturing(void* stream) override;
  Result<std::unique_ptr<Timer>> create_timer() override;
  Status flush_cache(void* stream) override;
  Status encode_map(const TensorMapRequest& request, uint64_t* words) const override;
  Status move_map(uint64_t* words, const void* data) const override;

  int enter_relaxed_capture() override;
  void leave_relaxed_capture(int previous) override;

 private:
  CudaDevice(std::shared_ptr<const CudaContext> context, const DeviceOptions& options)
      : context_(std::move(context)), compiler_(options.nvrtc_path) {}
  Status read_properties(int32_t id, const DeviceOptions& options);
  Status check_size(size_t bytes) const;
  void open_pool();
  template <class Call>
  Status in_some_context(const char* what, const Call& call) const;

  const std::shared_ptr<const CudaContext> context_;
  DeviceProperties properties_;
  PoolRef pool_ = nullptr;  // of stream-ordered memory; null where the driver has none
  NvrtcCompiler compiler_;
  std::mutex flush_mutex_;
  void* flush_buffer_ = nullptr;  // under flush_mutex_; made on the first flush
};

}  // namespace kachel::runtime::cuda
