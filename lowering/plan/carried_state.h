// Fragments that a serial loop carries and adds up along an axis in every iteration, as recurrences have them whose
// state is a matrix:
//
//   for t < L {
//     parallel j < E { y[t, j] = sum[d < D](r[t, d] * S[d, j]) }
//     parallel d < D, j < E { S[d, j] = w[t, d] * S[d, j] + k[t, d] * v[t, j] }
//   }
#pragma once
#include <optional>
#include <vector>

#include "lowering/plan/spaces.h"

namespace kachel::lowering {

// The layout of such a matrix, if its rows or its columns are added up: few threads share a sum, neighbours in a warp,
// each with terms beside each other, so that a step needs neither memory of the block nor a barrier. Nothing where the
// fragment is none, is copied in the loop, or is not made of such parts.
std::optional<FragmentLayout> state_layout(const ir::Kernel& kernel, const ir::Buffer& fragment,
                                           const std::vector<Space>& spaces, int64_t threads);

}  // namespace kachel::lowering
