#include "lowering/lower/region_read.h"

#include <algorithm>
#include <cstdlib>

namespace kachel::lowering {

using ir::ExprRef;

int64_t row_vector(const Layout& layout, int64_t bytes) {
  int64_t width = kWidestAccess / bytes;
  for (size_t axis = 0; axis + 1 < layout.shape().size(); ++axis)
    while (layout.axis_stride(axis) % width) width /= 2;
  while (layout.shape().back() % width) width /= 2;
  return width;
}

RegionRead::Elements RegionRead::elements(int64_t count) const {
  const int64_t access = width * stride;
  Elements all{0, (count - 1) * stride + 1};
  if (!window.empty()) {
    const auto [first, last] = std::minmax_element(
        window.begin(), window.end(), [](const auto& one, const auto& other) { return one.second < other.second; });
    all.begin = first->second, all.end += last->second;
  }
  const auto floor = [access](int64_t at) { return at - (at % access + access) % access; };
  return {floor(all.begin), floor(all.end + access - 1)};
}

bool RegionRead::is_near(int64_t element) const {
  return std::any_of(window.begin(), window.end(),
                     [&](const auto& other) { return std::abs(other.second - element) <= width * stride; });
}

void merge_windows(std::vector<RegionRead>* reads) {
  const auto joins = [](const RegionRead& one, const RegionRead& other) {
    if (one.load->buffer != other.load->buffer || one.width != other.width || one.stride != other.stride ||
        !other.row || other.once ||
        !std::equal(one.indices.begin(), one.indices.end() - 1, other.indices.begin(), ir::same))
      return false;
    const ExprRef &a = one.row->base, &b = other.row->base;
    if (a ? !b || !ir::same(a, b) : b != nullptr) return false;
    return one.is_near(other.row->constant);
  };
  for (size_t i = 0; i < reads->size(); ++i)
    for (size_t j = 0; j < reads->size() && !(*reads)[i].window.empty(); ++j) {
      RegionRead &one = (*reads)[i], &other = (*reads)[j];
      if (i == j || !joins(one, other)) continue;
      if (other.window.empty()) other.window = {{other.load, other.row->constant}};
      one.padded |= other.padded;
      one.window.insert(one.window.end(), other.window.begin(), other.window.end());
      reads->erase(reads->begin() + static_cast<std::ptrdiff_t>(j));
      i = j = ~size_t{0};  // from the beginning
      break;
    }
}

}  // namespace kachel::lowering
