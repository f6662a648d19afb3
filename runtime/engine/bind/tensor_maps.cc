#include "runtime/engine/bind/tensor_maps.h"

#include <utility>

namespace kachel::runtime {

Status encode_maps(const Device& device, const std::vector<lowering::TensorMap>& maps, const BoundArguments& arguments,
                   uint64_t* out) {
  for (const lowering::TensorMap& map : maps) {
    BoundTensor tensor = arguments.tensors[map.param];
    const auto rank = static_cast<int32_t>(map.box.size());
    if (map.transposed) {
      std::swap(tensor.shape[rank - 1], tensor.shape[rank - 2]);
      std::swap(tensor.strides[rank - 1], tensor.strides[rank - 2]);
    }
    if (map.as_one) {
      tensor.shape[rank - 1] *= tensor.shape[rank - 2];
      tensor.shape[rank - 2] = 1;
      tensor.strides[rank - 2] = tensor.shape[rank - 1];
    }
    const TensorMapRequest request{tensor.data,    bits_of(tensor.dtype), rank,        tensor.shape,
                                   tensor.strides, map.box.data(),        map.swizzle, map_numbers(tensor.dtype)};
    KACHEL_TRY(device.encode_map(request, out));
    out += kTensorMapWords;
  }
  return {};
}

}  // namespace kachel::runtime
