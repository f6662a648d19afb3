// The iterations of a loop that need no masks. unswitch_masks() leaves `if every element is inside {bare} else
// {masked}` in loops; where such conditions hold from some iteration on, up to some other one, or both, the loop can be
// parted there, and most iterations run without a branch. That is more than the branch itself: the assembler places a
// wait for wgmma at the head of the basic block that it ends up in, and where a branch parts the body that is in front
// of all work that was to run beside the products.
#pragma once
#include <optional>

#include "lowering/loop_ir/loop_build.h"

namespace kachel::lowering {

struct MaskFree {
  ir::ExprRef begin, end;  // of the iterations without masks, I64; null: the loop's
  LoopBlock bare;          // the body for those
};
// `body` is of a loop over `var`; `names` is a block of that loop whose names it may use as well. Nothing if it has no
// such branch, or if where one's condition holds is not known outside the loop.
std::optional<MaskFree> mask_free(const LoopBlock& body, const LoopBlock& names, const ir::VarRef& var,
                                  const Ranges& ranges);

}  // namespace kachel::lowering
