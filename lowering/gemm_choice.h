// Instruction choice for gemms, and how the block's warps share a C tile.
#pragma once
#include <functional>
#include <optional>

#include "lowering/placement.h"

namespace kachel::lowering {

struct WarpGrid {
  int64_t m = 1, n = 1;
};
// How `warps` warps share a rows x columns tile of mma.m16n8 with the least reading of operands; along the rows alone if
// `rows_only`. Nothing if the tile does not divide.
std::optional<WarpGrid> warp_grid(int64_t rows, int64_t columns, int64_t warps, bool rows_only);

// The same for warp groups and wgmma.m64nN, with the least reading of operands by its instructions.
std::optional<WarpGrid> group_grid(const ir::GemmStmt& gemm, int64_t groups, bool rows_only);

// Whether wgmma's sums are short and the program asks for more.
bool wants_runs(const ir::GemmStmt& gemm);

// Registers of 32 bits that a thread needs for the sum of a run; 0 without runs.
int64_t run_registers(const ir::GemmStmt& gemm, const GemmChoice& choice);

// N of the wgmma for `columns` columns of a warp group: as wide as can be; 0 if they cannot be cut.
int64_t group_columns(const ir::GemmStmt& gemm, int64_t columns);

// The best instruction for the types and the shape of a gemm; without mma, and with the reason, if there is none.
// `a_in_registers` as asked for: the caller knows where A lives, and whether the sum of a run has room beside C.
GemmChoice choose_gemm(const ir::GemmStmt& gemm, const Target& target, bool a_in_registers, bool room_for_runs = true);

// What becomes of sums that the instruction makes too short, once it is known whether that is wgmma.
void settle_sums(const ir::GemmStmt& gemm, int architecture, GemmChoice* choice);

}  // namespace kachel::lowering
