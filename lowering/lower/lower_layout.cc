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
constexpr int64_t kLongestUnrolled = 128;

}  // namespace

ExprRef digit_of(const ExprRef& number, const FragmentLayout::Digit& digit, int64_t extent) {
  ExprRef value = digit.stride == 1 ? number : ir::make_typed(Op::kDiv, {number, int32(digit.stride)});
  return digit.stride * digit.radix == extent ? value : ir::make_typed(Op::kMod, {value, int32(digit.radix)});
}

void TileLowering::unrolled(const std::string& name, int64_t count, const std::function<void(ExprRef)>& body,
                            const LoopForm& form) {
  if (count == 1) return body(int32(0));
  scoped(name, count, body, form);
}

void TileLowering::scoped(const std::string& name, int64_t count, const std::function<void(ExprRef)>& body,
                          const LoopForm& form) {
  LoopFor loop;
  loop.var = make_local(name, DType::I64, ir::VarKind::kLoop);
  loop.begin = int64(0);
  loop.end = int64(count);
  loop.unroll = form.written_out && count <= kLongestUnrolled;
  loop.apart = form.apart;
  loop.disjoint = form.disjoint;
  out_.ranges.set(loop.var, {0, count - 1});
  loop.body = nested([&] { body(ir::make_cast({DType::I32, nullptr}, ir::make_var(loop.var))); });
  emit({std::move(loop)});
}

// The nest of loops of one each_in(): a loop for every digit that is a register's, in the order of the registers.
class TileLowering::LayoutWalk {
 public:
  LayoutWalk(TileLowering* lowering, const FragmentLayout& layout, const std::vector<std::string>& names,
             int64_t vector, const std::function<void(const Site&)>& body, const WalkOptions& options)
      : lower_(*lowering), layout_(layout), names_(names), vector_(vector), body_(body), options_(options) {
    site_.layout = &layout;
    site_.coords.resize(rank_);
    site_.digits.resize(rank_);
  }

  void run(const ExprRef& thread) {
    place_digits(thread);
    for (const FragmentLayout::Digit& digit : layout_.replicas())
      site_.owner = both(site_.owner, ir::make_typed(Op::kEq, {digit_of(thread, digit, layout_.threads()), int32(0)}));
    // Registers in order: the slowest digit outermost.
    std::sort(walks_.begin(), walks_.end(), [](const Walk& a, const Walk& b) { return a.stride > b.stride; });
    // Where no neighbours belong together, those that share what is entered with come one behind the other.
    if (vector_ == 1)
      std::stable_partition(walks_.begin(), walks_.end(), [this](const Walk& walk) { return is_early(walk.axis); });
    early_walks_ = walks_.size();
    while (early_walks_ > 0 && !is_early(walks_[early_walks_ - 1].axis)) --early_walks_;
    // The loop whose iterations, as many as stay together, are that number of innermost ones or fewer.
    apart_at_ = walks_.size();
    apart_ = options_.apart;
    while (apart_ > 0 && apart_at_-- > 1 && walks_[apart_at_].radix < apart_) apart_ /= walks_[apart_at_].radix;
    for (size_t axis = 0; axis < rank_; ++axis) bounded_.push_back(bounded_from(axis));
    nest(0);
  }

 private:
  struct Walk {
    size_t axis, place;
    int64_t stride, radix, scale;
  };

  std::string name_of(size_t axis) const { return axis < names_.size() ? names_[axis] : "i" + std::to_string(axis); }
  bool is_early(size_t axis) const {
    return std::find(options_.early.begin(), options_.early.end(), axis) != options_.early.end();
  }

  // What the thread's digits make of each axis, and a walk for each of the others.
  void place_digits(const ExprRef& thread) {
    for (size_t axis = 0; axis < rank_; ++axis) {
      int64_t scale = 1;
      const FragmentLayout::Axis& digits = layout_.axes()[axis];
      for (size_t i = 0; i < digits.size(); ++i) {
        site_.digits[axis].push_back(nullptr);
        const bool skipped = vector_ > 1 && axis + 1 == rank_ && i == 0;
        if (digits[i].in_thread)
          offsets_[axis] = plus(offsets_[axis], times(digit_of(thread, digits[i], layout_.threads()), scale));
        else if (!skipped)
          walks_.push_back({axis, i, digits[i].stride, digits[i].radix, scale});
        else if (digits[i].radix != vector_)  // a part of the digit is the vector
          walks_.push_back({axis, i, vector_, digits[i].radix / vector_, vector_});
        if (skipped && digits[i].radix == vector_) site_.digits[axis][i] = int32(0);
        scale *= digits[i].radix;
      }
      if (offsets_[axis]) offsets_[axis] = lower_.let(name_of(axis), offsets_[axis]);
    }
  }

