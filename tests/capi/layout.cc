// The layout of every struct of kachel.h, written down: a change here is a change of the ABI. Appending a field changes
// a size and adds a line; anything else is a break.
#include <cstddef>
#include <type_traits>

#include "kachel.h"

#define LAYOUT(type, size) static_assert(sizeof(type) == (size) && std::is_standard_layout<type>::value, #type)
#define FIELD(type, field, offset) static_assert(offsetof(type, field) == (offset), #type "." #field)

static_assert(sizeof(void*) == 8, "these are the numbers of 64-bit systems");

LAYOUT(kachel_device, 8);
FIELD(kachel_device, id, 4);
LAYOUT(kachel_dtype, 4);
FIELD(kachel_dtype, bits, 1);
FIELD(kachel_dtype, lanes, 2);

// DLTensor
LAYOUT(kachel_tensor, 48);
FIELD(kachel_tensor, data, 0);
FIELD(kachel_tensor, device, 8);
FIELD(kachel_tensor, ndim, 16);
FIELD(kachel_tensor, dtype, 20);
FIELD(kachel_tensor, shape, 24);
FIELD(kachel_tensor, strides, 32);
FIELD(kachel_tensor, byte_offset, 40);

LAYOUT(kachel_arg, 16);
FIELD(kachel_arg, kind, 0);
FIELD(kachel_arg, u, 8);

LAYOUT(kachel_event_field, 24);
FIELD(kachel_event_field, name, 0);
FIELD(kachel_event_field, kind, 8);
FIELD(kachel_event_field, u, 16);

LAYOUT(kachel_event, 88);
FIELD(kachel_event, kind, 8);
FIELD(kachel_event, level, 12);
FIELD(kachel_event, name, 16);
FIELD(kachel_event, unix_us, 24);
FIELD(kachel_event, duration_ns, 32);
FIELD(kachel_event, kernel, 40);
FIELD(kachel_event, key, 48);
FIELD(kachel_event, message, 56);
FIELD(kachel_event, json, 64);
FIELD(kachel_event, fields, 72);
FIELD(kachel_event, field_count, 80);

LAYOUT(kachel_progress, 48);
FIELD(kachel_progress, kernel, 8);
FIELD(kachel_progress, configuration, 16);
FIELD(kachel_progress, phase, 24);
FIELD(kachel_progress, done, 28);
FIELD(kachel_progress, total, 32);
FIELD(kachel_progress, best_ns, 40);

LAYOUT(kachel_configurations, 80);
FIELD(kachel_configurations, kernel, 8);
FIELD(kachel_configurations, device, 16);
FIELD(kachel_configurations, count, 24);
FIELD(kachel_configurations, tunable_count, 28);
FIELD(kachel_configurations, dim_count, 32);
FIELD(kachel_configurations, texts, 40);
FIELD(kachel_configurations, tunables, 48);
FIELD(kachel_configurations, values, 56);
FIELD(kachel_configurations, dims, 64);
FIELD(kachel_configurations, dim_values, 72);

LAYOUT(kachel_trial, 56);
FIELD(kachel_trial, self, 8);
FIELD(kachel_trial, stream, 16);
FIELD(kachel_trial, restore, 24);
FIELD(kachel_trial, flush, 32);
FIELD(kachel_trial, launch, 40);
FIELD(kachel_trial, synchronize, 48);

LAYOUT(kachel_tuning_options, 72);
FIELD(kachel_tuning_options, user, 8);
FIELD(kachel_tuning_options, warmup_runs, 16);
FIELD(kachel_tuning_options, min_runs, 20);
FIELD(kachel_tuning_options, max_runs, 24);
FIELD(kachel_tuning_options, prune, 32);
FIELD(kachel_tuning_options, predict, 40);
FIELD(kachel_tuning_options, benchmark, 48);
FIELD(kachel_tuning_options, before_run, 56);
FIELD(kachel_tuning_options, after_run, 64);

