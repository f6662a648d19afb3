// The engine: devices, one store, what is loaded, and the settings that calls fall back to. Shared by every handle made
// from it, and gone with the last of them.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <utility>

#include "cache/store.h"
#include "runtime/engine/background.h"
#include "runtime/engine/device_registry.h"
#include "runtime/engine/process/workers.h"
#include "runtime/engine/specialise/plan_builder.h"
#include "runtime/engine/workspace.h"
#include "support/log.h"
#include "tuner/policy.h"
#include "tuner/progress.h"
#include "tuner/single_flight.h"
#include "tuner/tuner.h"

namespace kachel::runtime {

struct TuneProgress {
  const char* kernel;
  std::string configuration;  // of the candidate just dealt with, with the program's names; "" if none
  tuner::Phase phase;
  size_t done, total;
  double best_ns;  // 0 while none is measured
};

class TuningHooks;

struct EngineOptions {
  std::string store_path;  // "": memory only
  uint64_t store_max_bytes = 0;
  std::vector<std::string> store_layers;  // cache::StoreOptions::layers, and so on
  cache::RemoteOptions store_remote;
  std::shared_ptr<const cache::MacKeys> store_mac_keys;
  int64_t tune_budget_ns = 10'000'000'000;
  tuner::Policy policy = tuner::Policy::kBlocking;
  uint32_t tune_trials = 0;                  // as in LaunchSettings
  std::shared_ptr<const TuningHooks> hooks;  // of launches that bring none; null: none
  // Of tunings in the background: of the device's time, and of its memory for the copies of tensors that wait or are in
  // use at once; 0: a sixteenth of it.
  double background_share = 0.25;
  int64_t background_bytes = 0;
  int64_t drift_check_ns = 0;  // between two checks of a decision from the store (drift_watch.h); 0: none
  unsigned compile_threads = 0;
  int64_t compile_limit_ns = 60'000'000'000;  // of one compilation
  WorkerOptions worker;                       // where candidates of a tuning are tried
  DeviceOptions devices;
  Log::Sink log;
  Log::EventSink events;
  size_t events_kept = 0;  // for Log::take()
  ScratchCallbacks scratch;
  std::function<bool(const TuneProgress&)> progress;  // false cancels the tuning

  // Replaced by tests.
  std::vector<DeviceRef> device_list;
  DeviceRegistry::Open open_device;  // null: the machine's own devices
  LowerFunction lower;               // null: lowering::lower
  tuner::TunerOptions tuner;
  std::shared_ptr<tuner::Clock> clock;
};

struct EngineStats {
  uint64_t launches, compiles, loads, measurements, tunings, specialisations;
  uint64_t store_hits, store_layer_hits, store_misses, store_damaged, store_puts;
  uint64_t nvrtc_opened, llvm_opened, lowerings;
  uint64_t background_pending, background_tunings, background_failures;
  uint64_t drift_checks, drift_replacements;
  uint64_t workers, workers_lost;
  uint64_t store_refused_macs;
  cache::RemoteStats remote;
  double last_load_ns;
};

// What a host and its worker must have in common, in words.
std::string worker_build();

// Thread-safe. After fork() a child may only destroy it.
class Engine {
 public:
  static Result<std::shared_ptr<Engine>> create(EngineOptions options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const EngineOptions& options() const { return options_; }
  DeviceRegistry& devices() { return *devices_; }
  cache::Store& store() { return *store_; }
  PlanBuilder& plans() { return *plans_; }
  Log& log() { return log_; }
  Counters& counters() { return counters_; }
  const EngineServices& services() const { return *services_; }
  tuner::SingleFlight& flights() { return flights_; }
  tuner::Clock& clock() { return *options_.clock; }
  // Of a call that compiles several things.
  size_t compile_threads() const;
  bool device_lost() const { return device_lost_.load(std::memory_order_relaxed); }

  Background& background() { return *background_; }
  int64_t background_bytes(const Device& device) const;
  std::atomic<int64_t>& background_taken() { return background_taken_; }  // of those bytes, on all devices
  Workers& workers() { return *workers_; }
  // What a tuning's tensors may take in a worker.
  int64_t worker_bytes(const Device& device) const;
  // From then on nothing is tuned and nothing that serves is replaced but what fails: unknown keys are served as under
  // the policy off. Waits for the tuning that runs in the background to end behind its present candidate.
  void freeze();
  bool frozen() const { return frozen_.load(std::memory_order_relaxed); }

  // Keys tuned by this engine, as opposed to found in the store.
  void note_tuned(const cache::Key& key);
  bool tuned_here(const cache::Key& key);

  EngineStats stats();
  // False in a child of fork(), where nothing but destruction works and that lets devices be.
  bool in_owner_process() const;

 private:
  explicit Engine(EngineOptions options);

  const int owner_;  // process id
  EngineOptions options_;
  Log log_;
  Counters counters_;
  std::atomic<bool> device_lost_{false}, frozen_{false};
  std::atomic<int64_t> background_taken_{0};
  std::shared_ptr<cache::Store> store_;
  std::unique_ptr<DeviceRegistry> devices_;  // outlives what is loaded on them
  std::unique_ptr<EngineServices> services_;
  std::unique_ptr<PlanBuilder> plans_;
  std::unique_ptr<Workers> workers_;
  tuner::SingleFlight flights_;
  std::mutex mutex_;  // guards tuned_
  std::unordered_set<std::string> tuned_;
  std::unique_ptr<Background> background_ = std::make_unique<Background>();
};

// Scratch of a bound call, for several launches and streams. In a child of fork() it is let be.
class LastingScratch {
 public:
  LastingScratch() = default;
  static Result<LastingScratch> allocate(std::shared_ptr<Engine> engine, Device& device, int64_t bytes);
  LastingScratch(LastingScratch&&) = default;
  LastingScratch& operator=(LastingScratch&& other) noexcept {
    std::swap(engine_, other.engine_), std::swap(device_, other.device_), std::swap(scratch_, other.scratch_);
    return *this;
  }
  // REQUIRES: whoever uses it has finished.
  ~LastingScratch();

  void* get() const { return scratch_.get(); }

 private:
  std::shared_ptr<Engine> engine_;
  Device* device_ = nullptr;
  Workspace scratch_;
};

}  // namespace kachel::runtime
