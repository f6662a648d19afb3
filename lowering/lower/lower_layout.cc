// Iterations and elements by a fragment layout. See tile_lowering.h and fragment_layout.h.
#include <algorithm>

#include "lowering/lower/tile_lowering.h"
#include "lowering/planted.h"

namespace kachel::lowering {

using ir::DType;
using ir::ExprRef;
using ir::Op;

namespace {

// Loops longer than this stay loops: their code would not fit the instruction cache.
constexpr int64_t kMostUnrolled = 128;

}  // namespace

ExprRef digit_of(const ExprRef& number, const FragmentLayout::Digit& digit, int64_t extent) {
  ExprRef value = digit.stride == 1 ? number : ir::make_typed(Op::kDiv, {number, int32(digit.stride)});
  return digit.stride * digit.radix == extent ? value : ir::make_typed(Op::kMod, {value, int32(digit.radix)});
}

void TileLowering::unrolled(const std::string& name, int64_t count, const std::function<void(ExprRef)>& body) {
  if (count == 1) return body(int32(0));
  LoopFor loop;
  loop.var = make_local(name, DType::I64, ir::VarKind::kLoop);
  loop.begin = int64(0);
  loop.end = int64(count);
  loop.unroll = count <= kMostUnrolled;
  loop.apart = std::exchange(apart_, 0);
  out_.ranges.set(loop.var, {0, count - 1});
  loop.body = nested([&] { body(ir::make_cast({DType::I32, nullptr}, ir::make_var(loop.var))); });
  emit({std::move(loop)});
}

void TileLowering::each_in(const FragmentLayout& layout, const std::vector<std::string>& names, int64_t vector,
                           const std::function<void(const Site&)>& body, const EarlyAxes& early) {
  const size_t rank = layout.shape().size();
  auto name_of = [&](size_t axis) { return axis < names.size() ? names[axis] : "i" + std::to_string(axis); };
  LoopThreads threads;
  threads.index = make_local("e", DType::I32, ir::VarKind::kThread);
  threads.slot = make_local("r", DType::I32, ir::VarKind::kThread);
  threads.extent = layout.threads();
  out_.ranges.set(threads.index, {0, threads.extent - 1});
  out_.ranges.set(threads.slot, {0, 0});
  const ExprRef thread = ir::make_var(threads.index);

  Site site;
  site.layout = &layout;
  site.coords.resize(rank);
  site.digits.resize(rank);
  struct Walk {
    size_t axis, place;
    int64_t stride, radix, scale;
  };
  std::vector<Walk> walks;
  const int64_t together = std::exchange(apart_, 0);
  std::vector<ExprRef> base(rank);
  std::vector<std::vector<int64_t>> scales(rank);

  threads.body = nested([&] {
    for (size_t axis = 0; axis < rank; ++axis) {
      int64_t scale = 1;
      const FragmentLayout::Axis& digits = layout.axes()[axis];
      for (size_t i = 0; i < digits.size(); ++i) {
        site.digits[axis].push_back(nullptr);
        const bool skipped = vector > 1 && axis + 1 == rank && i == 0;
        if (digits[i].in_thread)
          base[axis] = plus(base[axis], times(digit_of(thread, digits[i], layout.threads()), scale));
        else if (!skipped)
          walks.push_back({axis, i, digits[i].stride, digits[i].radix, scale});
        else if (digits[i].radix != vector)  // a part of the digit is the vector
          walks.push_back({axis, i, vector, digits[i].radix / vector, vector});
        if (skipped && digits[i].radix == vector) site.digits[axis][i] = int32(0);
        scale *= digits[i].radix;
      }
      if (base[axis]) base[axis] = let(name_of(axis), base[axis]);
    }
    for (const FragmentLayout::Digit& digit : layout.replicas())
      site.owner = both(site.owner, ir::make_typed(Op::kEq, {digit_of(thread, digit, layout.threads()), int32(0)}));
    const auto is_early = [&](size_t axis) {
      return std::find(early.axes.begin(), early.axes.end(), axis) != early.axes.end();
    };
    // Registers in order: the slowest digit outermost.
    std::sort(walks.begin(), walks.end(), [](const Walk& a, const Walk& b) { return a.stride > b.stride; });
    size_t early_walks = walks.size();
    while (early_walks > 0 && !is_early(walks[early_walks - 1].axis)) --early_walks;

    // The loop whose iterations, as many as stay together, are that number of innermost ones or fewer.
    size_t apart_at = walks.size();
    int64_t apart = together;
    while (apart > 0 && apart_at-- > 1 && walks[apart_at].radix < apart) apart /= walks[apart_at].radix;

    // The first loop inside of which the axis has but its lowest digits, whose elements are in bounds together; the
    // innermost statement where there is none.
    const auto bounded_from = [&](size_t axis) {
      if (!layout.ragged(axis) || is_early(axis)) return walks.size();
      size_t from = walks.size();
      for (int64_t span = axis + 1 == rank ? vector : 1; from > early_walks; --from) {
        const Walk& walk = walks[from - 1];
        if (walk.axis != axis) continue;
        if (walk.scale != span || layout.shape()[axis] % (span * walk.radix) != 0) break;
        span *= walk.radix;
      }
      return from;
    };
    std::vector<size_t> bounded;
    for (size_t axis = 0; axis < rank; ++axis) bounded.push_back(bounded_from(axis));
    std::vector<bool> in_bounds(rank, false);

    std::vector<ExprRef> offsets = base;
    const auto place = [&](size_t axis) {
      ExprRef& coord = site.coords[axis];
      coord = int64(0);
      if (offsets[axis]) coord = let(name_of(axis), ir::make_cast({DType::I64, nullptr}, offsets[axis]));
      if ((!layout.ragged(axis) || in_bounds[axis]) && coord->kind == ir::ExprKind::kVar)
        out_.ranges.set(coord->var, {0, layout.shape()[axis] - 1});
    };
    std::function<void(size_t)> nest, within;
    nest = [&](size_t depth) {
      if (depth == early_walks && !early.axes.empty()) {
        for (size_t axis : early.axes) place(axis);
        early.enter(site);
      }
      ExprRef inside;
      std::vector<size_t> axes;
      for (size_t axis = 0; axis < rank && depth < walks.size(); ++axis) {
        if (bounded[axis] != depth || !offsets[axis] || planted(Planted::kRaggedLayout)) continue;
        const ExprRef coord = ir::make_cast({DType::I64, nullptr}, offsets[axis]);
        inside = both(inside, ir::make_typed(Op::kLt, {coord, int64(layout.shape()[axis])}));
        axes.push_back(axis);
      }
      if (!inside) return within(depth);
      for (size_t axis : axes) in_bounds[axis] = true;
      LoopBlock guarded = nested([&] { within(depth); });
      for (size_t axis : axes) in_bounds[axis] = false;
      emit({LoopIf{inside, std::move(guarded), {}}});
    };
    within = [&](size_t depth) {
      if (depth < walks.size()) {
        const Walk& walk = walks[depth];
        apart_ = depth == apart_at ? apart : 0;
        return unrolled(name_of(walk.axis) + "_r", walk.radix, [&](ExprRef value) {
          const bool part = walk.axis + 1 == rank && walk.place == 0 && vector > 1;
          site.digits[walk.axis][walk.place] = part ? times(value, vector) : value;
          const ExprRef before = offsets[walk.axis];
          offsets[walk.axis] = plus(before, times(value, walk.scale));
          nest(depth + 1);
          offsets[walk.axis] = before;
        });
      }
      ExprRef inside;
      for (size_t axis = 0; axis < rank; ++axis) {
        if (!is_early(axis)) place(axis);
        if (offsets[axis] && layout.ragged(axis) && !in_bounds[axis])
          inside = both(inside, ir::make_typed(Op::kLt, {site.coords[axis], int64(layout.shape()[axis])}));
      }
      if (!inside || planted(Planted::kRaggedLayout)) return body(site);
      const std::vector<ExprRef> coords = site.coords;
      LoopBlock guarded = nested([&] {
        // Names of their own, since the bounds hold in here only.
        for (size_t axis = 0; axis < rank; ++axis) {
          if (!layout.ragged(axis) || in_bounds[axis] || coords[axis]->kind != ir::ExprKind::kVar) continue;
          ir::VarRef var = make_local(name_of(axis), DType::I64);
          out_.ranges.set(var, {0, layout.shape()[axis] - 1});
          out_.ranges.set_multiple(var, out_.ranges.multiple_of(coords[axis]));
          emit({LoopLet{var, coords[axis]}});
          site.coords[axis] = ir::make_var(var);
        }
        body(site);
      });
      site.coords = coords;
      emit({LoopIf{inside, std::move(guarded), {}}});
    };
    nest(0);
  });
  emit({std::move(threads)});
}

void TileLowering::each_of(const ir::BufferRef& tile, const std::vector<int64_t>& shape,
                           const std::vector<std::string>& names, const std::function<void(const Site&)>& body) {
  const auto placement = placements_.tiles.find(tile.get());
  if (placement != placements_.tiles.end() && placement->second.fragment)
    return each_in(*placement->second.fragment, names, 1, body);
  each(shape, names, in_registers(tile), body);
}

ExprRef TileLowering::register_of(const FragmentLayout& fragment, const std::vector<size_t>& axes,
                                  const Site& site) const {
  ExprRef sum;
  for (size_t i = 0; i < axes.size(); ++i) {
    const FragmentLayout::Axis& digits = fragment.axes()[i];
    for (size_t j = 0; j < digits.size(); ++j)
      if (!digits[j].in_thread && !ir::is_int(site.digits[axes[i]][j], 0))
        sum = plus(sum, times(site.digits[axes[i]][j], digits[j].stride));
  }
  if (planted(Planted::kWrongLayout) && sum) return ir::make_typed(Op::kSub, {int32(fragment.registers() - 1), sum});
  return sum ? sum : int32(0);
}

ExprRef TileLowering::register_of(const ir::BufferRef& buffer, const std::vector<ExprRef>& indices, const Site& site) {
  const ExprRef& last = indices.back();
  const auto pair = last->kind == ir::ExprKind::kVar ? pairs_.find(last->var.get()) : pairs_.end();
  const FragmentLayout& whole = *placements_.at(buffer.get()).fragment;
  std::optional<FragmentLayout> of_pairs;
  if (pair != pairs_.end()) of_pairs = whole.pairs();
  const FragmentLayout& fragment = of_pairs ? *of_pairs : whole;
  std::vector<size_t> axes;
  for (size_t i = 0; i < indices.size(); ++i) {
    axes.push_back(0);
    if (fragment.axes()[i].empty()) continue;  // one element, for all
    const bool paired = pair != pairs_.end() && i + 1 == indices.size();
    const ExprRef& coordinate = paired ? values_.at(pair->second.var.get()) : indices[i];
    size_t axis = 0;
    // Inference has seen to it that the index is a coordinate.
    while (axis < site.coords.size() &&
           !(ir::same(coordinate, site.coords[axis]) && site.digits[axis].size() == fragment.axes()[i].size()))
      ++axis;
    if (axis == site.coords.size()) {
      status_ = internal("a fragment is accessed outside of its layout: " + buffer->name);
      return int32(0);
    }
    axes.back() = axis;
  }
  const ExprRef held = register_of(fragment, axes, site);
  if (pair == pairs_.end()) return held;
  return plus(times(held, 2), int32(planted(Planted::kPairPart) ? 0 : pair->second.part));
}

}  // namespace kachel::lowering
