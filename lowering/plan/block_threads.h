// How many threads a block gets where the program does not say.
#pragma once
#include <functional>
#include <map>

#include "lowering/plan/gemm_choice.h"

namespace kachel::lowering {

// Along what the warps may share a gemm of mma.
using SharingOf = std::function<Sharing(const ir::GemmStmt&)>;

// `blocks`: that compute each tile together.
int choose_threads(const ir::Kernel& kernel, const std::map<const ir::GemmStmt*, GemmChoice>& choices,
                   const SharingOf& sharing_of, int blocks);

}  // namespace kachel::lowering
