#include "lowering/plan/gemm_choice.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/numerics.h"
#include "lowering/plan/operand_slices.h"

namespace kachel::lowering {
namespace {

// How far k goes.
int64_t depth_of(const ir::GemmStmt& gemm) {
  return operand_slice(gemm.a)->shape[gemm.transpose_a ? 0 : 1];
}

}  // namespace

std::optional<WarpGrid> warp_grid(int64_t rows, int64_t columns, int64_t warps, Sharing sharing) {
  std::optional<WarpGrid> best;
  for (int64_t m = 1; m <= warps; ++m) {
    if (warps % m || (sharing == Sharing::kRows && m != warps) || (sharing == Sharing::kColumns && m != 1)) continue;
    const WarpGrid grid{m, warps / m, 1};
    if (rows % (kMmaRows * grid.m) || columns % (kMmaColumns * grid.n)) continue;
    // Each warp reads its rows of A and its columns of B.
    if (!best || rows / grid.m + columns / grid.n < rows / best->m + columns / best->n) best = grid;
  }
  return best;
}

std::optional<WarpGrid> copied_grid(int64_t rows, int64_t columns, int64_t warps) {
  for (int64_t copies = 2; copies <= warps; ++copies) {
    if (warps % copies) continue;
    if (auto grid = warp_grid(rows, columns, warps / copies, Sharing::kBoth)) {
      grid->copies = copies;
      return grid;
    }
  }
  return std::nullopt;
}

std::optional<WarpGrid> depth_grid(const ir::GemmStmt& gemm, const MmaShape& mma, int64_t warps) {
  constexpr int64_t kMostBytes = 32 * 1024;  // of all parts, where they are added up
  const std::vector<int64_t> c = tile_shape(gemm.c.buffer);
  const int64_t k = depth_of(gemm);
  if (k % (mma.k * warps) || c[1] % (kMmaColumns * warps)) return std::nullopt;
  if (product(c) * ir::bits(gemm.c.buffer->type.dtype) / 8 * warps > kMostBytes) return std::nullopt;
  return WarpGrid{1, 1, warps};
}

bool wants_runs(const ir::GemmStmt& gemm) {
  return ir::is_float8(gemm.a.buffer->type.dtype) && gemm.precision != ir::Precision::kFast;
}

int64_t run_registers(const ir::GemmStmt& gemm, const GemmChoice& choice) {
  return choice.mma && choice.in_runs ? group_columns(gemm, tile_shape(gemm.c.buffer)[1] / choice.warps_n) / 2 : 0;
}

int64_t fragment_registers(const Placements& placements) {
  int64_t registers = 0;
  for (const auto& [tile, placement] : placements.tiles)
    if (placement.scope == ir::Scope::kRegister && !placement.turned)
      registers += (placement.elements() * ir::bits(placement.storage) + 31) / 32;
  for (const auto& [gemm, choice] : placements.gemms) registers += run_registers(*gemm, choice);
  return registers;
}

int64_t joined_registers(const Placements& placements) {
  int64_t registers = 0;
  for (const auto& [gemm, choice] : placements.gemms) {
    const ir::BufferRef& a = gemm->a.buffer;
    if (choice.a_in_registers && ir::bits(a->type.dtype) == 8) registers += placements.at(a.get()).elements() / 4;
  }
  return registers;
}

int64_t fragment_room(const std::map<const ir::GemmStmt*, GemmChoice>& gemms, int threads, int architecture) {
  constexpr int kManyGroups = 4 * kGroupThreads, kProducer = 32;
  const bool group = std::any_of(gemms.begin(), gemms.end(), [](const auto& one) { return one.second.group; });
  if (!group || threads < kManyGroups) return kFragmentRegisters;
  return std::min(kFragmentRegisters, most_registers(threads + kProducer, architecture) - kBesideAccumulators);
}

std::string flaw_of_products(const Placements& placements, int registers) {
  for (const auto& [gemm, choice] : placements.gemms)
    if (choice.crowded_out) return fmt::format("a product without tensor cores: {}", choice.reason);
  for (const auto& [gemm, choice] : placements.gemms) {
    if (!choice.group || !registers) continue;
    const int64_t sums = placements.at(gemm->c.buffer.get()).elements();
    if (sums + kBesideAccumulators > registers)
      return fmt::format("{} sums of a product in the {} registers of a thread", sums, registers);
  }
  return "";
}

bool is_of_mma(const std::map<const ir::GemmStmt*, GemmChoice>& gemms, const ir::BufferRef& fragment) {
  return std::any_of(gemms.begin(), gemms.end(), [&](const auto& one) {
    return one.second.mma && (one.first->c.buffer == fragment || one.first->a.buffer == fragment);
  });
}

bool is_right_operand_alone(const std::vector<const ir::GemmStmt*>& gemms, const ir::BufferRef& buffer) {
  bool right = false, other = false;
  for (const ir::GemmStmt* gemm : gemms) {
    right |= gemm->b.buffer == buffer;
    other |= gemm->a.buffer == buffer || gemm->c.buffer == buffer;
  }
  return right && !other;
}

int64_t group_columns(const ir::GemmStmt& gemm, int64_t columns) {
  // 8-bit integers know multiples of 16. With k down its rows B is cut at whole slabs, of which the last one may be
  // filled in part.
  const ir::DType type = gemm.b.buffer->type.dtype;
  const int64_t bytes = ir::bits(type) / 8, most = wants_runs(gemm) ? kRunColumns : kGroupMostColumns;
  const int64_t least = bytes == 1 && !ir::is_float(type) ? 16 : kMmaColumns;
  int64_t parts = (columns + most - 1) / most;
  const int64_t cut = gemm.transpose_b || parts == 1 ? least : kSlabBytes / bytes;
  if (columns % cut) return 0;
  while (columns % (parts * cut)) ++parts;
  return columns / parts;
}

std::optional<WarpGrid> group_grid(const ir::GemmStmt& gemm, int64_t groups, bool rows_only) {
  const std::vector<int64_t> shape = tile_shape(gemm.c.buffer);
  const int64_t element_bytes = ir::bits(gemm.b.buffer->type.dtype) / 8;
  std::optional<WarpGrid> best;
  int64_t least = 0;
  for (int64_t m = 1; m <= groups; ++m) {
    if (groups % m || (rows_only && m != groups)) continue;
    const WarpGrid grid{m, groups / m, 1};
    const bool cuts_slabs = grid.n > 1 && !gemm.transpose_b && shape[1] / grid.n * element_bytes % kSlabBytes;
    if (shape[0] % (kGroupRows * grid.m) || shape[1] % grid.n || cuts_slabs) continue;
    const int64_t width = group_columns(gemm, shape[1] / grid.n);
    if (!width) continue;
    const int64_t read = shape[0] / kGroupRows * (shape[1] / width) * (kGroupRows + width);
    if (!best || read < least) best = grid, least = read;
  }
  return best;
}

namespace {

// All of a tile, or a part of one in memory. `k_down`: k goes down its rows, so that neighbours of a row are columns of
// the product, which wgmma reads in whole slabs; else a row begins with some 32 bytes of k.
bool is_operand(const ir::TileRef& ref, bool k_down, const Ranges* loops) {
  const Ranges nothing;
  return is_whole(ref) ||
         is_aligned_slice(ref, loops ? *loops : nothing, k_down ? int64_t{kSlabBytes} : int64_t{kMmaBytes});
}

// Whether it begins elsewhere than its tile.
bool begins_further(const ir::TileRef& ref) {
  const std::optional<OperandSlice> slice = operand_slice(ref);
  return slice && (slice->starts[0] || slice->starts[1]);
}

// Whether operands may lie with k down their rows.
bool reads_down(const MmaShape& mma) {
  return mma.load_transposed || ir::bits(mma.a) == 32;
}

// Why wgmma cannot be used although the types would allow it; "" if it can.
std::string no_group(const ir::GemmStmt& gemm, const std::vector<int64_t>& c, bool a_in_registers) {
  auto row_bytes = [](const ir::BufferRef& tile) { return tile_shape(tile)[1] * ir::bits(tile->type.dtype) / 8; };
  if (c[0] % kGroupRows) return fmt::format("wgmma wants whole blocks of {} rows", kGroupRows);
  if (!group_columns(gemm, c[1])) return fmt::format("wgmma has no form for {} columns", c[1]);
  for (const ir::BufferRef& tile : {gemm.a.buffer, gemm.b.buffer})
    if (row_bytes(tile) % 16 && !(tile == gemm.a.buffer && a_in_registers))
      return fmt::format("wgmma reads no rows of {} bytes, as {} has", row_bytes(tile), tile->name);
  return "";
}

}  // namespace

void settle_sums(const ir::GemmStmt& gemm, int architecture, GemmChoice* choice) {
  if (!choice->mma || !choice->mma->short_sums) return;
  // One that begins anew and is no longer than a run is a run itself.
  const bool is_run = !gemm.accumulate && depth_of(gemm) <= ir::kF8Run;
  choice->in_runs = choice->group && wants_runs(gemm) && !is_run;
  choice->widened = !choice->group && (wants_runs(gemm) || !has_float8_mma(architecture));
  if (choice->reason.empty() && (choice->in_runs || (choice->widened && has_float8_mma(architecture))))
    choice->reason = fmt::format("`precision fast` would {}", choice->group ? "leave out the runs" : "not widen");
}

bool may_take_mma(const ir::GemmStmt& gemm, const Target& target) {
  const ir::BufferRef &a = gemm.a.buffer, &b = gemm.b.buffer, &c = gemm.c.buffer;
  if (a->shape.size() != 2 || b->shape.size() != 2 || c->shape.size() != 2) return false;
  const char* reason = "";
  const MmaShape* mma =
      find_mma(target.architecture, a->type.dtype, b->type.dtype, c->type.dtype, gemm.precision, &reason);
  return mma && (reads_down(*mma) || (!gemm.transpose_a && gemm.transpose_b));
}

bool takes_dot4(const ir::GemmStmt& gemm, int architecture) {
  const ir::BufferRef &a = gemm.a.buffer, &b = gemm.b.buffer;
  return !gemm.transpose_a && gemm.transpose_b && is_whole(gemm.a) && is_whole(gemm.b) && a->shape.size() == 2 &&
         b->shape.size() == 2 && tile_shape(a)[1] % 4 == 0 &&
         has_dot4(architecture, a->type.dtype, b->type.dtype, gemm.c.buffer->type.dtype);
}

GemmChoice choose_gemm(const ir::GemmStmt& gemm, const Target& target, const GemmPlaces& places) {
  GemmChoice choice;
  const bool a_in_registers = choice.a_in_registers = places.a_in_registers;
  const ir::BufferRef &a = gemm.a.buffer, &b = gemm.b.buffer, &c = gemm.c.buffer;
  auto is_usable = [&](const ir::TileRef& ref) {
    if (ref.buffer->shape.size() != 2) return false;
    if (&ref == &gemm.c) return is_whole(ref);
    const bool left = &ref == &gemm.a, in_registers = left ? places.a_in_registers : places.b_in_registers;
    return in_registers ? is_whole(ref) : is_operand(ref, left ? gemm.transpose_a : !gemm.transpose_b, places.loops);
  };
  for (const ir::TileRef* ref : {&gemm.a, &gemm.b, &gemm.c})
    if (!is_usable(*ref)) {
      choice.reason = fmt::format("a slice of {} is used", ref->buffer->name);
      return choice;
    }
  const char* reason = "";
  const MmaShape* mma =
      find_mma(target.architecture, a->type.dtype, b->type.dtype, c->type.dtype, gemm.precision, &reason);
  if (!mma) {
    choice.reason = reason;
    return choice;
  }
  const std::vector<int64_t> shape = tile_shape(c);
  const int64_t k = depth_of(gemm);
  const bool words = ir::bits(mma->a) == 32, k_down = gemm.transpose_a || !gemm.transpose_b;
  const bool groups = target.group_products && has_group_mma(target.architecture);
  if (shape[0] % kMmaRows || shape[1] % kMmaColumns || k % mma->k)
    choice.reason = fmt::format("{} x {} x {} is no multiple of the instruction's {} x {} x {}", shape[0], shape[1], k,
                                kMmaRows, kMmaColumns, mma->k);
  else if (a_in_registers && (gemm.transpose_a || (words && !k_down && groups)))
    choice.reason = fmt::format("{} cannot be an operand in registers", a->name);
  else if (k_down && !reads_down(*mma))
    choice.reason = "8-bit operands cannot be stored with k down their rows";
  else
    choice.mma = mma;
  if (!choice.mma) return choice;
  choice.by_words = words && (k_down || a_in_registers);
  if (choice.by_words && (begins_further(gemm.a) || begins_further(gemm.b))) {
    choice.mma = nullptr;
    choice.reason = "parts of tiles are read along k only, of 32-bit elements";
    return choice;
  }
  choice.in_pairs = choice.by_words && (a_in_registers || gemm.transpose_a);
  if (choice.by_words) {
    if (groups) choice.reason = "wgmma reads 32-bit operands along k, from memory";
    return choice;
  }
  choice.b_in_registers = places.b_in_registers && !a_in_registers && ir::bits(a->type.dtype) == 16 &&
                          ir::bits(b->type.dtype) == 16 && shape[0] <= kMostRowsOfColumns;
  if (choice.b_in_registers) return choice;
  if (groups) {
    choice.reason = !wants_runs(gemm) || places.room_for_runs ? no_group(gemm, shape, a_in_registers)
                                                              : "no registers are left for the sums of runs";
    choice.group = choice.reason.empty();
  }
  settle_sums(gemm, target.architecture, &choice);
  return choice;
}

}  // namespace kachel::lowering
