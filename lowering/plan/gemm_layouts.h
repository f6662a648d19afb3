// The layouts that the instruction of a product demands of its fragments.
#pragma once
#include "lowering/plan/gemm_choice.h"

namespace kachel::lowering {

// C of a product, or a left operand in registers, which lies as C does. `group`: of wgmma.
FragmentLayout accumulator_layout(bool group, const std::vector<int64_t>& shape, const WarpGrid& grid);
// A right operand in registers, of mma.sync.
FragmentLayout right_operand_layout(const ir::GemmStmt& gemm, int64_t warps);
// C of a product by fma. Neighbours of an axis in one thread where an operand has them beside each other. Where rows of
// k are loaded neighbours are those of other threads: eight rows lie in different banks. But so many columns beside
// each other, `together`, that regions use at once, have one thread.
FragmentLayout fma_layout(const ir::GemmStmt& gemm, int64_t threads, int64_t together);

}  // namespace kachel::lowering
