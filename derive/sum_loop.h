// The loop of a kernel whose sums, of products or of what regions add up, may be dealt out to several blocks
// (split_sums.h). Extremes that regions take are sums here: of parts, too, the extreme is taken.
#pragma once
#include <optional>
#include <vector>

#include "ir/kernel.h"

namespace kachel::derive {

struct SumLoop {
  struct Axis {
    ir::VarRef var;   // of the grid, which counts its tiles; null: the tile has all of it
    ir::ExprRef all;  // elements
  };
  struct Sum {
    ir::BufferRef tile;
    std::vector<ir::IterVar> free;  // the other axes of the grid
    std::vector<Axis> axes;
    ir::Op op = ir::Op::kAdd;  // or kMax, kMin
    ir::ExprRef begin;         // what its elements are at first, in each part: 0, or of extremes any number
  };
  size_t at = 0;  // the loop's place in the body
  // Where a tunable decides how many iterations there are, `ceildiv(all, each)` of them; null: none does.
  ir::ExprRef all, each;
  int64_t unit = 1;  // a multiple of all values of that tunable
  std::vector<Sum> sums;
};

// Nothing where the kernel has no such loop. REQUIRES: verify() has passed the kernel.
std::optional<SumLoop> sum_loop(const ir::Kernel& kernel);

}  // namespace kachel::derive
