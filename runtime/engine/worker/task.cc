#include "runtime/engine/worker/task.h"

#include <algorithm>
#include <limits>

namespace kachel::runtime {
namespace {

constexpr uint64_t kPieceBytes = uint64_t{1} << 20;

std::vector<ConstValue> consts_of(const KernelModel& model) {
  std::vector<ConstValue> consts;
  for (const auto& [name, value] : model.int_consts) consts.push_back({name, value, 0});
  for (const auto& [name, value] : model.float_consts) consts.push_back({name, 0, value});
  return consts;
}

}  // namespace

WorkerTask describe_task(const KernelModel& model, std::string text, const BoundArguments& arguments,
                         const std::vector<TunableValues>& candidates) {
  WorkerTask task;
  task.device = arguments.device;
  task.text = std::move(text);
  task.consts = consts_of(model);
  task.candidates = candidates;
  for (size_t i = 0; i < model.params.size(); ++i) {
    const ParamModel& param = model.params[i];
    WorkerArgument& argument = task.arguments.emplace_back();
    if (!param.is_tensor) {
      argument.scalar = arguments.scalars[i];
      continue;
    }
    const BoundTensor& bound = arguments.tensors[i];
    WorkerTensor& tensor = argument.tensor.emplace();
    tensor.dtype = bound.dtype;
    tensor.shape.assign(bound.shape, bound.shape + param.axes.size());
    tensor.strides.assign(bound.strides, bound.strides + param.axes.size());
    tensor.bytes = static_cast<uint64_t>(bound.bytes);
    tensor.address = reinterpret_cast<uintptr_t>(bound.data) % WorkerTensor::kAlign;
    tensor.read = param.direction != ir::Direction::kOut;
  }
  return task;
}

int64_t task_bytes(const KernelModel& model, const BoundArguments& arguments) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  int64_t bytes = 0;
  for (int index : model.tensors) {
    const int64_t copies = model.params[static_cast<size_t>(index)].direction == ir::Direction::kIn ? 1 : 2;
    const int64_t each = arguments.tensors[index].bytes + static_cast<int64_t>(WorkerTensor::kAlign);
    if (each > (kMost - bytes) / copies) return kMost;
    bytes += copies * each;
  }
  return bytes;
}

std::string task_keys(const KernelModel& model, const Point& point, const TunableValues& first,
                      const DeviceProperties& device) {
  return tuning_key(model, point, device).hex() + plan_key(model, point, first, device).hex();
}

Status read_contents(Device& device, const BoundArguments& arguments, const WorkerTask& task, void* stream,
                     const ContentsSink& sink) {
  std::string piece;
  for (size_t i = 0; i < task.arguments.size(); ++i) {
    const auto& tensor = task.arguments[i].tensor;
    if (!tensor || !WorkerTask::copies(*tensor)) continue;
    for (uint64_t offset = 0; offset < tensor->bytes; offset += kPieceBytes) {
      piece.resize(std::min(kPieceBytes, tensor->bytes - offset));
      KACHEL_TRY(device.copy(piece.data(), arguments.tensors[i].data + offset, piece.size(), stream));
      KACHEL_TRY(device.synchronize(stream));
      KACHEL_TRY(sink(i, offset, piece));
    }
  }
  return {};
}

}  // namespace kachel::runtime
