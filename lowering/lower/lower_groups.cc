// Elements that several neighbours of a region read alike: scales of quantised weights, (x + j) / group. A thread loads
// each once. See tile_lowering.h.
#include <numeric>

#include "lowering/lower/tile_lowering.h"
#include "lowering/planted.h"

namespace kachel::lowering {

using ir::ExprKind;
using ir::ExprRef;
using ir::Op;

// (x + c j) / group, where that is the same for all j of the region, without j; else, where groups begin with the
// region, in the number of the group instead.
ExprRef TileLowering::settled(const ExprRef& index, const std::vector<ir::IterVar>& iters, const RegionIndexes& indexes,
                              const FragmentLayout& layout, int64_t* group) {
  return ir::rewrite(index, [&](const ExprRef& node) {
    if (node->kind != ExprKind::kApply || node->op != Op::kDiv || *group > 1) return node;
    std::optional<RegionIndex> at = indexes.split(node->args[0]);
    int64_t scale = 1;
    if (const auto scaled = at ? std::nullopt : indexes.scaled(node->args[0]);
        scaled && scaled->constant >= 0 && scaled->constant < scaled->scale) {
      at = RegionIndex{scaled->axis, scaled->base};
      scale = planted(Planted::kScaledGroup) ? 1 : scaled->scale;
    }
    if (!at || at->axis == RegionIndex::kNone) return node;
    const ExprRef base = at->base ? scalar(at->base, nullptr) : int64(0);
    if (!out_.ranges.proves_nonnegative(base)) return node;
    if (node->args[1]->kind != ExprKind::kInt)
      return scale > 1 ? node : of_multiple(node, *at, base, iters, indexes, layout, group);
    const int64_t size = node->args[1]->int_value;
    if (size <= 1 || size % scale != 0) return node;
    const int64_t aligned = std::gcd(out_.ranges.multiple_of(base), size);
    const ExprRef first = at->base ? ir::make_typed(Op::kDiv, {at->base, node->args[1]}) : nullptr;
    if (layout.shape()[at->axis] * scale <= aligned) return first ? first : ir::make_int(0, node->type);
    if (aligned < size || size == scale || !layout.keep({at->axis}).grouped(0, size / scale)) return node;
    *group = size / scale;
    ExprRef number = ir::make_var(iters[at->axis].var);
    if (number->type != node->type) number = ir::make_cast({node->type, nullptr}, number);
    return plus(first, number);
  });
}

// The same of a divisor that is no literal but known to be a multiple of `size`, as the place is: where both are,
// (x + j) / by is ((x + j) / size) / (by / size), and the inner quotient is a group's number.
ExprRef TileLowering::of_multiple(const ExprRef& quotient, const RegionIndex& at, const ExprRef& base,
                                  const std::vector<ir::IterVar>& iters, const RegionIndexes& indexes,
                                  const FragmentLayout& layout, int64_t* group) {
  const ExprRef& by = quotient->args[1];
  const std::optional<RegionIndex> shared = indexes.split(by);
  if (!shared || shared->axis != RegionIndex::kNone) return quotient;
  const ExprRef divisor = scalar(by, nullptr);
  if (out_.ranges.of(divisor).lo < 1) return quotient;
  int64_t size = std::gcd(out_.ranges.multiple_of(base), out_.ranges.multiple_of(divisor));
  size &= -size;
  const auto typed = [&](const ExprRef& value) {
    return value->type == quotient->type ? value : ir::make_cast({quotient->type, nullptr}, value);
  };
  const ExprRef place = typed(at.base ? at.base : ir::make_int(0, quotient->type));
  if (layout.shape()[at.axis] <= size) return ir::make_typed(Op::kDiv, {place, by});
  while (size > 1 && !layout.keep({at.axis}).grouped(0, size)) size /= 2;
  if (size <= 1) return quotient;
  *group = size;
  const auto by_size = [&](const ExprRef& value) {
    return ir::make_typed(Op::kDiv, {value, ir::make_int(size, value->type)});
  };
  const ExprRef number = typed(ir::make_var(iters[at.axis].var));
  return ir::make_typed(
      Op::kDiv, {plus(at.base ? by_size(place) : nullptr, number), planted(Planted::kGroupDivisor) ? by : by_size(by)});
}

// What a thread holds of it.
FragmentLayout TileLowering::part_of(const RegionRead& read, const FragmentLayout& layout) {
  FragmentLayout part = layout.keep(read.axes);
  for (size_t i = 0; i < read.axes.size(); ++i)
    if (read.groups[i] > 1) part = *part.grouped(i, read.groups[i]);
  return read.words ? part.by_rows() : part;
}

ExprRef TileLowering::register_of(const RegionRead& read, const FragmentLayout& part, const Site& site) const {
  if (std::all_of(read.groups.begin(), read.groups.end(), [](int64_t group) { return group == 1; }))
    return register_of(part, read.axes, site);
  ExprRef sum;
  for (size_t i = 0; i < read.axes.size(); ++i) {
    const FragmentLayout::Axis &digits = site.layout->axes()[read.axes[i]], &kept = part.axes()[i];
    int64_t scale = 1;
    size_t at = 0;
    for (size_t j = 0; j < digits.size(); ++j) {
      const int64_t next = scale * digits[j].radix, within = std::max<int64_t>(read.groups[i] / scale, 1);
      scale = next;
      if (next <= read.groups[i] && read.groups[i] > 1) continue;
      const ExprRef& digit = site.digits[read.axes[i]][j];
      if (!digits[j].in_thread && !ir::is_int(digit, 0))
        sum = plus(sum, times(within > 1 ? ir::make_typed(Op::kDiv, {digit, int32(within)}) : digit, kept[at].stride));
      ++at;
    }
  }
  return sum ? sum : int32(0);
}

}  // namespace kachel::lowering
