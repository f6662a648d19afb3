// The worker processes of an engine: where the program is, one that is kept for the next tuning, and what is known of a
// program that cannot be used.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "runtime/engine/process/worker.h"

namespace kachel::runtime {

struct WorkerOptions {
  std::string path;       // "": none, tunings run in this process; without a slash: a program beside this library
  bool required = false;  // where there is none, nothing is tuned
  int restarts = 8;       // of one tuning
  int64_t run_limit_ns = 30'000'000'000;
  int64_t most_bytes = 0;  // of a launch's tensors and the copies of its outputs; 0: a quarter of the device
  int64_t hello_limit_ns = 20'000'000'000;  // replaced by tests
};

// The absolute or relative path that stands for `path`; as it is where nothing is found.
std::string find_worker(const std::string& path);

// Thread-safe.
class Workers {
 public:
  // build: what a worker must be of, in words.
  Workers(WorkerOptions options, std::string build, Log& log)
      : options_(std::move(options)), build_(std::move(build)), log_(log) {}

  const WorkerOptions& options() const { return options_; }
  bool wanted() const { return !options_.path.empty(); }
  // One that was given back, or a fresh one. One `patient` worker goes behind the host's own threads, as the thread
  // that calls this does. kUnsupported, from the first failure on, where the program cannot be used.
  Result<std::unique_ptr<Worker>> take(bool patient);
  // Keeps it for later where it is free, else ends it.
  void give_back(std::unique_ptr<Worker> worker, bool patient);
  // Ends those that are kept.
  void clear();

 private:
  const WorkerOptions options_;
  const std::string build_;
  Log& log_;
  std::mutex mutex_;  // guards what follows
  Status unusable_;
  std::unique_ptr<Worker> kept_[2];  // one that is not patient, one that is
};

}  // namespace kachel::runtime
