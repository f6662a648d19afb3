// Copies and fills. A slice is resolved to one list of offsets for each tile axis, in which elements outside the tensor
// or outside `within` are marked; elements are then matched by walking both slices' lists together.
#include "ir/interpreter.h"

namespace kachel::ir {

void Interpreter::resolve_axis(const TileInfo& tile, size_t axis, const Cell& first, const Cell& length, bool bounded,
                               std::vector<int64_t>& positions, bool& unknown) {
  const TileAxis& spec = tile.axes[axis];
  const Memory& memory = memories_[static_cast<size_t>(tile.memory)];
  const auto number = static_cast<int>(axis);
  positions.resize(static_cast<size_t>(spec.extent));
  const auto place = [&](const Cell& index) {
    if (index.e != 0) return kUnknown;
    bool inside = static_cast<uint64_t>(index.i) < static_cast<uint64_t>(memory.extent(number));
    if (!inside) return kOutside;
    if (bounded && (first.e != 0 || length.e != 0)) return kUnknown;
    // Both bounds may be anything; the comparisons below cannot overflow for an index inside.
    if (bounded && (index.i < first.i || length.i <= 0 ||
                    static_cast<uint64_t>(index.i) - static_cast<uint64_t>(first.i) >= static_cast<uint64_t>(length.i)))
      return kOutside;
    return index.i * memory.stride(number);
  };
  if (spec.kind == AxisSpec::Kind::kGather) {
    const TileInfo& indices = program_.tiles[static_cast<size_t>(spec.gather)];
    Place where;
    resolve(indices, where);
    Memory& from = memories_[static_cast<size_t>(indices.memory)];
    for (int64_t i = 0; i < spec.extent; ++i) {
      int64_t offset = where.axes[0][static_cast<size_t>(i)];
      Cell index = Cell::integer(-1);  // an index that is itself outside selects nothing
      if (where.base == kUnknown || offset == kUnknown)
        index = Cell::undecided();
      else if (!where.outside && offset != kOutside)
        index = from.load(where.base + offset, block_);
      positions[static_cast<size_t>(i)] = place(index);
    }
  } else {
    Cell start = spec.kind == AxisSpec::Kind::kRange ? at(spec.start) : Cell::integer(0);
    for (int64_t i = 0; i < spec.extent; ++i) {
      auto index = static_cast<int64_t>(static_cast<uint64_t>(start.i) + static_cast<uint64_t>(i));
      positions[static_cast<size_t>(i)] = place(Cell::integer(index, start.e));
    }
  }
  for (int64_t position : positions) unknown |= position == kUnknown;
}

void Interpreter::resolve(const TileInfo& tile, Place& place) {
  evaluate(tile.code);
  place.base = 0;
  place.outside = place.unknown = false;
  place.axes.resize(tile.extents.size());
  size_t next = 0;
  for (size_t axis = 0; axis < tile.axes.size(); ++axis) {
    const TileAxis& spec = tile.axes[axis];
    const Memory& memory = memories_[static_cast<size_t>(tile.memory)];
    const auto number = static_cast<int>(axis);
    if (spec.kind != AxisSpec::Kind::kIndex) {
      bool bounded = next == 0 && tile.within_first >= 0;
      Cell first = bounded ? at(tile.within_first) : Cell::integer(0);
      Cell length = bounded ? at(tile.within_length) : Cell::integer(0);
      resolve_axis(tile, axis, first, length, bounded, place.axes[next++], place.unknown);
      continue;
    }
    const Cell& index = at(spec.start);
    if (index.e != 0) {
      place.unknown = true;
      place.base = kUnknown;
    } else if (static_cast<uint64_t>(index.i) >= static_cast<uint64_t>(memory.extent(number))) {
      place.outside = true;
    } else if (place.base != kUnknown) {
      place.base += index.i * memory.stride(number);
    }
  }
}

// fn(dst offset, src offset) for every element; offsets may be kOutside or kUnknown.
template <class Fn>
void Interpreter::each_element(const Place& dst, const Place& src, const Fn& fn) {
  const size_t rank = dst.axes.size();
  const auto start = [](const Place& place) { return place.outside ? kOutside : place.base; };
  const auto step = [](int64_t base, int64_t position) {
    if (base == kOutside || position == kOutside) return kOutside;
    return base == kUnknown || position == kUnknown ? kUnknown : base + position;
  };
  if (rank == 0) return fn(start(dst), start(src));
  size_t index[5] = {};
  for (;;) {
    int64_t to = start(dst), from = start(src);
    for (size_t axis = 0; axis + 1 < rank; ++axis) {
      to = step(to, dst.axes[axis][index[axis]]);
      from = step(from, src.axes[axis][index[axis]]);
    }
    const std::vector<int64_t>&last_to = dst.axes[rank - 1], &last_from = src.axes[rank - 1];
    for (size_t i = 0; i < last_to.size(); ++i) fn(step(to, last_to[i]), step(from, last_from[i]));
    size_t axis = rank - 1;
    for (;; --axis) {
      if (axis == 0) return;
      if (++index[axis - 1] < dst.axes[axis - 1].size()) break;
      index[axis - 1] = 0;
    }
  }
}

void Interpreter::write_tile(const Place& dst, int memory, AtomicOp atomic, bool once, int64_t offset,
                             const Cell& value) {
  Memory& to = memories_[static_cast<size_t>(memory)];
  if (offset == kOutside || dst.unknown) return;
  if (atomic != AtomicOp::kNone)
    to.combine(atomic, offset, value, block_, false);
  else if (once)
    to.store_once(offset, value, block_, false, serial_, ++iteration_);
  else
    to.store(offset, value, block_, false);
}

namespace {

// Only a gather can select one element twice.
bool has_gather(const TileInfo& tile) {
  for (const TileAxis& axis : tile.axes)
    if (axis.kind == AxisSpec::Kind::kGather) return true;
  return false;
}

int64_t elements(const TileInfo& tile) {
  int64_t total = 1;
  for (int64_t extent : tile.extents) total *= extent;
  return total;
}

}  // namespace

void Interpreter::copy(const Node& node) {
  const TileInfo& dst = program_.tiles[static_cast<size_t>(node.tiles[0])];
  const TileInfo& src = program_.tiles[static_cast<size_t>(node.tiles[1])];
  if (!spend(elements(dst) + 1)) return;
  Place &to = places_[0], &from = places_[1];
  resolve(dst, to);
  resolve(src, from);
  Memory& source = memories_[static_cast<size_t>(src.memory)];
  const DType src_type = source.type(), dst_type = memories_[static_cast<size_t>(dst.memory)].type();
  const DType held = compute_type(src_type);
  const bool converts = src_type != dst_type;
  if (to.unknown) memories_[static_cast<size_t>(dst.memory)].taint(block_);
  Cell pad = Cell::integer(0);
  if (src.pad >= 0) pad = convert_cell(at(src.pad), held, src_type);
  const bool once = has_gather(dst);
  ++serial_;
  iteration_ = 0;
  each_element(to, from, [&](int64_t dst_offset, int64_t src_offset) {
    Cell value = src_offset == kOutside   ? pad
                 : src_offset == kUnknown ? Cell::undecided()
                                          : source.load(src_offset, block_);
    if (converts) value = convert_cell(value, held, dst_type);
    write_tile(to, dst.memory, node.atomic, once, dst_offset, value);
  });
}

void Interpreter::fill(const Node& node) {
  const TileInfo& dst = program_.tiles[static_cast<size_t>(node.tiles[0])];
  if (!spend(elements(dst) + 1)) return;
  evaluate(node.value.code);
  Memory& memory = memories_[static_cast<size_t>(dst.memory)];
  Cell value = convert_cell(at(node.value.slot), compute_type(memory.type()), memory.type());
  Place& to = places_[0];
  resolve(dst, to);
  if (to.unknown) memory.taint(block_);
  each_element(to, to,
               [&](int64_t offset, int64_t) { write_tile(to, dst.memory, AtomicOp::kNone, false, offset, value); });
}

}  // namespace kachel::ir
