#include "runtime/engine/bind/tensor_maps.h"

namespace kachel::runtime {

Status encode_maps(const Device& device, const std::vector<lowering::TensorMap>& maps, const BoundArguments& arguments,
                   uint64_t* out) {
  for (const lowering::TensorMap& map : maps) {
    const BoundTensor& tensor = arguments.tensors[map.param];
    const TensorMapRequest request{tensor.data,   bits_of(tensor.dtype), static_cast<int32_t>(map.box.size()),
                                   tensor.shape,  tensor.strides,            map.box.data(),
                                   map.swizzle};
    KACHEL_TRY(device.encode_map(request, out));
    out += kTensorMapWords;
  }
  return {};
}

}  // namespace kachel::runtime
