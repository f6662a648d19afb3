// Programs that do what a kernel does, with operands made ahead: a first kernel makes the tensor whose tiles the blocks
// would each make for themselves, a second one reads them.
//
// Four reasons for it. An operand that is computed is computed once for each element instead of once for each block
// that needs it. One that products read with k down its rows can be turned, where tensor cores read its type along k
// alone. The tensor is contiguous, with rows that begin at multiples of 128 elements and with room behind them, so
// that whatever may move tiles from memory can, whichever strides the caller's tensor has. And a tensor whose rows
// products read across can be laid out along them (rows_along_k.h), from which rows are copied.
#pragma once
#include <string>
#include <vector>

#include "derive/operand_slice.h"
#include "derive/rows_along_k.h"
#include "derive/split_sums.h"

namespace kachel::derive {

// The tunable of the program: 0 calls the kernel as it is, 1 the ones that prepare and the one that reads.
inline constexpr const char* kPrepared = "prepared";

// A module with the kernel and one program, of the kernel's parameters, in which the given operands are
// prepared, tensors laid out, and the sums of the kernel that reads them, or of the kernel itself if there are none,
// are made in `parts` (split_sums.h), where it has such sums. The elements that it makes are those that the kernel
// makes, beyond the bounds of tensors too, where tiles stand out. `source` is another kernel with the same parameters
// that computes the same (taps_outside.h); null: the kernel itself. REQUIRES: `slices` are from operand_slices() of the
// source, name different tiles and read none of `crossed`, which are from its crossed_tensors(); there are some of
// either, or parts.parts > 1. What comes out is to be judged by ir::load(), which may refuse it (a dimension that only
// other tensors bind, for one).
std::string prepare_operands(const ir::Kernel& kernel, const std::vector<OperandSlice>& slices,
                             const SumParts& parts = {}, const std::vector<CrossedTensor>& crossed = {},
                             const ir::Kernel* source = nullptr);

}  // namespace kachel::derive
