#include "runtime/engine/arguments.h"

namespace kachel::runtime {
namespace {

using ir::DType;

// Indexed by DType. Codes: 0 int, 1 uint, 2 float, 4 bfloat, 6 bool, 10 f8e4m3, 12 f8e5m2.
constexpr DataType kDataTypes[ir::kDTypeCount] = {
    {2, 32, 1}, {2, 16, 1}, {4, 16, 1}, {10, 8, 1}, {12, 8, 1}, {0, 8, 1}, {1, 8, 1}, {0, 16, 1},
    {0, 32, 1}, {1, 32, 1}, {0, 64, 1}, {1, 64, 1}, {0, 4, 1},  {1, 4, 1}, {6, 8, 1},
};
static_assert(static_cast<int>(DType::Bool) == ir::kDTypeCount - 1);

}  // namespace

DataType to_data_type(DType type) {
  return kDataTypes[static_cast<int>(type)];
}

bool from_data_type(DataType type, DType& out) {
  for (int i = 0; i < ir::kDTypeCount; ++i) {
    if (kDataTypes[i] == type) {
      out = static_cast<DType>(i);
      return true;
    }
  }
  return false;
}

}  // namespace kachel::runtime
