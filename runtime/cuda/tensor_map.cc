// Tensor maps by the driver. Limits: CUDA driver API, cuTensorMapEncodeTiled.
#include <algorithm>

#include "runtime/cuda/cuda_device.h"
#include "runtime/cuda/driver_error.h"

namespace kachel::runtime::cuda {
namespace {

constexpr int kMostAxes = 5;
constexpr int64_t kStrideUnit = 16;

MapElements elements_of(const TensorMapRequest& request) {
  switch (request.numbers) {
    case TensorMapRequest::Numbers::kF16:
      return MapElements::kF16;
    case TensorMapRequest::Numbers::kBF16:
      return MapElements::kBF16;
    case TensorMapRequest::Numbers::kF32:
      return MapElements::kF32;
    case TensorMapRequest::Numbers::kOther:
      break;
  }
  return request.element_bits <= 8    ? MapElements::k8Bits
         : request.element_bits == 16 ? MapElements::k16Bits
         : request.element_bits == 32 ? MapElements::k32Bits
                                      : MapElements::k64Bits;
}

}  // namespace

// The driver wants some context to be current, whichever: most threads that launch have one.
template <class Call>
Status CudaDevice::in_some_context(const char* what, const Call& call) const {
  const DriverApi& api = context_->api();
  ContextRef theirs = nullptr;
  if (api.ctx_get_current(&theirs) == DriverResult::kSuccess && theirs) [[likely]]
    return driver_status(api, call(), what);
  CudaContext::Current current(*context_);
  KACHEL_TRY(current.status());
  return driver_status(api, call(), what);
}

Status CudaDevice::encode_map(const TensorMapRequest& request, uint64_t* words) const {
  const DriverApi& api = context_->api();
  if (!api.tensor_map_encode)
    return unsupported("the CUDA driver has no cuTensorMapEncodeTiled; update it to 12.0 or newer");
  if (request.rank < 2 || request.rank > kMostAxes) return invalid("a tensor map has two to five axes");
  const bool packed = request.element_bits == 4;
  MapExtent extents[kMostAxes], strides[kMostAxes];
  uint32_t box[kMostAxes], steps[kMostAxes];
  for (int i = 0; i < request.rank; ++i) {
    const int axis = request.rank - 1 - i;
    // No map is read of an empty tensor, and the stride of a single element says nothing.
    const int64_t extent = i == 0 && packed ? request.extents[axis] / 2 : request.extents[axis];
    extents[i] = static_cast<MapExtent>(std::max<int64_t>(extent, 1));
    const int64_t bytes = request.strides[axis] * request.element_bits / 8;
    if (i > 0) strides[i - 1] = static_cast<MapExtent>(request.extents[axis] > 1 ? bytes : kStrideUnit);
    box[i] = static_cast<uint32_t>(request.box[axis]);
    steps[i] = 1;
  }
  const MapElements elements = elements_of(request);
  const auto swizzle = request.swizzle == 128  ? MapSwizzle::k128Bytes
                       : request.swizzle == 64 ? MapSwizzle::k64Bytes
                                               : MapSwizzle::k32Bytes;
  // As slabs are wide: with 256 bytes a slab's neighbour is fetched with it, and attention of one query over long
  // contexts reads 4.03 TB/s instead of 4.36 (H200).
  return in_some_context("cuTensorMapEncodeTiled", [&] {
    return api.tensor_map_encode(reinterpret_cast<TensorMapRef>(words), elements, static_cast<uint32_t>(request.rank),
                                 const_cast<void*>(request.data), extents, strides, box, steps, MapInterleave::kNone,
                                 swizzle, MapPromotion::k128Bytes, MapFill::kZeros);
  });
}

Status CudaDevice::move_map(uint64_t* words, const void* data) const {
  const DriverApi& api = context_->api();
  if (!api.tensor_map_move)
    return unsupported("the CUDA driver has no cuTensorMapReplaceAddress; update it to 12.0 or newer");
  return in_some_context("cuTensorMapReplaceAddress", [&] {
    return api.tensor_map_move(reinterpret_cast<TensorMapRef>(words), const_cast<void*>(data));
  });
}

}  // namespace kachel::runtime::cuda
