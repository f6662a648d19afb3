// The kernels of examples/ with shapes that are odd, empty, strided and misaligned.
#pragma once
#include <map>
#include <set>

#include "tests/conformance/runner.h"

namespace kachel::conformance {

// Every kernel of every .tile file in `folder`, for each combination of its types and a number of shapes and
// configurations. kInvalid if a file does not load.
Result<std::vector<Case>> example_cases(const std::string& folder, uint64_t seed);

// What a draw should keep to.
struct Wishes {
  std::map<std::string, int64_t> values;                         // of dimensions, tunables and integer consts
  std::map<std::string, std::pair<Contents, int64_t>> contents;  // of tensors, with TensorSpec::limit
  std::set<std::string> aligned;  // tensors without gaps that begin at a multiple of 16 bytes
  std::set<std::string>
      transposed;             // tensors with 16-byte rows along their last axis but one; others may have them too
  int threads = -1;           // of a block, if no tunable says, with room for its tiles in most cases; -1: any
  int architecture = 0;       // of a simulated GPU; 0: any
  int teams = -1;             // of consumers, as lowering::Target has it; -1: any
  int cluster = 0;            // of blocks, if no tunable says; 0: any
  int one_tile = -1;          // a block, as lowering::Target has it; -1: any
  int extremes_percent = 25;  // of cases whose other tensors hold kExtremes
};

// A case for `kernel` with every choice (types, dimensions, tunables, strides, alignment, contents) drawn from
// `random`. Dimensions are drawn up to `largest`, now and then 0 or 1. nullopt where the draw does not satisfy the
// kernel's `where`.
std::optional<Case> random_case(const ir::Kernel& kernel, int64_t largest, Random& random, const Wishes& wishes = {});

}  // namespace kachel::conformance
