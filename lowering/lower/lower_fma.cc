// gemm by fused multiply-add and by dp4a: C in registers, an outer product of rows and columns in each thread. See
// tile_lowering.h.
//
// A step takes a few k. It loads them for each row and each column of the thread first, by the widest accesses that the
// tiles allow: where rows of a tile go along k the elements of one row, else neighbouring rows or columns of C for each
// k. Then it multiplies every row with every column, k by k, so that a sum adds up in the order of k. Both halves are
// unrolled, and the compiler moves the loads of a step above the products of the one before. Layout inference deals C
// out so that the loads of a warp meet no bank of shared memory twice.
#include <algorithm>

#include "lowering/lower/tile_lowering.h"
#include "lowering/planted.h"

namespace kachel::lowering {

using ir::DType;
using ir::ExprRef;
using ir::Op;
using Kind = LoopIntrinsic::Kind;

namespace {

// Products and conversions of a thread, and steps, that are unrolled at once. Fewer spend more on swizzled addresses,
// which repeat from one step of 16-byte chunks to another; more do not fit the instruction cache.
constexpr int64_t kMostOperations = 1024, kMostSteps = 16;
// Registers of 32 bits for what a step loads of one operand.
constexpr int64_t kMostLoaded = 64;

}  // namespace

BlockSide TileLowering::block_side(const Slice& slice, const FragmentLayout& layout, size_t axis, bool k_last,
                                   DType sum) {
  const FragmentLayout::Axis& digits = layout.axes()[axis];
  BlockSide side{&slice, &digits, layout.shape()[axis], 1, k_last, layout.ragged(axis), slice.ref->buffer->type.dtype};
  ExprRef first;
  int64_t scale = 1, strip = 0;
  for (const FragmentLayout::Digit& digit : digits) {
    if (digit.in_thread) {
      first = plus(first, times(digit_of(ir::make_var(out_.thread), digit, out_.threads), scale));
    } else {
      side.count *= digit.radix;
    }
    if (scale == 1) strip = digit.in_thread ? 1 : digit.radix;
    scale *= digit.radix;
  }
  side.first =
      first ? let(axis == 0 ? "first_row" : "first_column", ir::make_cast({DType::I64, nullptr}, first)) : int64(0);
  if (ir::bits(side.type) >= 8 && !slice.ref->pad) {
    side.width = vector_width(slice);
    auto too_wide = [&] {
      return k_last ? side.count * side.width * ir::bits(side.type) > 32 * kMostLoaded : strip % side.width != 0;
    };
    while (side.width > 1 && too_wide()) side.width /= 2;
  }
  if (side.width == 1) side.type = sum;  // converted as it is loaded
  return side;
}

// Of row or column `number` of the thread: its place in the tile (I64) or what it adds to the register number (I32).
ExprRef TileLowering::block_place(const BlockSide& side, const ExprRef& number, bool in_tile) const {
  ExprRef sum = in_tile && !ir::is_int(side.first, 0) ? side.first : nullptr;
  int64_t scale = 1, below = 1;
  for (const FragmentLayout::Digit& digit : *side.axis) {
    if (!digit.in_thread) {
      ExprRef part = below == 1 ? number : ir::make_typed(Op::kDiv, {number, int32(below)});
      below *= digit.radix;
      if (below < side.count) part = ir::make_typed(Op::kMod, {part, int32(digit.radix)});
      if (in_tile) part = ir::make_cast({DType::I64, nullptr}, part);
      sum = plus(sum, times(part, in_tile ? scale : digit.stride));
    }
    scale *= digit.radix;
  }
  return sum ? sum : in_tile ? int64(0) : int32(0);
}

void TileLowering::load_block(const BlockSide& side, const ExprRef& k_first, int64_t depth, const std::string& name) {
  const int64_t along_k = side.k_last ? side.width : 1, along = side.k_last ? 1 : side.width;
  const ir::BufferRef& tile = side.slice->ref->buffer;
  unrolled(name, side.count / along, [&](ExprRef i) {
    const ExprRef number = times(i, along);
    ExprRef place = block_place(side, number, true);
    if (side.ragged && !planted(Planted::kBlockEdge))  // products of what is loaded instead go nowhere
      place = ir::make_typed(Op::kMin, {place, int64(side.extent - along)});
    place = let(name, place);
    if (place->kind == ir::ExprKind::kVar) out_.ranges.set(place->var, {0, side.extent - along});
    unrolled("k", depth / along_k, [&](ExprRef part) {
      const ExprRef ahead = ir::make_cast({DType::I64, nullptr}, times(part, along_k));
      const ExprRef k = ir::is_int(part, 0) ? k_first : let("k", plus(k_first, ahead));
      Site site;
      site.coords = side.k_last ? std::vector{place, k} : std::vector{k, place};
      const ExprRef at =
          side.k_last ? plus(times(number, depth), times(part, along_k)) : plus(times(part, side.count), number);
      if (side.width == 1) return store(side.raw, at, convert(load_element(*side.slice, site), side.type), nullptr);
      ExprRef guard;
      const std::vector<ExprRef> indices = element(*side.slice, site, &guard);
      guard = in_bounds(tile, indices, guard);
      move(Kind::kCopyVector, side.raw, at, storage(tile), offset(tile, indices, &site), side.width, guard);
    });
  });
}

void TileLowering::gemm_blocks(const ir::GemmStmt& gemm, const GemmChoice& choice) {
  const ir::BufferRef& c = gemm.c.buffer;
  const FragmentLayout& layout = *placements_.at(c.get()).fragment;
  const DType type = ir::compute_type(c->type.dtype);
  const std::vector<int64_t> a_shape = slice_shape(gemm.a);
  const int64_t k_extent = a_shape[gemm.transpose_a ? 0 : 1];
  const bool transpose_a = gemm.transpose_a != (planted(Planted::kTransposedOperand) && a_shape[0] == a_shape[1]);
  const ExprRef zero = ir::is_float(type) ? ir::make_float(0) : ir::make_int(0, type);
  if (!gemm.accumulate || planted(Planted::kGemmNoAccumulate))
    unrolled("r", layout.registers(), [&](ExprRef number) { store(storage(c), number, zero, nullptr); });

  const Slice a_slice = slice(gemm.a), b_slice = slice(gemm.b);
  BlockSide a = block_side(a_slice, layout, 0, !transpose_a, type),
            b = block_side(b_slice, layout, 1, gemm.transpose_b, type);
  const int64_t depth = std::max(a.k_last ? a.width : 1, b.k_last ? b.width : 1);
  const bool dot4 = choice.dot4 && a.k_last && std::min(a.width, b.width) >= 4;
  for (BlockSide* side : {&a, &b}) {
    const std::string name = side == &a ? "a" : "b";
    side->raw = temporary(name + "_part", side->type, ir::Scope::kRegister, side->count * depth);
    if (!dot4 && side->type != type) side->values = temporary(name + "_k", type, ir::Scope::kRegister, side->count);
  }

  auto raw_at = [&](const BlockSide& side, const ExprRef& number, const ExprRef& k) {
    return side.k_last ? plus(times(number, depth), k) : plus(times(k, side.count), number);
  };
  auto each_place = [&](const std::function<void(ExprRef, ExprRef, ExprRef)>& body) {
    unrolled("m", a.count, [&](ExprRef m) {
      unrolled("n", b.count, [&](ExprRef n) {
        body(plus(block_place(a, m, false), block_place(b, n, false)), m,
             planted(Planted::kBlockStrip) ? ir::make_typed(Op::kMod, {n, int32(std::max<int64_t>(1, b.count / 2))})
                                           : n);
      });
    });
  };
  auto multiply = [&](const ExprRef& k) {
    const ExprRef k_of_b = planted(Planted::kBlockStep) ? times(ir::make_typed(Op::kDiv, {k, int32(2)}), 2) : k;
    for (BlockSide* side : {&a, &b})
      if (side->values)
        unrolled(side == &a ? "m" : "n", side->count, [&](ExprRef i) {
          store(side->values, i, convert(ir::make_load(side->raw, {raw_at(*side, i, side == &a ? k : k_of_b)}), type),
                nullptr);
        });
    each_place([&](const ExprRef& at, const ExprRef& m, const ExprRef& n) {
      const ExprRef x = a.values ? ir::make_load(a.values, {m}) : ir::make_load(a.raw, {raw_at(a, m, k)});
      const ExprRef y = b.values ? ir::make_load(b.values, {n}) : ir::make_load(b.raw, {raw_at(b, n, k_of_b)});
      const ExprRef sum = ir::make_load(storage(c), {at});
      store(storage(c), at,
            ir::is_float(type) ? ir::make_typed(Op::kFma, {x, y, sum})
                               : ir::make_typed(Op::kAdd, {ir::make_typed(Op::kMul, {x, y}), sum}),
            nullptr);
    });
  };
  auto multiply_four = [&](const ExprRef& k) {
    each_place([&](const ExprRef& at, const ExprRef& m, const ExprRef& n) {
      LoopIntrinsic dot{Kind::kDot4, {}, nullptr};
      dot.type = planted(Planted::kDotSign) ? DType::U8 : a.type;
      dot.type_b = b.type;
      dot.operands = {
          {storage(c), at, 1, true}, {a.raw, raw_at(a, m, k), 4, false}, {b.raw, raw_at(b, n, k), 4, false}};
      emit({std::move(dot)});
    });
  };

  const int64_t steps = k_extent / depth - (planted(Planted::kGemmShortK) && k_extent > depth ? 1 : 0);
  const int64_t operations =
      depth * (a.count * b.count + (a.values ? a.count : 0) + (b.values ? b.count : 0)) / (dot4 ? 4 : 1);
  int64_t together = std::clamp<int64_t>(kMostOperations / operations, 1, kMostSteps);
  while (steps % together) --together;
  serial("k_part", int64(steps / together), false, [&](ExprRef outer) {
    unrolled("k_step", together, [&](ExprRef inner) {
      const ExprRef step = ir::make_cast({DType::I64, nullptr}, inner);
      const ExprRef k_first = let("k_first", times(plus(times(outer, together), step), depth));
      if (k_first->kind == ir::ExprKind::kVar) out_.ranges.set(k_first->var, {0, k_extent - depth});
      load_block(a, k_first, depth, "row");
      load_block(b, k_first, depth, "column");
      if (dot4)
        unrolled("k", depth / 4, [&](ExprRef k) { multiply_four(times(k, 4)); });
      else
        unrolled("k", depth, multiply);
    });
  });
}

}  // namespace kachel::lowering
