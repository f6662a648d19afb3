#include "runtime/engine/tuning/rotation.h"

#include <algorithm>
#include <cmath>

namespace kachel::runtime {
namespace {

constexpr int64_t kAlign = 256;  // what facts ask of addresses divides this

// A copy and the bytes in front of it, by which it lies within an alignment as its original does.
int64_t room(const BoundTensor& tensor) {
  return (tensor.bytes + 2 * kAlign - 1) / kAlign * kAlign;
}

}  // namespace

Rotation::Launches Rotation::launches(double run_ns, int64_t bytes, int64_t cache_bytes) {
  constexpr double kTimed_ns = 100e3, kLeast = 2, kMost = 16;
  constexpr int64_t kMostAhead = 4;
  return {static_cast<size_t>(std::clamp<int64_t>(cache_bytes / std::max<int64_t>(bytes, 1), 1, kMostAhead)),
          static_cast<size_t>(std::clamp(std::ceil(kTimed_ns / std::max(run_ns, 1.0)), kLeast, kMost))};
}

int64_t Rotation::bytes(const KernelModel& model, const BoundArguments& arguments) {
  int64_t sum = 0;
  for (int index : model.tensors) sum += room(arguments.tensors[index]);
  return sum;
}

Status Rotation::open(Device& device, const ScratchCallbacks& scratch, const KernelModel& model,
                      const BoundArguments& arguments, size_t sets, void* stream) {
  sets_.assign(sets, arguments);
  const int64_t set_bytes = bytes(model, arguments);
  KACHEL_ASSIGN(memory_, Workspace::allocate(device, scratch,
                                             std::max<int64_t>(set_bytes * static_cast<int64_t>(sets - 1), 1), stream));
  auto* at = static_cast<char*>(memory_.get());
  for (size_t set = 1; set < sets; ++set)
    for (int index : model.tensors) {
      const BoundTensor& from = arguments.tensors[index];
      char* copy = at + reinterpret_cast<uintptr_t>(from.data) % kAlign;
      at += room(from);
      if (from.bytes > 0 && model.params[static_cast<size_t>(index)].direction == ir::Direction::kIn)
        KACHEL_TRY(device.copy(copy, from.data, static_cast<size_t>(from.bytes), stream));
      sets_[set].tensors[index].data = copy;
    }
  return {};
}

const BoundArguments& Rotation::next() {
  last_ = (last_ + 1) % sets_.size();
  return sets_[last_];
}

void Rotation::close() {
  memory_.reset();
  sets_.clear();
}

}  // namespace kachel::runtime
