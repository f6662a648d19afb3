// Copies whose elements lie apart in a tensor, as of a filter's tap,
//
//   f = F[c*BC +: BC, o*BO +: BO, r, s]
//
// are regions, `parallel i < BC, j < BO { f[i, j] = F[c*BC + i, o*BO + j, r, s] }`: no instruction copies such elements
// ahead, but what a region reads is loaded into registers ahead, and along whichever axis elements lie closest.
#pragma once
#include "ir/kernel.h"

namespace kachel::lowering {

// REQUIRES: from a concrete kernel.
ir::Kernel scattered_copies(const ir::Kernel& kernel);

}  // namespace kachel::lowering
