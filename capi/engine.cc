#include "runtime/engine/engine.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "capi/boundary.h"
#include "capi/events.h"
#include "capi/handles.h"
#include "capi/tuning_options.h"
#include "runtime/engine/report/metrics.h"

using namespace kachel;

namespace {

// Sums of limits stay in the range.
int64_t limit_of(uint64_t ns) {
  return static_cast<int64_t>(std::min<uint64_t>(ns, INT64_MAX / 4));
}

std::string worker_path(const char* given) {
  if (!given) given = std::getenv("KACHEL_WORKER");
  return given ? given : "";
}

runtime::EngineOptions engine_options(const kachel_engine_options& given) {
  runtime::EngineOptions options;
  if (given.tune_budget_ns != 0)
    options.tune_budget_ns = static_cast<int64_t>(std::min<uint64_t>(given.tune_budget_ns, INT64_MAX));
  if (given.background_share != 0) options.background_share = given.background_share;
  options.drift_check_ns = limit_of(given.drift_check_ns);
  options.background_bytes = static_cast<int64_t>(std::min<uint64_t>(given.background_max_bytes, INT64_MAX));
  options.worker.path = worker_path(given.worker_path);
  options.worker.required = given.worker_required != 0;
  options.worker.most_bytes = static_cast<int64_t>(std::min<uint64_t>(given.worker_max_bytes, INT64_MAX));
  if (given.worker_restarts != 0) options.worker.restarts = given.worker_restarts;
  if (given.run_limit_ns != 0) options.worker.run_limit_ns = limit_of(given.run_limit_ns);
  if (given.compile_limit_ns != 0) options.compile_limit_ns = limit_of(given.compile_limit_ns);
  options.compile_threads = static_cast<unsigned>(std::max(given.compile_threads, 0));
  options.devices.cpu_threads = given.cpu_threads;
  options.devices.launches_apart = given.launches_apart != 0;
  if (given.nvrtc_path) options.devices.nvrtc_path = given.nvrtc_path;
  if (given.target) options.devices.target = given.target;
  if (given.cpu_compiler_path) options.devices.cpu_compiler_path = given.cpu_compiler_path;
  if (given.scratch_alloc) {
    options.scratch.alloc = [alloc = given.scratch_alloc, user = given.scratch_user](
                                runtime::DeviceRef device, size_t size, size_t align, void* stream) {
      return alloc(user, {device.type, device.id}, size, align, stream);
    };
    if (given.scratch_free)
      options.scratch.free = [free = given.scratch_free, user = given.scratch_user](runtime::DeviceRef device,
                                                                                    void* pointer, void* stream) {
        free(user, {device.type, device.id}, pointer, stream);
      };
  }
  if (given.progress)
    options.progress = [progress = given.progress, user = given.progress_user](const runtime::TuneProgress& event) {
      kachel_progress out{};
      out.struct_size = sizeof(out);
      out.kernel = event.kernel;
      out.configuration = event.configuration.c_str();
      out.phase = static_cast<int32_t>(event.phase);
      out.done = static_cast<uint32_t>(event.done);
      out.total = static_cast<uint32_t>(event.total);
      out.best_ns = event.best_ns;
      return progress(user, &out) == 0;
    };
  return options;
}

}  // namespace

Status capi::policy_of(int32_t policy, tuner::Policy fallback, tuner::Policy& out) {
  switch (policy) {
    case KACHEL_POLICY_DEFAULT:
      out = fallback;
      return {};
    case KACHEL_POLICY_OFF:
      out = tuner::Policy::kOff;
      return {};
    case KACHEL_POLICY_CACHED_ONLY:
      out = tuner::Policy::kCachedOnly;
      return {};
    case KACHEL_POLICY_BLOCKING:
      out = tuner::Policy::kBlocking;
      return {};
    case KACHEL_POLICY_BACKGROUND:
      out = tuner::Policy::kBackground;
      return {};
    default:
      return invalid(std::to_string(policy) + " is not a policy; use one of KACHEL_POLICY_*");
  }
}

