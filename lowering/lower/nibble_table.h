// What a region computes of one 4-bit integer alone, as a table of 16 numbers:
//
//   let c = q[i, j] & 7, v = c < 4 ? 0.5 * f32(c) : c < 6 ? f32(c - 2) : f32(2 * c - 8)
//   w[i, j] = (q[i, j] >= 8 ? -v : v) * s[i]        q's values are those of {0, 0.5, 1, .., -4, -6}
//
// Four lookups share two permutations of bytes for each byte of the table's numbers, whatever the text computes.
#pragma once
#include <vector>

#include "ir/parallel.h"
#include "lowering/loop_ir/region_index.h"
#include "lowering/plan/packed_tiles.h"

namespace kachel::lowering {

struct NibbleTable {
  NibbleRead read;
  std::vector<double> values;  // of 0 .. 15, the bits of the integer; all are numbers of some 16-bit float type
};
// Nothing: it is no f32 that one nibble in shared memory decides, its values are no such numbers, or sums and products
// say it all.
std::optional<NibbleTable> nibble_table(const ir::ExprRef& expr, const RegionIndexes& indexes);

// The region's names, in order, without those that nothing but tables has a use for.
std::vector<const ir::LetStmt*> lets_beside_tables(const ir::ForwardedRegion& region, const RegionIndexes& indexes);

// Whether all are numbers of the type.
bool are_numbers(ir::DType type, const std::vector<double>& values);

}  // namespace kachel::lowering
