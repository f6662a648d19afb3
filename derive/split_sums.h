// Kernels whose loop over k is dealt out to several blocks, for grids of few tiles and long sums.
//
// A kernel is split where one loop of its body adds products to tiles that begin at 0, or regions add to elements of
// theirs or take extremes in them, and it carries nothing else from one iteration to the next: a first kernel, with one
// more axis of its grid, adds up a part of the iterations and writes the sums; a second one adds the parts, in their
// order, and goes on behind the loop. Where the sums lie, and which elements a part adds up, must not depend on how
// either cuts the work: extents of sums are free tunables (free_tunables.h) or none, and parts begin at multiples of
// every extent that tiles may have along k. Where there are such extents as are not free, a kernel between the two adds
// the parts up (adder.h).
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "derive/fixed_extents.h"
#include "derive/sum_loop.h"

namespace kachel::derive {

struct SumParts {
  int64_t parts = 1;
  int64_t most_extent = kMostExtent;  // of tiles of sums that no free tunable decides (fixed_extents.h)
  // The type of a tile of sums, which tensors cannot name as tiles do (`acc(T)`); null: of a tile that names it.
  std::function<ir::DType(const ir::Buffer& tile)> type;
};
struct SplitKernels {
  ir::Kernel part;
  std::vector<ir::Kernel> adders;  // in any order, behind `part`
  ir::Kernel combine;
  std::vector<ir::BufferRef> sums;  // tensors between them, kInOut
};
// Nothing where a condition that one of them cannot state keeps a tunable of its to what is right. `fresh`: gives names
// that the kernel's text does not have. REQUIRES: `loop` is the kernel's, parts.parts > 1.
std::optional<SplitKernels> split_sums(const ir::Kernel& kernel, const SumLoop& loop, const SumParts& parts,
                                       const std::function<std::string(std::string)>& fresh);

}  // namespace kachel::derive
