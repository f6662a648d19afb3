// Nothing here runs: it is compiled where cuda.h is found and fails to compile if a declaration of ours is wrong.
#include <cuda.h>

#include "runtime/cuda/abi_check.h"
#include "runtime/cuda/driver_api.h"

namespace kachel::runtime::cuda {
namespace {

template <class Ours, class Theirs>
constexpr bool same_value(Ours ours, Theirs theirs) {
  return sizeof(Ours) == sizeof(Theirs) && static_cast<long long>(ours) == static_cast<long long>(theirs);
}

#define KACHEL_SAME(ours, theirs) static_assert(same_value(ours, theirs), #theirs)

KACHEL_SAME(DriverResult::kSuccess, CUDA_SUCCESS);
KACHEL_SAME(DriverResult::kInvalidValue, CUDA_ERROR_INVALID_VALUE);
KACHEL_SAME(DriverResult::kOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY);
KACHEL_SAME(DriverResult::kNotInitialized, CUDA_ERROR_NOT_INITIALIZED);
KACHEL_SAME(DriverResult::kDeinitialized, CUDA_ERROR_DEINITIALIZED);
KACHEL_SAME(DriverResult::kStubLibrary, CUDA_ERROR_STUB_LIBRARY);
KACHEL_SAME(DriverResult::kNoDevice, CUDA_ERROR_NO_DEVICE);
KACHEL_SAME(DriverResult::kInvalidDevice, CUDA_ERROR_INVALID_DEVICE);
KACHEL_SAME(DriverResult::kInvalidImage, CUDA_ERROR_INVALID_IMAGE);
KACHEL_SAME(DriverResult::kInvalidContext, CUDA_ERROR_INVALID_CONTEXT);
KACHEL_SAME(DriverResult::kNoBinaryForGpu, CUDA_ERROR_NO_BINARY_FOR_GPU);
KACHEL_SAME(DriverResult::kEccUncorrectable, CUDA_ERROR_ECC_UNCORRECTABLE);
KACHEL_SAME(DriverResult::kInvalidPtx, CUDA_ERROR_INVALID_PTX);
KACHEL_SAME(DriverResult::kNvlinkUncorrectable, CUDA_ERROR_NVLINK_UNCORRECTABLE);
KACHEL_SAME(DriverResult::kUnsupportedPtxVersion, CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
KACHEL_SAME(DriverResult::kInvalidSource, CUDA_ERROR_INVALID_SOURCE);
KACHEL_SAME(DriverResult::kNotFound, CUDA_ERROR_NOT_FOUND);
KACHEL_SAME(DriverResult::kIllegalAddress, CUDA_ERROR_ILLEGAL_ADDRESS);
KACHEL_SAME(DriverResult::kLaunchOutOfResources, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
KACHEL_SAME(DriverResult::kLaunchTimeout, CUDA_ERROR_LAUNCH_TIMEOUT);
KACHEL_SAME(DriverResult::kContextIsDestroyed, CUDA_ERROR_CONTEXT_IS_DESTROYED);
KACHEL_SAME(DriverResult::kAssert, CUDA_ERROR_ASSERT);
KACHEL_SAME(DriverResult::kHardwareStackError, CUDA_ERROR_HARDWARE_STACK_ERROR);
KACHEL_SAME(DriverResult::kIllegalInstruction, CUDA_ERROR_ILLEGAL_INSTRUCTION);
KACHEL_SAME(DriverResult::kMisalignedAddress, CUDA_ERROR_MISALIGNED_ADDRESS);
KACHEL_SAME(DriverResult::kInvalidAddressSpace, CUDA_ERROR_INVALID_ADDRESS_SPACE);
KACHEL_SAME(DriverResult::kInvalidPc, CUDA_ERROR_INVALID_PC);
KACHEL_SAME(DriverResult::kLaunchFailed, CUDA_ERROR_LAUNCH_FAILED);
KACHEL_SAME(DriverResult::kNotSupported, CUDA_ERROR_NOT_SUPPORTED);
KACHEL_SAME(DriverResult::kSystemNotReady, CUDA_ERROR_SYSTEM_NOT_READY);
KACHEL_SAME(DriverResult::kSystemDriverMismatch, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
KACHEL_SAME(DriverResult::kCaptureUnsupported, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
KACHEL_SAME(DriverResult::kCaptureInvalidated, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
KACHEL_SAME(DriverResult::kCaptureImplicit, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
KACHEL_SAME(DriverResult::kCaptureWrongThread, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
KACHEL_SAME(DriverResult::kUnknown, CUDA_ERROR_UNKNOWN);
#if CUDA_VERSION >= 12080
KACHEL_SAME(DriverResult::kDeviceUnavailable, CUDA_ERROR_DEVICE_UNAVAILABLE);
KACHEL_SAME(DriverResult::kContained, CUDA_ERROR_CONTAINED);
#endif

KACHEL_SAME(DeviceAttribute::kMaxThreadsPerBlock, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
KACHEL_SAME(DeviceAttribute::kWarpSize, CU_DEVICE_ATTRIBUTE_WARP_SIZE);
KACHEL_SAME(DeviceAttribute::kMultiprocessorCount, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
KACHEL_SAME(DeviceAttribute::kL2CacheSize, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
KACHEL_SAME(DeviceAttribute::kComputeMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
KACHEL_SAME(DeviceAttribute::kComputeMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
KACHEL_SAME(DeviceAttribute::kMaxSharedPerBlockOptin, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
KACHEL_SAME(DeviceAttribute::kMemoryPoolsSupported, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);

KACHEL_SAME(PoolAttribute::kReleaseThreshold, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD);
static_assert(sizeof(PoolProperties) == sizeof(CUmemPoolProps));
static_assert(offsetof(PoolProperties, location) == offsetof(CUmemPoolProps, location));
static_assert(offsetof(PoolProperties, most_bytes) == offsetof(CUmemPoolProps, maxSize));
static_assert(PoolProperties().allocation == CU_MEM_ALLOCATION_TYPE_PINNED &&
              PoolProperties().location == CU_MEM_LOCATION_TYPE_DEVICE);

KACHEL_SAME(FunctionAttribute::kSharedBytes, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
KACHEL_SAME(FunctionAttribute::kLocalBytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
KACHEL_SAME(FunctionAttribute::kRegisters, CU_FUNC_ATTRIBUTE_NUM_REGS);
KACHEL_SAME(FunctionAttribute::kMaxDynamicSharedBytes, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);

KACHEL_SAME(CaptureMode::kGlobal, CU_STREAM_CAPTURE_MODE_GLOBAL);
KACHEL_SAME(CaptureMode::kThreadLocal, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
KACHEL_SAME(CaptureMode::kRelaxed, CU_STREAM_CAPTURE_MODE_RELAXED);
KACHEL_SAME(CaptureStatus::kNone, CU_STREAM_CAPTURE_STATUS_NONE);
KACHEL_SAME(CaptureStatus::kActive, CU_STREAM_CAPTURE_STATUS_ACTIVE);
KACHEL_SAME(CaptureStatus::kInvalidated, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
KACHEL_SAME(kStreamNonBlocking, CU_STREAM_NON_BLOCKING);
KACHEL_SAME(kEventDefault, CU_EVENT_DEFAULT);
#if CUDA_VERSION >= 12000
KACHEL_SAME(MapElements::k8Bits, CU_TENSOR_MAP_DATA_TYPE_UINT8);
KACHEL_SAME(MapElements::k16Bits, CU_TENSOR_MAP_DATA_TYPE_UINT16);
KACHEL_SAME(MapElements::k32Bits, CU_TENSOR_MAP_DATA_TYPE_UINT32);
KACHEL_SAME(MapElements::k64Bits, CU_TENSOR_MAP_DATA_TYPE_UINT64);
KACHEL_SAME(MapElements::kF16, CU_TENSOR_MAP_DATA_TYPE_FLOAT16);
KACHEL_SAME(MapElements::kF32, CU_TENSOR_MAP_DATA_TYPE_FLOAT32);
KACHEL_SAME(MapElements::kBF16, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16);
KACHEL_SAME(MapInterleave::kNone, CU_TENSOR_MAP_INTERLEAVE_NONE);
KACHEL_SAME(MapSwizzle::kNone, CU_TENSOR_MAP_SWIZZLE_NONE);
KACHEL_SAME(MapSwizzle::k32Bytes, CU_TENSOR_MAP_SWIZZLE_32B);
KACHEL_SAME(MapSwizzle::k64Bytes, CU_TENSOR_MAP_SWIZZLE_64B);
KACHEL_SAME(MapSwizzle::k128Bytes, CU_TENSOR_MAP_SWIZZLE_128B);
KACHEL_SAME(MapPromotion::kNone, CU_TENSOR_MAP_L2_PROMOTION_NONE);
KACHEL_SAME(MapPromotion::k128Bytes, CU_TENSOR_MAP_L2_PROMOTION_L2_128B);
KACHEL_SAME(MapFill::kZeros, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
static_assert(sizeof(CUtensorMap) == 128 && alignof(CUtensorMap) <= 128);
#endif

static_assert(sizeof(DevicePointer) == sizeof(CUdeviceptr) && std::is_integral_v<CUdeviceptr>);
static_assert(sizeof(DeviceOrdinal) == sizeof(CUdevice));

#define KACHEL_SAME_FUNCTION(member, symbol, parameters) \
  static_assert(SameAbi<decltype(DriverApi::member), decltype(&::symbol)>::value, #symbol);
KACHEL_DRIVER_REQUIRED(KACHEL_SAME_FUNCTION)
#if CUDA_VERSION >= 12040  // the first whose cuda.h has them all
KACHEL_DRIVER_OPTIONAL(KACHEL_SAME_FUNCTION)
#endif

}  // namespace
}  // namespace kachel::runtime::cuda
