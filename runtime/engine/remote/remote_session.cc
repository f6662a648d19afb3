#include "runtime/engine/remote/remote_session.h"

#include <fmt/format.h>

#include "runtime/engine/pause.h"
#include "runtime/engine/specialise/configurations.h"

namespace kachel::runtime {
namespace {

using tuner::Verdict;
using End = Worker::End;

// A limit that the worker keeps itself, as a compilation's, is kept here only where it does not.
constexpr int64_t kGrace_ns = 2'000'000'000;
// To hand over a task, and each piece of it: opening a device takes seconds where many processes begin at once.
constexpr int64_t kHandover_ns = 60'000'000'000;
constexpr int64_t kClose_ns = 1'000'000'000;

std::string indexed(size_t index) {
  ByteWriter body;
  body.put<uint64_t>(index);
  return body.take();
}

}  // namespace

RemoteSession::RemoteSession(const Setup& setup)
    : setup_(setup),
      name_(fmt::format("kernel `{}`", setup.model.kernel.name)),
      task_(describe_task(setup.model, setup.arguments, setup.candidates)),
      keys_(task_keys(setup.model, setup.point, setup.key_values, setup.candidates[0], setup.device.properties())),
      notes_(setup.candidates.size()) {
  task_.devices = setup.engine.options().devices;
  task_.compile_limit_ns = setup.engine.options().compile_limit_ns;
}

RemoteSession::~RemoteSession() {
  if (!run_ || !run_->worker->is_free()) return;
  if (call(*run_, RemoteCall::kClose, {}, kClose_ns).end == End::kAnswered)
    setup_.engine.workers().give_back(std::move(run_->worker), setup_.share < 1);
}

Result<std::unique_ptr<RemoteSession>> RemoteSession::open(const Setup& setup) {
  const int64_t bytes = task_bytes(setup.model, setup.arguments), most = setup.engine.worker_bytes(setup.device);
  if (bytes > most)
    return Status(Code::kNoMemory,
                  fmt::format("copies of its tensors in a worker would take {} bytes, more than {}", bytes, most));
  std::unique_ptr<RemoteSession> session(new RemoteSession(setup));
  KACHEL_TRY(setup.device.synchronize(setup.stream));
  KACHEL_TRY(session->present().status());
  return session;
}

RemoteSession::Reply RemoteSession::call(Run& run, RemoteCall what, std::string body, int64_t limit_ns) {
  Worker::Answer answer = run.worker->call(static_cast<uint8_t>(what), std::move(body),
                                           std::chrono::nanoseconds(limit_ns), setup_.cancelled);
  Reply reply{.end = answer.end, .body = std::move(answer.body), .alone = answer.alone};
  if (answer.end == End::kCancelled) reply.status = {Code::kCancelled, "the tuning is ended"};
  if (answer.end == End::kTimedOut) reply.body = fmt::format("it took longer than {} ms", limit_ns / 1'000'000);
  if (answer.end != End::kAnswered) return reply;
  auto said = decode_answer(reply.body);
  const Code code = said ? said->status.code() : Code::kOk;
  if (!said) {
    reply.body = "the worker's answer makes no sense";
  } else if (code == Code::kDeviceLost) {
    reply.body = "the worker's device failed for good: " + said->status.message();
  } else if (code != Code::kCancelled) {
    reply.status = std::move(said->status);
    reply.body = std::move(said->body);
    return reply;
  }
  // A worker that leaves by itself is nobody's fault.
  reply.end = code == Code::kCancelled ? End::kEnded : End::kDied;
  run.worker->end(reply.body);
  return reply;
}

// The worker that does the work now.
Result<std::shared_ptr<RemoteSession::Run>> RemoteSession::present() {
  std::lock_guard lock(mutex_);
  if (run_) return run_;
  if (!helpless_.ok()) return helpless_;
  const int most = 1 + setup_.engine.workers().options().restarts;
  if (begun_ == most) {
    helpless_ = {Code::kLaunch, fmt::format("{} workers were lost to this tuning", most)};
    return helpless_;
  }
  ++begun_;
  auto begun = begin();
  if (begun.ok()) return run_ = *begun;
  if (begun.status().code() != Code::kCancelled) helpless_ = begun.status();
  return begun;
}

Result<std::shared_ptr<RemoteSession::Run>> RemoteSession::begin() {
  auto run = std::make_shared<Run>();
  run->loaded = std::vector<std::atomic<bool>>(setup_.candidates.size());
  run->warm.resize(setup_.candidates.size());
  KACHEL_ASSIGN(run->worker, setup_.engine.workers().take(setup_.share < 1));
  setup_.engine.counters().workers.fetch_add(1, std::memory_order_relaxed);
  auto must = [&](RemoteCall what, std::string body) -> Result<std::string> {
    Reply reply = call(*run, what, std::move(body), kHandover_ns);
    if (!reply.status.ok()) return reply.status;
    if (reply.end != End::kAnswered) return unsupported("a worker could not take the tensors over: " + reply.body);
    return std::move(reply.body);
  };
  KACHEL_TRY(must(RemoteCall::kOpen, encode_task(task_)).status());
  KACHEL_TRY(read_contents(setup_.device, setup_.arguments, task_, setup_.stream,
                           [&](uint64_t param, uint64_t offset, std::string_view bytes) {
                             ByteWriter body;
                             body.put(param);
                             body.put(offset);
                             body.put_bytes(bytes);
                             return must(RemoteCall::kContents, body.take()).status();
                           }));
  KACHEL_ASSIGN(const std::string answer, must(RemoteCall::kStart, {}));
  ByteReader in(answer);
  const std::string_view keys = in.get_bytes();
  first_attempt_ = in.get<uint64_t>();
  if (in.at_end() && keys == keys_) return run;
  run->worker->end("it sees another key");
  return unsupported(
      "the worker sees another program or another device than this process: give it the same environment");
}

void RemoteSession::lose(const std::shared_ptr<Run>& run) {
  std::lock_guard lock(mutex_);
  if (run_ != run) return;
  run_.reset();
  setup_.engine.counters().workers_lost.fetch_add(1, std::memory_order_relaxed);
}

Status RemoteSession::harmed(size_t index, const Reply& reply, int64_t limit_ns) {
  const bool late = reply.end == End::kTimedOut;
  std::string why = late ? fmt::format("no end after {} ms; its worker was killed", limit_ns / 1'000'000) : reply.body;
  setup_.engine.log().write(LogLevel::kWarning,
                            fmt::format("{}: configuration {} is not tried again: {}", name_,
                                        configuration_text(setup_.model, setup_.candidates[index]), why));
  std::lock_guard lock(mutex_);
  notes_[index].verdict = late ? Verdict::kTimedOut : Verdict::kCrashed;
  return notes_[index].why = {Code::kLaunch, std::move(why)};
}

Status RemoteSession::not_tried(size_t index, const Status& why) {
  if (why.code() == Code::kCancelled) return why;
  std::lock_guard lock(mutex_);
  notes_[index].verdict = Verdict::kNotTried;
  return notes_[index].why = {Code::kLaunch, "not tried: " + why.message()};
}

Verdict RemoteSession::verdict(size_t index) const {
  std::lock_guard lock(mutex_);
  return notes_[index].verdict;
}

std::string RemoteSession::flaw(size_t index) {
  std::lock_guard lock(mutex_);
  return notes_[index].flaw;
}

tuner::Forecast RemoteSession::forecast(size_t index) {
  const auto predicted = setup_.engine.plans().predict(
      {setup_.device, setup_.model, setup_.point, setup_.candidates[index]}, setup_.arguments);
  if (!predicted) return {};
  return {predicted->time.ns, predicted->flawed, predicted->code};
}

Status RemoteSession::compile(size_t index) {
  bool suspect = false;
  {
    std::shared_lock lock(compiling_);
    Status done = compile_in(index, false, &suspect);
    if (!suspect) return done;
  }
  std::unique_lock lock(compiling_);
  return compile_in(index, true, &suspect);
}

// `suspect`: the worker died of this or of another one; nothing is settled then.
Status RemoteSession::compile_in(size_t index, bool alone, bool* suspect) {
  const int64_t limit_ns = task_.compile_limit_ns + kGrace_ns;
  for (;;) {
    auto run = present();
    if (!run.ok()) return not_tried(index, run.status());
    const auto plan =
        setup_.engine.plans().stored({setup_.device, setup_.model, setup_.point, setup_.candidates[index]});
    ByteWriter body;
    body.put<uint64_t>(index);
    body.put_bytes(plan.value_or(""));
    const Reply reply = call(**run, RemoteCall::kCompile, body.take(), limit_ns);
    if (reply.end == End::kCancelled) return reply.status;
    if (reply.end == End::kAnswered) {
      if (!reply.status.ok()) return reply.status;
      ByteReader in(reply.body);
      KACHEL_TRY(keep_plan(index, plan.has_value(), in));
      (*run)->loaded[index] = true;
      return {};
    }
    lose(*run);
    if (reply.end == End::kEnded) continue;
    if (reply.end == End::kDied && !reply.alone && !alone) {
      *suspect = true;
      return {};
    }
    return harmed(index, reply, limit_ns);
  }
}

Status RemoteSession::keep_plan(size_t index, bool given, ByteReader& answer) {
  std::string flaw(answer.get_bytes());
  const std::string_view plan = answer.get_bytes();
  if (!answer.at_end()) return internal("the worker's answer makes no sense");
  if (!given) {
    setup_.engine.counters().compiles.fetch_add(1, std::memory_order_relaxed);
    setup_.engine.counters().lowerings.fetch_add(1, std::memory_order_relaxed);
    setup_.engine.plans().keep({setup_.device, setup_.model, setup_.point, setup_.candidates[index]}, plan);
  }
  std::lock_guard lock(mutex_);
  notes_[index].flaw = std::move(flaw);
  return {};
}

Status RemoteSession::refer(size_t attempt) {
  // Behind the generic lowering's, a candidate each.
  const size_t count = setup_.candidates.size();
  const bool own = attempt >= count;
  if (own) {
    KACHEL_ASSIGN(const std::shared_ptr<Run> run, present());
    if (!run->loaded[attempt - count]) KACHEL_TRY(compile_in(attempt - count, true, nullptr));
  }
  KACHEL_ASSIGN(const std::shared_ptr<Run> run, present());
  const int64_t limit_ns = task_.compile_limit_ns + setup_.engine.workers().options().run_limit_ns + kGrace_ns;
  const Reply reply = call(*run, RemoteCall::kRefer, indexed(attempt), limit_ns);
  if (reply.end == End::kAnswered) run->prepared = reply.status.ok();
  if (reply.end == End::kAnswered || reply.end == End::kCancelled) return reply.status;
  lose(run);
  return own ? harmed(attempt - count, reply, limit_ns) : Status(Code::kLaunch, reply.body);
}

// The first attempt that succeeds; a candidate that has done harm is none.
Status RemoteSession::make_reference(size_t first) {
  Status why;
  const size_t count = setup_.candidates.size();
  for (size_t attempt = first; attempt < 2 * count; ++attempt) {
    if (attempt >= count && verdict(attempt - count) != Verdict::kFailed) continue;
    KACHEL_TRY(present().status());
    Status made = refer(attempt);
    if (made.ok()) reference_ = attempt;
    if (made.ok() || made.code() == Code::kCancelled) return made;
    if (why.ok()) why = std::move(made);
  }
  return why.ok() ? Status(Code::kLaunch, "no configuration is left that others could be compared with") : why;
}

Status RemoteSession::prepare() {
  return make_reference(first_attempt_);
}

// A worker that has the reference and the candidate.
Result<std::shared_ptr<RemoteSession::Run>> RemoteSession::ready(size_t index) {
  for (;;) {
    KACHEL_ASSIGN(const std::shared_ptr<Run> run, present());
    if (!run->prepared) {
      Status made = make_reference(reference_);
      if (made.ok()) continue;
      std::lock_guard lock(mutex_);
      if (made.code() != Code::kCancelled) helpless_ = made;
      run_.reset();
      return made;
    }
    if (run->loaded[index]) return run;
    KACHEL_TRY(compile_in(index, true, nullptr));
  }
}

Status RemoteSession::run(size_t index, RemoteCall what, std::string* answer) {
  {
    std::lock_guard lock(mutex_);
    if (notes_[index].verdict != Verdict::kFailed) return notes_[index].why;
  }
  const int64_t limit_ns = setup_.engine.workers().options().run_limit_ns;
  for (;;) {
    auto run = ready(index);
    if (!run.ok()) return verdict(index) == Verdict::kFailed ? not_tried(index, run.status()) : run.status();
    Reply reply = call(**run, what, indexed(index), limit_ns);
    if (reply.end == End::kCancelled) return reply.status;
    if (reply.end == End::kAnswered) {
      // The first run in a worker pays for what the protocol's warm-up has paid for in the one before.
      const bool cold = what == RemoteCall::kMeasure && !(*run)->warm[index] && begun_ > 1;
      (*run)->warm[index] = true;
      if (cold && reply.status.ok()) continue;
      if (answer) *answer = std::move(reply.body);
      return reply.status;
    }
    lose(*run);
    if (reply.end != End::kEnded) return harmed(index, reply, limit_ns);
  }
}

Status RemoteSession::check(size_t index) {
  return run(index, RemoteCall::kCheck, nullptr);
}

Result<double> RemoteSession::time_once_ns(size_t index) {
  std::string answer;
  KACHEL_TRY(run(index, RemoteCall::kMeasure, &answer));
  setup_.engine.counters().measurements.fetch_add(1, std::memory_order_relaxed);
  ByteReader in(answer);
  const auto ns = in.get<double>();
  if (!in.at_end()) return internal("the worker's answer makes no sense");
  leave_room(ns, setup_.share);
  return ns;
}

}  // namespace kachel::runtime
