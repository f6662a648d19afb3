#include "runtime/engine/worker/relay.h"

#include <fmt/format.h>

namespace kachel::runtime {
namespace {

using End = Worker::End;

// Of a task, and of each piece of it: opening a device takes seconds where many processes begin at once.
constexpr int64_t kHandover_ns = 60'000'000'000;
constexpr int64_t kClose_ns = 1'000'000'000;

}  // namespace

WorkerRelay::~WorkerRelay() {
  if (!turn_ || !turn_->worker->is_free()) return;
  if (call(*turn_, WorkerCall::kClose, {}, kClose_ns).end == End::kAnswered)
    setup_.engine.workers().give_back(std::move(turn_->worker), setup_.patient);
}

void WorkerRelay::stop(Status why) {
  std::lock_guard lock(mutex_);
  if (helpless_.ok()) helpless_ = std::move(why);
  turn_.reset();
}

WorkerRelay::Reply WorkerRelay::call(Turn& turn, WorkerCall what, std::string body, int64_t limit_ns) {
  Worker::Answer answer = turn.worker->call(static_cast<uint8_t>(what), std::move(body),
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
  turn.worker->end(reply.body);
  return reply;
}

Result<std::shared_ptr<WorkerRelay::Turn>> WorkerRelay::present() {
  std::lock_guard lock(mutex_);
  if (turn_) return turn_;
  if (!helpless_.ok()) return helpless_;
  const int most = 1 + setup_.engine.workers().options().restarts;
  if (begun_ == most) {
    helpless_ = {Code::kLaunch, fmt::format("{} workers were lost to this tuning", most)};
    return helpless_;
  }
  ++begun_;
  auto begun = begin();
  if (begun.ok()) return turn_ = *begun;
  if (begun.status().code() != Code::kCancelled) helpless_ = begun.status();
  return begun;
}

Result<std::shared_ptr<WorkerRelay::Turn>> WorkerRelay::begin() {
  auto turn = std::make_shared<Turn>();
  turn->loaded = std::vector<std::atomic<bool>>(task_.candidates.size());
  turn->warm.resize(task_.candidates.size());
  KACHEL_ASSIGN(turn->worker, setup_.engine.workers().take(setup_.patient));
  const std::string task = encode_task(task_);
  Reply opened = call(*turn, WorkerCall::kOpen, task, kHandover_ns);
  if (opened.end == End::kDied) {  // one that was kept for this may have been about to go
    KACHEL_ASSIGN(turn->worker, setup_.engine.workers().take(setup_.patient));
    opened = call(*turn, WorkerCall::kOpen, task, kHandover_ns);
  }
  setup_.engine.counters().workers.fetch_add(1, std::memory_order_relaxed);
  auto judged = [](Reply reply) -> Result<std::string> {
    if (!reply.status.ok()) return reply.status;
    if (reply.end != End::kAnswered) return unsupported("a worker could not take the tensors over: " + reply.body);
    return std::move(reply.body);
  };
  auto must = [&](WorkerCall what, std::string body) {
    return judged(call(*turn, what, std::move(body), kHandover_ns));
  };
  KACHEL_TRY(judged(std::move(opened)).status());
  KACHEL_TRY(read_contents(setup_.device, setup_.arguments, task_, setup_.stream,
                           [&](uint64_t param, uint64_t offset, std::string_view bytes) {
                             ByteWriter body;
                             body.put(param);
                             body.put(offset);
                             body.put_bytes(bytes);
                             return must(WorkerCall::kContents, body.take()).status();
                           }));
  KACHEL_ASSIGN(const std::string answer, must(WorkerCall::kStart, {}));
  ByteReader in(answer);
  const std::string_view keys = in.get_bytes();
  first_attempt_ = in.get<uint64_t>();
  if (in.at_end() && keys == keys_) return turn;
  turn->worker->end("it sees another key");
  return unsupported(
      "the worker sees another program or another device than this process: give it the same environment");
}

void WorkerRelay::lose(const std::shared_ptr<Turn>& turn) {
  std::lock_guard lock(mutex_);
  if (turn_ != turn) return;
  turn_.reset();
  setup_.engine.counters().workers_lost.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace kachel::runtime
