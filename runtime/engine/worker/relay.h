// The workers of one tuning, one after another, each with the task handed over.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/engine/engine.h"
#include "runtime/engine/worker/task.h"

namespace kachel::runtime {

// Thread-safe.
class WorkerRelay {
 public:
  struct Setup {
    Engine& engine;
    Device& device;
    const BoundArguments& arguments;
    void* stream;  // the caller's; not captured
    bool patient;  // Workers::take()
    const std::atomic<bool>* cancelled;
  };
  // keys: task_keys() as this process sees them. Borrows what is in `setup`.
  WorkerRelay(const Setup& setup, WorkerTask task, std::string keys)
      : setup_(setup), task_(std::move(task)), keys_(std::move(keys)) {}
  ~WorkerRelay();
  WorkerRelay(const WorkerRelay&) = delete;
  WorkerRelay& operator=(const WorkerRelay&) = delete;

  // One worker, and what it has of the candidates; but for `loaded` of one thread alone.
  struct Turn {
    std::unique_ptr<Worker> worker;
    std::vector<std::atomic<bool>> loaded;
    std::vector<bool> warm;  // have run
    bool prepared = false;   // there is a reference
    bool rotates = false;    // its operands do
  };
  // An answer, as its status and what follows it, or why there is none.
  struct Reply {
    Worker::End end = Worker::End::kAnswered;
    Status status;
    std::string body;
    bool alone = true;
  };

  // The worker that does the work now; a fresh one where the last is lost. Fails once there will be none.
  Result<std::shared_ptr<Turn>> present();
  Reply call(Turn& turn, WorkerCall what, std::string body, int64_t limit_ns);
  // After a call that was not answered.
  void lose(const std::shared_ptr<Turn>& turn);
  // From now on there is none.
  void stop(Status why);

  const WorkerTask& task() const { return task_; }
  // The first attempt at a reference that is worth one. REQUIRES: present() was ok once.
  uint64_t first_attempt() const { return first_attempt_; }
  bool is_first() {
    std::lock_guard lock(mutex_);
    return begun_ == 1;
  }

 private:
  Result<std::shared_ptr<Turn>> begin();

  const Setup setup_;
  const WorkerTask task_;
  const std::string keys_;
  std::atomic<uint64_t> first_attempt_{0};
  std::mutex mutex_;  // guards what follows
  std::shared_ptr<Turn> turn_;
  int begun_ = 0;
  Status helpless_;  // nothing can be tried any more
};

}  // namespace kachel::runtime
