// The body of a pipelined loop that unpacks left operands of wgmma into registers, cut in two along k: while the
// products of one half run, the other half is unpacked.
#pragma once
#include <optional>
#include <vector>

#include "lowering/loop_ir/range.h"
#include "lowering/passes/group_batches.h"

namespace kachel::lowering {

struct Halves {
  // In the order of the body: what stands in front of the unpacking, that of the first half and of the second one, and
  // what stands behind it; then the products of each half.
  LoopBlock before, first, second, behind, first_products, second_products;
  std::vector<ir::BufferRef> left;  // of which a half has the first elements, the other one the rest
};
// `ranges`: of the kernel.
std::optional<Halves> product_halves(const LoopPipeline& node, const Ranges& ranges);

}  // namespace kachel::lowering
