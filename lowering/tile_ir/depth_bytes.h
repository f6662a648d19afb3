// What instructions of tensor cores take along k.
#pragma once
#include <algorithm>
#include <cstdint>

#include "ir/dtype.h"

namespace kachel::lowering {

inline constexpr int64_t kDepthBytes = 32;  // every one of them

// The same in elements. What has fewer bits is read as bytes.
inline int64_t depth_unit(ir::DType type) {
  return 8 * kDepthBytes / std::max(8, ir::bits(type));
}

}  // namespace kachel::lowering
