// A conformance case, lowered to PTX and executed without a GPU.
#pragma once
#include "lowering/lower.h"
#include "tests/conformance/prepared.h"
#include "tests/lowering/ptx_machine.h"

namespace kachel::lowering {

struct PtxCase {
  Lowered lowered;
  PtxProgram program;
};

// With the case's own number of threads and limit of shared memory, but for what the machine does not have.
// kUnsupported: it is compiled as CUDA C++, or has instructions that the machine does not know.
Result<PtxCase> lower_for_ptx(const conformance::Prepared& prepared);
conformance::Report ptx_case(const conformance::Prepared& prepared, const PtxCase& lowered, ThreadOrder order);

}  // namespace kachel::lowering
