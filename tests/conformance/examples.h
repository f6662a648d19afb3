// The kernels of examples/ with shapes that are odd, empty, strided and misaligned.
#pragma once
#include "tests/conformance/runner.h"

namespace kachel::conformance {

// Every kernel of every .tile file in `folder`, for each combination of its types and a number of shapes and
// configurations. kInvalid if a file does not load.
Result<std::vector<Case>> example_cases(const std::string& folder, uint64_t seed);

// A case for `kernel` with every choice (types, dimensions, tunables, strides, alignment, contents) drawn from `random`.
// Dimensions are drawn up to `largest`, now and then 0 or 1. nullopt where the draw does not satisfy the kernel's
// `where`.
std::optional<Case> random_case(const ir::Kernel& kernel, int64_t largest, Random& random);

}  // namespace kachel::conformance
