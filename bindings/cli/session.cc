#include "session.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdio>

#include "format.h"
#include "progress.h"

namespace kachel::cli {
namespace {

Exit exit_of(kachel_status status) {
  switch (status & 0xff) {
    case KACHEL_OK:
      return Exit::kOk;
    case KACHEL_E_INVALID:
      return Exit::kUsage;
    case KACHEL_E_UNSUPPORTED:
    case KACHEL_E_NO_DEVICE:
      return Exit::kNoDevice;
    case KACHEL_E_NOT_CACHED:
      return Exit::kNotCached;
    case KACHEL_E_CANCELLED:
      return Exit::kInterrupted;
    default:
      return Exit::kFailed;
  }
}

// `user` is the least level to show, as a number. May run on any thread; one write a line keeps lines whole.
bool is_shown(void* user, int32_t level) {
  return level >= static_cast<int32_t>(reinterpret_cast<intptr_t>(user));
}

void log_to_stderr(void* user, int32_t level, const char* message, size_t length) {
  if (!is_shown(user, level)) return;
  const char* names[] = {"debug", "info", "warning", "error"};
  const char* name = level >= 0 && level <= KACHEL_LOG_ERROR ? names[level] : "log";
  std::string line = fmt::format("kachel: {}: {}\n", name, std::string_view(message, length));
  std::fwrite(line.data(), 1, line.size(), stderr);
}

void json_to_stderr(void* user, const kachel_event* event) {
  if (!is_shown(user, event->level)) return;
  const std::string line = std::string(event->json) + '\n';
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace

Outcome<> outcome_of(kachel_status status, kachel_error* error) {
  if (status == KACHEL_OK) return {};
  Failure failure{exit_of(status), kachel_status_name(status), {}};
  if (error != nullptr) {
    failure.message = kachel_error_message(error);
    failure.log = kachel_error_log(error);
    kachel_error_release(error);
  }
  return failure;
}

Outcome<std::unique_ptr<Session>> Session::open(const Options& options, ProgressReporter* progress,
                                                const std::string& target) {
  kachel_engine_options engine_options{};
  engine_options.struct_size = sizeof engine_options;
  engine_options.store_path = options.store_path ? options.store_path->c_str() : nullptr;
  engine_options.cpu_threads = options.cpu_threads;
  engine_options.tune_budget_ns = static_cast<uint64_t>(options.budget_s * 1e9);
  engine_options.target = target.c_str();
  // What is compiled ahead is all in one store, whatever else this machine could read.
  if (options.command == Command::kCompile) engine_options.system_stores = "";
  engine_options.tune_trials = options.trials;
  const intptr_t least = options.verbosity == 0   ? KACHEL_LOG_WARNING
                         : options.verbosity == 1 ? KACHEL_LOG_INFO
                                                  : KACHEL_LOG_DEBUG;
  engine_options.log_user = engine_options.event_user = reinterpret_cast<void*>(least);
  if (options.log_json)
    engine_options.event = json_to_stderr;
  else
    engine_options.log = log_to_stderr;
  if (progress != nullptr) {
    engine_options.progress = ProgressReporter::callback;
    engine_options.progress_user = progress;
  }
  auto session = std::make_unique<Session>();
  if (!options.remote.empty()) {
    KACHEL_CLI_LET(remote, open_remote(options.remote));
    session->remote_ = std::move(remote);
    session->remote_->attach(&engine_options);
  }
  kachel_engine* engine = nullptr;
  KACHEL_CLI_TRY(attempt([&](kachel_error** err) { return kachel_engine_create(&engine_options, &engine, err); }));
  session->engine_.reset(engine);
  return session;
}

Outcome<std::vector<kachel_device_info>> Session::devices() const {
  int32_t count = 0;
  KACHEL_CLI_TRY(outcome_of(kachel_engine_device_count(engine(), &count), nullptr));
  std::vector<kachel_device_info> infos(static_cast<size_t>(count));
  for (int32_t i = 0; i < count; ++i) {
    kachel_device_info& info = infos[static_cast<size_t>(i)];
    info.struct_size = sizeof info;
    KACHEL_CLI_TRY(attempt([&](kachel_error** err) { return kachel_engine_device_info(engine(), i, &info, err); }));
  }
  return infos;
}

Outcome<kachel_device_info> Session::device(const std::string& wanted) const {
  int32_t type = 0, id = 0;
  if (wanted == "cpu") {
    type = KACHEL_CPU;
  } else if (wanted == "cuda") {
    type = KACHEL_CUDA;
  } else if (wanted.starts_with("cuda:")) {
    type = KACHEL_CUDA;
    const char* end = wanted.data() + wanted.size();
    auto [stop, error] = std::from_chars(wanted.data() + 5, end, id);
    if (error != std::errc() || stop != end || id < 0) type = 0;
  }
  if (type == 0 && !wanted.empty())
    return usage(fmt::format("--device: `{}` is not a device; write cpu, cuda or cuda:0", wanted));

  KACHEL_CLI_LET(infos, devices());
  std::string present;
  for (const kachel_device_info& info : infos) {
    if (type == 0 || (info.device.type == type && info.device.id == id)) return info;
    present += (present.empty() ? "" : ", ") + device_name(info.device);
  }
  return Failure{Exit::kNoDevice, fmt::format("there is no device `{}` here; there is: {}", wanted, present), {}};
}

kachel_stats Session::stats() const {
  constexpr int64_t kMostWait_ns = 10'000'000'000;
  (void)kachel_engine_wait(engine(), kMostWait_ns, nullptr);
  kachel_stats stats{};
  stats.struct_size = sizeof stats;
  (void)kachel_engine_stats(engine(), &stats);  // it cannot fail with a valid engine and size
  return stats;
}

std::string device_name(kachel_device device) {
  return device.type == KACHEL_CPU    ? "cpu"
         : device.type == KACHEL_CUDA ? fmt::format("cuda:{}", device.id)
                                      : fmt::format("device {}:{}", device.type, device.id);
}

void print_stats(const kachel_stats& stats) {
  fmt::print("engine: {} compiled, {} measurements, {} tunings, {} loaded, {} launches, {} lowerings\n", stats.compiles,
             stats.measurements, stats.tunings, stats.loads, stats.launches, stats.lowerings);
  fmt::print(
      "store:  {} hits, {} misses, {} written, {} damaged{}\n", stats.store_hits, stats.store_misses, stats.store_puts,
      stats.store_damaged,
      stats.last_load_ns > 0 ? fmt::format("; last hit to loaded kernel in {}", format_ns(stats.last_load_ns)) : "");
  if (stats.workers > 0) fmt::print("worker: {} tunings taken up, {} lost\n", stats.workers, stats.workers_lost);
  if (stats.remote_hits + stats.remote_misses + stats.remote_puts + stats.remote_errors + stats.remote_skipped > 0)
    fmt::print("remote: {} hits, {} misses, {} given, {} errors, {} skipped\n", stats.remote_hits, stats.remote_misses,
               stats.remote_puts, stats.remote_errors, stats.remote_skipped);
  if (stats.store_refused_macs > 0) fmt::print("refused: {} without a valid MAC\n", stats.store_refused_macs);
  fmt::print("opened: NVRTC {}, LLVM {}\n", stats.nvrtc_opened ? "yes" : "no", stats.llvm_opened ? "yes" : "no");
}

}  // namespace kachel::cli
