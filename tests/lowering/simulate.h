// Executes the loop IR of a GPU target without a GPU, as unkindly as the hardware allows. Between two barriers each
// warp runs alone, in any order of warps, and its lanes run alone from one operation of the warp to the next, in any
// order of lanes. An asynchronous copy is done when its thread waits for it and not before, one of the copy engine when
// nothing else can go on, or sooner. Of a cluster, one block goes on as far as it can before the other does, or they
// take turns. Every access is checked: it must lie in its buffer, be aligned to its width, and must not meet one of
// another thread since the last barrier unless both only read.
#pragma once
#include "lowering/loop_ir/loop_ir.h"

namespace kachel::lowering {

// Memory of the caller that the kernel may access, guards excluded.
struct Allocation {
  void* data = nullptr;
  size_t bytes = 0;
};

enum class ThreadOrder { kForward, kReversed, kShuffled };

struct Simulation {
  Status status;  // kInternal: threads part ways, an access leaves its buffer or is not aligned
  int64_t races = 0;
  std::string first_race;
  // Shared memory serves 8 lanes x 16 bytes at once, or as many narrower accesses, if no bank is asked for two words.
  // The rounds that it takes beyond that, all warps together: of kLoadMatrix and kStoreMatrix, and of vector copies.
  int64_t matrix_loads = 0, matrix_stores = 0, matrix_conflicts = 0;
  int64_t vector_conflicts = 0;
};

// A tensor as one of LoopKernel::maps describes it.
struct MappedTensor {
  void* data = nullptr;
  ir::DType type = ir::DType::F32;
  std::vector<int64_t> shape, strides;
};

// `params`: one a parameter of the kernel, as at a launch, pointers into `memory` (which need not hold the workspace).
// Clusters run one after another. `blocks`: a multiple of their size. The same arguments give the same result.
Simulation simulate(const LoopKernel& kernel, const std::vector<int64_t>& params, const std::vector<Allocation>& memory,
                    uint32_t blocks, ThreadOrder order, const std::vector<MappedTensor>& maps = {});

}  // namespace kachel::lowering
