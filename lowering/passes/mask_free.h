// The iterations of a loop that need no masks. unswitch_masks() leaves `if every element is inside {bare} else
// {masked}` in loops; where such conditions hold up to some iteration and no further, the loop can be parted there, and
// most iterations run without a branch. That is more than the branch itself: the assembler places a wait for wgmma at
// the head of the basic block that it ends up in, and where a branch parts the body that is in front of all work that
// was to run beside the products.
#pragma once
#include <optional>

#include "lowering/loop_ir/loop_build.h"

namespace kachel::lowering {

struct MaskFree {
  ir::ExprRef end;  // of the iterations without masks, I64; they come first
  LoopBlock bare;   // the body for those
};
// `body` is of a loop over `var`. Nothing if it has no such branch, or if what ends one is not known outside the loop.
std::optional<MaskFree> mask_free(const LoopBlock& body, const ir::VarRef& var, const Ranges& ranges);

}  // namespace kachel::lowering
