// One tuning of one key in a worker process: TuneSession at arm's length. What is decided, is decided here; the worker
// compiles, checks and times what it is told to, on tensors of its own (task.h), and keeps nothing. This process loads
// no candidate.
//
// Every call has a time limit. A candidate whose call is not answered, because the worker dies or has to be killed, is
// harmful: that is its verdict, and a fresh worker goes on with the others. Compilations run side by side; those that
// were under way when a worker died are repeated one by one, so that the right one is blamed. After a number of workers
// the rest is left untried.
//
// Binaries travel: the store is this process's alone. A plan that it has goes along with kCompile, a new one comes back
// and is put (cargo.h).
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "runtime/engine/worker/cargo.h"
#include "runtime/engine/worker/relay.h"
#include "tuner/runner.h"

namespace kachel::runtime {

class WorkerSession final : public tuner::CandidateRunner {
 public:
  struct Setup {
    Engine& engine;
    Device& device;
    const KernelModel& model;
    const Point& point;
    const BoundArguments& arguments;
    const std::vector<TunableValues>& candidates;
    void* stream;      // the caller's; not captured
    double share = 1;  // LaunchSettings::share
    const std::atomic<bool>* cancelled = nullptr;
  };
  // Borrows everything in `setup`. `cargo`: of a program; of a kernel its plans. kUnsupported where no worker can be
  // had, kNoMemory where the copies would take more than the engine's options or the device allow.
  static Result<std::unique_ptr<WorkerSession>> open(const Setup& setup, std::unique_ptr<WorkerCargo> cargo = nullptr);

  tuner::Forecast forecast(size_t index) override;
  Status compile(size_t index) override;
  void compile_reference() override;
  std::string flaw(size_t index) override;
  Status prepare() override;
  Status check(size_t index) override;
  void prepare_run(tuner::Caches caches) override { caches_ = caches; }  // the rest is a part of the timed run
  bool rotate(double run_ns) override;
  Result<double> time_once_ns(size_t index) override;
  tuner::Verdict verdict(size_t index) const override;
  std::vector<Harm> take_harms() override;

 private:
  struct Note {
    tuner::Verdict verdict = tuner::Verdict::kFailed;
    Status why;  // of a verdict that is none of kFailed
    std::string flaw;
  };
  static WorkerTask task_of(const Setup& setup, const WorkerCargo& cargo);
  WorkerSession(const Setup& setup, std::unique_ptr<WorkerCargo> cargo);
  Status harmed(size_t index, const WorkerRelay::Reply& reply, int64_t limit_ns);
  Status not_tried(size_t index, const Status& why);
  Status compile_in(size_t index, bool alone, bool* suspect);
  Status keep_made(size_t index, bool given, ByteReader& answer);
  Status refer(size_t attempt);
  Status make_reference(size_t first);
  Result<bool> rotate_in(WorkerRelay::Turn& turn, double run_ns);
  Result<std::shared_ptr<WorkerRelay::Turn>> ready(size_t index);
  Status run(size_t index, WorkerCall what, std::string* answer);

  const Setup setup_;
  const std::unique_ptr<WorkerCargo> cargo_;
  const std::string name_;  // "kernel `f`", for the log
  WorkerRelay relay_;
  std::shared_mutex compiling_;                     // held alone while a suspect compiles
  uint64_t reference_ = 0;                          // the attempt that made it last
  tuner::Caches caches_ = tuner::Caches::kEvicted;  // for the next run
  double rotated_ns_ = 0;                           // of a run, where operands rotate
  mutable std::mutex mutex_;                        // guards what follows
  std::vector<Note> notes_;
  std::vector<Harm> harms_;  // nobody has taken yet
};

}  // namespace kachel::runtime
