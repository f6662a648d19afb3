#include "runtime/engine/serve/served_task.h"

#include <bit>

#include "ir/parse.h"
#include "runtime/engine/programs/program_cargo.h"
#include "runtime/engine/programs/program_session.h"
#include "runtime/engine/serve/synthesise.h"
#include "runtime/engine/specialise/configurations.h"
#include "runtime/engine/tuning/ranking.h"
#include "runtime/engine/tuning/tune_session.h"

namespace kachel::runtime {

Status ServedTask::read_text() {
  KACHEL_ASSIGN(const ir::Module module, ir::load(task_.text, "the host's kernel"));
  if (module.programs.empty()) {
    if (module.kernels.size() != 1) return internal("a task has one kernel");
    KACHEL_ASSIGN(model_, KernelModel::create(module.kernels[0], task_.consts));
    return {};
  }
  if (module.programs.size() != 1) return internal("a task has one program");
  KACHEL_ASSIGN(auto program, ProgramModel::create(module, module.programs[0], task_.consts));
  model_ = program->header;
  program_ = std::make_unique<ProgramHandle>(engine_, std::move(program));
  return {};
}

Result<std::unique_ptr<ServedTask>> ServedTask::open(std::shared_ptr<Engine> engine, WorkerTask task) {
  KACHEL_ASSIGN(Device * device, engine->devices().get(task.device));
  std::unique_ptr<ServedTask> made(new ServedTask(std::move(engine), *device, std::move(task)));
  WorkerTask& own = made->task_;
  KACHEL_TRY(made->read_text());
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
  if (program_)
    session_ =
        std::make_unique<ProgramSession>(*program_, device_, arguments_, args_, task_.candidates, settings(), nullptr);
  else
    session_ = std::make_unique<TuneSession>(
        TuneSession::Setup{engine_->services(), engine_->plans(), engine_->options().scratch, device_, *model_, point_,
                           arguments_, task_.candidates, nullptr, 1, nullptr, task_.spare_bytes});
  return task_keys(*model_, point_, task_.candidates[0], device_.properties());
}

// By what the host has decided, which compile() has put into the store.
LaunchSettings ServedTask::settings() const {
  LaunchSettings settings;
  settings.policy = tuner::Policy::kOff;
  return settings;
}

Result<std::string> ServedTask::compile(size_t index, std::string_view given) {
  if (program_) {
    if (!given.empty() && !keep_entries(engine_->store(), given)) return internal("entries make no sense");
    const std::string configuration = configuration_text(*model_, task_.candidates[index]);
    LaunchSettings chosen = settings();
    chosen.has_configuration = true;
    chosen.configuration = configuration;
    KACHEL_TRY(program_->prepare(args_, chosen, nullptr));
    return std::string();
  }
  if (!given.empty()) engine_->plans().keep(request(index), given);
  KACHEL_TRY(session_->compile(index));
  return given.empty() ? engine_->plans().stored(request(index)).value_or("") : std::string();
}

}  // namespace kachel::runtime
