#include "cache/remote.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <exception>
#include <utility>

namespace kachel::cache {
namespace {

constexpr auto kBetweenLines = std::chrono::minutes(1);

std::chrono::microseconds us(uint64_t count) {
  return std::chrono::microseconds(std::min<uint64_t>(count, uint64_t{1} << 50));
}

}  // namespace

Remote::Remote(RemoteOptions options, Log& log) : options_(std::move(options)), log_(log) {}

Remote::~Remote() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    stop_by_ = Clock::now() + us(options_.close_us);
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

// With the lock held.
bool Remote::start() {
  if (stopping_) return false;
  if (thread_.joinable()) return true;
  ExitWatch::arm();  // here, too: the process may exit before the thread gets there
  thread_ = begin_thread([this] { run(); });
  return thread_.joinable();
}

bool Remote::stop_for_exit(ExitWatch::Deadline deadline) {
  std::unique_lock lock(mutex_);
  if (in_call()) return true;  // a callback of the host's leaves
  stopping_ = true;
  // What runs then may take a moment more, and others are told to stop after this.
  stop_by_ = Clock::now() + (deadline - Clock::now()) / 2;
  changed_.notify_all();
  return changed_.wait_until(lock, deadline, [&] { return !running_ && puts_.empty(); });
}

std::optional<std::string> Remote::get(const std::string& name) {
  if (!options_.get) return std::nullopt;
  std::unique_lock lock(mutex_);
  if (in_call() || overdue_ || Clock::now() < get_circuit_.closed_from || !start()) {
    ++stats_.skipped;
    return std::nullopt;
  }
  auto request = std::make_shared<Request>();
  request->name = name;
  gets_.push_back(request);
  changed_.notify_all();
  if (!changed_.wait_for(lock, us(options_.wait_us), [&] { return request->done; })) {
    std::erase(gets_, request);
    request->abandoned = true;
    if (overdue_) {  // somebody else who waited for it has said so
      ++stats_.errors;
      return std::nullopt;
    }
    // Many may ask at once and be answered one after another: that is no fault of the back end's.
    if (running_ && Clock::now() - begun_ < us(options_.wait_us) / 2) {
      ++stats_.skipped;
      return std::nullopt;
    }
    overdue_ = running_;
    std::optional<Event> failed = settle(
        get_circuit_, "get", {RemoteAnswer::kFailed, fmt::format("no answer within {} ms", options_.wait_us / 1000)});
    lock.unlock();
    if (failed) log_.write(*std::move(failed));
    return std::nullopt;
  }
  if (!request->found) return std::nullopt;
  return std::move(request->value);
}

void Remote::put(std::string name, std::string value) {
  if (!options_.put) return;
  std::lock_guard lock(mutex_);
  const bool full = put_bytes_ + value.size() > options_.most_bytes;
  if (overdue_ || full || Clock::now() < put_circuit_.closed_from || !start()) {
    ++stats_.skipped;
    return;
  }
  put_bytes_ += value.size();
  auto request = std::make_shared<Request>();
  request->name = std::move(name);
  request->value = std::move(value);
  puts_.push_back(std::move(request));
  changed_.notify_all();
}

bool Remote::flush(uint64_t timeout_us) {
  std::unique_lock lock(mutex_);
  if (in_call()) return false;
  return changed_.wait_for(lock, us(timeout_us), [&] { return !running_ && puts_.empty(); });
}

void Remote::judge(bool useful) {
  std::lock_guard lock(mutex_);
  ++(useful ? stats_.hits : stats_.misses);
}

RemoteStats Remote::stats() const {
  std::lock_guard lock(mutex_);
  return stats_;
}

// What waits behind a call that failed, with the lock held.
void Remote::drop_gets() {
  stats_.skipped += gets_.size();
  for (const auto& request : gets_) request->done = true;
  gets_.clear();
}

void Remote::drop_puts() {
  stats_.skipped += puts_.size();
  puts_.clear();
  put_bytes_ = 0;
}

// What came of a call, with the lock held, and the event to be written without it. At most one a minute: a back end
// that is away for a night should not fill a disk.
std::optional<Event> Remote::settle(Circuit& circuit, const char* what, const RemoteAnswer& answer) {
  if (answer.kind != RemoteAnswer::kFailed) {
    circuit.pause_us = 0;
    return std::nullopt;
  }
  ++stats_.errors;
  const Clock::time_point now = Clock::now();
  circuit.pause_us = circuit.pause_us == 0 ? options_.pause_us : std::min(circuit.pause_us * 2, options_.most_pause_us);
  circuit.closed_from = now + us(circuit.pause_us);
  if (said_ && now - *said_ < kBetweenLines) return std::nullopt;
  said_ = now;
  const std::string why = answer.why.empty() ? "no reason was given" : answer.why;
  const double pause_s = static_cast<double>(circuit.pause_us) / 1e6;
  return Event{
      .kind = EventKind::kRemoteFailed,
      .level = LogLevel::kWarning,
      .message = fmt::format("remote store: a {} failed: {}; the next one is tried in {:.3g} s", what, why, pause_s),
      .fields = {{"call", std::string(what)}, {"reason", why}, {"pause_s", pause_s}, {"errors", stats_.errors}}};
}

RemoteAnswer Remote::ask(bool is_get, Request& request) try {
  if (!is_get) return options_.put(request.name, request.value);
  bool fits = true;
  const RemoteOptions::Append append = [&](std::string_view piece) {
    try {
      fits = fits && piece.size() <= options_.most_bytes - request.value.size();
      if (fits) request.value.append(piece);
    } catch (const std::exception&) {  // what calls this may be C
      fits = false;
    }
    return fits;
  };
  RemoteAnswer answer = options_.get(request.name, append);
  if (answer.kind == RemoteAnswer::kDone && !fits)
    return {RemoteAnswer::kFailed, fmt::format("the value of {} is too long", request.name)};
  return answer;
} catch (const std::exception& exception) {
  return {RemoteAnswer::kFailed, exception.what()};
}

void Remote::run() {
  (void)::pthread_setname_np(::pthread_self(), "kachel-remote");
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || !gets_.empty() || !puts_.empty(); });
    if (stopping_ && Clock::now() > stop_by_) drop_puts();
    const bool is_get = !gets_.empty();
    std::deque<std::shared_ptr<Request>>& queue = is_get ? gets_ : puts_;
    if (queue.empty()) {
      changed_.notify_all();
      return;  // it stops
    }
    const std::shared_ptr<Request> request = std::move(queue.front());
    queue.pop_front();
    if (!is_get) put_bytes_ -= request->value.size();
    running_ = true;
    begun_ = Clock::now();
    lock.unlock();
    ExitWatch::arm();
    const Clock::time_point begin = Clock::now();
    const RemoteAnswer answer = ask(is_get, *request);
    RemoteAnswer judged = answer;
    if (const auto took = Clock::now() - begin;
        is_get && took > us(options_.slow_us) && judged.kind != RemoteAnswer::kFailed)
      judged = {RemoteAnswer::kFailed, fmt::format("it took {} ms", took / std::chrono::milliseconds(1))};
    lock.lock();
    if (!request->abandoned)
      if (auto event = settle(is_get ? get_circuit_ : put_circuit_, is_get ? "get" : "put", judged)) {
        lock.unlock();
        log_.write(*std::move(event));
        lock.lock();
      }
    running_ = overdue_ = false;
    const bool failed = judged.kind == RemoteAnswer::kFailed;
    if (is_get) {
      request->found = answer.kind == RemoteAnswer::kDone;
      if (answer.kind == RemoteAnswer::kAbsent && !request->abandoned) ++stats_.misses;
      request->done = true;
      if (failed) drop_gets();
    } else if (failed) {
      drop_puts();
    } else {
      ++stats_.puts;
    }
    changed_.notify_all();
  }
}

}  // namespace kachel::cache
