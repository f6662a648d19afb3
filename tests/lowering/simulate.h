// Executes the loop IR of a GPU target without a GPU, as unkindly as the barriers allow: between two barriers each
// thread of a block runs alone, from one to the next, in any order of threads. Every access is checked: it must lie in
// its buffer, and must not meet one of another thread since the last barrier unless both only read.
#pragma once
#include "lowering/loop_ir.h"

namespace kachel::lowering {

// Memory of the caller that the kernel may access, guards excluded.
struct Allocation {
  void* data = nullptr;
  size_t bytes = 0;
};

enum class ThreadOrder { kForward, kReversed, kShuffled };

struct Simulation {
  Status status;  // kInternal: threads waited at different barriers, or an access left its buffer
  int64_t races = 0;
  std::string first_race;
};

// `params`: one a parameter of the kernel, as at a launch, pointers into `memory` (which need not hold the workspace).
// Blocks run one after another. The same arguments give the same result.
Simulation simulate(const LoopKernel& kernel, const std::vector<int64_t>& params, const std::vector<Allocation>& memory,
                    uint32_t blocks, ThreadOrder order);

}  // namespace kachel::lowering
