// Two byte ranges that do not meet are the common case and cost one comparison. Where they meet, each tensor is looked
// at modulo a pitch: the axes whose stride is a multiple of the pitch move by whole pitches, the others span an
// interval within one. Disjoint intervals, neither of which reaches past its pitch, share no byte.
#include "runtime/engine/bind/overlap.h"

#include <fmt/format.h>

#include <algorithm>

namespace kachel::runtime {
namespace {

struct View {
  const BoundTensor& tensor;
  int rank;
  int64_t stride_bytes(int axis) const { return tensor.strides[axis] * ir::bits(tensor.dtype) / 8; }
  int64_t element_bytes() const { return std::max(1, ir::bits(tensor.dtype) / 8); }
};

struct Interval {
  uint64_t begin, end;
};

// False where the view does not fit into one pitch.
bool within_pitch(const View& view, int64_t pitch, Interval& out) {
  // The last axis of 4-bit types is packed: its bytes count as one run.
  const bool packed = ir::bits(view.tensor.dtype) == 4;
  int64_t span = view.element_bytes();
  for (int axis = 0; axis < view.rank; ++axis) {
    if (packed && axis == view.rank - 1) {
      span += (view.tensor.shape[axis] - 1) / 2;
      continue;
    }
    const int64_t stride = view.stride_bytes(axis);
    if (stride % pitch != 0) span += (view.tensor.shape[axis] - 1) * stride;
  }
  out.begin = reinterpret_cast<uintptr_t>(view.tensor.data) % static_cast<uint64_t>(pitch);
  out.end = out.begin + static_cast<uint64_t>(span);
  return out.end <= static_cast<uint64_t>(pitch);
}

bool interleave(const View& a, const View& b, int64_t pitch) {
  Interval first, second;
  if (pitch <= 0 || !within_pitch(a, pitch, first) || !within_pitch(b, pitch, second)) return false;
  return first.end <= second.begin || second.end <= first.begin;
}

bool disjoint(const View& a, const View& b) {
  if (a.tensor.elements == 0 || b.tensor.elements == 0) return true;
  if (a.tensor.data + a.tensor.bytes <= b.tensor.data || b.tensor.data + b.tensor.bytes <= a.tensor.data) return true;
  for (const View& view : {a, b})
    for (int axis = 0; axis < view.rank; ++axis)
      if (view.tensor.shape[axis] > 1 && interleave(a, b, view.stride_bytes(axis))) return true;
  return false;
}

// Every element has an address of its own: in order of their strides, each axis steps over all that the smaller ones
// reach. Sufficient, and exact for every layout that frameworks make.
bool injective(const View& view) {
  if (view.tensor.elements <= 1) return true;
  int order[kMaxRank], count = 0;
  const auto& strides = view.tensor.strides;
  for (int axis = 0; axis < view.rank && count < kMaxRank; ++axis) {
    if (view.tensor.shape[axis] <= 1) continue;
    int at = count++;
    for (; at > 0 && strides[order[at - 1]] > strides[axis]; --at) order[at] = order[at - 1];
    order[at] = axis;
  }
  int64_t reach = 0;
  for (int i = 0; i < count; ++i) {
    if (strides[order[i]] <= reach) return false;
    reach += (view.tensor.shape[order[i]] - 1) * strides[order[i]];
  }
  return true;
}

}  // namespace

Status check_overlap(const KernelModel& model, const BoundArguments& arguments) {
  const std::string& kernel = model.kernel.name;
  for (int out : model.tensors) {
    const ParamModel& param = model.params[out];
    if (param.direction == ir::Direction::kIn) continue;
    const View view{arguments.tensors[out], static_cast<int>(param.axes.size())};
    if (!injective(view)) [[unlikely]]
      return invalid(
          fmt::format("kernel `{}`, argument {} `{}`: its strides give two elements one address; pass an "
                      "output whose elements are apart",
                      kernel, out, param.name));
    for (int other : model.tensors) {
      // A pair of outputs is looked at once.
      if (other == out || (other < out && model.params[other].direction != ir::Direction::kIn)) continue;
      const View second{arguments.tensors[other], static_cast<int>(model.params[other].axes.size())};
      if (!disjoint(view, second)) [[unlikely]]
        return invalid(
            fmt::format("kernel `{}`: the output `{}` overlaps `{}` in memory; pass tensors that are apart, or "
                        "declare one `inout` parameter for both",
                        kernel, param.name, model.params[other].name));
    }
  }
  return {};
}

}  // namespace kachel::runtime
