// Products along the channels of an image and the taps of a filter, flattened as PyTorch's filters lie,
//
//   for k < ceildiv(K, BK) { f = F[o*BO +: BO, k*BK +: BK]
//     parallel i < BK, j < BP { let e = k*BK + i  x[i, j] = X[n, e / 9, j / W + e / 3 % 3, j % W + e % 3] }
//     acc += f @ x }
//
// in another order: tap by tap, channels within. An iteration then reads one place of a pixel, and the tensors can be
// laid out for that (rows_along_k.h, operand_slice.h).
#pragma once
#include <optional>

#include "ir/kernel.h"

namespace kachel::derive {

// The kernel with a loop `tap, channel` in place of its loop along k, if that does nothing but make operands, whose
// elements follow the place along k as a channel, e / D with a literal D, and as digits of e % D, and multiply them;
// else nothing. Sums are of the same terms in another order. REQUIRES: verify() has passed the kernel.
std::optional<ir::Kernel> taps_outside(const ir::Kernel& kernel);

}  // namespace kachel::derive
