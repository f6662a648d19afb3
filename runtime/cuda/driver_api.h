// The CUDA driver as this library sees it: our own declarations of what we call, bound at run time, so that neither a
// build nor a start needs CUDA. driver_api_check.cc compares every value and signature with cuda.h where there is one.
//
// The list names each function's exported symbol, version suffix included: cuda.h maps cuMemAlloc to cuMemAlloc_v2 by a
// macro, dlsym does not. Plain names mean the legacy default stream, never the per-thread one.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "support/status.h"

namespace kachel::runtime::cuda {

using DeviceOrdinal = int;
using DevicePointer = unsigned long long;
using ContextRef = struct ContextTag*;
using StreamRef = struct StreamTag*;
using PoolRef = struct PoolTag*;
using EventRef = struct EventTag*;
using ModuleRef = struct ModuleTag*;
using LibraryRef = struct LibraryTag*;
using KernelRef = struct KernelTag*;
using FunctionRef = struct FunctionTag*;

// The values that some decision depends on; the driver knows more.
enum class DriverResult : int32_t {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kDeinitialized = 4,
  kStubLibrary = 34,
  kDeviceUnavailable = 46,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kInvalidContext = 201,
  kNoBinaryForGpu = 209,
  kEccUncorrectable = 214,
  kInvalidPtx = 218,
  kNvlinkUncorrectable = 220,
  kUnsupportedPtxVersion = 222,
  kContained = 226,
  kInvalidSource = 300,
  kNotFound = 500,
  kIllegalAddress = 700,
  kLaunchOutOfResources = 701,
  kLaunchTimeout = 702,
  kContextIsDestroyed = 709,
  kAssert = 710,
  kHardwareStackError = 714,
  kIllegalInstruction = 715,
  kMisalignedAddress = 716,
  kInvalidAddressSpace = 717,
  kInvalidPc = 718,
  kLaunchFailed = 719,
  kNotSupported = 801,
  kSystemNotReady = 802,
  kSystemDriverMismatch = 803,
  kCaptureUnsupported = 900,
  kCaptureInvalidated = 901,
  kCaptureImplicit = 906,
  kCaptureWrongThread = 908,
  kUnknown = 999,
};

enum class DeviceAttribute : int32_t {
  kMaxThreadsPerBlock = 1,
  kWarpSize = 10,
  kMultiprocessorCount = 16,
  kL2CacheSize = 38,
  kComputeMajor = 75,
  kComputeMinor = 76,
  kMaxSharedPerBlockOptin = 97,
  kMemoryPoolsSupported = 115,
};

enum class FunctionAttribute : int32_t {
  kSharedBytes = 1,
  kLocalBytes = 3,
  kRegisters = 4,
  kMaxDynamicSharedBytes = 8,
};

enum class CaptureMode : int32_t { kGlobal = 0, kThreadLocal = 1, kRelaxed = 2 };
enum class CaptureStatus : int32_t { kNone = 0, kActive = 1, kInvalidated = 2 };

// Of tensor maps. Extents and strides are innermost first, strides in bytes without the innermost.
using TensorMapRef = struct TensorMapTag*;
using MapExtent = unsigned long;
enum class MapElements : int32_t { k8Bits = 0, k16Bits = 1, k32Bits = 2, k64Bits = 4, kF16 = 6, kF32 = 7, kBF16 = 9 };
enum class MapInterleave : int32_t { kNone = 0 };
enum class MapSwizzle : int32_t { kNone = 0, k32Bytes = 1, k64Bytes = 2, k128Bytes = 3 };
enum class MapPromotion : int32_t { kNone = 0, k128Bytes = 2 };
enum class MapFill : int32_t { kZeros = 0 };

// Of cuLaunchKernelEx. The value is a union of 64 bytes, of which the first words alone are set.
enum class LaunchAttribute : int32_t { kClusterDimension = 4, kProgrammaticStreamSerialization = 6 };
struct LaunchAttributeValue {
  LaunchAttribute attribute;
  int32_t padding;
  int32_t value[16];
};
struct LaunchConfig {
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
  StreamRef stream;
  LaunchAttributeValue* attributes;
  unsigned attribute_count;
};
static_assert(sizeof(LaunchAttributeValue) == 72 && offsetof(LaunchConfig, stream) == 32 && sizeof(LaunchConfig) == 56);

// Of memory on one device, not shared with other processes.
struct PoolProperties {
  int32_t allocation = 1, handles = 0;
  int32_t location = 1, device = 0;
  void* security = nullptr;
  size_t most_bytes = 0;
  unsigned char reserved[56] = {};
};
static_assert(sizeof(PoolProperties) == 88);
enum class PoolAttribute : int { kReleaseThreshold = 4 };

constexpr unsigned kStreamNonBlocking = 1;
constexpr unsigned kEventDefault = 0;

// X(member, exported symbol, parameters). All return DriverResult.
#define KACHEL_DRIVER_REQUIRED(X)                                                                                 \
  X(init, cuInit, (unsigned flags))                                                                               \
  X(driver_get_version, cuDriverGetVersion, (int* version))                                                       \
  X(get_error_name, cuGetErrorName, (DriverResult error, const char** name))                                      \
  X(get_error_string, cuGetErrorString, (DriverResult error, const char** text))                                  \
  X(device_get_count, cuDeviceGetCount, (int* count))                                                             \
  X(device_get, cuDeviceGet, (DeviceOrdinal * device, int ordinal))                                               \
  X(device_get_name, cuDeviceGetName, (char* name, int size, DeviceOrdinal device))                               \
  X(device_total_mem, cuDeviceTotalMem_v2, (size_t* bytes, DeviceOrdinal device))                                 \
  X(device_get_attribute, cuDeviceGetAttribute, (int* value, DeviceAttribute attribute, DeviceOrdinal device))    \
  X(primary_ctx_retain, cuDevicePrimaryCtxRetain, (ContextRef * context, DeviceOrdinal device))                   \
  X(primary_ctx_release, cuDevicePrimaryCtxRelease_v2, (DeviceOrdinal device))                                    \
  X(ctx_get_current, cuCtxGetCurrent, (ContextRef * context))                                                     \
  X(ctx_push_current, cuCtxPushCurrent_v2, (ContextRef context))                                                  \
  X(ctx_pop_current, cuCtxPopCurrent_v2, (ContextRef * context))                                                  \
  X(module_load_data, cuModuleLoadData, (ModuleRef * module, const void* image))                                  \
  X(module_unload, cuModuleUnload, (ModuleRef module))                                                            \
  X(module_get_function, cuModuleGetFunction, (FunctionRef * function, ModuleRef module, const char* name))       \
  X(func_get_attribute, cuFuncGetAttribute, (int* value, FunctionAttribute attribute, FunctionRef function))      \
  X(func_set_attribute, cuFuncSetAttribute, (FunctionRef function, FunctionAttribute attribute, int value))       \
  X(occupancy, cuOccupancyMaxActiveBlocksPerMultiprocessor,                                                       \
    (int* blocks, FunctionRef function, int threads, size_t shared_bytes))                                        \
  X(launch_kernel, cuLaunchKernel,                                                                                \
    (FunctionRef function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, \
     unsigned block_z, unsigned shared_bytes, StreamRef stream, void** params, void** extra))                     \
  X(mem_alloc, cuMemAlloc_v2, (DevicePointer * pointer, size_t bytes))                                            \
  X(mem_free, cuMemFree_v2, (DevicePointer pointer))                                                              \
  X(memcpy_async, cuMemcpyAsync, (DevicePointer to, DevicePointer from, size_t bytes, StreamRef stream))          \
  X(memset_d8_async, cuMemsetD8Async, (DevicePointer to, unsigned char byte, size_t bytes, StreamRef stream))     \
  X(stream_create, cuStreamCreate, (StreamRef * stream, unsigned flags))                                          \
  X(stream_destroy, cuStreamDestroy_v2, (StreamRef stream))                                                       \
  X(stream_synchronize, cuStreamSynchronize, (StreamRef stream))                                                  \
  X(stream_is_capturing, cuStreamIsCapturing, (StreamRef stream, CaptureStatus * status))                         \
  X(thread_exchange_capture_mode, cuThreadExchangeStreamCaptureMode, (CaptureMode * mode))                        \
  X(event_create, cuEventCreate, (EventRef * event, unsigned flags))                                              \
  X(event_destroy, cuEventDestroy_v2, (EventRef event))                                                           \
  X(event_record, cuEventRecord, (EventRef event, StreamRef stream))                                              \
  X(event_synchronize, cuEventSynchronize, (EventRef event))                                                      \
  X(event_elapsed_time, cuEventElapsedTime, (float* milliseconds, EventRef start, EventRef end))

// Null where the driver is older: pools 11.2, launch attributes and clusters 11.8, libraries and tensor maps 12.0,
// parameter reflection and eager loading 12.4. The void* parameters of cuLibraryLoadData are option arrays that we
// never pass.
#define KACHEL_DRIVER_OPTIONAL(X)                                                                                      \
  X(mem_pool_create, cuMemPoolCreate, (PoolRef * pool, const PoolProperties* properties))                              \
  X(mem_pool_destroy, cuMemPoolDestroy, (PoolRef pool))                                                                \
  X(mem_pool_set_attribute, cuMemPoolSetAttribute, (PoolRef pool, PoolAttribute attribute, void* value))               \
  X(mem_alloc_from_pool_async, cuMemAllocFromPoolAsync,                                                                \
    (DevicePointer * pointer, size_t bytes, PoolRef pool, StreamRef stream))                                           \
  X(mem_free_async, cuMemFreeAsync, (DevicePointer pointer, StreamRef stream))                                         \
  X(library_load_data, cuLibraryLoadData,                                                                              \
    (LibraryRef * library, const void* image, void* jit_options, void** jit_values, unsigned jit_count, void* options, \
     void** values, unsigned count))                                                                                   \
  X(library_unload, cuLibraryUnload, (LibraryRef library))                                                             \
  X(library_get_kernel, cuLibraryGetKernel, (KernelRef * kernel, LibraryRef library, const char* name))                \
  X(kernel_get_function, cuKernelGetFunction, (FunctionRef * function, KernelRef kernel))                              \
  X(launch_kernel_ex, cuLaunchKernelEx,                                                                                \
    (const LaunchConfig* config, FunctionRef function, void** params, void** extra))                                   \
  X(occupancy_of_clusters, cuOccupancyMaxActiveClusters,                                                               \
    (int* clusters, FunctionRef function, const LaunchConfig* config))                                                 \
  X(func_load, cuFuncLoad, (FunctionRef function))                                                                     \
  X(func_get_param_info, cuFuncGetParamInfo, (FunctionRef function, size_t index, size_t* offset, size_t* bytes))      \
  X(tensor_map_encode, cuTensorMapEncodeTiled,                                                                         \
    (TensorMapRef map, MapElements elements, uint32_t rank, void* data, const MapExtent* extents,                      \
     const MapExtent* strides, const uint32_t* box, const uint32_t* steps, MapInterleave interleave,                   \
     MapSwizzle swizzle, MapPromotion promotion, MapFill fill))                                                        \
  X(tensor_map_move, cuTensorMapReplaceAddress, (TensorMapRef map, void* data))

// Bound and initialised once a process, never unloaded. Immutable afterwards, so free for all threads.
struct DriverApi {
#define KACHEL_DRIVER_MEMBER(member, symbol, parameters) DriverResult(*member) parameters = nullptr;
  KACHEL_DRIVER_REQUIRED(KACHEL_DRIVER_MEMBER)
  KACHEL_DRIVER_OPTIONAL(KACHEL_DRIVER_MEMBER)
#undef KACHEL_DRIVER_MEMBER

  int cuda_version = 0;  // the newest CUDA that the driver serves, 13000 for 13.0
  std::string version;   // for keys and people: "580.159.04/cuda-13.0"

  bool has_libraries() const {
    return library_load_data && library_unload && library_get_kernel && kernel_get_function;
  }
};

// The process's driver. kNoDevice with a mend where there is none or it does not start; asked again, it tries again, so
// a driver that appears later is found. The pointer is never null and lives until the process ends.
Result<const DriverApi*> driver_api();

// Binds and starts the driver at `path`, a file that the loader finds. For driver_api() and for tests.
Result<const DriverApi*> open_driver_api(const std::string& path);

}  // namespace kachel::runtime::cuda