LAYOUT(kachel_engine_options, 304);
FIELD(kachel_engine_options, store_path, 8);
FIELD(kachel_engine_options, store_max_bytes, 16);
FIELD(kachel_engine_options, tune_budget_ns, 24);
FIELD(kachel_engine_options, policy, 32);
FIELD(kachel_engine_options, compile_threads, 36);
FIELD(kachel_engine_options, cpu_threads, 40);
FIELD(kachel_engine_options, log, 48);
FIELD(kachel_engine_options, log_user, 56);
FIELD(kachel_engine_options, scratch_alloc, 64);
FIELD(kachel_engine_options, scratch_free, 72);
FIELD(kachel_engine_options, scratch_user, 80);
FIELD(kachel_engine_options, progress, 88);
FIELD(kachel_engine_options, progress_user, 96);
FIELD(kachel_engine_options, nvrtc_path, 104);
FIELD(kachel_engine_options, cpu_compiler_path, 112);
FIELD(kachel_engine_options, background_share, 120);
FIELD(kachel_engine_options, background_max_bytes, 128);
FIELD(kachel_engine_options, system_stores, 136);
FIELD(kachel_engine_options, target, 144);
FIELD(kachel_engine_options, worker_path, 152);
FIELD(kachel_engine_options, worker_max_bytes, 160);
FIELD(kachel_engine_options, compile_limit_ns, 168);
FIELD(kachel_engine_options, run_limit_ns, 176);
FIELD(kachel_engine_options, worker_required, 184);
FIELD(kachel_engine_options, worker_restarts, 188);
FIELD(kachel_engine_options, remote_get, 192);
FIELD(kachel_engine_options, remote_put, 200);
FIELD(kachel_engine_options, remote_user, 208);
FIELD(kachel_engine_options, remote_wait_ns, 216);
FIELD(kachel_engine_options, store_key, 224);
FIELD(kachel_engine_options, accepted_store_key, 232);
FIELD(kachel_engine_options, store_key_size, 240);
FIELD(kachel_engine_options, accepted_store_key_size, 248);
FIELD(kachel_engine_options, tune_trials, 256);
FIELD(kachel_engine_options, tuning, 264);
FIELD(kachel_engine_options, event, 272);
FIELD(kachel_engine_options, event_user, 280);
FIELD(kachel_engine_options, events_kept, 288);
FIELD(kachel_engine_options, launches_apart, 292);
FIELD(kachel_engine_options, drift_check_ns, 296);

LAYOUT(kachel_device_info, 824);
FIELD(kachel_device_info, device, 8);
FIELD(kachel_device_info, name, 16);
FIELD(kachel_device_info, architecture, 144);
FIELD(kachel_device_info, driver, 656);
FIELD(kachel_device_info, compiler, 720);
FIELD(kachel_device_info, multiprocessors, 784);
FIELD(kachel_device_info, compute_major, 788);
FIELD(kachel_device_info, compute_minor, 792);
FIELD(kachel_device_info, memory_bytes, 800);
FIELD(kachel_device_info, shared_bytes_per_block, 808);
FIELD(kachel_device_info, l2_bytes, 816);

LAYOUT(kachel_const, 24);
FIELD(kachel_const, i, 8);
FIELD(kachel_const, f, 16);

LAYOUT(kachel_param_info, 40);
FIELD(kachel_param_info, name, 8);
FIELD(kachel_param_info, type, 16);
FIELD(kachel_param_info, shape, 24);
FIELD(kachel_param_info, kind, 32);
FIELD(kachel_param_info, rank, 36);

LAYOUT(kachel_launch_options, 48);
FIELD(kachel_launch_options, policy, 8);
FIELD(kachel_launch_options, tune_budget_ns, 16);
FIELD(kachel_launch_options, configuration, 24);
FIELD(kachel_launch_options, tune_trials, 32);
FIELD(kachel_launch_options, tuning, 40);

LAYOUT(kachel_candidate, 96);
FIELD(kachel_candidate, configuration, 8);
FIELD(kachel_candidate, message, 16);
FIELD(kachel_candidate, state, 24);
FIELD(kachel_candidate, samples, 28);
FIELD(kachel_candidate, median_ns, 32);
FIELD(kachel_candidate, low_ns, 40);
FIELD(kachel_candidate, high_ns, 48);
FIELD(kachel_candidate, compile_ns, 56);
FIELD(kachel_candidate, registers, 64);
FIELD(kachel_candidate, shared_bytes, 72);
FIELD(kachel_candidate, spill_bytes, 80);
FIELD(kachel_candidate, predicted_ns, 88);

LAYOUT(kachel_check_result, 296);
FIELD(kachel_check_result, elements, 8);
FIELD(kachel_check_result, mismatches, 16);
FIELD(kachel_check_result, undecided, 24);
FIELD(kachel_check_result, median_bound_ulps, 32);
FIELD(kachel_check_result, first, 40);

