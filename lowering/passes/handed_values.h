// What the producer needs and cannot know: names whose values follow from tiles, such as which expert a block works
// for, found in a prefix sum. Those that compute hand it over each time that they come to it.
#pragma once
#include "lowering/loop_ir/loop_ir.h"

namespace kachel::lowering {

// Makes LoopKernel::handed, with its barriers and places, for split_roles() to succeed; nothing where that does not
// help. In front of plan_memory().
void choose_handed(LoopKernel* kernel);

// Lets those that compute hand values over. Behind synchronise(), whose barriers are not needed for it.
void hand_over(LoopKernel* kernel);

// Names the parity of the next phase of a barrier, and steps on.
ir::ExprRef next_parity(const ir::BufferRef& state, LoopBlock* out);

}  // namespace kachel::lowering
