#include "runtime/cuda/cuda_context.h"

namespace kachel::runtime::cuda {

Result<std::shared_ptr<const CudaContext>> CudaContext::retain(const DriverApi& api, DeviceOrdinal device) {
  ContextRef context = nullptr;
  KACHEL_DRIVER_TRY(api, api.primary_ctx_retain(&context, device), "cuDevicePrimaryCtxRetain");
  return std::shared_ptr<const CudaContext>(new CudaContext(api, device, context));
}

CudaContext::~CudaContext() {
  (void)api_.primary_ctx_release(device_);
}

CudaContext::Current::Current(const CudaContext& context) : api_(context.api_) {
  ContextRef current = nullptr;
  DriverResult result = api_.ctx_get_current(&current);
  if (result == DriverResult::kSuccess && current == context.context_) return;
  if (result == DriverResult::kSuccess) result = api_.ctx_push_current(context.context_);
  pushed_ = result == DriverResult::kSuccess;
  if (!pushed_) status_ = driver_status(api_, result, "cuCtxPushCurrent");
}

CudaContext::Current::~Current() {
  ContextRef popped = nullptr;
  if (pushed_) (void)api_.ctx_pop_current(&popped);
}

RelaxedScope::RelaxedScope(const DriverApi& api) : api_(api) {
  exchanged_ = api_.thread_exchange_capture_mode(&mode_) == DriverResult::kSuccess;
}

RelaxedScope::~RelaxedScope() {
  if (exchanged_) (void)api_.thread_exchange_capture_mode(&mode_);
}

}  // namespace kachel::runtime::cuda
