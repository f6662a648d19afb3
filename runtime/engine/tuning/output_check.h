// Compares what a candidate wrote with what the reference configuration wrote, before the candidate may be timed.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/engine/bind/kernel_model.h"

namespace kachel::runtime {

// How far two correct results of one program may be apart. Both compute the same expressions; what differs between
// configurations is the order of sums and, where an algorithm rescales as it goes, the point at which intermediate
// values are rounded to a narrower type.
struct Tolerance {
  double relative = 0;  // of the larger of the two values
  double absolute = 0;  // of the largest finite magnitude in the reference
};

// For outputs of type `output`, where `narrowest` is the narrowest float type that the program rounds to on its way.
Tolerance tolerance_for(ir::DType output, ir::DType narrowest);

// The narrowest float type that some computed value is rounded to: the element types of outputs, and of tiles that are
// assigned or filled by conversion. Tiles that only hold copies of inputs of their own type do not count.
ir::DType narrowest_rounding(const KernelModel& model, uint64_t types);

// A piece of an output in host memory, in storage format.
struct OutputPiece {
  int64_t first_byte = 0;  // within the output's span
  std::vector<char> bytes;
};

// What candidates are compared with. Immutable; free for all threads.
class OutputReference {
 public:
  OutputReference() = default;
  OutputReference(ir::DType type, std::vector<OutputPiece> pieces);
  // "" if all elements of `actual` are within tolerance of these (two NaN are equal, integers must be); otherwise a
  // sentence that says where and by how much. REQUIRES: pieces of equal place and size, whole elements.
  std::string compare(const Tolerance& tolerance, const std::vector<OutputPiece>& actual) const;

 private:
  ir::DType type_ = ir::DType::F32;
  std::vector<OutputPiece> pieces_;
  float largest_ = 0;  // finite magnitude
};

// Byte ranges of a span of `bytes` to compare: all of it up to a limit of 8 MiB, else evenly spread pieces of 32 KiB
// that include both ends. A wrong tile is thousands of elements wide, so it meets some piece.
struct ByteRange {
  int64_t first, size;
};
std::vector<ByteRange> pieces_to_compare(int64_t bytes);

}  // namespace kachel::runtime
