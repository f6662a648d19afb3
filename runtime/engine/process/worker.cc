#include "runtime/engine/process/worker.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/engine/process/handshake.h"
#include "support/bytes.h"

namespace kachel::runtime {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kCancelSlice = std::chrono::milliseconds(20);
// For a process whose socket is closed already.
constexpr auto kDyingPatience = std::chrono::milliseconds(1000);

// What talks nonsense need not be about to end.
std::chrono::milliseconds patience_after(const Status& heard) {
  return heard.code() == Code::kInternal ? kDyingPatience : std::chrono::milliseconds(0);
}

Channel::Time after(std::chrono::nanoseconds limit) {
  const auto now = Clock::now();
  return limit > Channel::kNever - now ? Channel::kNever : now + std::chrono::duration_cast<Clock::duration>(limit);
}

}  // namespace

Result<std::unique_ptr<Worker>> Worker::start(const std::string& path, const std::string& build,
                                              std::chrono::nanoseconds limit, Log& log) {
  KACHEL_ASSIGN(ChildProcess::Started started, ChildProcess::start(path));
  std::unique_ptr<Worker> worker(new Worker(std::move(started), log));
  KACHEL_TRY(worker->greet(path, build, after(limit)));
  return worker;
}

Status Worker::greet(const std::string& path, const std::string& build, Time deadline) {
  const std::string mend = "; give the path of the kachel-tune-worker that was installed with this library";
  const Hello own{kWorkerProtocol, build};
  const Status sent = channel_.send({0, kHelloMessage, encode_hello(own)}, deadline);
  auto heard = sent.ok() ? channel_.receive(deadline) : Result<std::optional<Message>>(sent);
  if (!heard.ok()) {
    const std::string how = child_->end(patience_after(heard.status()));
    return unsupported(fmt::format("{} does not speak as a worker does: {}{}{}{}", path, heard.status().message(),
                                   how.empty() ? "" : "; it ", how, mend));
  }
  if (!*heard) return unsupported(fmt::format("{} did not say that it is a worker in time{}", path, mend));
  const auto other = (*heard)->type == kHelloMessage ? decode_hello((*heard)->body) : std::nullopt;
  if (!other) return unsupported(fmt::format("{} does not speak as a worker does{}", path, mend));
  if (*other != own)
    return unsupported(fmt::format("{} is of another build: it has protocol {} and {}, this library {} and {}{}", path,
                                   other->protocol, other->build, own.protocol, own.build, mend));
  return {};
}

void Worker::end_locked(std::string why) {
  if (ended_) return;
  ended_ = true;
  child_->end(std::chrono::milliseconds(0));
  how_ = std::move(why);
  changed_.notify_all();
}

// It has ended, or says what nobody understands.
void Worker::died_locked(const Status& heard) {
  if (ended_) return;
  died_ = true;
  alone_ = waiting_.size() <= 1;
  const std::string how = child_->end(patience_after(heard));
  end_locked(how.empty() ? "the worker was ended, since " + heard.message() : "the worker " + how);
}

void Worker::end(std::string why) {
  std::lock_guard lock(mutex_);
  end_locked(std::move(why));
}

bool Worker::is_free() {
  std::lock_guard lock(mutex_);
  return !ended_ && !left_alone_ && waiting_.empty() && channel_.is_open();
}

// Takes one message off the channel, with the lock let go meanwhile.
void Worker::read_for_all(std::unique_lock<std::mutex>& lock, Time deadline) {
  reading_ = true;
  lock.unlock();
  auto heard = channel_.receive(deadline);
  if (heard.ok() && *heard && (*heard)->type == kNoteMessage) {
    if (auto event = decode_event((*heard)->body)) {
      event->message.insert(0, "worker: ");
      event->fields.emplace_back("in_worker", 1);
      log_.write(*std::move(event));
    }
    *heard = std::nullopt;
  }
  lock.lock();
  reading_ = false;
  if (!heard.ok()) {
    died_locked(heard.status());
  } else if (*heard) {
    const auto found = waiting_.find((*heard)->call);
    if (found != waiting_.end()) found->second = std::move((*heard)->body);
  }
  changed_.notify_all();
}

Worker::Answer Worker::call(uint8_t type, std::string body, std::chrono::nanoseconds limit,
                            const std::atomic<bool>* cancelled) {
  const Time deadline = after(limit);
  std::unique_lock lock(mutex_);
  if (ended_) return {End::kEnded, how_};
  const uint64_t number = ++last_call_;
  waiting_[number];
  lock.unlock();
  Status sent;
  {
    std::lock_guard one(sending_);
    sent = channel_.send({number, type, std::move(body)}, deadline);
  }
  lock.lock();
  auto leave = [&](End end, std::string with) -> Answer {
    waiting_.erase(number);
    return {end, std::move(with), alone_};
  };
  const bool blocked = sent.code() == Code::kBusy;
  // It was gone before it heard of this call, which has nothing to do with that.
  const bool unheard = !sent.ok() && !blocked;
  if (unheard) died_locked(sent);
  for (;;) {
    if (auto& answer = waiting_[number]) return leave(End::kAnswered, *std::move(answer));
    if (ended_) return leave(died_ && !unheard ? End::kDied : End::kEnded, how_);
    if (cancelled && cancelled->load(std::memory_order_relaxed)) {
      left_alone_ = true;
      return leave(End::kCancelled, "");
    }
    const auto now = Clock::now();
    if (blocked || now >= deadline) {
      end_locked("the worker was ended, since another call took too long");
      return leave(End::kTimedOut, "");
    }
    const Time until = cancelled ? std::min(deadline, now + kCancelSlice) : deadline;
    if (reading_)
      changed_.wait_until(lock, until);
    else
      read_for_all(lock, until);
  }
}

}  // namespace kachel::runtime
