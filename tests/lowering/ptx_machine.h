// Executes PTX without a GPU: what lowering/emit/ptx writes for kernels whose threads all do the same, which leaves out
// the copy engine, its barriers of phases and wgmma. Each lane of a warp runs alone from one instruction of
// the warp to the next, each warp from one barrier of the block to the next. An asynchronous copy is done when its
// thread waits for it and not before. Every access is checked: it must lie in a tensor, the workspace or the block's
// shared memory and be aligned to its width. What was never written has a pattern of its own.
#pragma once
#include <string_view>

#include "tests/lowering/ptx_machine_program.h"
#include "tests/lowering/simulate.h"

namespace kachel::lowering {

// What is between the braces of the text's asm statement; empty: it has none.
std::string_view ptx_of(std::string_view text);

// One instruction, label or declaration a line. kUnsupported: an instruction that the machine does not have.
Result<PtxProgram> parse_ptx(std::string_view body);

struct PtxLaunch {
  std::vector<int64_t> params;     // one a slot of 8 bytes
  std::vector<Allocation> memory;  // that the kernel may access
  uint32_t threads = 32, blocks = 1;
  uint32_t cluster = 1;  // blocks of one, all of whose threads wait at a barrier
  int64_t shared_bytes = 0;
  ThreadOrder order = ThreadOrder::kForward;
  int64_t budget = int64_t{1} << 26;  // instructions of a thread
};

// Clusters run one after another. kInternal, with the instruction: threads part ways, an access that is not allowed, a
// thread that does not end.
Status run_ptx(const PtxProgram& program, const PtxLaunch& launch);

}  // namespace kachel::lowering
