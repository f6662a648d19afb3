// The kernel that adds up the parts of sums, an element at a time: where the tiles that the sums are made in are fixed,
// there may be one block of them, and one block would take longer over many parts than all took over making them.
#pragma once
#include <functional>
#include <string>

#include "derive/sum_loop.h"

namespace kachel::derive {

// Whether the kernel that goes on with the sum may add its parts up itself, in tiles of any extents. `free`: tunables
// that decide how work is cut and nothing else.
bool is_cut_at_will(const SumLoop::Sum& sum, const std::function<bool(const ir::Var&)>& free);

// `parts`: all parts of the sum, its first axis; `total`: a tensor of the other axes, for the sum. Parts are added in
// their order. `fresh`: gives names that the kernel's text does not have. REQUIRES: tiles of two axes.
ir::Kernel adder_of(const ir::Kernel& kernel, const SumLoop::Sum& sum, const ir::BufferRef& parts,
                    const ir::BufferRef& total, const std::function<std::string(std::string)>& fresh);

}  // namespace kachel::derive
