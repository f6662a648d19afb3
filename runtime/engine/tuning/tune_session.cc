#include "runtime/engine/tuning/tune_session.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/engine/pause.h"
#include "runtime/engine/specialise/configurations.h"
#include "runtime/engine/tuning/session_trial.h"

namespace kachel::runtime {
namespace {

// The tuner takes any failure of a check but these for a wrong output.
Status as_launch_failure(Status status) {
  switch (status.code()) {
    case Code::kOk:
    case Code::kDeviceLost:
    case Code::kCancelled:
    case Code::kNoMemory:
    case Code::kLaunch:
      return status;
    default:
      return {Code::kLaunch, status.message(), status.log()};
  }
}

}  // namespace

TuneSession::TuneSession(const Setup& setup)
    : setup_(setup), arguments_(setup.arguments), loaded_(setup.candidates.size()) {}

TuneSession::~TuneSession() {
  if (has_stream_) {
    // Copies are given back in stream order, after the last run.
    workspace_.reset();
    outputs_.close();
    rotation_.close();
    (void)setup_.device.synchronize(stream_);
    setup_.device.destroy_stream(stream_);
  }
}

Result<const Specialisation*> TuneSession::build(size_t index) {
  if (const Specialisation* found = loaded_[index].load(std::memory_order_acquire)) return found;
  RelaxedCapture relaxed(setup_.device);
  KACHEL_ASSIGN(const Specialisation* built,
                setup_.plans.get({setup_.device, setup_.model, setup_.point, setup_.candidates[index]}));
  loaded_[index].store(built, std::memory_order_release);
  return built;
}

Result<const Specialisation*> TuneSession::build_generic(size_t index) {
  RelaxedCapture relaxed(setup_.device);
  return setup_.plans.get({.device = setup_.device,
                           .model = setup_.model,
                           .point = setup_.point,
                           .values = setup_.candidates[index],
                           .generic = true});
}

tuner::Forecast TuneSession::forecast(size_t index) {
  const auto predicted =
      setup_.plans.predict({setup_.device, setup_.model, setup_.point, setup_.candidates[index]}, setup_.arguments);
  return predicted ? predicted->forecast() : tuner::Forecast();
}

double TuneSession::expected_compile_ns(size_t index) {
  if (loaded_[index].load(std::memory_order_acquire)) return 0;
  return setup_.plans.expected_compile_ns({setup_.device, setup_.model, setup_.point, setup_.candidates[index]});
}

Status TuneSession::compile(size_t index) {
  return build(index).status();
}

void TuneSession::compile_reference() {
  if (first_attempt() < setup_.candidates.size()) (void)build_generic(first_attempt());
}

std::string TuneSession::flaw(size_t index) {
  return loaded_[index].load(std::memory_order_acquire)->step().flaw;
}

Status TuneSession::open() {
  if (!opened_) opened_ = open_once();
  return *opened_;
}

// The caller's work on the inputs is waited for, so that reading them on another stream is safe.
Status TuneSession::open_once() {
  Device& device = setup_.device;
  KACHEL_TRY(device.synchronize(setup_.stream));
  KACHEL_ASSIGN(stream_, device.create_stream());
  has_stream_ = true;
  KACHEL_ASSIGN(timer_, device.create_timer());
  KACHEL_TRY(outputs_.open(device, setup_.scratch, setup_.model, &arguments_, stream_));
  roundings_ = roundings_of(setup_.model, setup_.point.types);
  if (roundings_.products) roundings_.longest = longest_extent(setup_.model, arguments_);
  return {};
}

Status TuneSession::run(const Specialisation& specialisation, const BoundArguments& arguments) {
  LaunchGrid grid;
  KACHEL_TRY(specialisation.grid(arguments.inputs(), grid));
  const int64_t bytes = specialisation.workspace_bytes(grid);
  if (bytes > workspace_bytes_) {
    KACHEL_ASSIGN(workspace_, Workspace::allocate(setup_.device, setup_.scratch, bytes, stream_));
    workspace_bytes_ = bytes;
  }
  grid.workspace = workspace_.get();
  return specialisation.launch(arguments, grid, stream_);
}

// The generic lowering of the first configuration for which it can be built, usually the first one listed; where a
// device has no other lowering, or none can be built, that configuration itself.
size_t TuneSession::first_attempt() const {
  return setup_.device.properties().compute_major > 0 ? 0 : setup_.candidates.size();
}

Status TuneSession::make_reference(size_t attempt) {
  KACHEL_TRY(open());
  const size_t count = setup_.candidates.size();
  KACHEL_ASSIGN(const Specialisation* built, attempt < count ? build_generic(attempt) : build(attempt - count));
  KACHEL_TRY(outputs_.restore(false));
  KACHEL_TRY(setup_.services.noticed(run(*built)));
  KACHEL_TRY(setup_.services.noticed(setup_.device.synchronize(stream_)));
  reference_ = attempt;
  spare_.reset();
  return outputs_.keep();
}

Status TuneSession::prepare() {
  KACHEL_TRY(open());
  Status why;
  for (size_t attempt = first_attempt(); attempt < 2 * setup_.candidates.size(); ++attempt) {
    Status made = make_reference(attempt);
    if (made.ok() || made.code() == Code::kDeviceLost) return made;
    if (why.ok()) why = std::move(made);
  }
  return why;
}

// Where conditions hang on rounding, as what is among the largest does, elements are not one another's within any
// tolerance, and a reference that adds up in another order is as far from the first as candidates are: of those, so
// many times as many elements may be apart, but no more than half. Differences of long sums, a loss of two, are as far
// apart as the sums' roundings: so many times as far, within what is still small beside the values.
Result<std::vector<Apart>> TuneSession::spare() {
  constexpr double kTimes = 4, kMost = 0.5, kFarthest = 1.0 / 256;
  if (spare_) return *spare_;
  spare_.emplace();
  if (reference_ >= setup_.candidates.size()) return *spare_;  // it is no generic lowering
  RelaxedCapture relaxed(setup_.device);
  KACHEL_ASSIGN(const Specialisation* reversed, setup_.plans.get({.device = setup_.device,
                                                                  .model = setup_.model,
                                                                  .point = setup_.point,
                                                                  .values = setup_.candidates[reference_],
                                                                  .generic = true,
                                                                  .reversed = true}));
  KACHEL_TRY(outputs_.restore(false));
  KACHEL_TRY(run(*reversed));
  KACHEL_TRY(setup_.device.synchronize(stream_));
  KACHEL_ASSIGN(std::vector<Apart> all, outputs_.apart(roundings_));
  double most = 0;
  for (Apart& of : all) {
    most = std::max(most, of.share);
    of = {std::min(kTimes * of.share, kMost), std::min(kTimes * of.distance, kFarthest)};
  }
  spare_ = std::move(all);
  if (most == 0) return *spare_;
  setup_.services.log.write(
      {.level = LogLevel::kWarning,
       .message = fmt::format("results of kernel `{}` hang on rounding: in another order of sums, {:.2g} % of the "
                              "elements of an output differ",
                              setup_.model.kernel.name, 100 * most),
       .kernel = setup_.model.kernel.name});
  return *spare_;
}

Status TuneSession::check(size_t index) {
  auto run_it = [&]() -> Status {
    KACHEL_ASSIGN(const Specialisation* specialisation, build(index));
    KACHEL_TRY(outputs_.restore(false));
    KACHEL_TRY(run(*specialisation));
    return setup_.device.synchronize(stream_);
  };
  KACHEL_TRY(as_launch_failure(setup_.services.noticed(run_it())));
  const std::string configuration = configuration_text(setup_.model, setup_.candidates[index]);
  Status same = outputs_.compare(roundings_, configuration);
  if (same.code() == Code::kInvalid) {
    const auto spare = this->spare();
    if (spare.ok() && !spare->empty()) {
      KACHEL_TRY(as_launch_failure(setup_.services.noticed(run_it())));
      same = outputs_.compare(roundings_, configuration, *spare);
    }
  }
  return same.code() == Code::kInvalid ? same : as_launch_failure(setup_.services.noticed(std::move(same)));
}

void TuneSession::prepare_run(tuner::Caches caches) {
  caches_ = caches;
  prepared_ = outputs_.restore(true);
  if (prepared_.ok() && caches != tuner::Caches::kAsLeft) prepared_ = setup_.device.flush_cache(stream_);
}

// What a run reads and writes is the next one's input where a tensor is inout, and a hook may count on one launch. On
// the CPU a launch ends before the next one begins, whatever is between them.
bool TuneSession::rotate(double run_ns) {
  if (launches_) return true;
  const TuningHooks* hooks = setup_.hooks;
  const DeviceProperties& properties = setup_.device.properties();
  if (properties.kind == DeviceKind::kCpu || (hooks && (hooks->before_run || hooks->after_run))) return false;
  const KernelModel& model = setup_.model;
  if (std::any_of(model.tensors.begin(), model.tensors.end(), [&](int index) {
        return model.params[static_cast<size_t>(index)].direction == ir::Direction::kInOut;
      }))
    return false;
  const int64_t bytes = Rotation::bytes(model, arguments_);
  const auto launches = Rotation::launches(run_ns, bytes, properties.l2_bytes);
  if (bytes > setup_.spare_bytes / static_cast<int64_t>(launches.all())) return false;
  // Where in memory operands lie tells between configurations too; more sets than a sample needs, and no multiple of
  // them, so that samples differ in theirs.
  constexpr int64_t kSamplesOfSets = 4;
  const auto least = static_cast<int64_t>(launches.all());
  const int64_t most = setup_.spare_bytes / std::max<int64_t>(bytes, 1),
                count = std::max(least, std::min(most, kSamplesOfSets * least + 1));
  if (!rotation_.open(setup_.device, setup_.scratch, model, arguments_, static_cast<size_t>(count), stream_).ok()) {
    rotation_.close();
    return false;
  }
  launches_ = launches;
  return true;
}

// Keeps the device busy while the host enqueues what is timed.
Status TuneSession::run_ahead(const Specialisation& specialisation) {
  if (caches_ == tuner::Caches::kRotated)
    for (size_t i = 0; i < launches_->ahead; ++i) KACHEL_TRY(run(specialisation, rotation_.next()));
  if (caches_ != tuner::Caches::kAsLeft) return {};  // a flush does
  KACHEL_TRY(run(specialisation));
  return outputs_.restore(true);
}

Result<double> TuneSession::time_once_ns(size_t index) {
  KACHEL_TRY(setup_.services.noticed(prepared_));
  KACHEL_ASSIGN(const Specialisation* specialisation, build(index));
  const TuningHooks* hooks = setup_.hooks;
  KACHEL_TRY(setup_.services.noticed(run_ahead(*specialisation)));
  if (hooks && hooks->before_run) KACHEL_TRY(hooks->before_run(tuning(), setup_.candidates[index], stream_));
  KACHEL_TRY(setup_.services.noticed(timer_->start(stream_)));
  const bool rotated = caches_ == tuner::Caches::kRotated;
  const size_t count = rotated ? launches_->timed : 1;
  for (size_t i = 0; i < count; ++i)
    KACHEL_TRY(setup_.services.noticed(run(*specialisation, rotated ? rotation_.next() : arguments_)));
  KACHEL_TRY(setup_.services.noticed(timer_->stop(stream_)));
  if (hooks && hooks->after_run) KACHEL_TRY(hooks->after_run(tuning(), setup_.candidates[index], stream_));
  auto elapsed = timer_->elapsed_ns();
  setup_.services.counters.measurements.fetch_add(1, std::memory_order_relaxed);
  if (!elapsed.ok()) return setup_.services.noticed(elapsed.status());
  leave_room(*elapsed, setup_.share);
  return *elapsed / static_cast<double>(count);
}

Result<std::vector<double>> TuneSession::benchmark(size_t index) {
  KACHEL_ASSIGN(const Specialisation* specialisation, build(index));
  SessionTrial trial(stream_, {.restore = [&] { return outputs_.restore(true); },
                               .flush =
                                   [&] {
                                     prepare_run(tuner::Caches::kEvicted);
                                     return prepared_;
                                   },
                               .run = [&] { return run(*specialisation); },
                               .synchronize = [&] { return setup_.device.synchronize(stream_); }});
  return trial.measure(setup_.services, *setup_.hooks, tuning(), setup_.candidates[index]);
}

}  // namespace kachel::runtime
