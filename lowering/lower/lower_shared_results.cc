// Threads that hold parts of the same results, and what makes these whole in all of them: exchanges within a warp,
// shared memory between warps. See tile_lowering.h.
#include <bit>
#include <numeric>

#include "lowering/lower/tile_lowering.h"
#include "lowering/planted.h"
#include "lowering/tile_ir/hoist_reductions.h"

namespace kachel::lowering {

using ir::DType;
using ir::ExprRef;
using ir::Op;

namespace {

constexpr int64_t kMostTogether = 8;  // parts of a result that are loaded before the first one is looked at
constexpr int64_t kWarp = 32;
constexpr size_t kLaneBits = 5;

}  // namespace

// Those of a reduction over the axes from `rank` on.
Sharers TileLowering::sharers_of(const FragmentLayout& layout, size_t rank) {
  Sharers sharers;
  for (size_t axis = rank; axis < layout.shape().size(); ++axis)
    for (FragmentLayout::Digit digit : layout.axes()[axis]) {
      if (!digit.in_thread) continue;
      while (digit.stride < 32 && digit.radix % 2 == 0 && std::has_single_bit(static_cast<uint64_t>(digit.stride))) {
        sharers.masks.push_back(static_cast<int>(digit.stride));
        digit.stride *= 2;
        digit.radix /= 2;
      }
      if (digit.radix > 1) sharers.rest.push_back(digit);
    }
  sharers.replicas = layout.replicas();
  if (planted(Planted::kDroppedShuffle) && !sharers.masks.empty()) sharers.masks.pop_back();
  return sharers;
}

// Every replica of a result ends up with the same bits: an exchange between lanes adds the same two numbers on both
// sides, and partial results in shared memory are added in one order.
void TileLowering::combine_shared(ir::ReduceOp op, const ir::BufferRef& values, const FragmentLayout& results,
                                  const Sharers& sharers) {
  for (int mask : sharers.masks) combine_lanes(op, values, results.registers(), mask);
  if (!sharers.rest.empty()) combine_warps(op, values, results, sharers);
}

void TileLowering::combine_lanes(ir::ReduceOp op, const ir::BufferRef& values, int64_t count, int mask) {
  unrolled("r", count, [&](ExprRef at) {
    ir::VarRef other = make_local("other", values->type.dtype);
    const ExprRef own = ir::make_load(values, {at});
    emit({LoopShuffle{other, own, mask}});
    store(values, at, combined(op, own, ir::make_var(other)), nullptr);
  });
}

// Whether it is a reduction whose results warps share, in every iteration of a loop.
bool TileLowering::exchanges_warps(const ir::ParallelStmt& region) const {
  const auto layout = placements_.regions.find(&region);
  return reduction_of(region) && layout != placements_.regions.end() && !parts_.count(&region) &&
         !sharers_of(layout->second, region.iters.size()).rest.empty();
}

// In a pipeline's body by halves of memory in turn: then no barrier is needed between the last reading and the next
// writing.
void TileLowering::combine_warps(ir::ReduceOp op, const ir::BufferRef& values, const FragmentLayout& results,
                                 const Sharers& sharers) {
  const DType type = values->type.dtype;
  const size_t rank = results.shape().size();
  std::vector<size_t> axes(rank);
  std::iota(axes.begin(), axes.end(), size_t{0});
  int64_t parts = 1;
  for (const FragmentLayout::Digit& digit : sharers.rest) parts *= digit.radix;
  const int64_t elements = product(results.shape()) * parts;
  const ExprRef half = ahead_.pipeline && loop_depth_ == ahead_.depth ? ahead_.half : nullptr;
  const ir::BufferRef partial = temporary("partial", type, ir::Scope::kShared, elements * (half ? 2 : 1));
  if (half) ahead_.alternating.push_back(partial);
  auto flat = [&](const Site& site) {
    ExprRef at = site.coords[0];
    for (size_t i = 1; i < rank; ++i) at = plus(times(at, results.shape()[i]), site.coords[i]);
    at = times(at, parts);
    return half ? plus(at, ir::make_cast({DType::I64, nullptr}, times(half, elements))) : at;
  };
  const ExprRef thread = ir::make_var(out_.thread);
  auto mine = [&](const FragmentLayout::Digit& digit) { return digit_of(thread, digit, results.threads()); };
  auto is_first = [&](const FragmentLayout::Digit& digit) { return ir::make_typed(Op::kEq, {mine(digit), int32(0)}); };
  ExprRef number, writes;
  int64_t scale = 1;
  for (const FragmentLayout::Digit& digit : sharers.rest) {
    number = plus(number, times(mine(digit), scale));
    scale *= digit.radix;
  }
  for (int mask : sharers.masks) writes = both(writes, is_first({2, true, mask}));
  if (planted(Planted::kPartialTwice)) writes = nullptr;
  // Threads that hold nothing of their own write nothing.
  for (const FragmentLayout::Digit& digit : sharers.replicas) writes = both(writes, is_first(digit));

  each_in(results, {}, 1, [&](const Site& site) {
    const ExprRef at = plus(flat(site), ir::make_cast({DType::I64, nullptr}, number));
    store(partial, at, ir::make_load(values, {register_of(results, axes, site)}), writes);
  });
  const int64_t taken = parts - (planted(Planted::kDroppedPart) ? 1 : 0);
  int64_t width = 128 / ir::bits(type);
  while (parts % width) width /= 2;
  // Lanes that have the same results share the parts.
  const int64_t lanes = std::min(parts, kWarp);
  if (parts > kMostTogether && std::has_single_bit(static_cast<uint64_t>(parts)) && sharers.masks.size() == kLaneBits &&
      taken == parts) {
    const ExprRef lane = let("lane", ir::make_typed(Op::kMod, {thread, ir::make_int(lanes, DType::I32)}));
    each_in(results, {}, 1, [&](const Site& site) {
      const ExprRef first = let("first", plus(flat(site), ir::make_cast({DType::I64, nullptr}, lane)));
      ExprRef whole;
      for (int64_t part = 0; part < parts; part += lanes) {
        const ExprRef other = ir::make_load(partial, {plus(first, int64(part))});
        whole = whole ? combined(op, whole, other) : other;
      }
      store(values, register_of(results, axes, site), whole, nullptr);
    });
    const int64_t exchanged = planted(Planted::kHalfOfParts) ? lanes / 2 : lanes;
    for (int mask = 1; mask < exchanged; mask *= 2) combine_lanes(op, values, results.registers(), mask);
    return;
  }
  if (parts > kMostTogether || width == 1) {
    unrolled("r", results.registers(), [&](ExprRef at) { store(values, at, neutral_element(op, type), nullptr); });
    each_in(results, {}, 1, [&](const Site& site) {
      const ExprRef first = let("first", flat(site)), at = register_of(results, axes, site);
      serial("part", int64(taken), false, [&](ExprRef part) {
        const ExprRef other = ir::make_load(partial, {plus(first, part)});
        store(values, at, combined(op, ir::make_load(values, {at}), other), nullptr);
      });
    });
    return;
  }
  const ir::BufferRef others = temporary("others", type, ir::Scope::kRegister, parts);
  each_in(results, {}, 1, [&](const Site& site) {
    const ExprRef first = let("first", flat(site)), at = register_of(results, axes, site);
    for (int64_t part = 0; part < parts; part += width)
      move(LoopIntrinsic::Kind::kCopyVector, others, int32(part), partial, plus(first, int64(part)), width, nullptr);
    ExprRef whole = neutral_element(op, type);
    for (int64_t part = 0; part < taken; ++part) whole = combined(op, whole, ir::make_load(others, {int32(part)}));
    store(values, at, whole, nullptr);
  });
}

// The sum of what warps hold that share k (parted_sums.h), each the columns of its own. Tiles of 16 x 8 as they lie in
// registers: what a lane needs of the other warps are the same lane's. False if the copy is none of such parts.
bool TileLowering::copy_parts(const ir::CopyStmt& copy) {
  const ir::BufferRef &to = copy.dst.buffer, &from = copy.src.buffer;
  int64_t warps = 1;
  for (const auto& [gemm, choice] : placements_.gemms)
    if (gemm->c.buffer == from) warps = choice.warps_k;
  if (!from->parted || warps == 1) return false;
  constexpr int64_t kHeld = 4, kLanes = 32;  // registers of a tile, threads of a warp
  const DType type = from->type.dtype;
  const int64_t tiles = placements_.at(from.get()).elements() / kHeld, own = tiles / warps;
  const ir::BufferRef parts = temporary("parts", type, ir::Scope::kShared, warps * tiles * kHeld * kLanes);
  auto place = [&](const ExprRef& part, const ExprRef& tile, const ExprRef& within) {
    return plus(times(plus(times(part, tiles), tile), kHeld * kLanes), within);
  };
  const FragmentLayout in_parts(
      {warps, tiles, kHeld * kLanes},
      {{{warps, true, kLanes}}, {{tiles, false, kHeld}}, {{kHeld, false, 1}, {kLanes, true, 1}}}, warps * kLanes);
  each_in(in_parts, {"part", "tile", "within"}, kHeld, [&](const Site& site) {
    move(LoopIntrinsic::Kind::kCopyVector, parts, place(site.coords[0], site.coords[1], site.coords[2]), storage(from),
         register_of(in_parts, {0, 1, 2}, site), kHeld, nullptr);
  });
  const ir::BufferRef others = temporary("others", type, ir::Scope::kRegister, kHeld * warps);
  const ExprRef thread = ir::make_var(out_.thread);
  const ExprRef lane = let("lane", ir::make_typed(Op::kMod, {thread, int32(kLanes)}));
  const ExprRef warp = let("warp", ir::make_typed(Op::kDiv, {thread, int32(kLanes)}));
  unrolled("tile", own, [&](ExprRef tile) {
    const ExprRef wanted = plus(times(warp, own), tile);
    for (int64_t part = 0; part < warps; ++part) {
      const ExprRef at = place(int32(part), wanted, times(lane, kHeld));
      move(LoopIntrinsic::Kind::kCopyVector, others, int32(part * kHeld), parts,
           ir::make_cast({DType::I64, nullptr}, at), kHeld, nullptr);
    }
    for (int64_t held = 0; held < kHeld; ++held) {
      ExprRef sum = ir::make_load(others, {int32(held)});
      for (int64_t part = 1; part < warps && !planted(Planted::kPartsForgotten); ++part)
        sum = ir::make_typed(Op::kAdd, {sum, ir::make_load(others, {int32(part * kHeld + held)})});
      store(storage(to), plus(times(tile, kHeld), int32(held)), sum, nullptr);
    }
  });
  return true;
}

}  // namespace kachel::lowering
