#include "runtime/engine/programs/program_handle.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <new>

#include "runtime/engine/programs/prepared_forms.h"
#include "runtime/engine/programs/program_bound.h"
#include "runtime/engine/programs/program_cargo.h"
#include "runtime/engine/programs/program_session.h"
#include "runtime/engine/threads.h"
#include "runtime/engine/tuning/choose_runner.h"
#include "runtime/engine/tuning/trials.h"
#include "runtime/engine/worker/worker_session.h"

namespace kachel::runtime {
namespace {

// Without what belongs to a tuning.
LaunchSettings quiet(const LaunchSettings& settings) {
  LaunchSettings made = settings;
  made.quiet = true;
  if (made.policy == tuner::Policy::kBlocking) made.policy = tuner::Policy::kOff;
  return made;
}

// The kernels of derived programs are such forms themselves.
std::unique_ptr<OtherForms> forms_of(const std::shared_ptr<Engine>& engine,
                                     const std::shared_ptr<const KernelModel>& model) {
  if (model->derived) return nullptr;
  std::vector<ConstValue> consts;
  for (const ir::VarRef& constant : model->kernel.consts) {
    const auto i = model->int_consts.find(constant->name);
    const auto f = model->float_consts.find(constant->name);
    consts.push_back(
        {constant->name, i == model->int_consts.end() ? 0 : i->second, f == model->float_consts.end() ? 0 : f->second});
  }
  return PreparedForms::create(engine, model->kernel, consts, model);
}

}  // namespace

LaunchSettings step_settings(const LaunchSettings& settings, size_t steps) {
  LaunchSettings each = settings;
  each.has_configuration = false;
  each.tune_budget_ns = settings.tune_budget_ns / static_cast<int64_t>(std::max<size_t>(steps, 1));
  return each;
}

LaunchSettings candidate_settings(const LaunchSettings& settings, size_t steps, size_t index, size_t candidates) {
  LaunchSettings each = step_settings(settings, steps);
  if (index > 0 && each.policy == tuner::Policy::kBlocking) each.policy = tuner::Policy::kOff;
  if (index == 0 && candidates > 1) each.tune_budget_ns /= 2;
  return each;
}

ProgramHandle::ProgramHandle(std::shared_ptr<Engine> engine, std::shared_ptr<const ProgramModel> program)
    : Launchable(std::move(engine), program->header),
      program_(std::move(program)),
      deferred_(
          *engine_, *model_, [this](auto args, auto& settings, void* stream) { return tune(args, settings, stream); },
          [this](const Signature& signature) { table_.publish(signature, nullptr); }) {
  std::map<const KernelModel*, std::shared_ptr<KernelHandle>> known;
  for (const ProgramModel::Step& step : program_->steps) {
    std::shared_ptr<KernelHandle>& handle = known[step.kernel.get()];
    if (!handle) handle = std::make_shared<KernelHandle>(engine_, step.kernel, forms_of(engine_, step.kernel));
    steps_.push_back(handle);
  }
}

const TunableValues* ProgramHandle::keep(TunableValues values) {
  std::lock_guard lock(mutex_);
  return &*choices_.insert(std::move(values)).first;
}

Status ProgramHandle::run(const BoundArguments& arguments, const TunableValues& values, const ProgramLayout& layout,
                          void* scratch, std::span<const Arg> args, const LaunchSettings& settings,
                          void* stream) const {
  StepArguments step_arguments(*program_, arguments, values, layout, scratch, args);
  LaunchSettings each = settings;
  for (size_t i = 0; i < steps_.size(); ++i) {
    if (!layout.runs(i)) continue;
    KACHEL_TRY(steps_[i]->launch(step_arguments.of(program_->steps[i]), each, stream));
    each.follows = true;
  }
  return {};
}

Result<Ranking::Runner> ProgramHandle::runner(Device& device, const Point& point, const BoundArguments& arguments,
                                              std::span<const Arg> args, const std::vector<TunableValues>& candidates,
                                              const LaunchSettings& settings, void* stream) const {
  auto here = [&]() -> std::unique_ptr<tuner::CandidateRunner> {
    auto session = std::make_unique<ProgramSession>(*this, device, arguments, args, candidates, settings, stream);
    session->rehearse();
    return session;
  };
  auto in_worker = [&]() -> Result<std::unique_ptr<tuner::CandidateRunner>> {
    // Before the kernels are tuned: whether there is one at all.
    const bool patient = settings.share < 1;
    KACHEL_ASSIGN(std::unique_ptr<Worker> worker, engine_->workers().take(patient));
    engine_->workers().give_back(std::move(worker), patient);
    KACHEL_ASSIGN(std::unique_ptr<WorkerCargo> cargo,
                  ProgramCargo::create(*this, device, arguments, args, candidates, settings, stream));
    KACHEL_ASSIGN(auto session, WorkerSession::open({*engine_, device, *model_, point, arguments, candidates, stream,
                                                     settings.share, settings.cancelled},
                                                    std::move(cargo)));
    return std::unique_ptr<tuner::CandidateRunner>(std::move(session));
  };
  if (passes_integers(*program_, arguments)) return Ranking::Runner{here()};
  return choose_runner(*engine_, hooks_of(*model_, settings), in_worker, here);
}

Result<const TunableValues*> ProgramHandle::choose(const BoundArguments& arguments, std::span<const Arg> args,
                                                   const LaunchSettings& settings, Signature& signature, void* stream,
                                                   bool* decided) {
  KACHEL_ASSIGN(Device * device, engine_->devices().get(arguments.device));
  RelaxedCapture relaxed(*device);
  KACHEL_ASSIGN(const bool capturing, device->is_capturing(stream));
  if (capturing) return busy_in_capture(*model_, "choose a configuration");
  if (engine_->device_lost())
    return Status(Code::kDeviceLost, "a device has failed for good in this process; restart the process");
  const Point point = point_of(*model_, arguments);
  Ranking ranking(*engine_, *device, *model_, arguments, settings, [&](const std::vector<TunableValues>& candidates) {
    return runner(*device, point, arguments, args, candidates, settings, stream);
  });
  if (settings.has_configuration) {
    KACHEL_ASSIGN(TunableValues values, ranking.given());
    return keep(std::move(values));
  }
  KACHEL_TRY(ranking.admit());
  KACHEL_ASSIGN(std::vector<TunableValues> order, ranking.order(settings.policy));
  const size_t first = ranking.decided() ? 0 : first_that_fits(arguments, order, args, settings);
  const TunableValues* choice = keep(std::move(order[first]));
  table_.publish(signature, choice);
  *decided = ranking.decided();
  if (!*decided && settings.policy == tuner::Policy::kBackground && !engine_->frozen())
    deferred_.add({*device, *model_, arguments, args, settings, stream}, signature);
  return choice;
}

size_t ProgramHandle::first_that_fits(const BoundArguments& arguments, const std::vector<TunableValues>& order,
                                      std::span<const Arg> args, const LaunchSettings& settings) const {
  // Nothing is read or written: of temporaries that are not there the address's alignment is asked for alone.
  constexpr uintptr_t kNowhere = uintptr_t{1} << 20;
  const LaunchSettings each = step_settings(settings, steps_.size());
  const auto fits = [&](const TunableValues& values) {
    ProgramLayout layout;
    if (!lay_out(*program_, arguments, values, layout).ok()) return false;
    void* const scratch = reinterpret_cast<void*>(kNowhere);
    StepArguments step_arguments(*program_, arguments, values, layout, scratch, args);
    for (size_t i = 0; i < steps_.size(); ++i)
      if (layout.runs(i) && !steps_[i]->needs_tuning(step_arguments.of(program_->steps[i]), each).ok()) return false;
    return true;
  };
  for (size_t i = 0; order.size() > 1 && i < order.size(); ++i)
    if (fits(order[i])) return i;
  return 0;  // whose failure is reported, if it fails
}

Result<bool> ProgramHandle::tune(std::span<const Arg> args, const LaunchSettings& settings, void* stream) {
  BoundArguments arguments;
  KACHEL_TRY(bind_arguments(args, arguments));
  Signature signature;
  make_signature(model_->table, arguments, settings.mode(), signature);
  bool decided = false;
  KACHEL_ASSIGN(const TunableValues* values, choose(arguments, args, settings, signature, stream, &decided));
  KACHEL_ASSIGN(Device * device, engine_->devices().get(arguments.device));
  KACHEL_TRY(prepare_steps(*device, arguments, *values, args, settings, stream, &decided));
  return decided;
}

const TunableValues* ProgramHandle::known(const BoundArguments& arguments, const LaunchSettings& settings) const {
  Signature signature;
  make_signature(model_->table, arguments, settings.mode(), signature);
  return table_.find(signature);
}

Result<const TunableValues*> ProgramHandle::resolve(const BoundArguments& arguments, std::span<const Arg> args,
                                                    const LaunchSettings& settings, void* stream, bool* fresh) {
  Signature signature;
  make_signature(model_->table, arguments, settings.mode(), signature);
  if (!settings.has_configuration)
    if (const TunableValues* found = table_.find(signature)) return found;
  if (fresh) *fresh = true;
  bool decided;
  return choose(arguments, args, settings, signature, stream, &decided);
}

Status ProgramHandle::launch(std::span<const Arg> args, const LaunchSettings& settings, void* stream) {
  BoundArguments arguments;
  KACHEL_TRY(bind_arguments(args, arguments));
  bool fresh = false;
  KACHEL_ASSIGN(const TunableValues* values, resolve(arguments, args, settings, stream, &fresh));
  ProgramLayout layout;
  KACHEL_TRY(lay_out(*program_, arguments, *values, layout));
  KACHEL_ASSIGN(Device * device, engine_->devices().get(arguments.device));
  const LaunchSettings each = step_settings(settings, steps_.size());
  auto go = [&](void* scratch) {
    // What fails here is reported by the launch of the step.
    if (fresh && settings.policy != tuner::Policy::kBlocking)
      (void)prepare_together(arguments, *values, layout, scratch, args, quiet(each), stream);
    return run(arguments, *values, layout, scratch, args, each, stream);
  };
  if (layout.bytes == 0) return go(nullptr);
  RelaxedCapture relaxed(*device);
  KACHEL_ASSIGN(const bool capturing, device->is_capturing(stream));
  if (capturing) return busy_in_capture(*model_, "allocate its temporary tensors");
  KACHEL_ASSIGN(const Workspace scratch,
                Workspace::allocate(*device, engine_->options().scratch, layout.bytes, stream));
  return go(scratch.get());
}

Status ProgramHandle::prepare_steps(Device& device, const BoundArguments& arguments, const TunableValues& values,
                                    std::span<const Arg> args, const LaunchSettings& settings, void* stream,
                                    bool* decided) {
  ProgramLayout layout;
  KACHEL_TRY(lay_out(*program_, arguments, values, layout));
  RelaxedCapture relaxed(device);
  KACHEL_ASSIGN(const bool capturing, device.is_capturing(stream));
  if (capturing) return busy_in_capture(*model_, "prepare its kernels");
  const bool later = settings.policy == tuner::Policy::kBackground;
  const LaunchSettings each = step_settings(later ? quiet(settings) : settings, steps_.size());
  Workspace scratch;
  if (layout.bytes > 0) {
    KACHEL_ASSIGN(scratch, Workspace::allocate(device, engine_->options().scratch, layout.bytes, stream));
  }
  StepArguments step_arguments(*program_, arguments, values, layout, scratch.get(), args);
  auto some_need_tuning = [&]() -> Result<bool> {
    bool some = false;
    for (size_t i = 0; i < steps_.size() && !some; ++i) {
      if (!layout.runs(i)) continue;
      KACHEL_ASSIGN(some, steps_[i]->needs_tuning(step_arguments.of(program_->steps[i]), each));
    }
    return some;
  };
  bool tunes = later ? !engine_->frozen() : settings.policy == tuner::Policy::kBlocking;
  if (tunes) {
    KACHEL_ASSIGN(tunes, some_need_tuning());
  }
  if (tunes && later) {
    Signature signature;
    make_signature(model_->table, arguments, settings.mode(), signature);
    deferred_.add({device, *model_, arguments, args, settings, stream}, signature);
  } else if (tunes) {
    // A kernel is tuned on what the steps before it have made.
    ProgramSession session(*this, device, arguments, args, {values}, settings, stream);
    KACHEL_TRY(session.prepare());
  }
  KACHEL_TRY(prepare_together(arguments, values, layout, scratch.get(), args, each, stream));
  if (tunes && decided) {
    KACHEL_ASSIGN(const bool left, some_need_tuning());
    *decided &= !left;
  }
  return {};
}

Status ProgramHandle::prepare_together(const BoundArguments& arguments, const TunableValues& values,
                                       const ProgramLayout& layout, void* scratch, std::span<const Arg> args,
                                       const LaunchSettings& settings, void* stream) {
  std::vector<Status> prepared(steps_.size());
  std::atomic<size_t> next{0};
  auto prepare = [&](size_t i) -> Status {
    if (!layout.runs(i)) return {};
    try {
      StepArguments step_arguments(*program_, arguments, values, layout, scratch, args);
      return steps_[i]->prepare(step_arguments.of(program_->steps[i]), settings, stream);
    } catch (const std::bad_alloc&) {
      return {Code::kNoMemory, "there is no memory to prepare a step of a program"};
    } catch (const std::exception& failure) {
      return internal(failure.what());
    }
  };
  auto work = [&] {
    for (size_t i = next++; i < steps_.size(); i = next++) prepared[i] = prepare(i);
  };
  // Tunings want the device to themselves.
  const bool side_by_side = settings.policy != tuner::Policy::kBlocking;
  on_threads(side_by_side ? std::min(steps_.size(), engine_->compile_threads()) : 1, work);
  for (Status& status : prepared) KACHEL_TRY(std::move(status));
  return {};
}

Status ProgramHandle::prepare(std::span<const Arg> args, const LaunchSettings& settings, void* stream) {
  BoundArguments arguments;
  KACHEL_TRY(bind_arguments(args, arguments));
  KACHEL_ASSIGN(const TunableValues* values, resolve(arguments, args, settings, stream));
  KACHEL_ASSIGN(Device * device, engine_->devices().get(arguments.device));
  return prepare_steps(*device, arguments, *values, args, settings, stream);
}

Result<std::unique_ptr<BoundLaunch>> ProgramHandle::bind(std::span<const Arg> args, const LaunchSettings& settings) {
  BoundArguments arguments;
  KACHEL_TRY(bind_arguments(args, arguments));
  KACHEL_ASSIGN(const TunableValues* values, resolve(arguments, args, settings, nullptr));
  KACHEL_ASSIGN(Device * device, engine_->devices().get(arguments.device));
  KACHEL_TRY(prepare_steps(*device, arguments, *values, args, settings, nullptr));
  // Nothing of what the steps read has been computed: they are tuned elsewhere, if at all.
  const LaunchSettings each = settings.policy == tuner::Policy::kBackground ? quiet(settings) : settings;
  KACHEL_ASSIGN(std::unique_ptr<BoundLaunch> bound, BoundProgram::create(*this, program_, *device, arguments, *values,
                                                                         args, step_settings(each, steps_.size())));
  return bound;
}

}  // namespace kachel::runtime
