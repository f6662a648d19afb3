#include "tests/conformance/host_tensor.h"

#include "ir/numerics.h"

namespace kachel::conformance {
namespace {

constexpr size_t kGuardBytes = 256;
constexpr uint8_t kGuard = 0xA5;

double random_float(Contents contents, Random& random) {
  if (contents == Contents::kExtremes && random() % 16 == 0) {
    const double kChoices[] = {0.0, -0.0, 1e30, -1e30, 65504, -65504, 1e-30, 448, 57344, HUGE_VAL, -HUGE_VAL, NAN};
    return kChoices[random() % std::size(kChoices)];
  }
  return std::normal_distribution<double>(0, 1)(random);
}

int64_t random_integer(const TensorSpec& spec, Random& random) {
  if (spec.contents == Contents::kIndices) {
    switch (random() % 12) {
      case 0:
        return -1;
      case 1:
        return spec.limit;
      case 2:
        return INT32_MIN;
      case 3:
        return INT32_MAX;
      default:
        return static_cast<int64_t>(random() % static_cast<uint64_t>(std::max<int64_t>(spec.limit, 1)));
    }
  }
  if (spec.contents == Contents::kExtremes) return static_cast<int64_t>(random());
  return static_cast<int64_t>(random() % 17) - (ir::is_signed(spec.type) ? 8 : 0);
}

}  // namespace

OwnedTensor::OwnedTensor(const TensorSpec& spec, Random& random) : spec_(spec) {
  if (spec_.strides.empty()) {
    spec_.strides.assign(spec_.shape.size(), 1);
    for (size_t i = spec_.shape.size(); i-- > 1;) {
      int64_t extent = spec_.shape[i];
      if (ir::bits(spec_.type) == 4 && i + 1 == spec_.shape.size()) extent += extent % 2;  // rows begin on a byte
      spec_.strides[i - 1] = spec_.strides[i] * extent;
    }
  }
  int64_t last = 0;
  for (size_t i = 0; i < spec_.shape.size(); ++i) last += std::max<int64_t>(spec_.shape[i] - 1, 0) * spec_.strides[i];
  const bool nibbles = ir::bits(spec_.type) == 4;
  const int64_t unit = nibbles ? 1 : ir::bits(spec_.type) / 8;
  offset_ = kGuardBytes + static_cast<size_t>(spec_.misalignment * unit);
  element_bytes_ = static_cast<size_t>(ir::storage_bytes(spec_.type, last + 1));
  for (int64_t extent : spec_.shape)
    if (extent == 0) element_bytes_ = 0;
  bytes_.assign(offset_ + element_bytes_ + kGuardBytes, kGuard);
  std::vector<int64_t> distinct;
  if (spec_.contents == Contents::kDistinct) {
    for_each_element([&](int64_t) { distinct.push_back(static_cast<int64_t>(distinct.size())); });
    for (size_t i = distinct.size(); i > 1; --i) std::swap(distinct[i - 1], distinct[random() % i]);
  }
  for_each_element(
      [&](int64_t at) { ir::store_element(spec_.type, bytes_.data() + offset_, at, random_value(random, &distinct)); });
}

ir::Scalar OwnedTensor::random_value(Random& random, std::vector<int64_t>* distinct) const {
  ir::Scalar value{ir::compute_type(spec_.type), 0, 0};
  if (value.type == ir::DType::F32) {
    value.f = random_float(spec_.contents, random);
  } else if (value.type == ir::DType::Bool) {
    value.i = static_cast<int64_t>(random() & 1);
  } else if (spec_.contents == Contents::kDistinct) {
    value.i = distinct->back();
    distinct->pop_back();
  } else {
    value.i = ir::wrap_integer(value.type, random_integer(spec_, random));
  }
  return value;
}

ir::HostTensor OwnedTensor::view() {
  return {bytes_.data() + offset_, spec_.type, spec_.shape, spec_.strides};
}

void OwnedTensor::for_each_element(const std::function<void(int64_t)>& fn) const {
  std::vector<int64_t> at(spec_.shape.size(), 0);
  for (int64_t extent : spec_.shape)
    if (extent == 0) return;
  while (true) {
    int64_t offset = 0;
    for (size_t i = 0; i < at.size(); ++i) offset += at[i] * spec_.strides[i];
    fn(offset);
    size_t axis = at.size();
    while (axis > 0 && ++at[axis - 1] == spec_.shape[axis - 1]) at[--axis] = 0;
    if (axis == 0) return;
  }
}

int64_t OwnedTensor::damaged_guards(const OwnedTensor& before) const {
  std::vector<bool> owned(bytes_.size(), false);
  const bool nibbles = ir::bits(spec_.type) == 4;
  const int64_t unit = nibbles ? 1 : ir::bits(spec_.type) / 8;
  for_each_element([&](int64_t element) {
    const size_t first = offset_ + static_cast<size_t>(nibbles ? element / 2 : element * unit);
    for (int64_t i = 0; i < unit; ++i) owned[first + static_cast<size_t>(i)] = true;
  });
  int64_t damaged = 0;
  for (size_t i = 0; i < bytes_.size(); ++i) damaged += !owned[i] && bytes_[i] != before.bytes_[i];
  return damaged;
}

ir::HostTensor exchanged(ir::HostTensor tensor) {
  std::swap(tensor.shape.end()[-1], tensor.shape.end()[-2]);
  std::swap(tensor.strides.end()[-1], tensor.strides.end()[-2]);
  return tensor;
}

ir::HostTensor view_of(const lowering::TensorMap& map, ir::HostTensor tensor) {
  if (map.transposed) return exchanged(std::move(tensor));
  if (!map.as_one) return tensor;
  const size_t last = tensor.shape.size() - 1;
  tensor.shape[last] *= tensor.shape[last - 1];
  tensor.shape[last - 1] = 1;
  tensor.strides[last - 1] = tensor.shape[last];
  return tensor;
}

}  // namespace kachel::conformance
