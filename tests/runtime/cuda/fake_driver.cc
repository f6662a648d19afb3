#include "tests/runtime/cuda/fake_driver.h"

#include <cstdlib>
#include <cstring>

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace kachel::runtime::cuda {
namespace {

FakeDriver& fake() {
  static FakeDriver instance;
  return instance;
}

// The contexts are the addresses of these; one a device.
char context_of_device[8];
thread_local std::vector<ContextRef> current_contexts;
thread_local CaptureMode capture_mode = CaptureMode::kGlobal;

ContextRef current() {
  return current_contexts.empty() ? nullptr : current_contexts.back();
}

bool is_default(StreamRef stream) {
  return reinterpret_cast<uintptr_t>(stream) <= 2;
}

// Holds the lock for one call and says whether the call is to fail.
class Call {
 public:
  explicit Call(const char* symbol) : lock_(fake().mutex) {
    auto found = fake().fail_next.find(symbol);
    if (found == fake().fail_next.end()) return;
    result = found->second;
    fake().fail_next.erase(found);
  }
  DriverResult result = DriverResult::kSuccess;

 private:
  std::lock_guard<std::mutex> lock_;
};

#define FAKE_CALL(symbol) \
  Call call(symbol);      \
  if (call.result != DriverResult::kSuccess) return call.result
#define FAKE_CALL_IN_CONTEXT(symbol) \
  FAKE_CALL(symbol);                 \
  if (!current()) return DriverResult::kInvalidContext

template <class Handle>
Handle new_handle() {
  return reinterpret_cast<Handle>(std::malloc(16));
}

}  // namespace

EXPORTED FakeDriver* kachel_fake_driver() {
  return &fake();
}

EXPORTED DriverResult cuInit(unsigned) {
  FAKE_CALL("cuInit");
  return DriverResult::kSuccess;
}
EXPORTED DriverResult cuDriverGetVersion(int* version) {
  *version = 13020;
  return DriverResult::kSuccess;
}
EXPORTED DriverResult cuGetErrorName(DriverResult, const char** name) {
  *name = "CUDA_ERROR_FAKE";
  return DriverResult::kSuccess;
}
EXPORTED DriverResult cuGetErrorString(DriverResult, const char** text) {
  *text = "as the test asked";
  return DriverResult::kSuccess;
}
EXPORTED DriverResult cuDeviceGetCount(int* count) {
  FAKE_CALL("cuDeviceGetCount");
  *count = fake().devices;
  return DriverResult::kSuccess;
}
EXPORTED DriverResult cuDeviceGet(DeviceOrdinal* device, int ordinal) {
  *device = ordinal;
  return DriverResult::kSuccess;
}
EXPORTED DriverResult cuDeviceGetName(char* name, int size, DeviceOrdinal) {
  std::strncpy(name, "Fake H300", size);
  return DriverResult::kSuccess;
}
EXPORTED DriverResult cuDeviceTotalMem_v2(size_t* bytes, DeviceOrdinal) {
  *bytes = size_t{1} << 30;
  return DriverResult::kSuccess;
}
EXPORTED DriverResult cuDeviceGetAttribute(int* value, DeviceAttribute attribute, DeviceOrdinal) {
  FAKE_CALL("cuDeviceGetAttribute");
  switch (attribute) {
    case DeviceAttribute::kMaxThreadsPerBlock:
      *value = 1024;
      break;
    case DeviceAttribute::kWarpSize:
      *value = 32;
      break;
    case DeviceAttribute::kMultiprocessorCount:
      *value = 77;
      break;
    case DeviceAttribute::kL2CacheSize:
      *value = 4096;
      break;
    case DeviceAttribute::kComputeMajor:
      *value = 9;
      break;
    case DeviceAttribute::kComputeMinor:
      *value = 0;
      break;
    case DeviceAttribute::kMaxSharedPerBlockOptin:
      *value = FakeDriver::kSharedLimit;
      break;
    case DeviceAttribute::kMemoryPoolsSupported:
      *value = 1;
      break;
  }
  return DriverResult::kSuccess;
}
EXPORTED DriverResult cuDevicePrimaryCtxRetain(ContextRef* context, DeviceOrdinal device) {
  FAKE_CALL("cuDevicePrimaryCtxRetain");
  *context = reinterpret_cast<ContextRef>(&context_of_device[device]);
  ++fake().retained;
  return DriverResult::kSuccess;
}
EXPORTED DriverResult cuDevicePrimaryCtxRelease_v2(DeviceOrdinal) {
  FAKE_CALL("cuDevicePrimaryCtxRelease_v2");
  --fake().retained;
  return DriverResult::kSuccess;
}
EXPORTED DriverResult cuCtxGetCurrent(ContextRef* context) {
  *context = current();
  return DriverResult::kSuccess;
}
EXPORTED DriverResult cuCtxPushCurrent_v2(ContextRef context) {
  FAKE_CALL("cuCtxPushCurrent_v2");
  current_contexts.push_back(context);
  return DriverResult::kSuccess;
}
EXPORTED DriverResult cuCtxPopCurrent_v2(ContextRef* context) {
  if (current_contexts.empty()) return DriverResult::kInvalidContext;
  *context = current();
  current_contexts.pop_back();
  return DriverResult::kSuccess;
}
EXPORTED DriverResult cuModuleLoadData(ModuleRef* module, const void*) {
  FAKE_CALL_IN_CONTEXT("cuModuleLoadData");
  *module = new_handle<ModuleRef>();
  ++fake().modules;
  return DriverResult::kSuccess;
}
EXPORTED DriverResult cuModuleUnload(ModuleRef module) {
  FAKE_CALL_IN_CONTEXT("cuModuleUnload");
  std::free(module);
  --fake().modules;
  return DriverResult::kSuccess;
}
EXPORTED DriverResult cuModuleGetFunction(FunctionRef* function, ModuleRef module, const char* name) {
  FAKE_CALL_IN_CONTEXT("cuModuleGetFunction");
  if (std::strcmp(name, FakeDriver::kKernel) != 0) return DriverResult::kNotFound;
  *function = reinterpret_cast<FunctionRef>(module);
  return DriverResult::kSuccess;
}
EXPORTED DriverResult cuFuncGetAttribute(int* value, FunctionAttribute attribute, FunctionRef) {
  FAKE_CALL("cuFuncGetAttribute");
  switch (attribute) {
    case FunctionAttribute::kSharedBytes:
      *value = 256;
      break;
    case FunctionAttribute::kLocalBytes:
      *value = 8;
      break;
    case FunctionAttribute::kRegisters:
      *value = 40;
      break;
    case FunctionAttribute::kMaxDynamicSharedBytes:
      *value = fake().dynamic_shared_limit;
      break;
  }
  return DriverResult::kSuccess;
}
EXPORTED DriverResult cuFuncSetAttribute(FunctionRef, FunctionAttribute attribute, int value) {
  FAKE_CALL("cuFuncSetAttribute");
  if (attribute != FunctionAttribute::kMaxDynamicSharedBytes || value + 256 > FakeDriver::kSharedLimit)
    return DriverResult::kInvalidValue;
  fake().dynamic_shared_limit = value;
  return DriverResult::kSuccess;
}
EXPORTED DriverResult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, FunctionRef, int threads, size_t) {
  FAKE_CALL_IN_CONTEXT("cuOccupancyMaxActiveBlocksPerMultiprocessor");
  *blocks = 2048 / threads;
  return DriverResult::kSuccess;
}
EXPORTED DriverResult cuOccupancyMaxActiveClusters(int* clusters, FunctionRef, const LaunchConfig* config) {
  FAKE_CALL_IN_CONTEXT("cuOccupancyMaxActiveClusters");
  const LaunchAttributeValue& attribute = config->attributes[0];
  if (config->attribute_count != 1 || attribute.attribute != LaunchAttribute::kClusterDimension)
    return DriverResult::kInvalidValue;
  *clusters = 64 / attribute.value[0];
  return DriverResult::kSuccess;
}
void record(FakeDriverLaunch launch, void** params) {
  char copy[FakeDriver::kParamsBytes];
  std::memcpy(copy, params[0], sizeof(copy));
  std::memcpy(&launch.first_param, copy, sizeof(launch.first_param));
  fake().launches.push_back(launch);
}
EXPORTED DriverResult cuLaunchKernel(FunctionRef, unsigned x, unsigned y, unsigned z, unsigned block_x,
                                     unsigned block_y, unsigned block_z, unsigned shared_bytes, StreamRef stream,
                                     void** params, void**) {
  FAKE_CALL("cuLaunchKernel");
  if (is_default(stream) && !current()) return DriverResult::kInvalidContext;
  if (y * z * block_y * block_z != 1) return DriverResult::kInvalidValue;
  record({x, block_x, shared_bytes, stream}, params);
  return DriverResult::kSuccess;
}
#ifndef KACHEL_FAKE_DRIVER_OLD
EXPORTED DriverResult cuLaunchKernelEx(const LaunchConfig* config, FunctionRef, void** params, void**) {
  FAKE_CALL("cuLaunchKernelEx");
  if (is_default(config->stream) && !current()) return DriverResult::kInvalidContext;
  if (config->grid_y * config->grid_z * config->block_y * config->block_z != 1) return DriverResult::kInvalidValue;
  FakeDriverLaunch launch{config->grid_x, config->block_x, config->shared_bytes, config->stream};
  for (unsigned i = 0; i < config->attribute_count; ++i)
    launch.overlaps |= config->attributes[i].attribute == LaunchAttribute::kProgrammaticStreamSerialization &&
                       config->attributes[i].value[0] != 0;
  record(launch, params);
  return DriverResult::kSuccess;
}
#endif
EXPORTED DriverResult cuMemAlloc_v2(DevicePointer* pointer, size_t bytes) {
  FAKE_CALL_IN_CONTEXT("cuMemAlloc_v2");
  if (bytes == 0) return DriverResult::kInvalidValue;
  *pointer = reinterpret_cast<uintptr_t>(std::aligned_alloc(512, (bytes + 511) / 512 * 512));
  ++fake().allocations;
  return DriverResult::kSuccess;
}
EXPORTED DriverResult cuMemFree_v2(DevicePointer pointer) {
  FAKE_CALL_IN_CONTEXT("cuMemFree_v2");
  std::free(reinterpret_cast<void*>(pointer));
  --fake().allocations;
  return DriverResult::kSuccess;
}
EXPORTED DriverResult cuMemcpyAsync(DevicePointer to, DevicePointer from, size_t bytes, StreamRef) {
  FAKE_CALL_IN_CONTEXT("cuMemcpyAsync");
  std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes);
  return DriverResult::kSuccess;
}
EXPORTED DriverResult cuMemsetD8Async(DevicePointer to, unsigned char byte, size_t bytes, StreamRef) {
  FAKE_CALL_IN_CONTEXT("cuMemsetD8Async");
  std::memset(reinterpret_cast<void*>(to), byte, bytes);
  return DriverResult::kSuccess;
}
EXPORTED DriverResult cuStreamCreate(StreamRef* stream, unsigned flags) {
  FAKE_CALL_IN_CONTEXT("cuStreamCreate");
  if (flags != kStreamNonBlocking) return DriverResult::kInvalidValue;
  *stream = new_handle<StreamRef>();
  ++fake().streams;
  return DriverResult::kSuccess;
}
EXPORTED DriverResult cuStreamDestroy_v2(StreamRef stream) {
  FAKE_CALL_IN_CONTEXT("cuStreamDestroy_v2");
  std::free(stream);
  --fake().streams;
  return DriverResult::kSuccess;
}
EXPORTED DriverResult cuStreamSynchronize(StreamRef) {
  FAKE_CALL_IN_CONTEXT("cuStreamSynchronize");
  ++fake().synchronizations;
  return DriverResult::kSuccess;
}
EXPORTED DriverResult cuStreamIsCapturing(StreamRef stream, CaptureStatus* status) {
  FAKE_CALL("cuStreamIsCapturing");
  if (is_default(stream) && !current()) return DriverResult::kInvalidContext;
  *status = fake().capturing ? CaptureStatus::kActive : CaptureStatus::kNone;
  return DriverResult::kSuccess;
}
EXPORTED DriverResult cuThreadExchangeStreamCaptureMode(CaptureMode* mode) {
  std::swap(capture_mode, *mode);
  return DriverResult::kSuccess;
}
EXPORTED DriverResult cuEventCreate(EventRef* event, unsigned) {
  FAKE_CALL_IN_CONTEXT("cuEventCreate");
  *event = new_handle<EventRef>();
  ++fake().events;
  return DriverResult::kSuccess;
}
EXPORTED DriverResult cuEventDestroy_v2(EventRef event) {
  FAKE_CALL_IN_CONTEXT("cuEventDestroy_v2");
  std::free(event);
  --fake().events;
  return DriverResult::kSuccess;
}
EXPORTED DriverResult cuEventRecord(EventRef, StreamRef) {
  FAKE_CALL_IN_CONTEXT("cuEventRecord");
  return DriverResult::kSuccess;
}
EXPORTED DriverResult cuEventSynchronize(EventRef) {
  FAKE_CALL_IN_CONTEXT("cuEventSynchronize");
  return DriverResult::kSuccess;
}
EXPORTED DriverResult cuEventElapsedTime(float* milliseconds, EventRef, EventRef) {
  FAKE_CALL("cuEventElapsedTime");
  *milliseconds = 0.25f;
  return DriverResult::kSuccess;
}