LAYOUT(kachel_stats, 232);
FIELD(kachel_stats, launches, 8);
FIELD(kachel_stats, compiles, 16);
FIELD(kachel_stats, loads, 24);
FIELD(kachel_stats, measurements, 32);
FIELD(kachel_stats, tunings, 40);
FIELD(kachel_stats, specialisations, 48);
FIELD(kachel_stats, store_hits, 56);
FIELD(kachel_stats, store_misses, 64);
FIELD(kachel_stats, store_damaged, 72);
FIELD(kachel_stats, store_puts, 80);
FIELD(kachel_stats, nvrtc_opened, 88);
FIELD(kachel_stats, llvm_opened, 96);
FIELD(kachel_stats, lowerings, 104);
FIELD(kachel_stats, last_load_ns, 112);
FIELD(kachel_stats, background_pending, 120);
FIELD(kachel_stats, background_tunings, 128);
FIELD(kachel_stats, background_failures, 136);
FIELD(kachel_stats, store_layer_hits, 144);
FIELD(kachel_stats, workers, 152);
FIELD(kachel_stats, workers_lost, 160);

LAYOUT(kachel_compiled, 24);
FIELD(kachel_compiled, compiled, 8);
FIELD(kachel_compiled, present, 12);
FIELD(kachel_compiled, refused, 16);
FIELD(kachel_stats, store_refused_macs, 168);
FIELD(kachel_stats, remote_hits, 176);
FIELD(kachel_stats, remote_misses, 184);
FIELD(kachel_stats, remote_puts, 192);
FIELD(kachel_stats, remote_errors, 200);
FIELD(kachel_stats, remote_skipped, 208);
FIELD(kachel_stats, drift_checks, 216);
FIELD(kachel_stats, drift_replacements, 224);

LAYOUT(kachel_store_info, 40);
FIELD(kachel_store_info, path, 8);
FIELD(kachel_store_info, writable, 16);
FIELD(kachel_store_info, entries, 24);
FIELD(kachel_store_info, bytes, 32);

LAYOUT(kachel_store_change, 88);
FIELD(kachel_store_change, unix_us, 8);
FIELD(kachel_store_change, pid, 16);
FIELD(kachel_store_change, host, 24);
FIELD(kachel_store_change, version, 32);
FIELD(kachel_store_change, what, 40);
FIELD(kachel_store_change, kind, 48);
FIELD(kachel_store_change, kernel, 56);
FIELD(kachel_store_change, description, 64);
FIELD(kachel_store_change, digest, 72);
FIELD(kachel_store_change, bytes, 80);

LAYOUT(kachel_store_entry, 56);
FIELD(kachel_store_entry, kind, 8);
FIELD(kachel_store_entry, kernel, 16);
FIELD(kachel_store_entry, description, 24);
FIELD(kachel_store_entry, digest, 32);
FIELD(kachel_store_entry, bytes, 40);
FIELD(kachel_store_entry, created_unix_s, 48);

// Values of enums are part of the ABI as well.
static_assert(KACHEL_CANDIDATE_UNTRIED == 0 && KACHEL_CANDIDATE_MEASURED == 5 && KACHEL_CANDIDATE_REJECTED_FLAW == 6 &&
                  KACHEL_CANDIDATE_CRASHED == 7 && KACHEL_CANDIDATE_TIMED_OUT == 8,
              "candidates");
static_assert(KACHEL_E_INVALID == 1 && KACHEL_E_UNSUPPORTED == 2 && KACHEL_E_NO_DEVICE == 3 &&
                  KACHEL_E_NO_MEMORY == 4 && KACHEL_E_COMPILE == 5 && KACHEL_E_LAUNCH == 6 && KACHEL_E_STORE == 7 &&
                  KACHEL_E_BUSY == 8 && KACHEL_E_NOT_CACHED == 9 && KACHEL_E_CANCELLED == 10 &&
                  KACHEL_E_DEVICE_LOST == 11 && KACHEL_E_INTERNAL == 12,
              "status");
static_assert(KACHEL_POLICY_OFF == 1 && KACHEL_POLICY_CACHED_ONLY == 2 && KACHEL_POLICY_BACKGROUND == 3 &&
                  KACHEL_POLICY_BLOCKING == 4,
              "policy");
static_assert(KACHEL_CPU == 1 && KACHEL_CUDA == 2 && KACHEL_ARG_TENSOR == 0 && KACHEL_ARG_INT == 1 &&
                  KACHEL_ARG_FLOAT == 2,
              "devices and arguments");
static_assert(KACHEL_REMOTE_DONE == 0 && KACHEL_REMOTE_ABSENT == 1 && KACHEL_REMOTE_FAILED == 2, "answers");
