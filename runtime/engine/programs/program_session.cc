#include "runtime/engine/programs/program_session.h"

#include <algorithm>

#include "runtime/engine/pause.h"
#include "runtime/engine/specialise/configurations.h"
#include "runtime/engine/tuning/session_trial.h"
#include "runtime/engine/tuning/trials.h"

namespace kachel::runtime {

ProgramSession::ProgramSession(const ProgramHandle& program, Device& device, const BoundArguments& arguments,
                               std::span<const Arg> args, std::vector<TunableValues> candidates,
                               const LaunchSettings& settings, void* stream)
    : program_(program),
      device_(device),
      given_(arguments),
      arguments_(arguments),
      args_(args.begin(), args.end()),
      tensors_(args.size()),
      candidates_(std::move(candidates)),
      settings_(settings),
      caller_stream_(stream),
      runs_(candidates_.size()) {}

ProgramSession::~ProgramSession() {
  if (!has_stream_) return;
  // Copies are given back in stream order, after the last run.
  scratch_.reset();
  outputs_.close();
  (void)device_.synchronize(stream_);
  device_.destroy_stream(stream_);
}

// The caller's work on the inputs is waited for, so that reading them on another stream is safe.
Status ProgramSession::open() {
  if (opened_) return opening_;
  opened_ = true;
  auto opening = [&]() -> Status {
    KACHEL_TRY(device_.synchronize(caller_stream_));
    KACHEL_ASSIGN(stream_, device_.create_stream());
    has_stream_ = true;
    KACHEL_ASSIGN(timer_, device_.create_timer());
    const ScratchCallbacks& callbacks = program_.engine().options().scratch;
    KACHEL_TRY(outputs_.open(device_, callbacks, program_.model(), &arguments_, stream_));
    for (int index : program_.model().tensors) {
      if (program_.model().params[index].direction == ir::Direction::kIn) continue;
      const auto at = static_cast<size_t>(index);
      tensors_[at] = *args_[at].tensor;
      tensors_[at].data = arguments_.tensors[index].data;
      tensors_[at].byte_offset = 0;
      args_[at].tensor = &tensors_[at];
    }
    int64_t bytes = 0;
    for (size_t i = 0; i < candidates_.size(); ++i) {
      KACHEL_TRY(lay_out(program_.program(), arguments_, candidates_[i], runs_[i].layout));
      bytes = std::max(bytes, runs_[i].layout.bytes);
    }
    if (bytes > 0) {
      KACHEL_ASSIGN(scratch_, Workspace::allocate(device_, callbacks, bytes, stream_));
    }
    return {};
  };
  opening_ = program_.engine().services().noticed(opening());
  return opening_;
}

Status ProgramSession::run(size_t index) {
  const size_t steps = program_.program().steps.size();
  return program_.run(arguments_, candidates_[index], runs_[index].layout, scratch_.get(), args_,
                      candidate_settings(settings_, steps, index, candidates_.size()), stream_);
}

void ProgramSession::rehearse() {
  if (!open().ok()) return;
  for (size_t i = 0; i < runs_.size(); ++i) {
    runs_[i].status = outputs_.restore(false);
    if (runs_[i].status.ok()) runs_[i].status = run(i);
    if (runs_[i].status.ok()) runs_[i].status = device_.synchronize(stream_);
    runs_[i].status = program_.engine().services().noticed(std::move(runs_[i].status));
    runs_[i].ran = true;
  }
}

Status ProgramSession::prepare() {
  KACHEL_TRY(open());
  Status why;
  for (size_t i = 0; i < runs_.size(); ++i) {
    if (runs_[i].ran && !runs_[i].status.ok()) {
      if (why.ok()) why = runs_[i].status;
      continue;
    }
    Status made = make_reference(candidates_.size() + i);
    if (made.ok()) return made;
    if (why.ok()) why = std::move(made);
  }
  return why;
}

Status ProgramSession::make_reference(size_t attempt) {
  KACHEL_TRY(open());
  if (attempt < candidates_.size()) return unsupported("a program has no generic lowering of its own");
  KACHEL_TRY(outputs_.restore(false));
  Status ran = run(attempt - candidates_.size());
  if (ran.ok()) ran = device_.synchronize(stream_);
  return ran.ok() ? outputs_.keep() : program_.engine().services().noticed(std::move(ran));
}

Status ProgramSession::check(size_t index) {
  KACHEL_TRY(outputs_.restore(false));
  Status ran = run(index);
  if (ran.ok()) ran = device_.synchronize(stream_);
  if (!ran.ok()) {
    // The tuner takes any failure but these for a wrong output.
    const Code code = ran.code();
    const bool known = code == Code::kDeviceLost || code == Code::kCancelled || code == Code::kNoMemory;
    return program_.engine().services().noticed(known ? std::move(ran)
                                                      : Status(Code::kLaunch, ran.message(), ran.log()));
  }
  return outputs_.compare(roundings(), configuration_text(program_.model(), candidates_[index]));
}

void ProgramSession::prepare_run(tuner::Caches caches) {
  caches_ = caches;
  prepared_ = outputs_.restore(true);
  if (prepared_.ok() && caches == tuner::Caches::kEvicted) prepared_ = device_.flush_cache(stream_);
}

Result<double> ProgramSession::time_once_ns(size_t index) {
  const EngineServices& services = program_.engine().services();
  KACHEL_TRY(services.noticed(prepared_));
  const TuningHooks* hooks = hooks_of(program_.model(), settings_);
  // Something keeps the device busy while the host enqueues: a flush, or this.
  if (caches_ == tuner::Caches::kAsLeft) {
    KACHEL_TRY(services.noticed(run(index)));
    KACHEL_TRY(services.noticed(outputs_.restore(true)));
  }
  if (hooks && hooks->before_run) KACHEL_TRY(hooks->before_run(tuning(), candidates_[index], stream_));
  KACHEL_TRY(services.noticed(timer_->start(stream_)));
  KACHEL_TRY(services.noticed(run(index)));
  KACHEL_TRY(services.noticed(timer_->stop(stream_)));
  if (hooks && hooks->after_run) KACHEL_TRY(hooks->after_run(tuning(), candidates_[index], stream_));
  auto elapsed = timer_->elapsed_ns();
  services.counters.measurements.fetch_add(1, std::memory_order_relaxed);
  if (!elapsed.ok()) return services.noticed(elapsed.status());
  leave_room(*elapsed, settings_.share);
  return elapsed;
}

Result<std::vector<double>> ProgramSession::benchmark(size_t index) {
  SessionTrial trial(stream_, {.restore = [&] { return outputs_.restore(true); },
                               .flush =
                                   [&] {
                                     prepare_run(tuner::Caches::kEvicted);
                                     return prepared_;
                                   },
                               .run = [&] { return run(index); },
                               .synchronize = [&] { return device_.synchronize(stream_); }});
  return trial.measure(program_.engine().services(), *hooks_of(program_.model(), settings_), tuning(),
                       candidates_[index]);
}

// Of all kernels: configurations of a program differ in how they split sums, and what is rounded between kernels is
// rounded to their types.
Roundings ProgramSession::roundings() const {
  Roundings all;
  auto note = [&](ir::DType type) {
    if (ir::is_float(type) && ir::bits(type) < ir::bits(all.narrowest)) all.narrowest = type;
  };
  const ProgramModel& program = program_.program();
  for (const ProgramModel::Temp& temp : program.temps) note(program.type_of(temp, given_));
  for (const ProgramModel::Step& step : program.steps) {
    uint64_t types = 0;
    for (size_t i = 0; i < step.arguments.size(); ++i) {
      const ProgramModel::Argument& argument = step.arguments[i];
      const int symbol = step.kernel->params[i].symbol;
      if (symbol < 0 || argument.kind == ProgramModel::Argument::Kind::kScalar) continue;
      const ir::DType type = argument.kind == ProgramModel::Argument::Kind::kTemp
                                 ? program.type_of(program.temps[static_cast<size_t>(argument.index)], given_)
                                 : given_.tensors[argument.index].dtype;
      types &= ~(uint64_t{15} << (4 * symbol));
      types |= static_cast<uint64_t>(type) << (4 * symbol);
    }
    const Roundings its = roundings_of(*step.kernel, types);
    note(its.narrowest);
    all.computes |= its.computes;
    all.products |= its.products;
  }
  if (all.products) all.longest = longest_extent(*program.header, given_);
  return all;
}

}  // namespace kachel::runtime
