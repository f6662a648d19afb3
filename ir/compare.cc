#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ir/interpret.h"
#include "ir/numerics.h"

namespace kachel::ir {
namespace {

bool holds(const Expected& expected, DType type, const Scalar& actual) {
  if (!is_float(type)) return actual.i == expected.bits;
  if (expected.value != expected.value) return actual.f != actual.f;
  if (std::isinf(expected.value)) return actual.f == expected.value;
  return std::abs(actual.f - expected.value) <= expected.bound;  // false for NaN
}

// A bool must be stored as 0 or 1; decoding would hide anything else.
Scalar read(const HostTensor& tensor, int64_t offset) {
  return load_element(tensor.type == DType::Bool ? DType::U8 : tensor.type, tensor.data, offset);
}

bool same_bits(DType type, const HostTensor& a, const HostTensor& b, int64_t offset) {
  static constexpr DType kRaw[] = {DType::U4, DType::U8, DType::I16, DType::U32, DType::U64};
  int width = bits(type);
  DType raw = width == 4 ? kRaw[0] : width == 8 ? kRaw[1] : width == 16 ? kRaw[2] : width == 32 ? kRaw[3] : kRaw[4];
  return load_element(raw, a.data, offset).i == load_element(raw, b.data, offset).i;
}

std::string shown(DType type, const Scalar& value) {
  if (is_float(type)) return fmt::format("{:.9g}", value.f);
  return type == DType::U64 ? fmt::format("{}", static_cast<uint64_t>(value.i)) : fmt::format("{}", value.i);
}

std::string wanted(DType type, const Expected& expected) {
  if (!is_float(type)) return shown(type, {compute_type(type), expected.bits, 0});
  return fmt::format("{:.9g} within {:.3g}", expected.value, expected.bound);
}

}  // namespace

double ulps(DType type, double value, double bound) {
  if (bound == 0) return 0;
  return bound / ulp_at(type, value == value ? value : 0);
}

Mismatch compare(const std::vector<Expected>& expected, const HostTensor& actual, const HostTensor& before) {
  Mismatch result;
  std::vector<double> bounds;
  const size_t rank = actual.shape.size();
  std::vector<int64_t> index(rank, 0);
  int64_t offset = 0;
  for (const Expected& element : expected) {
    std::string wrong;
    if (!element.written) {
      if (!same_bits(actual.type, actual, before, offset))
        wrong = fmt::format("is {}, but the kernel does not write it; it was {}",
                            shown(actual.type, read(actual, offset)), shown(actual.type, read(before, offset)));
    } else if (element.undecided) {
      ++result.undecided;
    } else {
      if (is_float(actual.type) && std::isfinite(element.value))
        bounds.push_back(ulps(actual.type, element.value, element.bound));
      Scalar value = read(actual, offset);
      if (!holds(element, actual.type, value))
        wrong = fmt::format("is {}, expected {}", shown(actual.type, value), wanted(actual.type, element));
    }
    if (!wrong.empty() && result.count++ == 0) result.first = fmt::format("[{}] {}", fmt::join(index, ", "), wrong);
    for (size_t axis = rank; axis-- > 0;) {
      offset += actual.strides[axis];
      if (++index[axis] < actual.shape[axis]) break;
      offset -= actual.strides[axis] * actual.shape[axis];
      index[axis] = 0;
    }
  }
  if (!bounds.empty()) {
    auto middle = bounds.begin() + static_cast<std::ptrdiff_t>(bounds.size() / 2);
    std::nth_element(bounds.begin(), middle, bounds.end());
    result.median_bound_ulps = *middle;
  }
  return result;
}

}  // namespace kachel::ir
