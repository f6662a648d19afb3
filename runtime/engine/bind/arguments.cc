#include "runtime/engine/bind/arguments.h"

namespace kachel::runtime {

bool from_data_type(DataType type, ir::DType& out) {
  for (int i = 0; i < ir::kDTypeCount; ++i) {
    if (kDataTypes[i] == type) {
      out = static_cast<ir::DType>(i);
      return true;
    }
  }
  return false;
}

}  // namespace kachel::runtime
