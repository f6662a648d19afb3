// How many registers the fragments of a block take at once. A fragment lives from the statement that sets it to the last
// one that reads it; in a loop, throughout where an iteration sees what another one left. A region that reads one
// fragment for the last time and sets another one does so element by element, in the registers that come free.
#pragma once
#include <cstdint>
#include <map>

#include "ir/kernel.h"

namespace kachel::lowering {

// `registers`: of each fragment, as many as a thread holds of it. What is not there takes none.
int64_t live_registers(const ir::Kernel& kernel, const std::map<const ir::Buffer*, int64_t>& registers);

}  // namespace kachel::lowering
