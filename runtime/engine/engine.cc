#include "runtime/engine/engine.h"

#include <unistd.h>

#include <algorithm>
#include <limits>
#include <thread>

#include "lowering/version.h"

namespace kachel::runtime {

std::string worker_build() {
  return "lowering version " + std::to_string(lowering::kLoweringVersion);
}

Engine::Engine(EngineOptions options)
    : owner_(getpid()), options_(std::move(options)), log_(options_.log, options_.events, options_.events_kept) {}

bool Engine::in_owner_process() const {
  return getpid() == owner_;
}

Result<std::shared_ptr<Engine>> Engine::create(EngineOptions options) {
  if (!options.clock) options.clock = std::make_shared<tuner::SteadyClock>();
  if (!options.lower)
    options.lower = [](const ir::Kernel& kernel, const lowering::Target& target, uint64_t facts,
                       const lowering::LowerOptions& how) { return lowering::lower(kernel, target, facts, how); };
  std::shared_ptr<Engine> engine(new Engine(std::move(options)));
  cache::StoreOptions store;
  store.path = engine->options_.store_path;
  store.max_bytes = engine->options_.store_max_bytes;
  store.layers = engine->options_.store_layers;
  store.remote = engine->options_.store_remote;
  store.mac_keys = engine->options_.store_mac_keys;
  store.log = &engine->log_;
  KACHEL_ASSIGN(engine->store_, cache::Store::open(std::move(store)));
  if (engine->options_.open_device)
    engine->devices_ = std::make_unique<DeviceRegistry>(engine->options_.device_list, engine->options_.open_device);
  else
    engine->devices_ = std::make_unique<DeviceRegistry>(engine->options_.devices);
  engine->services_ = std::make_unique<EngineServices>(EngineServices{engine->log_, *engine->store_, engine->counters_,
                                                                      engine->options_.lower, engine->device_lost_,
                                                                      engine->options_.compile_limit_ns});
  engine->plans_ = std::make_unique<PlanBuilder>(*engine->services_);
  engine->workers_ = std::make_unique<Workers>(engine->options_.worker, worker_build(), engine->log_);
  return engine;
}

Engine::~Engine() {
  if (!in_owner_process()) {
    // Devices and threads are the parent's.
    (void)background_.release();
    (void)workers_.release();
    (void)plans_.release();
    (void)services_.release();
    (void)devices_.release();
    return;
  }
  background_.reset();
  // What is unloaded now cannot be running: on the CPU launches have returned, on CUDA whatever a caller has launched
  // stays loaded (Specialisation::pin), and candidates ran on a stream that their tuning waited for.
  std::vector<std::unique_ptr<RelaxedCapture>> relaxed;
  if (devices_)
    for (Device* device : devices_->opened()) relaxed.push_back(std::make_unique<RelaxedCapture>(*device));
  plans_.reset();
  relaxed.clear();
}

size_t Engine::compile_threads() const {
  constexpr unsigned kMost = 16;
  return options_.compile_threads ? options_.compile_threads
                                  : std::clamp(std::thread::hardware_concurrency(), 1u, kMost);
}

int64_t Engine::background_bytes(const Device& device) const {
  constexpr int64_t kPart = 16, kUnknown = int64_t{256} << 20;
  if (options_.background_bytes > 0) return options_.background_bytes;
  const int64_t memory = device.properties().memory_bytes;
  return memory > 0 ? memory / kPart : kUnknown;
}

int64_t Engine::worker_bytes(const Device& device) const {
  constexpr int64_t kPart = 4;
  if (options_.worker.most_bytes > 0) return options_.worker.most_bytes;
  const int64_t memory = device.properties().memory_bytes;
  return memory > 0 ? memory / kPart : std::numeric_limits<int64_t>::max();
}

void Engine::freeze() {
  frozen_ = true;
  background_->cancel_all();
  workers_->clear();
}

void Engine::note_tuned(const cache::Key& key) {
  std::lock_guard lock(mutex_);
  tuned_.insert(key.hex());
}

bool Engine::tuned_here(const cache::Key& key) {
  std::lock_guard lock(mutex_);
  return tuned_.count(key.hex()) != 0;
}

EngineStats Engine::stats() {
  const cache::StoreStats store = store_->stat();
  EngineStats stats{};
  stats.launches = counters_.launches.total();
  stats.compiles = counters_.compiles;
  stats.loads = counters_.loads;
  stats.measurements = counters_.measurements;
  stats.tunings = counters_.tunings;
  stats.specialisations = counters_.specialisations;
  stats.store_hits = store.hits;
  stats.store_layer_hits = store.layer_hits;
  stats.store_misses = store.misses;
  stats.store_damaged = store.damaged + counters_.damaged_plans;
  stats.store_puts = store.puts;
  stats.store_refused_macs = store.refused_macs;
  stats.remote = store.remote;
  for (Device* device : devices_->opened()) {
    const uint64_t opened = device->compiler().opened() ? 1 : 0;
    (device->properties().kind == DeviceKind::kCpu ? stats.llvm_opened : stats.nvrtc_opened) |= opened;
  }
  stats.lowerings = counters_.lowerings;
  stats.background_pending = background_->pending();
  stats.background_tunings = counters_.background_tunings;
  stats.background_failures = counters_.background_failures;
  stats.drift_checks = counters_.drift_checks;
  stats.drift_replacements = counters_.drift_replacements;
  stats.workers = counters_.workers;
  stats.workers_lost = counters_.workers_lost;
  stats.last_load_ns = counters_.last_load_ns;
  return stats;
}

Result<LastingScratch> LastingScratch::allocate(std::shared_ptr<Engine> engine, Device& device, int64_t bytes) {
  LastingScratch made;
  made.engine_ = std::move(engine);
  made.device_ = &device;
  if (bytes == 0) return made;
  RelaxedCapture relaxed(device);
  KACHEL_ASSIGN(made.scratch_, Workspace::allocate_lasting(device, made.engine_->options().scratch, bytes));
  return made;
}

LastingScratch::~LastingScratch() {
  if (!scratch_.get()) return;
  if (!engine_->in_owner_process()) {
    scratch_.forget();
    return;
  }
  RelaxedCapture relaxed(*device_);
  scratch_.reset();
}

}  // namespace kachel::runtime
