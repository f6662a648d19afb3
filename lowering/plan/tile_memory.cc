#include "lowering/plan/tile_memory.h"

#include <algorithm>
#include <bit>
#include <set>

#include "lowering/machine/machine.h"
#include "lowering/plan/row_access.h"

namespace kachel::lowering {
namespace {

constexpr int64_t kLeastGapped = 1024;  // bytes

// Rows that begin an odd number of `unit` elements apart.
Layout odd_units_apart(const std::vector<int64_t>& shape, int64_t unit) {
  return Layout::padded(shape, ((shape.back() + unit - 1) / unit | 1) * unit);
}

// 16-byte accesses where rows are made of them; else rows an odd number of words apart, which puts a column in
// different banks; what nothing accesses `across` its rows needs neither. Rows of a few bytes lie without gaps: columns
// whose neighbours share words meet no more often, and both axes can be copied as one. So do pairs of words, as complex
// numbers are, of which whoever needs one needs the other and gets both at once. What is accessed at places made of
// `bits` may lie a power of two apart for each lane.
Layout plain_layout(const std::vector<int64_t>& shape, ir::DType type, bool across, bool bits) {
  const int64_t bytes = std::max(1, ir::bits(type) / 8);
  const bool one_row = shape.size() < 2 || product(shape) == shape.back();
  const int64_t row = one_row ? bytes : shape.back() * bytes;  // what lies beside its like
  if (bits && row <= 8 && std::has_single_bit(static_cast<uint64_t>(row)) && product(shape) * bytes >= kLeastGapped)
    return Layout::gapped(shape, bytes);
  if (one_row) return Layout::row_major(shape);
  if (row % 16 == 0) return across ? Layout::conflict_free(shape, bytes) : Layout::row_major(shape);
  if (row == 8 || (row < 16 && row % 4)) return Layout::row_major(shape);
  return odd_units_apart(shape, std::max<int64_t>(1, 4 / bytes));
}

bool fits_slabs(const ir::BufferRef& tile) {
  if (tile->shape.size() != 2 || ir::bits(tile->type.dtype) < 8) return false;
  const int64_t rows = tile_shape(tile)[0], bytes = tile_shape(tile)[1] * ir::bits(tile->type.dtype) / 8;
  // The pattern of the swizzle is eight rows high, and every slab begins with it.
  return bytes == 32 || bytes == 64 || bytes == kSlabBytes || (bytes % kSlabBytes == 0 && rows % 8 == 0);
}

}  // namespace

void lay_out_memory(const ir::Kernel& kernel, const Target& target, const Schedule& schedule, Placements* placements) {
  const BufferSet across = accessed_across(kernel, *placements), by_bits = accessed_by_bits(kernel);
  for (const ir::Stmt& stmt : kernel.body) {
    const auto* decl = std::get_if<ir::DeclStmt>(&stmt.node);
    if (!decl) continue;
    Placement& placement = placements->tiles.at(decl->buffer.get());
    if (placement.scope == ir::Scope::kShared)
      placement.layout = plain_layout(tile_shape(decl->buffer), placement.storage, across.count(decl->buffer.get()),
                                      by_bits.count(decl->buffer.get()));
  }
  // Of which products read the first columns by ldmatrix, 16 bytes of a row at once.
  for (const auto& [gemm, choice] : placements->gemms)
    for (const ir::BufferRef& operand : {gemm->a.buffer, gemm->b.buffer}) {
      Placement& placement = placements->tiles.at(operand.get());
      const int bits = ir::bits(placement.storage);
      const bool by_matrices = choice.mma && !choice.group && placement.scope == ir::Scope::kShared && bits <= 16;
      if (by_matrices && bits >= 8 && tile_shape(operand).back() * bits % 128 != 0)
        placement.layout = odd_units_apart(tile_shape(operand), 128 / bits);
    }
  std::set<const ir::Buffer*> k_down;  // read by wgmma with k down their rows, from whole slabs
  for (const auto& [gemm, choice] : placements->gemms) {
    if (choice.group && gemm->transpose_a) k_down.insert(gemm->a.buffer.get());
    if (choice.group && !gemm->transpose_b) k_down.insert(gemm->b.buffer.get());
  }
  auto in_slabs = [&](const ir::BufferRef& tile) {
    Placement& placement = placements->tiles.at(tile.get());
    if (placement.scope != ir::Scope::kShared) return;
    placement.layout = Layout::slabs(tile_shape(tile), ir::bits(placement.storage) / 8, k_down.count(tile.get()));
    placement.alignment = 1024;  // the pattern of the largest swizzle
  };
  for (const auto& [gemm, choice] : placements->gemms)
    if (choice.group) in_slabs(gemm->a.buffer), in_slabs(gemm->b.buffer);
  // What the copy engine could fill lies as it does.
  if (target.bulk_copies && has_group_mma(target.architecture))
    for (const Pipeline& pipeline : schedule.pipelines)
      for (const ir::BufferRef& tile : pipeline.buffers)
        if (fits_slabs(tile)) in_slabs(tile);
}

}  // namespace kachel::lowering
