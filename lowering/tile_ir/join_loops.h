// Pipelined loops over tiles of one kind that follow each other, as attention has them whose blocks without masks come
// first,
//
//   pipelined t < n      { k = K[t]; v = V[t]; x = q @ k^T; A; acc += x @ v }
//   pipelined t in n..m  { k = K[t]; v = V[t]; x = q @ k^T; B; acc += x @ v }
//
// become one, in which `t < n` decides between what differs, so that copies and products of the second loop run beside
// the end of the first.
#pragma once
#include "ir/kernel.h"

namespace kachel::lowering {

// REQUIRES: concrete.
ir::Kernel join_loops(const ir::Kernel& kernel);

}  // namespace kachel::lowering