  // The first loop inside of which the axis has but its lowest digits, whose elements are in bounds together; the
  // innermost statement where there is none.
  size_t bounded_from(size_t axis) const {
    if (!layout_.ragged(axis) || is_early(axis)) return walks_.size();
    size_t from = walks_.size();
    for (int64_t span = axis + 1 == rank_ ? vector_ : 1; from > early_walks_; --from) {
      const Walk& walk = walks_[from - 1];
      if (walk.axis != axis) continue;
      if (walk.scale != span || layout_.shape()[axis] % (span * walk.radix) != 0) break;
      span *= walk.radix;
    }
    return from;
  }

  void place(size_t axis) {
    ExprRef& coord = site_.coords[axis];
    coord = int64(0);
    if (offsets_[axis]) coord = lower_.let(name_of(axis), ir::make_cast({DType::I64, nullptr}, offsets_[axis]));
    if ((!layout_.ragged(axis) || in_bounds_[axis]) && coord->kind == ir::ExprKind::kVar)
      lower_.out_.ranges.set(coord->var, {0, layout_.shape()[axis] - 1});
  }

  // Loop `depth` and those inside of it, within the bounds of axes that are known from here on.
  void nest(size_t depth) {
    if (depth == early_walks_ && !options_.early.empty()) {
      for (size_t axis : options_.early) place(axis);
      options_.enter(site_);
    }
    ExprRef inside;
    std::vector<size_t> axes;
    for (size_t axis = 0; axis < rank_ && depth < walks_.size(); ++axis) {
      if (bounded_[axis] != depth || in_bounds_[axis] || !offsets_[axis] || planted(Planted::kRaggedLayout)) continue;
      const ExprRef coord = ir::make_cast({DType::I64, nullptr}, offsets_[axis]);
      inside = both(inside, ir::make_typed(Op::kLt, {coord, int64(layout_.shape()[axis])}));
      axes.push_back(axis);
    }
    if (!inside) return within(depth);
    for (size_t axis : axes) in_bounds_[axis] = true;
    LoopBlock guarded = lower_.nested([&] { within(depth); });
    for (size_t axis : axes) in_bounds_[axis] = false;
    lower_.emit({LoopIf{inside, std::move(guarded), {}}});
  }

  void within(size_t depth) {
    if (depth == walks_.size()) return innermost();
    const Walk& walk = walks_[depth];
    const int64_t whole = whole_passes(walk);
    const LoopForm form{!options_.most_unrolled || iterations_within(depth) <= options_.most_unrolled,
                        depth == apart_at_ ? apart_ : 0};
    in_bounds_[walk.axis] = in_bounds_[walk.axis] || whole;
    const auto one = [&](ExprRef value) { step(depth, std::move(value)); };
    const std::string name = name_of(walk.axis) + "_r";
    if (!whole) return lower_.unrolled(name, walk.radix, one, form);
    lower_.scoped(name, whole, one, form);
    in_bounds_[walk.axis] = false;
    step(depth, int32(whole));
  }

  int64_t iterations_within(size_t depth) const {
    int64_t iterations = vector_;
    for (; depth < walks_.size(); ++depth) iterations *= walks_[depth].radix;
    return iterations;
  }

  // Of a digit that is the highest of a ragged axis, the values with which all of it is within the bounds; but one more
  // there is. 0: there are none, or no such digit.
  int64_t whole_passes(const Walk& walk) const {
    const FragmentLayout::Axis& digits = layout_.axes()[walk.axis];
    const bool highest = walk.place + 1 == digits.size() && walk.scale > 1 && !digits.back().in_thread;
    if (!highest || !layout_.ragged(walk.axis) || in_bounds_[walk.axis] || is_early(walk.axis)) return 0;
    const int64_t whole = layout_.shape()[walk.axis] / walk.scale;
    return whole + 1 == walk.radix ? whole : 0;
  }

  void step(size_t depth, ExprRef value) {
    const Walk& walk = walks_[depth];
    const bool part = walk.axis + 1 == rank_ && walk.place == 0 && vector_ > 1;
    site_.digits[walk.axis][walk.place] = part ? times(value, vector_) : value;
    const ExprRef before = offsets_[walk.axis];
    offsets_[walk.axis] = plus(before, times(value, walk.scale));
    nest(depth + 1);
    offsets_[walk.axis] = before;
  }

