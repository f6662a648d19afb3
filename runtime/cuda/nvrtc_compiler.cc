#include "runtime/cuda/nvrtc_compiler.h"

#include <pthread.h>
#include <signal.h>

#include <condition_variable>
#include <mutex>

#include "runtime/cuda/exit_guard.h"
#include "runtime/cuda/nvrtc_job.h"

namespace kachel::runtime::cuda {
namespace {

using Clock = std::chrono::steady_clock;

// NVRTC recurses deeply over deeply nested texts; some hosts give their threads little stack.
constexpr size_t kStackBytes = size_t{16} << 20;
// From the deadline on, NVRTC is given this long to notice it and leave in an orderly way.
constexpr auto kGrace = std::chrono::milliseconds(100);

// What the caller and the compiling thread share; whoever leaves last frees it.
struct Shared {
  NvrtcJob job;
  std::mutex mutex;
  std::condition_variable finished;
  std::optional<Result<CompileResult>> result;  // under mutex
};

void* run_shared(void* argument) {
  const std::unique_ptr<std::shared_ptr<Shared>> owner(static_cast<std::shared_ptr<Shared>*>(argument));
  Shared& shared = **owner;
  Result<CompileResult> result = shared.job.run();
  std::lock_guard lock(shared.mutex);
  shared.result.emplace(std::move(result));
  shared.finished.notify_all();
  return nullptr;
}

// A thread on which the host's signals are never delivered. Nothing where none can be had.
std::optional<pthread_t> start_thread(const std::shared_ptr<Shared>& shared) {
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return std::nullopt;
  (void)pthread_attr_setstacksize(&attributes, kStackBytes);
  sigset_t all, previous;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &previous);
  auto owner = std::make_unique<std::shared_ptr<Shared>>(shared);
  pthread_t thread;
  const bool started = pthread_create(&thread, &attributes, run_shared, owner.get()) == 0;
  if (started) (void)owner.release();
  pthread_sigmask(SIG_SETMASK, &previous, nullptr);
  pthread_attr_destroy(&attributes);
  return started ? std::optional(thread) : std::nullopt;
}

}  // namespace

Result<const NvrtcApi*> NvrtcCompiler::open() {
  if (const NvrtcApi* api = api_.load()) return api;
  arm_exit_guard();
  ExitGuardScope scope;
  if (!scope.admitted()) return {Code::kCancelled, "the process exits"};
  KACHEL_ASSIGN(const NvrtcApi* api, open_nvrtc(explicit_path_));
  arm_exit_guard();
  api_.store(api);
  return api;
}

std::string NvrtcCompiler::version() const {
  const NvrtcApi* api = api_.load();
  return api ? api->name() : "";
}

Result<CompileResult> NvrtcCompiler::compile(const CompileRequest& request) {
  NvrtcJob job;
  job.text = request.text;
  job.entry = request.entry;
  if (job.text.find('\0') != std::string::npos) return invalid("the text to compile holds a zero byte");
  KACHEL_ASSIGN(job.api, open());
  KACHEL_ASSIGN(job.target, choose_target(request.architecture, job.api->architectures, job.api->name()));
  if (request.time_limit_ns <= 0) return job.run();

  const auto deadline = Clock::now() + std::chrono::nanoseconds(request.time_limit_ns);
  job.deadline = deadline;
  job.limit_ns = request.time_limit_ns;
  const auto shared = std::make_shared<Shared>();
  shared->job = std::move(job);
  const std::optional<pthread_t> thread = start_thread(shared);
  if (!thread) return shared->job.run();
  std::unique_lock lock(shared->mutex);
  const bool finished =
      shared->finished.wait_until(lock, deadline + kGrace, [&] { return shared->result.has_value(); });
  lock.unlock();
  if (!finished) {
    pthread_detach(*thread);
    return shared->job.time_limit_exceeded({});
  }
  pthread_join(*thread, nullptr);  // NVRTC's own thread-local destructors have then run, too
  return *std::move(shared->result);
}

}  // namespace kachel::runtime::cuda
