#include "runtime/engine/bind/facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace kachel::runtime {
// Offsets cannot overflow, since the binder has bounded the
// span of every tensor.
uint64_t facts_that_hold(const KernelModel& model, const BoundArguments& arguments) {
  // CPUs load unaligned vectors as they are, and an allocator's whim would be in every key.
  const bool aligned = arguments.device.type != kCpuDevice;
  bool narrow = true, short_axes = true;
  uint64_t mask = 0;
  for (size_t i = 0; i < model.dims.size(); ++i) short_axes &= arguments.dims[i] < kIndexLimit;
  for (int at = 0; at < model.table.tensors; ++at) {
    const TensorEntry& facts = model.table.tensor[at];
    const BoundTensor& tensor = arguments.tensors[facts.param];
    const int last = facts.rank - 1, bits = bits_of(tensor.dtype);
    const bool transposed = is_transposed(facts.rank, tensor.shape, tensor.strides);
    const int row = transposed ? last - 1 : last;  // the axis that 16-byte rows would lie along
    int64_t reach = 0, elements = 1;               // the latter as if no extent were 0
    // Its lowest set bit is the largest power of two, up to 128, that divides all of these numbers of bits.
    uint64_t divisors =
        reinterpret_cast<uintptr_t>(tensor.data) * 8 | 128 | static_cast<uint64_t>(tensor.shape[row] * bits);
    for (int axis = 0; axis <= last; ++axis) {
      const int64_t extent = tensor.shape[axis], stride = tensor.strides[axis];
      short_axes &= extent < kIndexLimit;
      narrow &= elements < kIndexLimit;
      elements *= narrow && short_axes ? std::max<int64_t>(extent, 1) : 1;
      if (extent > 1) reach += (extent - 1) * stride;
      // The copy engine, which rows of 16 bytes are an invitation to, is not promised to take a stride of 0.
      if (extent > 1 && axis != row) divisors |= stride ? static_cast<uint64_t>(stride * bits) : 64;
    }
    narrow &= elements < kIndexLimit && (reach < kIndexLimit || tensor.elements == 0);
    short_axes &= reach < kReachLimit || tensor.elements == 0;
    // The stride of an axis with at most one element multiplies nothing but 0.
    const bool unit = tensor.strides[last] == 1;
    if (unit || tensor.shape[last] <= 1) mask |= facts.unit_stride;
    if (!aligned || tensor.elements == 0) continue;
    const int bytes = std::countr_zero(divisors) - 3;  // their logarithm
    if (unit && bytes >= 2) mask |= facts.vector[bytes - 2];
    if (transposed && bytes == 4) mask |= facts.transposed;
    const auto address = reinterpret_cast<uintptr_t>(tensor.data);
    if (facts.one_axis)
      mask |= one_axis_facts(facts.rows, facts.rank, tensor.shape, tensor.strides, address, bits);
    else if (facts.rows && has_joined_rows(facts.rank, tensor.shape, tensor.strides, address, bits))
      mask |= facts.rows;
  }
  for (int at = 0; aligned && at < model.table.scalars; ++at) {
    const ScalarEntry& scalar = model.table.scalar[at];
    mask |= scalar.facts_of(static_cast<int64_t>(arguments.scalars[scalar.param]));
  }
  if (short_axes) mask |= model.table.extent32_fact;
  return short_axes && narrow ? mask | model.table.index32_fact : mask;
}

std::string facts_text(const KernelModel& model, uint64_t mask) {
  std::string text;
  for (size_t i = 0; i < model.facts.size(); ++i) {
    if (!(mask >> i & 1)) continue;
    text += text.empty() ? "" : ", ";
    switch (model.facts[i].kind) {
      case lowering::Fact::Kind::kIndex32:
        text += "index32";
        break;
      case lowering::Fact::Kind::kExtent32:
        text += "extent32";
        break;
      case lowering::Fact::Kind::kUnitStride:
        text += fmt::format("unit stride of `{}`", model.params[model.facts[i].param].name);
        break;
      case lowering::Fact::Kind::kVector:
        text += fmt::format("{}-byte rows of `{}`", model.facts[i].bytes, model.params[model.facts[i].param].name);
        break;
      case lowering::Fact::Kind::kTransposed:
        text += fmt::format("{}-byte columns of `{}`", model.facts[i].bytes, model.params[model.facts[i].param].name);
        break;
      case lowering::Fact::Kind::kRows:
        text += fmt::format("joined rows of `{}`", model.params[model.facts[i].param].name);
        break;
      case lowering::Fact::Kind::kOneAxis:
        text += fmt::format("last axes of `{}` as one{}", model.params[model.facts[i].param].name,
                            model.facts[i].bytes > 1 ? fmt::format(" of {}-byte rows", model.facts[i].bytes) : "");
        break;
      case lowering::Fact::Kind::kMultiple:
        text += fmt::format("`{}` a multiple of {}", model.params[model.facts[i].param].name, model.facts[i].bytes);
        break;
    }
  }
  return text.empty() ? "none" : text;
}

}  // namespace kachel::runtime