  void innermost() {
    ExprRef inside;
    for (size_t axis = 0; axis < rank_; ++axis) {
      if (!is_early(axis)) place(axis);
      if (offsets_[axis] && layout_.ragged(axis) && !in_bounds_[axis])
        inside = both(inside, ir::make_typed(Op::kLt, {site_.coords[axis], int64(layout_.shape()[axis])}));
    }
    if (!inside || planted(Planted::kRaggedLayout)) return body_(site_);
    const std::vector<ExprRef> coords = site_.coords;
    const auto bounded = [&] {
      // Names of their own, since the bounds hold for them only.
      auto& ranges = lower_.out_.ranges;
      for (size_t axis = 0; axis < rank_; ++axis) {
        if (!layout_.ragged(axis) || in_bounds_[axis] || coords[axis]->kind != ir::ExprKind::kVar) continue;
        ir::VarRef var = make_local(name_of(axis), DType::I64);
        ranges.set(var, {0, layout_.shape()[axis] - 1});
        ranges.set_multiple(var, ranges.multiple_of(coords[axis]));
        lower_.emit({LoopLet{var, coords[axis]}});
        site_.coords[axis] = ir::make_var(var);
      }
      body_(site_);
    };
    if (options_.keeps_bounds) {
      site_.inside = inside;
      bounded();
      site_.inside = nullptr;
    } else {
      lower_.emit({LoopIf{inside, lower_.nested(bounded), {}}});
    }
    site_.coords = coords;
  }

  TileLowering& lower_;
  const FragmentLayout& layout_;
  const std::vector<std::string>& names_;
  const int64_t vector_;
  const std::function<void(const Site&)>& body_;
  const WalkOptions& options_;
  const size_t rank_ = layout_.shape().size();
  Site site_;
  std::vector<Walk> walks_;
  size_t early_walks_ = 0, apart_at_ = 0;
  int64_t apart_ = 0;
  std::vector<size_t> bounded_;
  std::vector<ExprRef> offsets_ = std::vector<ExprRef>(rank_);
  std::vector<bool> in_bounds_ = std::vector<bool>(rank_, false);
};

void TileLowering::each_in(const FragmentLayout& layout, const std::vector<std::string>& names, int64_t vector,
                           const std::function<void(const Site&)>& body, const WalkOptions& options) {
  in_threads(layout.threads(),
             [&](const ExprRef& thread) { LayoutWalk(this, layout, names, vector, body, options).run(thread); });
}

void TileLowering::in_threads(int64_t count, const std::function<void(const ExprRef& thread)>& body) {
  LoopThreads threads;
  threads.index = make_local("e", DType::I32, ir::VarKind::kThread);
  threads.slot = make_local("r", DType::I32, ir::VarKind::kThread);
  threads.extent = count;
  out_.ranges.set(threads.index, {0, count - 1});
  out_.ranges.set(threads.slot, {0, 0});
  threads.body = nested([&] { body(ir::make_var(threads.index)); });
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
  for (size_t i = 0; i < indices.size(); ++i)
    if (!fragment.axes()[i].empty() && indices[i]->kind == ir::ExprKind::kVar && groups_.count(indices[i]->var.get()))
      if (const auto held = register_in_groups(fragment, indices, i, site)) return *held;
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

// Where index `grouped` is one of groups, by coordinates of the site. Nothing where inference has found it to be a
// coordinate of its own.
std::optional<ExprRef> TileLowering::register_in_groups(const FragmentLayout& fragment,
                                                        const std::vector<ExprRef>& indices, size_t grouped,
                                                        const Site& site) {
  const GroupIndex& groups = groups_.at(indices[grouped]->var.get());
  const auto axis_of = [&](const ExprRef& at) {
    size_t axis = 0;
    while (axis < site.coords.size() && !ir::same(at, site.coords[axis])) ++axis;
    return axis;
  };
  if (axis_of(indices[grouped]) < site.coords.size()) return std::nullopt;
  RegionRead read{nullptr, {}, {}};
  for (size_t i = 0; i < indices.size(); ++i) {
    const auto value = [&](const ir::VarRef& var) { return values_.at(var.get()); };
    const bool here = i == grouped;
    if (here && groups.outer) read.axes.push_back(axis_of(value(groups.outer)));
    read.axes.push_back(axis_of(here ? value(groups.inner) : indices[i]));
    read.groups.push_back(here && !groups.outer ? groups.group : 1);
    if (here && groups.outer) read.groups.push_back(1);
  }
  for (size_t i = 0; i < read.axes.size(); ++i)
    if (read.axes[i] == site.coords.size()) {
      const bool one = !(groups.outer && i == grouped) && fragment.axes()[i - (groups.outer && i > grouped)].empty();
      if (!one) {
        status_ = internal("a fragment is accessed by groups outside of its layout");
        return int32(0);
      }
      read.axes[i] = 0;
    }
  const FragmentLayout held = groups.outer ? *fragment.split(grouped, groups.group) : fragment;
  return register_of(read, held, site);
}

}  // namespace kachel::lowering
