#include "lowering/plan/layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <tuple>

namespace kachel::lowering {

int64_t product(const std::vector<int64_t>& values) {
  int64_t result = 1;
  for (int64_t value : values) result *= value;
  return result;
}

Layout::Layout(std::vector<int64_t> shape, std::vector<Digit> digits)
    : shape_(std::move(shape)), digits_(std::move(digits)) {}

Layout Layout::cyclic(std::vector<int64_t> shape, int64_t threads) {
  int64_t rounds = (product(shape) + threads - 1) / threads;
  return Layout(std::move(shape), {{threads, Target::kThread, 1}, {rounds, Target::kRegister, 1}});
}

Layout Layout::row_major(std::vector<int64_t> shape) {
  int64_t elements = product(shape);
  return Layout(std::move(shape), {{elements, Target::kOffset, 1}});
}

Layout Layout::padded(std::vector<int64_t> shape, int64_t pitch) {
  const int64_t columns = shape.back(), rows = product(shape) / columns;
  return Layout(std::move(shape), {{columns, Target::kOffset, 1}, {rows, Target::kOffset, pitch}});
}

Layout Layout::conflict_free(std::vector<int64_t> shape, int64_t element_bytes) {
  const int64_t chunk = 16 / element_bytes, chunks = shape.back() / chunk;
  if (chunks % 8 && chunks != 4 && chunks != 2 && chunks != 1) return padded(std::move(shape), (chunks | 1) * chunk);
  const int64_t columns = shape.back();
  Layout layout = padded(std::move(shape), columns);
  if (chunks % 8 == 0) layout.swizzle_ = {chunk, 1, 7};
  if (chunks == 4) layout.swizzle_ = {chunk, 2, 3};
  if (chunks == 2) layout.swizzle_ = {chunk, 4, 1};
  return layout;
}

Layout Layout::gapped(std::vector<int64_t> shape, int64_t element_bytes) {
  const int64_t line = shape.back() * element_bytes == 8 ? 256 : 128;
  Layout layout = row_major(std::move(shape));
  layout.gap_ = {line / element_bytes, 16 / element_bytes};
  return layout;
}

Layout Layout::slabs(std::vector<int64_t> shape, int64_t element_bytes, bool whole) {
  const int64_t chunk = 16 / element_bytes, columns = shape.back(), rows = product(shape) / columns;
  const bool is_slab = !whole && (columns == 2 * chunk || columns == 4 * chunk);
  const int64_t width = is_slab ? columns : 8 * chunk, chunks = width / chunk;
  Layout layout(std::move(shape), {{width, Target::kOffset, 1},
                                   {(columns + width - 1) / width, Target::kOffset, width * rows},
                                   {rows, Target::kOffset, width}});
  layout.swizzle_ = {chunk, 8 / chunks, chunks - 1};
  layout.slab_columns_ = width;
  return layout;
}

int64_t Layout::padded_columns() const {
  const int64_t width = slab_columns();
  return (shape_.back() + width - 1) / width * width;
}

int64_t Layout::axis_stride(size_t axis) const {
  int64_t linear = 1;
  for (size_t i = axis + 1; i < shape_.size(); ++i) linear *= shape_[i];
  if (shape_[axis] <= 1) return 0;
  Layout plain = *this;
  plain.swizzle_ = {};
  plain.gap_ = {};
  return plain.place(linear).offset;
}

int64_t Layout::elements() const {
  return product(shape_);
}

Layout::Place Layout::place(int64_t linear) const {
  Place place;
  if (swizzle_.mask || slab_columns_) {
    const int64_t columns = shape_.back(), row = linear / columns, column = linear % columns;
    const int64_t moved = column / swizzle_.chunk ^ (row / swizzle_.rows & swizzle_.mask);
    linear = row * padded_columns() + moved * swizzle_.chunk + column % swizzle_.chunk;
  }
  for (const Digit& digit : digits_) {
    int64_t value = linear % digit.radix * digit.stride;
    linear /= digit.radix;
    switch (digit.target) {
      case Target::kThread:
        place.thread += value;
        break;
      case Target::kRegister:
        place.reg += value;
        break;
      case Target::kOffset:
        place.offset += value;
        break;
    }
  }
  if (gap_.every) place.offset += place.offset / gap_.every * gap_.by;
  return place;
}

int64_t Layout::largest(Target target) const {
  int64_t largest = 0;
  for (const Digit& digit : digits_)
    if (digit.target == target) largest += (digit.radix - 1) * digit.stride;
  return largest;
}

int64_t Layout::registers() const {
  return largest(Target::kRegister) + 1;
}
int64_t Layout::offset_extent() const {
  const int64_t last = largest(Target::kOffset);
  return last + (gap_.every ? last / gap_.every * gap_.by : 0) + 1;
}

bool Layout::injective() const {
  std::set<std::tuple<int64_t, int64_t, int64_t>> seen;
  for (int64_t linear = 0; linear < elements(); ++linear) {
    Place at = place(linear);
    if (!seen.insert({at.thread, at.reg, at.offset}).second) return false;
  }
  return true;
}

std::string Layout::print() const {
  constexpr const char* kNames[] = {"thread", "register", "offset"};
  std::string text = fmt::format("[{}]:", fmt::join(shape_, ", "));
  for (size_t i = 0; i < digits_.size(); ++i)
    text += fmt::format("{} {} {}*{}", i ? "," : "", digits_[i].radix, kNames[static_cast<int>(digits_[i].target)],
                        digits_[i].stride);
  if (swizzle_.mask)
    text += fmt::format(", chunks of {} swizzled over {} rows", swizzle_.chunk, swizzle_.rows * (swizzle_.mask + 1));
  if (gap_.every) text += fmt::format(", {} left out behind each {}", gap_.by, gap_.every);
  return text;
}

}  // namespace kachel::lowering
