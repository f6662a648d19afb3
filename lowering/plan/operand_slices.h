// Parts of tiles in memory that products read: `a[:, k*BK +: BK] @ w^T`, of rows that a block keeps, and
// `b[64 +: 64, :]`.
#pragma once
#include <array>
#include <optional>

#include "lowering/loop_ir/range.h"

namespace kachel::lowering {

struct OperandSlice {
  std::array<int64_t, 2> shape = {};
  std::array<ir::ExprRef, 2> starts;  // null: 0
};
// Of a tile of two axes, all of it included; nothing where an axis is named by an index or by numbers.
std::optional<OperandSlice> operand_slice(const ir::TileRef& ref);

// Whether tensor cores can read it as they read a whole tile: it lies within the tile, and begins with eight rows and
// with `row_bytes` of a row.
bool is_aligned_slice(const ir::TileRef& ref, const Ranges& loops, int64_t row_bytes);

// What the loops around say of their names, as far as extents are constant.
void note_loop_ranges(const ir::Block& body, Ranges* ranges);

}  // namespace kachel::lowering
