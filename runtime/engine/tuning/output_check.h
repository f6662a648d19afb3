// Compares what a candidate wrote with what the reference configuration wrote, before the candidate may be timed.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/engine/tuning/tolerance.h"

namespace kachel::runtime {

struct ByteRange {
  int64_t first, size;
};
// Byte ranges of a span of `bytes` to compare: all of it up to a limit of 8 MiB, else evenly spread pieces of 32 KiB
// that include both ends. A wrong tile is thousands of elements wide, so it meets some piece.
std::vector<ByteRange> pieces_to_compare(int64_t bytes);

// Pieces of an output in host memory, in storage format, one behind the other.
struct OutputSample {
  std::vector<ByteRange> places;  // within the output's span; whole elements
  std::vector<char> bytes;
};

// Elements that are not within tolerance; none, where as few differ as may.
struct Mismatch {
  int64_t wrong = 0, total = 0;
  std::string what;  // a sentence that says how many, where the first is, and by how much

  double share() const { return wrong ? static_cast<double>(wrong) / static_cast<double>(total) : 0; }
};

// What candidates are compared with. Immutable; free for all threads.
class OutputReference {
 public:
  OutputReference() = default;
  OutputReference(ir::DType type, OutputSample sample);
  // The elements of `actual` that are not within tolerance of these; two NaN are equal. REQUIRES: the same places.
  Mismatch compare(const Tolerance& tolerance, const OutputSample& actual) const;
  // How far the floats of `actual` are from these at most, of the largest finite magnitude here; 0 for integers.
  double distance(const OutputSample& actual) const;

 private:
  ir::DType type_ = ir::DType::F32;
  OutputSample sample_;
  float largest_ = 0;  // finite magnitude
};

}  // namespace kachel::runtime
