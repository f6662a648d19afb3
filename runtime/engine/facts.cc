#include "runtime/engine/facts.h"

#include <fmt/format.h>

namespace kachel::runtime {
namespace {

constexpr int32_t kCpuDevice = 1;  // DLPack
constexpr int64_t kIndexLimit = int64_t{1} << 30;

// Offsets cannot overflow: the binder has bounded the span of every tensor.
bool index32(const KernelModel& model, const BoundArguments& arguments) {
  for (size_t i = 0; i < model.dims.size(); ++i)
    if (arguments.dims[i] >= kIndexLimit) return false;
  for (int index : model.tensors) {
    const BoundTensor& tensor = arguments.tensors[index];
    if (tensor.elements == 0) continue;
    int64_t last = 0;
    for (size_t axis = 0; axis < model.params[index].axes.size(); ++axis) {
      if (tensor.shape[axis] >= kIndexLimit) return false;
      last += (tensor.shape[axis] - 1) * tensor.strides[axis];
    }
    if (last >= kIndexLimit) return false;
  }
  return true;
}

// The stride of an axis with at most one element multiplies nothing but 0.
bool unit_stride(const KernelModel& model, const BoundArguments& arguments, int param) {
  const BoundTensor& tensor = arguments.tensors[param];
  const size_t last = model.params[param].axes.size() - 1;
  return tensor.strides[last] == 1 || tensor.shape[last] <= 1;
}

// The largest power of two, up to 16, that divides the address, the strides but the last and the last extent, in bytes.
uint64_t vector_bytes(const KernelModel& model, const BoundArguments& arguments, int param) {
  const BoundTensor& tensor = arguments.tensors[param];
  const int bits = bits_of(tensor.dtype);
  const size_t last = model.params[param].axes.size() - 1;
  if (tensor.strides[last] != 1) return 1;
  uint64_t divisors = reinterpret_cast<uintptr_t>(tensor.data) * 8 | 128 |
                      static_cast<uint64_t>(tensor.shape[last] * bits);
  for (size_t axis = 0; axis < last; ++axis)
    if (tensor.shape[axis] > 1) divisors |= static_cast<uint64_t>(tensor.strides[axis] * bits);
  return (divisors & -divisors) / 8;
}

}  // namespace

uint64_t facts_that_hold(const KernelModel& model, const BoundArguments& arguments) {
  uint64_t mask = 0, vector = 1;
  int measured = -1;
  for (size_t i = 0; i < model.facts.size(); ++i) {
    const lowering::Fact& fact = model.facts[i];
    bool holds = false;
    switch (fact.kind) {
      case lowering::Fact::Kind::kIndex32:
        holds = index32(model, arguments);
        break;
      case lowering::Fact::Kind::kUnitStride:
        holds = unit_stride(model, arguments, fact.param);
        break;
      case lowering::Fact::Kind::kVector:
        // CPUs load unaligned vectors as they are, and an allocator's whim would be in every key.
        if (arguments.device.type == kCpuDevice) break;
        if (measured != fact.param) vector = vector_bytes(model, arguments, measured = fact.param);
        holds = vector >= static_cast<uint64_t>(fact.bytes);
        break;
    }
    mask |= static_cast<uint64_t>(holds) << i;
  }
  return mask;
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
      case lowering::Fact::Kind::kUnitStride:
        text += fmt::format("unit stride of `{}`", model.params[model.facts[i].param].name);
        break;
      case lowering::Fact::Kind::kVector:
        text += fmt::format("{}-byte rows of `{}`", model.facts[i].bytes, model.params[model.facts[i].param].name);
        break;
    }
  }
  return text.empty() ? "none" : text;
}

}  // namespace kachel::runtime
