#include "runtime/engine/worker/worker_session.h"

#include <fmt/format.h>

#include <utility>

#include "ir/print.h"
#include "runtime/engine/pause.h"
#include "runtime/engine/specialise/configurations.h"

namespace kachel::runtime {
namespace {

using tuner::Verdict;
using End = Worker::End;

// A limit that the worker keeps itself, as a compilation's, is kept here only where it does not.
constexpr int64_t kGrace_ns = 2'000'000'000;

std::string indexed(size_t index) {
  ByteWriter body;
  body.put<uint64_t>(index);
  return body.take();
}

// The plans of a kernel's candidates, which the store has or is to have.
class KernelCargo final : public WorkerCargo {
 public:
  explicit KernelCargo(const WorkerSession::Setup& setup) : setup_(setup) {}

  std::string text() const override { return "tile 1\n" + ir::print(setup_.model.kernel); }
  tuner::Forecast forecast(size_t index) override {
    const auto predicted = setup_.engine.plans().predict(request(index), setup_.arguments);
    return predicted ? predicted->forecast() : tuner::Forecast();
  }
  Result<std::string> outgoing(size_t index) override {
    return setup_.engine.plans().stored(request(index)).value_or("");
  }
  void incoming(size_t index, std::string_view made) override {
    setup_.engine.counters().compiles.fetch_add(1, std::memory_order_relaxed);
    setup_.engine.counters().lowerings.fetch_add(1, std::memory_order_relaxed);
    setup_.engine.plans().keep(request(index), made);
  }

 private:
  PlanBuilder::Request request(size_t index) const {
    return {setup_.device, setup_.model, setup_.point, setup_.candidates[index]};
  }

