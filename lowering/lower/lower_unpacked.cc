// Elements of 4 and 8 bits in shared tiles, which regions read as numbers: neighbours come together, and become floats
// of 16 bits by kUnpack, a pair at a time, where one at a time takes a load and a conversion each. See tile_lowering.h.
#include <algorithm>
#include <bit>

#include "lowering/lower/nibble_table.h"
#include "lowering/lower/tile_lowering.h"
#include "lowering/plan/packed_tiles.h"
#include "lowering/planted.h"

namespace kachel::lowering {

using ir::DType;
using ir::ExprKind;
using ir::ExprRef;
using Kind = LoopIntrinsic::Kind;

namespace {

constexpr int64_t kQuad = 4;  // lanes that share a word

// What an element of the region is unpacked from.
struct Source {
  const ir::Expr* load;
  ExprRef column;
  DType type;
};

std::optional<Source> nibble_source(const ir::Expr& expr) {
  const std::optional<NibbleRead> read = nibble_read(expr);
  if (!read) return std::nullopt;
  return Source{read->byte, read->column, read->type};
}

// An integer as a wider one.
bool is_widened(const ir::Expr& expr) {
  return expr.kind == ExprKind::kCast && expr.cast_type.dtype == DType::I32 && !ir::is_float(expr.args[0]->type) &&
         ir::bits(expr.args[0]->type) <= 32 && expr.args[0]->type != DType::U32;
}

std::optional<Source> byte_source(const ExprRef& expr) {
  const DType type = expr->kind == ExprKind::kLoad ? expr->buffer->type.dtype : DType::Bool;
  if (!is_unpacked(type) || ir::bits(type) != 8) return std::nullopt;
  return Source{expr.get(), expr->args.back(), type};
}

}  // namespace

// The outermost form of each: converted to floats, if it is.
void TileLowering::note_unpacked(const ExprRef& expr, const IsWritten& is_written, ReadsOfRegion* region) {
  std::optional<RegionRead> read = unpacked_read(expr, *region);
  if (!read || is_written(read->load->buffer)) {
    for (const ExprRef& arg : expr->args) note_unpacked(arg, is_written, region);
    return;
  }
  region->unpacked.insert(read->load);
  region->reads.push_back(std::move(*read));
}

// q[i, x + j], T(q[i, x + j]) or another function of 4 bits, of a shared tile.
std::optional<RegionRead> TileLowering::unpacked_read(const ExprRef& expr, const ReadsOfRegion& region) {
  const RegionIndexes& indexes = region.indexes;
  const FragmentLayout& layout = region.layout;
  const size_t rank = layout.shape().size();
  const bool converted = expr->kind == ExprKind::kCast && ir::is_float(expr->cast_type.dtype);
  ExprRef number = converted ? expr->args[0] : expr;
  while (converted && is_widened(*number)) number = number->args[0];
  std::optional<Source> source = nibble_source(*number);
  if (!source) source = byte_source(number);
  std::optional<NibbleTable> table;
  if (!source && (table = nibble_table(expr, indexes)))
    source = Source{table->read.byte, table->read.column, table->read.type};
  if (!source || layout.ragged(rank - 1)) return std::nullopt;
  const ir::BufferRef& tile = source->load->buffer;
  if (tile->scope != ir::Scope::kShared || in_registers(tile)) return std::nullopt;
  RegionRead read{source->load, {}, {}};
  read.value = expr.get();
  read.unpacked = source->type;
  if (table) read.table = std::move(table->values);
  const std::vector<ExprRef>& at = source->load->args;
  ExprRef base;  // of the column
  for (size_t i = 0; i < at.size(); ++i) {
    const bool column = i + 1 == at.size();
    read.indices.push_back(indexes.inlined(at[i]));
    const std::optional<RegionIndex> index = indexes.split(column ? indexes.inlined(source->column) : read.indices[i]);
    if (!index || (index->axis == rank - 1) != column) return std::nullopt;
    if (index->axis != RegionIndex::kNone) read.axes.push_back(index->axis);
    base = index->base;
  }
  const int64_t of_byte = 8 / ir::bits(source->type);
  int64_t multiple = 0;  // divides the column of the first iteration
  read.width = std::min({layout.vector(), of_byte * row_vector(placements_.at(tile.get()).layout, 1), kMostUnpacked});
  if (base) multiple = out_.ranges.multiple_of(scalar(base, nullptr));
  while (!std::has_single_bit(static_cast<uint64_t>(read.width)) || layout.vector() % read.width ||
         multiple % read.width)
    --read.width;
  if (read.width == 1) return std::nullopt;
  const bool numbers = converted || !read.table.empty();
  if (of_byte == 2 && numbers && read.width == 2 && layout.pairs_in_quads() && multiple % kNibbles == 0)
    join_words(region, multiple, &read);
  return read;
}

// A word of eight 4-bit integers has a pair for each of four lanes: they load the same one, and each takes its own.
void TileLowering::join_words(const ReadsOfRegion& region, int64_t multiple, RegionRead* read) {
  read->groups.assign(read->axes.size(), 1);
  read->groups.back() = kNibbles;
  read->words = 1;
  const FragmentLayout part = part_of(*read, region.layout).merged();
  read->words = std::min(row_vector(placements_.at(read->load->buffer.get()).layout, 1) / 4, part.vector());
  while (read->words && (part.vector() % read->words || multiple % (kNibbles * read->words))) --read->words;
  if (part.registers() > most_held()) read->words = 0;
  if (!read->words) read->groups.clear();
}

void TileLowering::unpack(const PackedOperand& to, const HeldRead& held, const PackedOperand* less) {
  const int64_t of_byte = 8 / ir::bits(held.read->unpacked);
  for (int64_t first = 0; first < to.elements; first += kMostUnpacked) {
    const int64_t count = std::min(kMostUnpacked, to.elements - first);
    LoopIntrinsic numbers{Kind::kUnpack, {}, nullptr};
    numbers.type = to.registers->type.dtype;
    numbers.type_b = held.read->unpacked;
    numbers.table = held.read->table;
    const ExprRef at = plus(held.first, int32(first / of_byte));
    const bool of_quad = held.read->words != 0;
    numbers.immediate = of_quad && !planted(Planted::kFirstOfQuad) ? kQuad : 0;
    numbers.operands = {{to.registers, plus(to.at, int32(first)), count, true},
                        {held.raw, at, numbers.immediate ? kQuad : count / of_byte, false}};
    if (less) numbers.operands.push_back({less->registers, less->at, 1, false});
    emit({std::move(numbers)});
  }
}

}  // namespace kachel::lowering
