// The control flow of a profile. Private to work.cc, which makes it, and work_of.cc, which follows it.
#pragma once
#include "lowering/machine/work.h"

namespace kachel::lowering {

struct WorkNode {
  enum class Kind : uint8_t { kWork, kLet, kLoop, kBranch } kind = Kind::kWork;
  Work work;
  ir::VarRef var;             // kLet, kLoop
  ir::ExprRef value, end;     // kLet: its value; kLoop: first and end; kBranch: the condition
  bool filled_ahead = false;  // kLoop: over stages that are filled ahead
  bool varies = false;        // kLoop: what an iteration does may depend on its number
  WorkNodes body, otherwise;
};

// Leaves out names that no trip count and no condition needs, and multiplies out loops of fixed length.
void compact(WorkNodes* nodes);

}  // namespace kachel::lowering
