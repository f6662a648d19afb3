// Device time between two events of one stream.
#pragma once
#include <memory>

#include "runtime/cuda/cuda_context.h"
#include "runtime/device.h"

namespace kachel::runtime::cuda {

// One thread at a time.
class CudaTimer : public Device::Timer {
 public:
  static Result<std::unique_ptr<Device::Timer>> create(std::shared_ptr<const CudaContext> context);
  ~CudaTimer() override;

  Status start(void* stream) override { return record(start_, stream); }
  Status stop(void* stream) override { return record(stop_, stream); }
  Result<double> elapsed_ns() override;

 private:
  explicit CudaTimer(std::shared_ptr<const CudaContext> context) : context_(std::move(context)) {}
  Status record(EventRef event, void* stream);

  const std::shared_ptr<const CudaContext> context_;
  EventRef start_ = nullptr, stop_ = nullptr;
};

}  // namespace kachel::runtime::cuda
