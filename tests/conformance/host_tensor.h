// Tensors of a conformance case in host memory: any strides, any alignment, guard bytes all around, random contents.
#pragma once
#include <functional>
#include <random>

#include "ir/interpret.h"
#include "ir/numerics.h"
#include "lowering/lower.h"

namespace kachel::conformance {

using Random = std::mt19937_64;

// What a tensor holds at the start.
enum class Contents {
  kNormal,    // floats around 1 in size, integers of the whole type, or small for gemm operands
  kExtremes,  // now and then zero, infinity, NaN, the largest and the smallest values
  kIndices,   // row numbers in [0, limit), now and then outside: -1, limit, INT_MIN, INT_MAX
  kDistinct,  // numbers from 0 up, shuffled, no two alike as long as the type holds them all
};

struct TensorSpec {
  ir::DType type = ir::DType::F32;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;  // in elements, >= 0; empty: row-major without gaps
  int64_t misalignment = 0;      // elements (bytes for 4-bit types) between a 256-byte boundary and the first element
  Contents contents = Contents::kNormal;
  int64_t limit = 1;  // kIndices
};

// Owns its memory. Copyable.
class OwnedTensor {
 public:
  OwnedTensor() = default;
  OwnedTensor(const TensorSpec& spec, Random& random);

  ir::HostTensor view();
  // The whole allocation with its guards, and where the tensor begins in it.
  std::vector<uint8_t>& bytes() { return bytes_; }
  size_t offset() const { return offset_; }
  // From the first element to the end of the last, gaps included.
  size_t element_bytes() const { return element_bytes_; }
  // Number of bytes outside of the tensor's elements that differ from `before`: guards and the gaps between rows.
  int64_t damaged_guards(const OwnedTensor& before) const;

 private:
  ir::Scalar random_value(Random& random, std::vector<int64_t>* distinct) const;
  void for_each_element(const std::function<void(int64_t element)>& fn) const;
  TensorSpec spec_;
  std::vector<uint8_t> bytes_;
  size_t offset_ = 0, element_bytes_ = 0;
};

// The same elements with the last two axes exchanged.
ir::HostTensor exchanged(ir::HostTensor tensor);
// What a map is of: `tensor`, or that of its views which the map names.
ir::HostTensor view_of(const lowering::TensorMap& map, ir::HostTensor tensor);

}  // namespace kachel::conformance
