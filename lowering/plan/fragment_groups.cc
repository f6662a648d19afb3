// Axes of fragments in groups of neighbours, and parts of axes.
#include <algorithm>
#include <numeric>
#include <utility>

#include "lowering/plan/fragment_layout.h"

namespace kachel::lowering {

std::optional<FragmentLayout> FragmentLayout::grouped(size_t axis, int64_t group) const {
  if (shape_[axis] % group || ragged(axis)) return std::nullopt;
  FragmentLayout out = *this;
  out.shape_[axis] /= group;
  out.axes_[axis].clear();
  int64_t scale = 1;
  for (Digit digit : axes_[axis]) {
    const int64_t next = scale * digit.radix;
    if (next > group) {
      const int64_t within = std::max<int64_t>(group / scale, 1);
      if (scale * within != std::max(scale, group) || digit.radix % within) return std::nullopt;
      digit.radix /= within;
      digit.stride *= within;
      out.axes_[axis].push_back(digit);
    }
    scale = next;
  }
  std::vector<size_t> all(shape_.size());
  std::iota(all.begin(), all.end(), size_t{0});
  return out.keep(all);
}

std::optional<FragmentLayout> FragmentLayout::split(size_t axis, int64_t group) const {
  if (shape_[axis] % group) return std::nullopt;
  Axis inner, outer;
  int64_t scale = 1;
  for (const Digit& digit : axes_[axis]) {
    const int64_t next = scale * digit.radix;
    if (next <= group) {
      inner.push_back(digit);
    } else if (scale >= group) {
      outer.push_back(digit);
    } else {
      const int64_t within = group / scale;
      if (group % scale || digit.radix % within) return std::nullopt;
      inner.push_back({within, digit.in_thread, digit.stride});
      outer.push_back({digit.radix / within, digit.in_thread, digit.stride * within});
    }
    scale = next;
  }
  if (scale < group) return std::nullopt;
  FragmentLayout out = *this;
  const auto at = static_cast<std::ptrdiff_t>(axis);
  out.shape_[axis] = group;
  out.shape_.insert(out.shape_.begin() + at, shape_[axis] / group);
  out.axes_[axis] = std::move(inner);
  out.axes_.insert(out.axes_.begin() + at, std::move(outer));
  return out;
}

std::optional<FragmentLayout> FragmentLayout::one_of_each(size_t axis, int64_t group) const {
  const std::optional<FragmentLayout> parted = split(axis, group);
  if (!parted) return std::nullopt;
  std::vector<size_t> kept;
  for (size_t i = 0; i < parted->shape_.size(); ++i)
    if (i != axis + 1) kept.push_back(i);
  return parted->keep(kept);
}

FragmentLayout FragmentLayout::of_groups(size_t axis, int64_t group) const {
  FragmentLayout out = *this;
  out.shape_[axis] *= group;
  for (Axis& digits : out.axes_)
    for (Digit& digit : digits)
      if (!digit.in_thread) digit.stride *= group;
  Axis& grown = out.axes_[axis];
  if (!grown.empty() && !grown.front().in_thread && grown.front().stride == group)
    grown.front() = {group * grown.front().radix, false, 1};
  else
    grown.insert(grown.begin(), Digit{group, false, 1});
  return out;
}

FragmentLayout FragmentLayout::joined(size_t axis) const {
  FragmentLayout out = *this;
  const auto at = static_cast<std::ptrdiff_t>(axis);
  Axis all = axes_[axis + 1];
  for (const Digit& digit : axes_[axis]) {
    const bool goes_on =
        !all.empty() && all.back().in_thread == digit.in_thread && digit.stride == all.back().stride * all.back().radix;
    if (goes_on)
      all.back().radix *= digit.radix;
    else
      all.push_back(digit);
  }
  out.shape_[axis + 1] *= shape_[axis];
  out.axes_[axis + 1] = std::move(all);
  out.shape_.erase(out.shape_.begin() + at);
  out.axes_.erase(out.axes_.begin() + at);
  return out;
}

std::optional<FragmentLayout> FragmentLayout::part(size_t axis, int64_t first, int64_t extent) const {
  if (shape_[axis] % extent || first % extent || ragged(axis)) return std::nullopt;
  FragmentLayout out = *this;
  out.shape_[axis] = extent;
  out.axes_[axis].clear();
  int64_t scale = 1;
  for (Digit digit : axes_[axis]) {
    const int64_t next = scale * digit.radix;
    if (next > extent) {
      if (digit.in_thread || (scale < extent && extent % scale)) return std::nullopt;
      digit.radix = std::max<int64_t>(extent / scale, 1);
      if (scale < extent && next % extent) return std::nullopt;
    }
    if (digit.radix > 1) out.axes_[axis].push_back(digit);
    scale = next;
  }
  std::vector<size_t> all(shape_.size());
  std::iota(all.begin(), all.end(), size_t{0});
  return out.keep(all);
}

}  // namespace kachel::lowering