kachel_status kachel_engine_create(const kachel_engine_options* given, kachel_engine** out, kachel_error** err) {
  return capi::guarded(err, [&]() -> Status {
    if (!out) return capi::missing("out");
    kachel_engine_options known;
    KACHEL_TRY(capi::read_struct(given, known, "options"));
    if (known.scratch_free && !known.scratch_alloc)
      return invalid("scratch_free is set without scratch_alloc; set both or neither");
    if (known.compile_threads < 0 || known.cpu_threads < 0)
      return invalid("compile_threads and cpu_threads are >= 0; 0 takes all cores");
    if (known.worker_restarts < 0) return invalid("worker_restarts is >= 0; 0 stands for 8");
    if (!(known.background_share >= 0 && known.background_share <= 1))
      return invalid("background_share is a part of the device's time: between 0 and 1, where 0 stands for 0.25");
    runtime::EngineOptions options = engine_options(known);
    KACHEL_TRY(capi::event_options(known, options));
    KACHEL_TRY(capi::store_options(known, options));
    KACHEL_TRY(capi::policy_of(known.policy, tuner::Policy::kBlocking, options.policy));
    options.tune_trials = known.tune_trials;
    KACHEL_ASSIGN(options.hooks, capi::tuning_hooks(known.tuning));
    auto handle = std::make_unique<kachel_engine>();
    KACHEL_ASSIGN(handle->engine, runtime::Engine::create(std::move(options)));
    *out = handle.release();
    return {};
  });
}

void kachel_engine_release(kachel_engine* engine) {
  delete engine;
}

kachel_status kachel_engine_wait(kachel_engine* engine, int64_t timeout_ns, kachel_error** err) {
  return capi::guarded(err, [&]() -> Status {
    if (!engine) return capi::missing("engine");
    using Clock = std::chrono::steady_clock;
    const auto begin = Clock::now();
    if (!engine->engine->background().wait(timeout_ns))
      return Status(Code::kBusy, "tunings are left in the background; wait longer, or go on without them");
    const int64_t left_ns =
        timeout_ns < 0 ? INT64_MAX : timeout_ns - std::chrono::nanoseconds(Clock::now() - begin).count();
    if (engine->engine->store().flush(static_cast<uint64_t>(std::max<int64_t>(left_ns, 0)) / 1000)) return {};
    return Status(Code::kBusy, "the remote store has not taken all entries yet; wait longer, or go on without that");
  });
}

kachel_status kachel_engine_freeze(kachel_engine* engine, kachel_error** err) {
  return capi::guarded(err, [&]() -> Status {
    if (!engine) return capi::missing("engine");
    engine->engine->freeze();
    return {};
  });
}

kachel_status kachel_engine_stats(kachel_engine* engine, kachel_stats* out) {
  return capi::guarded(nullptr, [&]() -> Status {
    if (!engine) return capi::missing("engine");
    const runtime::EngineStats stats = engine->engine->stats();
    kachel_stats value{};
    value.launches = stats.launches;
    value.compiles = stats.compiles;
    value.loads = stats.loads;
    value.measurements = stats.measurements;
    value.tunings = stats.tunings;
    value.specialisations = stats.specialisations;
    value.store_hits = stats.store_hits;
    value.store_misses = stats.store_misses;
    value.store_damaged = stats.store_damaged;
    value.store_puts = stats.store_puts;
    value.nvrtc_opened = stats.nvrtc_opened;
    value.llvm_opened = stats.llvm_opened;
    value.lowerings = stats.lowerings;
    value.last_load_ns = stats.last_load_ns;
    value.store_layer_hits = stats.store_layer_hits;
    value.workers = stats.workers;
    value.workers_lost = stats.workers_lost;
    value.store_refused_macs = stats.store_refused_macs;
    value.remote_hits = stats.remote.hits;
    value.remote_misses = stats.remote.misses;
    value.remote_puts = stats.remote.puts;
    value.remote_errors = stats.remote.errors;
    value.remote_skipped = stats.remote.skipped;
    value.drift_checks = stats.drift_checks;
    value.drift_replacements = stats.drift_replacements;
    value.background_pending = stats.background_pending;
    value.background_tunings = stats.background_tunings;
    value.background_failures = stats.background_failures;
    return capi::write_struct(out, value, "out");
  });
}

kachel_status kachel_engine_metrics(kachel_engine* engine, kachel_text** out, kachel_error** err) {
  return capi::guarded(err, [&]() -> Status {
    if (!engine) return capi::missing("engine");
    if (!out) return capi::missing("out");
    auto text = std::make_unique<kachel_text>();
    text->text = runtime::metrics_text(*engine->engine);
    *out = text.release();
    return {};
  });
}
