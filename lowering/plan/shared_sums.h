// How far a product's sums have to reach for all warps of a block to have a part of them.
#pragma once
#include <vector>

#include "ir/kernel.h"
#include "lowering/lower.h"

namespace kachel::lowering {

constexpr int64_t rounded_up(int64_t extent, int64_t unit) {
  return (extent + unit - 1) / unit * unit;
}

// The warp groups that rows are enough for in all products of whole blocks of 64 rows; 0: there is no such product.
int64_t groups_of_rows(const std::vector<const ir::GemmStmt*>& gemms, const Target& target);

struct SumShape {
  int64_t rows, columns;
};
// The warps of all groups, or of two, which may share columns; without groups those that a block is asked to have, if it
// is asked for any.
int64_t warps_that_share(int64_t groups, const Target& target);
// For a block of so many warps or groups, 0 of which leave sums as they are. REQUIRES: multiples of an mma's rows and
// columns.
//
// least_shared: the smallest sums not below these that all warps have a part of, where all of them in fewer warps would
// be more than a thread should have. shared_by_groups: with so many further rows and columns that twice as many groups
// can share them; these, where that would be more than twice as many.
SumShape least_shared(SumShape sums, int64_t warps);
SumShape shared_by_groups(SumShape sums, const ir::GemmStmt& gemm, int64_t groups);

}  // namespace kachel::lowering
