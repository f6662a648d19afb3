#include "tuner/compile_pool.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace kachel::tuner {
namespace {

class Pool {
 public:
  Pool(const std::vector<size_t>& order, CandidateRunner& runner, Clock& clock, const Deadline& deadline,
       bool reference)
      : order_(order),
        runner_(runner),
        clock_(clock),
        deadline_(deadline),
        outcomes_(order.size()),
        reference_(reference) {}

  Result<std::vector<CompileOutcome>> run(unsigned workers, const OnCompiled& on_compiled) {
    std::vector<std::thread> threads;
    size_t wanted = std::min<size_t>(workers, order_.size() + reference_);
    active_ = wanted;
    for (size_t i = 0; i < wanted; ++i) {
      try {
        threads.emplace_back([this] { work(); });
      } catch (const std::system_error&) {  // the host is out of threads: go on with those there are
        std::lock_guard lock(mutex_);
        active_ -= wanted - i;
        break;
      }
    }
    if (threads.empty()) {
      active_ = 1;
      work();
    }
    Status ended = drain(on_compiled);
    for (std::thread& thread : threads) thread.join();
    if (!ended.ok()) return ended;
    return std::move(outcomes_);
  }

 private:
  // The next position to compile, or none.
  bool take(size_t& at) {
    std::lock_guard lock(mutex_);
    if (stop_ || next_ == order_.size()) return false;
    if (succeeded_ && deadline_.passed()) return false;
    at = next_++;
    return true;
  }

  bool take_reference() {
    std::lock_guard lock(mutex_);
    return std::exchange(reference_, false);
  }

  void work() {
    if (take_reference()) runner_.compile_reference();
    size_t at = 0;
    while (take(at)) {
      CompileOutcome outcome{.tried = true};
      int64_t start_ns = clock_.now_ns();
      outcome.status = runner_.compile(order_[at]);
      outcome.ns = clock_.now_ns() - start_ns;
      std::lock_guard lock(mutex_);
      succeeded_ |= outcome.status.ok();
      outcomes_[at] = std::move(outcome);
      finished_.push_back(at);
      changed_.notify_one();
    }
    std::lock_guard lock(mutex_);
    --active_;
    changed_.notify_one();
  }

  // Hands out outcomes until the last worker has left.
  Status drain(const OnCompiled& on_compiled) {
    Status ended;
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return !finished_.empty() || active_ == 0; });
      if (finished_.empty()) return ended;
      size_t at = finished_.front();
      finished_.pop_front();
      if (!ended.ok()) continue;
      const CompileOutcome& outcome = outcomes_[at];  // written once, before it was queued
      Code code = outcome.status.code();
      lock.unlock();
      if (code == Code::kDeviceLost || code == Code::kCancelled)
        ended = outcome.status;
      else
        ended = on_compiled(at, outcome);
      lock.lock();
      stop_ = !ended.ok();
    }
  }

  const std::vector<size_t>& order_;
  CandidateRunner& runner_;
  Clock& clock_;
  const Deadline& deadline_;

  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::vector<CompileOutcome> outcomes_;
  std::deque<size_t> finished_;
  size_t next_ = 0;
  size_t active_ = 0;
  bool reference_;  // is still to be compiled
  bool succeeded_ = false;
  bool stop_ = false;
};

}  // namespace

Result<std::vector<CompileOutcome>> compile_candidates(const std::vector<size_t>& order, CandidateRunner& runner,
                                                       Clock& clock, const Deadline& deadline, unsigned workers,
                                                       bool reference, const OnCompiled& on_compiled) {
  return Pool(order, runner, clock, deadline, reference).run(std::max(workers, 1u), on_compiled);
}

}  // namespace kachel::tuner
