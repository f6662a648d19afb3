// How many threads a block gets where the program does not say.
#pragma once
#include <functional>
#include <map>

#include "lowering/plan/gemm_choice.h"

namespace kachel::lowering {

// `rows_only`: whether the warps may share the gemm's C along its rows alone.
int choose_threads(const ir::Kernel& kernel, const std::map<const ir::GemmStmt*, GemmChoice>& choices,
                   const std::function<bool(const ir::GemmStmt&)>& rows_only);

}  // namespace kachel::lowering