  const WorkerSession::Setup setup_;
};

}  // namespace

WorkerTask WorkerSession::task_of(const Setup& setup, const WorkerCargo& cargo) {
  WorkerTask task = describe_task(setup.model, cargo.text(), setup.arguments, setup.candidates);
  task.devices = setup.engine.options().devices;
  task.compile_limit_ns = setup.engine.options().compile_limit_ns;
  task.spare_bytes = setup.engine.worker_bytes(setup.device) - task_bytes(setup.model, setup.arguments);
  return task;
}

WorkerSession::WorkerSession(const Setup& setup, std::unique_ptr<WorkerCargo> cargo)
    : setup_(setup),
      cargo_(cargo ? std::move(cargo) : std::make_unique<KernelCargo>(setup)),
      name_(fmt::format("{} `{}`", setup.model.is_program ? "program" : "kernel", setup.model.kernel.name)),
      relay_({setup.engine, setup.device, setup.arguments, setup.stream, setup.share < 1, setup.cancelled},
             task_of(setup, *cargo_),
             task_keys(setup.model, setup.point, setup.candidates[0], setup.device.properties())),
      notes_(setup.candidates.size()) {}

Result<std::unique_ptr<WorkerSession>> WorkerSession::open(const Setup& setup, std::unique_ptr<WorkerCargo> cargo) {
  const int64_t bytes = task_bytes(setup.model, setup.arguments), most = setup.engine.worker_bytes(setup.device);
  if (bytes > most)
    return Status(Code::kNoMemory,
                  fmt::format("copies of its tensors in a worker would take {} bytes, more than {}", bytes, most));
  std::unique_ptr<WorkerSession> session(new WorkerSession(setup, std::move(cargo)));
  KACHEL_TRY(setup.device.synchronize(setup.stream));
  KACHEL_TRY(session->relay_.present().status());
  return session;
}

Status WorkerSession::harmed(size_t index, const WorkerRelay::Reply& reply, int64_t limit_ns) {
  const bool late = reply.end == End::kTimedOut;
  std::string why = late ? fmt::format("no end after {} ms; its worker was killed", limit_ns / 1'000'000) : reply.body;
  const std::string configuration = configuration_text(setup_.model, setup_.candidates[index]);
  setup_.engine.log().write(
      {.kind = late ? EventKind::kCandidateTimedOut : EventKind::kCandidateCrashed,
       .level = LogLevel::kWarning,
       .message = fmt::format("{}: configuration {} is not tried again: {}", name_, configuration, why),
       .kernel = setup_.model.kernel.name,
       .key = tuning_key(setup_.model, setup_.point, setup_.device.properties()).hex(),
       .fields = {{"configuration", configuration}, {"limit_ns", late ? limit_ns : 0}, {"reason", why}}});
  std::lock_guard lock(mutex_);
  notes_[index].verdict = late ? Verdict::kTimedOut : Verdict::kCrashed;
  harms_.push_back({index, notes_[index].verdict, why});
  return notes_[index].why = {Code::kLaunch, std::move(why)};
}

Status WorkerSession::not_tried(size_t index, const Status& why) {
  if (why.code() == Code::kCancelled) return why;
  std::lock_guard lock(mutex_);
  notes_[index].verdict = Verdict::kNotTried;
  return notes_[index].why = {Code::kLaunch, "not tried: " + why.message()};
}

Verdict WorkerSession::verdict(size_t index) const {
  std::lock_guard lock(mutex_);
  return notes_[index].verdict;
}

std::vector<tuner::CandidateRunner::Harm> WorkerSession::take_harms() {
  std::lock_guard lock(mutex_);
  return std::exchange(harms_, {});
}

std::string WorkerSession::flaw(size_t index) {
  std::lock_guard lock(mutex_);
  return notes_[index].flaw;
}

tuner::Forecast WorkerSession::forecast(size_t index) {
  return cargo_->forecast(index);
}

Status WorkerSession::compile(size_t index) {
  bool suspect = false;
  {
    std::shared_lock lock(compiling_);
    Status done = compile_in(index, false, &suspect);
    if (!suspect) return done;
  }
  std::unique_lock lock(compiling_);
  return compile_in(index, true, &suspect);
}

// Whatever becomes of it, prepare() finds out. One that has no end costs its worker.
void WorkerSession::compile_reference() {
  std::shared_lock lock(compiling_);
  const auto turn = relay_.present();
  if (!turn.ok()) return;
  const int64_t limit_ns = relay_.task().compile_limit_ns + kGrace_ns;
  const WorkerRelay::Reply reply = relay_.call(**turn, WorkerCall::kCompileReference, {}, limit_ns);
  if (reply.end != End::kAnswered && reply.end != End::kCancelled) relay_.lose(*turn);
}

// `suspect`: the worker died of this or of another one; nothing is settled then.
Status WorkerSession::compile_in(size_t index, bool alone, bool* suspect) {
  const int64_t limit_ns = relay_.task().compile_limit_ns + kGrace_ns;
  for (;;) {
    auto turn = relay_.present();
    if (!turn.ok()) return not_tried(index, turn.status());
    KACHEL_ASSIGN(const std::string sent, cargo_->outgoing(index));
    ByteWriter body;
    body.put<uint64_t>(index);
    body.put_bytes(sent);
    const WorkerRelay::Reply reply = relay_.call(**turn, WorkerCall::kCompile, body.take(), limit_ns);
    if (reply.end == End::kCancelled) return reply.status;
    if (reply.end == End::kAnswered) {
      if (!reply.status.ok()) return reply.status;
      ByteReader in(reply.body);
      KACHEL_TRY(keep_made(index, !sent.empty(), in));
      (*turn)->loaded[index] = true;
      return {};
    }
    relay_.lose(*turn);
    if (reply.end == End::kEnded) continue;
    if (reply.end == End::kDied && !reply.alone && !alone) {
      *suspect = true;
      return {};
    }
    return harmed(index, reply, limit_ns);
  }
}

Status WorkerSession::keep_made(size_t index, bool given, ByteReader& answer) {
  std::string flaw(answer.get_bytes());
  const std::string_view made = answer.get_bytes();
  if (!answer.at_end()) return internal("the worker's answer makes no sense");
  if (!given && !made.empty()) cargo_->incoming(index, made);
  std::lock_guard lock(mutex_);
  notes_[index].flaw = std::move(flaw);
  return {};
}

Status WorkerSession::refer(size_t attempt) {
  // Behind the generic lowering's, a candidate each.
  const size_t count = setup_.candidates.size();
  const bool own = attempt >= count;
  if (own) {
    KACHEL_ASSIGN(const std::shared_ptr<WorkerRelay::Turn> turn, relay_.present());
    if (!turn->loaded[attempt - count]) KACHEL_TRY(compile_in(attempt - count, true, nullptr));
  }
  KACHEL_ASSIGN(const std::shared_ptr<WorkerRelay::Turn> turn, relay_.present());
  const int64_t limit_ns = relay_.task().compile_limit_ns + setup_.engine.workers().options().run_limit_ns + kGrace_ns;
  const WorkerRelay::Reply reply = relay_.call(*turn, WorkerCall::kRefer, indexed(attempt), limit_ns);
  if (reply.end == End::kAnswered) turn->prepared = reply.status.ok();
  if (reply.end == End::kAnswered || reply.end == End::kCancelled) return reply.status;
  relay_.lose(turn);
  return own ? harmed(attempt - count, reply, limit_ns) : Status(Code::kLaunch, reply.body);
}

// The first attempt that succeeds; a candidate that has done harm is none.
Status WorkerSession::make_reference(size_t first) {
  Status why;
  const size_t count = setup_.candidates.size();
  for (size_t attempt = first; attempt < 2 * count; ++attempt) {
    if (attempt >= count && verdict(attempt - count) != Verdict::kFailed) continue;
    KACHEL_TRY(relay_.present().status());
    Status made = refer(attempt);
    if (made.ok()) reference_ = attempt;
    if (made.ok() || made.code() == Code::kCancelled) return made;
    if (why.ok()) why = std::move(made);
  }
  return why.ok() ? Status(Code::kLaunch, "no configuration is left that others could be compared with") : why;
}

Status WorkerSession::prepare() {
  return make_reference(relay_.first_attempt());
}

Result<bool> WorkerSession::rotate_in(WorkerRelay::Turn& turn, double run_ns) {
  ByteWriter body;
  body.put(run_ns);
  const int64_t limit_ns = setup_.engine.workers().options().run_limit_ns;
  const WorkerRelay::Reply reply = relay_.call(turn, WorkerCall::kRotate, body.take(), limit_ns);
  if (reply.end != End::kAnswered) return Status(Code::kLaunch, "no answer to where operands rotate");
  KACHEL_TRY(reply.status);
  ByteReader in(reply.body);
  turn.rotates = in.get<uint8_t>() != 0;
  return turn.rotates && in.at_end();
}

bool WorkerSession::rotate(double run_ns) {
  auto turn = relay_.present();
  if (!turn.ok() || !(*turn)->prepared) return false;
  auto rotates = rotate_in(**turn, run_ns);
  if (!rotates.ok()) relay_.lose(*turn);
  if (!rotates.ok() || !*rotates) return false;
  rotated_ns_ = run_ns;
  return true;
}

// A worker that has the reference and the candidate, and whose operands rotate where those of the one before did.
Result<std::shared_ptr<WorkerRelay::Turn>> WorkerSession::ready(size_t index) {
  for (;;) {
    KACHEL_ASSIGN(const std::shared_ptr<WorkerRelay::Turn> turn, relay_.present());
    if (!turn->prepared) {
      Status made = make_reference(reference_);
      if (made.ok()) continue;
      if (made.code() != Code::kCancelled) relay_.stop(made);
      return made;
    }
    if (rotated_ns_ > 0 && !turn->rotates) {
      auto rotates = rotate_in(*turn, rotated_ns_);
      if (!rotates.ok()) relay_.lose(turn);
      if (rotates.ok() && !*rotates) relay_.stop({Code::kNoMemory, "a fresh worker has no room for rotated operands"});
      continue;
    }
    if (turn->loaded[index]) return turn;
    KACHEL_TRY(compile_in(index, true, nullptr));
  }
}

Status WorkerSession::run(size_t index, WorkerCall what, std::string* answer) {
  {
    std::lock_guard lock(mutex_);
    if (notes_[index].verdict != Verdict::kFailed) return notes_[index].why;
  }
  const int64_t limit_ns = setup_.engine.workers().options().run_limit_ns;
  for (;;) {
    auto turn = ready(index);
    if (!turn.ok()) return verdict(index) == Verdict::kFailed ? not_tried(index, turn.status()) : turn.status();
    WorkerRelay::Reply reply = relay_.call(**turn, what, indexed(index), limit_ns);
    if (reply.end == End::kCancelled) return reply.status;
    if (reply.end == End::kAnswered) {
      // The first run in a worker pays for what the protocol's warm-up has paid for in the one before.
      const bool cold = what != WorkerCall::kCheck && !(*turn)->warm[index] && !relay_.is_first();
      (*turn)->warm[index] = true;
      if (cold && reply.status.ok()) continue;
      if (answer) *answer = std::move(reply.body);
      return reply.status;
    }
    relay_.lose(*turn);
    if (reply.end != End::kEnded) return harmed(index, reply, limit_ns);
  }
}

Status WorkerSession::check(size_t index) {
  return run(index, WorkerCall::kCheck, nullptr);
}

Result<double> WorkerSession::time_once_ns(size_t index) {
  std::string answer;
  const WorkerCall what = caches_ == tuner::Caches::kEvicted  ? WorkerCall::kMeasure
                          : caches_ == tuner::Caches::kAsLeft ? WorkerCall::kMeasureAgain
                                                              : WorkerCall::kMeasureRotated;
  KACHEL_TRY(run(index, what, &answer));
  setup_.engine.counters().measurements.fetch_add(1, std::memory_order_relaxed);
  ByteReader in(answer);
  const auto ns = in.get<double>();
  if (!in.at_end()) return internal("the worker's answer makes no sense");
  leave_room(ns, setup_.share);
  return ns;
}

}  // namespace kachel::runtime
