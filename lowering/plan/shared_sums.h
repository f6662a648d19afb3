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
// How many warps have to share every product, since warp groups share some: those that rows are enough for, or two
// groups, which may share columns. 0: as many as suit all.
int64_t warps_of_groups(const std::vector<const ir::GemmStmt*>& gemms, const Target& target);

struct SumShape {
  int64_t rows, columns;
};
// The smallest sums not below these that so many warps can share, where all of them in fewer warps would be more than a
// thread should have; else these. REQUIRES: multiples of an mma's rows and columns.
SumShape least_shared(SumShape sums, int64_t warps);

// The sums of `gemm` with so many further columns and rows that twice as many warp groups as there are can share them:
// what one group has no registers for. These, where that would be more than twice as many.
SumShape shared_by_groups(SumShape sums, const ir::GemmStmt& gemm, int64_t groups);

}  // namespace kachel::lowering
