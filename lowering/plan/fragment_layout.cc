#include "lowering/plan/fragment_layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "lowering/planted.h"

namespace kachel::lowering {
namespace {

int64_t capacity(const FragmentLayout::Axis& axis) {
  int64_t product = 1;
  for (const FragmentLayout::Digit& digit : axis) product *= digit.radix;
  return product;
}

// Digits of radix 1 say nothing.
void add(FragmentLayout::Axis* axis, int64_t radix, bool in_thread, int64_t stride) {
  if (radix > 1) axis->push_back({radix, in_thread, stride});
}

}  // namespace

FragmentLayout::FragmentLayout(std::vector<int64_t> shape, std::vector<Axis> axes, int64_t threads)
    : shape_(std::move(shape)), axes_(std::move(axes)), threads_(threads) {}

FragmentLayout FragmentLayout::accumulator(int64_t rows, int64_t columns, int64_t warps_m, int64_t warps_n) {
  const int64_t down = rows / (16 * warps_m), across = columns / (8 * warps_n);
  Axis m, n;
  const bool exchanged = planted(Planted::kFragmentMap);
  add(&n, 2, false, exchanged ? 2 : 1);
  add(&n, 4, true, 1);
  add(&n, across, false, 4);
  add(&n, warps_n, true, 32 * warps_m);
  add(&m, 8, true, 4);
  add(&m, 2, false, exchanged ? 1 : 2);
  add(&m, down, false, 4 * across);
  add(&m, warps_m, true, 32);
  return FragmentLayout({rows, columns}, {m, n}, 32 * warps_m * warps_n);
}

FragmentLayout FragmentLayout::group_accumulator(int64_t rows, int64_t columns, int64_t groups_m, int64_t groups_n) {
  const int64_t down = rows / (64 * groups_m), across = columns / (8 * groups_n);
  Axis m, n;
  add(&n, 2, false, 1);
  add(&n, 4, true, 1);
  add(&n, across, false, 4);
  add(&n, groups_n, true, 128 * groups_m);
  add(&m, 8, true, 4);
  add(&m, 2, false, 2);
  const int64_t warp = planted(Planted::kGroupRows) ? 64 : 32;
  if (down == 1) {  // as accumulator() has it, where warps have the same rows
    add(&m, 4 * groups_m, true, warp);
  } else {
    add(&m, 4, true, warp);
    add(&m, down, false, 4 * across);
    add(&m, groups_m, true, 128);
  }
  return FragmentLayout({rows, columns}, {m, n}, 128 * groups_m * groups_n);
}

FragmentLayout FragmentLayout::right_operand(int64_t columns, int64_t k, int64_t warps) {
  const int64_t steps = k / 16;
  Axis n, down;
  add(&n, 8, true, 4);
  add(&n, columns / (8 * warps), false, 4 * steps);
  add(&n, warps, true, 32);
  add(&down, 2, false, 1);
  add(&down, 4, true, 1);
  add(&down, 2, false, planted(Planted::kRightOperand) ? 4 : 2);
  add(&down, steps, false, planted(Planted::kRightOperand) ? 2 : 4);
  return FragmentLayout({columns, k}, {n, down}, 32 * warps);
}

FragmentLayout FragmentLayout::outer_product(int64_t rows, int64_t columns, int64_t row_vector, int64_t column_vector,
                                             int64_t threads) {
  if (rows * columns < threads) return blocked({rows, columns}, 1, threads);
  constexpr int64_t kLanes = 32;
  const int64_t warps = threads / kLanes;
  auto held = [](int64_t extent, int64_t vector, int64_t along) {  // strips of a thread
    return (extent + vector * along - 1) / (vector * along);
  };
  struct Grid {
    int64_t lanes_m = 1, lanes_n = 1, warps_m = 1, warps_n = 1;
  } best;
  // The fewest products and loads, then the fewest different places that a warp reads, then the longest rows.
  std::vector<int64_t> least;
  for (int64_t lanes_m = 1; lanes_m <= kLanes; lanes_m *= 2)
    for (int64_t warps_m = 1; warps_m <= warps; ++warps_m) {
      if (warps % warps_m) continue;
      const Grid grid{lanes_m, kLanes / lanes_m, warps_m, warps / warps_m};
      const int64_t down = held(rows, row_vector, grid.lanes_m * grid.warps_m) * row_vector;
      const int64_t across = held(columns, column_vector, grid.lanes_n * grid.warps_n) * column_vector;
      const std::vector<int64_t> cost = {down * across + down + across, grid.lanes_m + grid.lanes_n, lanes_m};
      if (least.empty() || cost < least) least = cost, best = grid;
    }
  Axis m, n;
  const int64_t strips_n = held(columns, column_vector, best.lanes_n * best.warps_n);
  const int64_t strips_m = held(rows, row_vector, best.lanes_m * best.warps_m);
  add(&m, row_vector, false, strips_n * column_vector);
  add(&n, column_vector, false, 1);
  int64_t left_m = best.lanes_m, left_n = best.lanes_n;
  bool along_n = true;
  for (int64_t lane = 1; lane < kLanes; lane *= 2) {
    if (along_n ? left_n == 1 : left_m == 1) along_n = !along_n;
    add(along_n ? &n : &m, 2, true, lane);
    (along_n ? left_n : left_m) /= 2;
    along_n = !along_n;
  }
  add(&m, best.warps_m, true, kLanes);
  add(&n, best.warps_n, true, kLanes * best.warps_m);
  add(&m, strips_m, false, strips_n * column_vector * row_vector);
  add(&n, strips_n, false, column_vector);
  return FragmentLayout({rows, columns}, {std::move(m), std::move(n)}, threads);
}

FragmentLayout FragmentLayout::blocked(const std::vector<int64_t>& shape, int64_t vector, int64_t threads) {
  const size_t rank = shape.size();
  std::vector<Axis> axes(rank);
  int64_t stride = 1, reg = vector;
  add(&axes[rank - 1], vector, false, 1);
  for (size_t axis = rank; axis-- > 0;) {
    const int64_t left = threads / stride, width = axis == rank - 1 ? vector : 1;
    const int64_t wanted = (shape[axis] + width - 1) / width;
    int64_t along = 1;  // threads on this axis: a divisor of those left
    for (int64_t divisor = 1; divisor <= left; ++divisor) {
      if (left % divisor) continue;
      if (divisor <= wanted || along < wanted) along = divisor;
      if (divisor >= wanted) break;
    }
    // The largest divisor not above what is wanted, unless it leaves more than half of the next one idle.
    if (along > wanted && along >= 2 * wanted) {
      int64_t below = 1;
      for (int64_t divisor = 1; divisor <= wanted; ++divisor)
        if (left % divisor == 0) below = divisor;
      along = below;
    }
    add(&axes[axis], along, true, stride);
    stride *= along;
    const int64_t rounds = (wanted + along - 1) / along;
    add(&axes[axis], rounds, false, reg);
    reg *= rounds;
  }
  return FragmentLayout(shape, std::move(axes), threads);
}

int64_t FragmentLayout::registers() const {
  int64_t count = 1;
  for (const Axis& axis : axes_)
    for (const Digit& digit : axis)
      if (!digit.in_thread) count *= digit.radix;
  return count;
}

bool FragmentLayout::ragged(size_t axis) const {
  return capacity(axes_[axis]) != shape_[axis];
}

FragmentLayout FragmentLayout::replicated(int64_t times) const {
  FragmentLayout out = *this;
  out.threads_ *= times;
  return out;
}

FragmentLayout FragmentLayout::keep(const std::vector<size_t>& kept) const {
  FragmentLayout out;
  out.threads_ = threads_;
  std::map<int64_t, int64_t> radix_at;  // register stride -> radix
  for (size_t axis : kept) {
    out.shape_.push_back(axis == kNoAxis ? 1 : shape_[axis]);
    out.axes_.push_back(axis == kNoAxis ? Axis() : axes_[axis]);
    for (const Digit& digit : out.axes_.back())
      if (!digit.in_thread) radix_at[digit.stride] = digit.radix;
  }
  std::map<int64_t, int64_t> renumbered;
  int64_t next = 1;
  for (const auto& [stride, radix] : radix_at) {
    renumbered[stride] = next;
    next *= radix;
  }
  for (Axis& axis : out.axes_)
    for (Digit& digit : axis)
      if (!digit.in_thread) digit.stride = renumbered[digit.stride];
  return out;
}

FragmentLayout FragmentLayout::leading(size_t axis, int64_t extent) const {
  FragmentLayout out = *this;
  out.shape_[axis] = extent;
  return out;
}

FragmentLayout FragmentLayout::by_rows() const {
  FragmentLayout out = *this;
  int64_t next = 1;
  for (size_t axis = axes_.size(); axis-- > 0;)
    for (Digit& digit : out.axes_[axis]) {
      if (digit.in_thread) continue;
      digit.stride = next;
      next *= digit.radix;
    }
  return out;
}

FragmentLayout FragmentLayout::merged() const {
  FragmentLayout out = *this;
  for (Axis& axis : out.axes_) {
    Axis made;
    for (const Digit& digit : axis) {
      const bool goes_on = !made.empty() && !digit.in_thread && !made.back().in_thread &&
                           digit.stride == made.back().stride * made.back().radix;
      if (goes_on)
        made.back().radix *= digit.radix;
      else
        made.push_back(digit);
    }
    axis = std::move(made);
  }
  return out;
}

bool FragmentLayout::pairs_in_quads() const {
  return !axes_.empty() && axes_.back().size() >= 2 && axes_.back()[0] == Digit{2, false, 1} &&
         axes_.back()[1] == Digit{4, true, 1} && !ragged(axes_.size() - 1);
}

std::optional<FragmentLayout> FragmentLayout::pairs() const {
  if (axes_.empty() || axes_.back().empty() || shape_.back() % 2) return std::nullopt;
  const Digit first = axes_.back().front();
  if (first.in_thread || first.stride != 1 || first.radix % 2) return std::nullopt;
  FragmentLayout out = *this;
  out.shape_.back() /= 2;
  for (Axis& axis : out.axes_)
    for (Digit& digit : axis)
      if (!digit.in_thread && digit.stride > 1) digit.stride /= 2;
  Axis& last = out.axes_.back();
  last.front().radix /= 2;
  if (last.front().radix == 1) last.erase(last.begin());
  return out;
}

std::vector<FragmentLayout::Digit> FragmentLayout::replicas() const {
  std::map<int64_t, int64_t> used;  // stride -> radix
  for (const Axis& axis : axes_)
    for (const Digit& digit : axis)
      if (digit.in_thread) used[digit.stride] = digit.radix;
  std::vector<Digit> free;
  int64_t next = 1;
  for (const auto& [stride, radix] : used) {
    if (stride > next) free.push_back({stride / next, true, next});
    next = stride * radix;
  }
  if (next < threads_) free.push_back({threads_ / next, true, next});
  return free;
}

int64_t FragmentLayout::vector() const {
  if (axes_.empty() || axes_.back().empty()) return 1;
  const Digit& fastest = axes_.back().front();
  return !fastest.in_thread && fastest.stride == 1 ? fastest.radix : 1;
}

bool FragmentLayout::accumulates(int64_t tiles) const {
  if (axes_.size() != 2 || axes_[1].size() < 3 || axes_[0].size() < 2) return false;
  const Axis &m = axes_[0], &n = axes_[1];
  return n[0] == Digit{2, false, 1} && n[1] == Digit{4, true, 1} && !n[2].in_thread && n[2].stride == 4 &&
         n[2].radix % tiles == 0 && m[0] == Digit{8, true, 4} && m[1] == Digit{2, false, 2};
}

std::optional<FragmentLayout> FragmentLayout::matrix_rows() const {
  if (!accumulates(2)) return std::nullopt;
  const Axis& n = axes_[1];
  FragmentLayout out = *this;
  out.axes_[0][0].stride = 1;
  out.axes_[0][1] = {2, true, 8};
  Axis columns;
  add(&columns, 8, false, 1);
  add(&columns, 2, true, 16);
  add(&columns, n[2].radix / 2, false, 8);
  columns.insert(columns.end(), n.begin() + 3, n.end());
  out.axes_[1] = std::move(columns);
  return out;
}

std::optional<FragmentLayout> FragmentLayout::quad_rows() const {
  if (!accumulates(4)) return std::nullopt;
  const Axis& n = axes_[1];
  FragmentLayout out = *this;
  out.axes_[0][1].stride = 8;
  Axis columns;
  add(&columns, 8, false, 1);
  add(&columns, 4, true, 1);
  add(&columns, n[2].radix / 4, false, 16);
  columns.insert(columns.end(), n.begin() + 3, n.end());
  out.axes_[1] = std::move(columns);
  return out;
}

std::optional<FragmentLayout> FragmentLayout::turned() const {
  if (!accumulates(2)) return std::nullopt;
  const Axis &m = axes_[0], &n = axes_[1];
  FragmentLayout out = *this;
  std::swap(out.shape_[0], out.shape_[1]);
  Axis rows{{8, true, 4}, {2, false, 2}}, columns{{2, false, 1}, {4, true, 1}, {2, false, 4}};
  add(&rows, n[2].radix / 2, false, 8);
  rows.insert(rows.end(), n.begin() + 3, n.end());
  columns.insert(columns.end(), m.begin() + 2, m.end());
  out.axes_ = {std::move(rows), std::move(columns)};
  return out;
}

std::vector<int64_t> FragmentLayout::coordinates(int64_t thread, int64_t reg) const {
  std::vector<int64_t> coordinates;
  for (const Axis& axis : axes_) {
    int64_t value = 0, scale = 1;
    for (const Digit& digit : axis) {
      value += (digit.in_thread ? thread : reg) / digit.stride % digit.radix * scale;
      scale *= digit.radix;
    }
    coordinates.push_back(value);
  }
  return coordinates;
}

std::string FragmentLayout::print() const {
  std::string text = fmt::format("[{}] on {} threads:", fmt::join(shape_, ", "), threads_);
  for (size_t i = 0; i < axes_.size(); ++i) {
    if (i) text += ";";
    if (axes_[i].empty()) text += " 1";
    for (const Digit& digit : axes_[i])
      text += fmt::format(" {} {}{}", digit.radix, digit.in_thread ? "t" : "r", digit.stride);
  }
  return text;
}

}  // namespace kachel::lowering