#ifndef KACHEL_FAKE_DRIVER_OLD
EXPORTED DriverResult cuMemPoolCreate(PoolRef* pool, const PoolProperties* properties) {
  FAKE_CALL("cuMemPoolCreate");
  if (properties->allocation != 1 || properties->location != 1) return DriverResult::kInvalidValue;
  *pool = new_handle<PoolRef>();
  ++fake().pools;
  return DriverResult::kSuccess;
}
EXPORTED DriverResult cuMemPoolDestroy(PoolRef pool) {
  FAKE_CALL("cuMemPoolDestroy");
  std::free(pool);
  --fake().pools;
  return DriverResult::kSuccess;
}
EXPORTED DriverResult cuMemPoolSetAttribute(PoolRef, PoolAttribute attribute, void*) {
  FAKE_CALL("cuMemPoolSetAttribute");
  return attribute == PoolAttribute::kReleaseThreshold ? DriverResult::kSuccess : DriverResult::kInvalidValue;
}
EXPORTED DriverResult cuMemAllocFromPoolAsync(DevicePointer* pointer, size_t bytes, PoolRef, StreamRef) {
  FAKE_CALL_IN_CONTEXT("cuMemAllocFromPoolAsync");
  *pointer = reinterpret_cast<uintptr_t>(std::aligned_alloc(512, (bytes + 511) / 512 * 512));
  ++fake().allocations;
  return DriverResult::kSuccess;
}
EXPORTED DriverResult cuMemFreeAsync(DevicePointer pointer, StreamRef) {
  FAKE_CALL_IN_CONTEXT("cuMemFreeAsync");
  std::free(reinterpret_cast<void*>(pointer));
  --fake().allocations;
  return DriverResult::kSuccess;
}
EXPORTED DriverResult cuLibraryLoadData(LibraryRef* library, const void*, void*, void**, unsigned jit_count, void*,
                                        void**, unsigned count) {
  FAKE_CALL("cuLibraryLoadData");
  if (jit_count + count != 0) return DriverResult::kInvalidValue;
  *library = new_handle<LibraryRef>();
  ++fake().modules;
  return DriverResult::kSuccess;
}
EXPORTED DriverResult cuLibraryUnload(LibraryRef library) {
  FAKE_CALL("cuLibraryUnload");
  std::free(library);
  --fake().modules;
  return DriverResult::kSuccess;
}
EXPORTED DriverResult cuLibraryGetKernel(KernelRef* kernel, LibraryRef library, const char* name) {
  FAKE_CALL("cuLibraryGetKernel");
  if (std::strcmp(name, FakeDriver::kKernel) != 0) return DriverResult::kNotFound;
  *kernel = reinterpret_cast<KernelRef>(library);
  return DriverResult::kSuccess;
}
EXPORTED DriverResult cuKernelGetFunction(FunctionRef* function, KernelRef kernel) {
  FAKE_CALL_IN_CONTEXT("cuKernelGetFunction");
  *function = reinterpret_cast<FunctionRef>(kernel);
  return DriverResult::kSuccess;
}
EXPORTED DriverResult cuFuncLoad(FunctionRef) {
  FAKE_CALL("cuFuncLoad");
  fake().function_loaded = true;
  return DriverResult::kSuccess;
}
EXPORTED DriverResult cuTensorMapEncodeTiled(TensorMapRef, MapElements elements, uint32_t rank, void*,
                                             const MapExtent* extents, const MapExtent* strides, const uint32_t* box,
                                             const uint32_t*, MapInterleave, MapSwizzle swizzle, MapPromotion,
                                             MapFill) {
  FAKE_CALL_IN_CONTEXT("cuTensorMapEncodeTiled");
  fake().maps.push_back(
      {elements, swizzle, {extents, extents + rank}, {strides, strides + rank - 1}, {box, box + rank}});
  return DriverResult::kSuccess;
}
EXPORTED DriverResult cuFuncGetParamInfo(FunctionRef, size_t index, size_t* offset, size_t* bytes) {
  FAKE_CALL("cuFuncGetParamInfo");
  if (index != 0) return DriverResult::kInvalidValue;
  *offset = 0;
  *bytes = FakeDriver::kParamsBytes;
  return DriverResult::kSuccess;
}
#endif

}  // namespace kachel::runtime::cuda
