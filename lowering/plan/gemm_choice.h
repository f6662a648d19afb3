// Instruction choice for gemms, and how the block's warps share a C tile.
#pragma once
#include <functional>
#include <optional>

#include "lowering/loop_ir/range.h"
#include "lowering/plan/placement.h"

namespace kachel::lowering {

struct WarpGrid {
  int64_t m = 1, n = 1, k = 1;
  int64_t copies = 1;  // of the grid, each with all of C
};
// Along which axes warps share a product.
enum class Sharing : uint8_t { kBoth, kRows, kColumns, kDepth };

// How `warps` warps share a rows x columns tile of mma.m16n8 with the least reading of operands. Nothing if the tile
// does not divide. REQUIRES: not kDepth.
std::optional<WarpGrid> warp_grid(int64_t rows, int64_t columns, int64_t warps, Sharing sharing);

// The same with as few copies as do, where the tile does not divide among all warps: to multiply twice by tensor cores
// takes less than once without. Nothing if it is no multiple of the instruction's.
std::optional<WarpGrid> copied_grid(int64_t rows, int64_t columns, int64_t warps);

// How they share k, each with all of C. Nothing if k does not divide, or if they could not share the sum's columns
// afterwards.
std::optional<WarpGrid> depth_grid(const ir::GemmStmt& gemm, const MmaShape& mma, int64_t warps);

// The same for warp groups and wgmma.m64nN, with the least reading of operands by its instructions.
std::optional<WarpGrid> group_grid(const ir::GemmStmt& gemm, int64_t groups, bool rows_only);

// Whether wgmma's sums are short and the program asks for more.
bool wants_runs(const ir::GemmStmt& gemm);

// Registers of 32 bits that a thread needs for the sum of a run; 0 without runs.
int64_t run_registers(const ir::GemmStmt& gemm, const GemmChoice& choice);

// The same for all of its fragments and runs, whether they live at the same time or not; and what there may be of those
// that do.
int64_t fragment_registers(const Placements& placements);
inline constexpr int64_t kFragmentRegisters = 216;  // of 255; the rest is for operands and addresses
// The latter for a block of so many threads that compute. Of four warp groups and more, whose registers are not parted
// anew between roles, wgmma's accumulators must leave what ptxas 13 asks for (C7602) beside them.
int64_t fragment_room(const std::map<const ir::GemmStmt*, GemmChoice>& gemms, int threads, int architecture);
inline constexpr int64_t kBesideAccumulators = 26;
// What is wrong with products of such a configuration, "": nothing. `registers`: of a thread that computes; 0: as many
// as there are.
std::string flaw_of_products(const Placements& placements, int registers);

// Without its accumulator or its left operand in registers a product has no tensor cores.
bool is_of_mma(const std::map<const ir::GemmStmt*, GemmChoice>& gemms, const ir::BufferRef& fragment);
// What warps that share k read from memory as well as others do: an operand of these products on their right, and no
// other part of them.
bool is_right_operand_alone(const std::vector<const ir::GemmStmt*>& gemms, const ir::BufferRef& buffer);

// Those that left operands of 8 bits take a second time, as instructions take them.
int64_t joined_registers(const Placements& placements);

// N of the wgmma for `columns` columns of a warp group: as wide as can be; 0 if they cannot be cut.
int64_t group_columns(const ir::GemmStmt& gemm, int64_t columns);

// Rows of C up to which a right operand that the block computes is better held in registers: every warp computes its
// columns of it and multiplies them with all rows. With more rows wgmma's rate is worth the way through shared memory.
inline constexpr int64_t kMostRowsOfColumns = 64;

// What the caller knows: where the operands live, and whether the sum of a run has room beside C.
struct GemmPlaces {
  bool a_in_registers = false, b_in_registers = false, room_for_runs = true;
  const Ranges* loops = nullptr;  // what is known of the loops around, for slices; null: nothing
};

// The best instruction for the types and the shape of a gemm; without mma, and with the reason, if there is none. B is
// in registers where that is asked for and an instruction takes it from there.
GemmChoice choose_gemm(const ir::GemmStmt& gemm, const Target& target, const GemmPlaces& places);

// Whether tensor cores multiply such types so, whatever the extents.
bool may_take_mma(const ir::GemmStmt& gemm, const Target& target);

// Whether dp4a multiplies a gemm that has no mma: both operands with k along their rows, in whole words.
bool takes_dot4(const ir::GemmStmt& gemm, int architecture);

// What becomes of sums that the instruction makes too short, once it is known whether that is wgmma.
void settle_sums(const ir::GemmStmt& gemm, int architecture, GemmChoice* choice);

}  // namespace kachel::lowering
