// Launch arguments as the host hands them over. The layouts are those of kachel_tensor and kachel_arg (capi asserts
// it), so that the C entry points pass pointers on instead of copying.
#pragma once
#include <cstdint>

#include "ir/dtype.h"

namespace kachel::runtime {

struct [[gnu::may_alias]] DeviceRef {
  int32_t type = 0, id = 0;  // DLDevice
  bool operator==(const DeviceRef&) const = default;
};

struct [[gnu::may_alias]] DataType {
  uint8_t code = 0, bits = 0;  // DLDataType
  uint16_t lanes = 1;
  bool operator==(const DataType&) const = default;
};

struct [[gnu::may_alias]] TensorArg {
  void* data = nullptr;
  DeviceRef device;
  int32_t ndim = 0;
  DataType dtype;
  int64_t* shape = nullptr;
  int64_t* strides = nullptr;  // in elements; null: row-major contiguous
  uint64_t byte_offset = 0;
};

struct [[gnu::may_alias]] Arg {
  enum Kind : int32_t { kTensor = 0, kInt = 1, kFloat = 2 };
  int32_t kind = kTensor, reserved = 0;
  union {
    const TensorArg* tensor;
    int64_t i;
    double f;
  };
};

// Indexed by DType. Codes: 0 int, 1 uint, 2 float, 4 bfloat, 6 bool, 10 f8e4m3, 12 f8e5m2.
alignas(64) inline constexpr DataType kDataTypes[ir::kDTypeCount] = {
    {2, 32, 1}, {2, 16, 1}, {4, 16, 1}, {10, 8, 1}, {12, 8, 1}, {0, 8, 1}, {1, 8, 1}, {0, 16, 1},
    {0, 32, 1}, {1, 32, 1}, {0, 64, 1}, {1, 64, 1}, {0, 4, 1},  {1, 4, 1}, {6, 8, 1},
};
static_assert(static_cast<int>(ir::DType::Bool) == ir::kDTypeCount - 1);

// Both ways between DLPack's types and ours. from_data_type returns false for types we do not have.
inline DataType to_data_type(ir::DType type) {
  return kDataTypes[static_cast<int>(type)];
}
inline int bits_of(ir::DType type) {
  return kDataTypes[static_cast<int>(type)].bits;
}
bool from_data_type(DataType type, ir::DType& out);

}  // namespace kachel::runtime
