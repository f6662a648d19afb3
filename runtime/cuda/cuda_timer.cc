#include "runtime/cuda/cuda_timer.h"

namespace kachel::runtime::cuda {

Result<std::unique_ptr<Device::Timer>> CudaTimer::create(std::shared_ptr<const CudaContext> context) {
  std::unique_ptr<CudaTimer> timer(new CudaTimer(std::move(context)));
  const DriverApi& api = timer->context_->api();
  CudaContext::Current current(*timer->context_);
  KACHEL_TRY(current.status());
  KACHEL_DRIVER_TRY(api, api.event_create(&timer->start_, kEventDefault), "cuEventCreate");
  KACHEL_DRIVER_TRY(api, api.event_create(&timer->stop_, kEventDefault), "cuEventCreate");
  return std::unique_ptr<Device::Timer>(std::move(timer));
}

CudaTimer::~CudaTimer() {
  const DriverApi& api = context_->api();
  CudaContext::Current current(*context_);
  if (!current.status().ok()) return;
  if (start_) (void)api.event_destroy(start_);
  if (stop_) (void)api.event_destroy(stop_);
}

Status CudaTimer::record(EventRef event, void* stream) {
  CudaContext::Current current(*context_);
  KACHEL_TRY(current.status());
  return driver_status(context_->api(), context_->api().event_record(event, to_stream(stream)), "cuEventRecord");
}

Result<double> CudaTimer::elapsed_ns() {
  const DriverApi& api = context_->api();
  CudaContext::Current current(*context_);
  KACHEL_TRY(current.status());
  float milliseconds = 0;
  KACHEL_DRIVER_TRY(api, api.event_synchronize(stop_), "cuEventSynchronize");
  KACHEL_DRIVER_TRY(api, api.event_elapsed_time(&milliseconds, start_, stop_), "cuEventElapsedTime");
  return milliseconds * 1e6;
}

}  // namespace kachel::runtime::cuda
