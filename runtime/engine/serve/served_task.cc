#include "runtime/engine/serve/served_task.h"

#include <bit>

#include "ir/parse.h"
#include "runtime/engine/serve/synthesise.h"
#include "runtime/engine/tuning/ranking.h"

namespace kachel::runtime {

Result<std::unique_ptr<ServedTask>> ServedTask::open(Engine& engine, WorkerTask task) {
  KACHEL_ASSIGN(Device * device, engine.devices().get(task.device));
  std::unique_ptr<ServedTask> made(new ServedTask(engine, *device, std::move(task)));
  WorkerTask& own = made->task_;
  KACHEL_ASSIGN(const ir::Module module, ir::load(own.text, "the host's kernel"));
  if (module.kernels.size() != 1) return internal("a task has one kernel");
  KACHEL_ASSIGN(made->model_, KernelModel::create(module.kernels[0], own.consts));
  if (own.candidates.empty() || own.arguments.size() != made->model_->params.size())
    return internal("a task has a candidate, and an argument for each parameter");
  for (const TunableValues& values : own.candidates)
    if (values.size() != made->model_->tunables.size()) return internal("a candidate sets every tunable");
  made->tensors_.resize(own.arguments.size());
  for (size_t i = 0; i < own.arguments.size(); ++i) {
    Arg& arg = made->args_.emplace_back();
    const ParamModel& param = made->model_->params[i];
    if (param.is_tensor != own.arguments[i].tensor.has_value()) return internal("an argument is of another kind");
    if (param.is_tensor) {
      KACHEL_TRY(made->add_tensor(*own.arguments[i].tensor));
    } else if (param.dtype == ir::DType::F32) {
      arg.kind = Arg::kFloat;
      arg.f = std::bit_cast<float>(static_cast<uint32_t>(own.arguments[i].scalar));
    } else {
      arg.kind = Arg::kInt;
      arg.i = static_cast<int64_t>(own.arguments[i].scalar);
    }
  }
  return made;
}

ServedTask::~ServedTask() {
  session_.reset();
  for (void* memory : memory_) device_.free(memory);
}

Status ServedTask::add_tensor(WorkerTensor& tensor) {
  const size_t at = args_.size() - 1;
  KACHEL_ASSIGN(void* memory, device_.allocate(tensor.bytes + WorkerTensor::kAlign));
  memory_.push_back(memory);
  TensorArg& arg = tensors_[at];
  arg.data = static_cast<char*>(memory) + tensor.address;
  arg.device = task_.device;
  arg.ndim = static_cast<int32_t>(tensor.shape.size());
  arg.dtype = to_data_type(tensor.dtype);
  arg.shape = tensor.shape.data();
  arg.strides = tensor.strides.data();
  args_[at].kind = Arg::kTensor;
  args_[at].tensor = &arg;
  if (!tensor.read || WorkerTask::copies(tensor)) return {};
  return synthesise(device_, tensor.dtype, at, arg.data, tensor.bytes, nullptr);
}

Status ServedTask::put(uint64_t param, uint64_t offset, std::string_view bytes) {
  const WorkerTensor* tensor =
      param < task_.arguments.size() && task_.arguments[param].tensor ? &*task_.arguments[param].tensor : nullptr;
  if (!tensor || offset > tensor->bytes || bytes.size() > tensor->bytes - offset)
    return internal("contents lie outside of their tensor");
  KACHEL_TRY(device_.copy(static_cast<char*>(tensors_[param].data) + offset, bytes.data(), bytes.size(), nullptr));
  return device_.synchronize(nullptr);
}

Result<std::string> ServedTask::start() {
  KACHEL_TRY(bind_arguments(*model_, args_, arguments_));
  if (arguments_.device.type == 0) arguments_.device = task_.device;
  point_ = point_of(*model_, arguments_);
  session_ = std::make_unique<TuneSession>(TuneSession::Setup{engine_.services(), engine_.plans(),
                                                              engine_.options().scratch, device_, *model_, point_,
                                                              arguments_, task_.candidates, nullptr});
  return task_keys(*model_, point_, key_values_of(*model_, arguments_), task_.candidates[0], device_.properties());
}

Result<std::string> ServedTask::compile(size_t index, std::string_view plan) {
  if (!plan.empty()) engine_.plans().keep(request(index), plan);
  KACHEL_TRY(session_->compile(index));
  return plan.empty() ? engine_.plans().stored(request(index)).value_or("") : std::string();
}

}  // namespace kachel::runtime
