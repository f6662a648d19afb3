// The module's entry points, and what stands between LLVM and the host process.
//
// Each compilation runs on a thread of its own with a stack of known size: hosts call from fibres and small stacks, and
// LLVM recurses deeply. LLVM ends the process when it meets IR it cannot select; here its fatal error handler jumps
// back to the start of that thread instead, and what the compilation held is given up: a leak, bounded by the number of
// such errors, each of which is a defect of the lowering. The handler is process-wide in a libLLVM that others may
// share, so it is installed only while a compilation runs, and stands aside for threads that are not ours.
#include "runtime/llvm/llvm_module.h"

#include <llvm/Config/llvm-config.h>
#include <llvm/Support/ErrorHandling.h>
#include <pthread.h>

#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "runtime/llvm/llvm_codegen.h"

#define KACHEL_LLVM_EXPORT extern "C" __attribute__((visibility("default")))

namespace kachel::llvm_module {
namespace {

constexpr size_t kStackBytes = size_t{32} << 20;

struct Task {
  const KachelLlvmRequest* request = nullptr;
  KachelLlvmResult* result = nullptr;
  int32_t status = KACHEL_LLVM_FAILED;
  Codegen* codegen = nullptr;
  std::jmp_buf recovery;
  char fatal[512] = "";
};

thread_local Task* current_task = nullptr;

void handle_fatal_error(void*, const char* reason, bool) {
  Task* task = current_task;
  if (!task) {
    std::fprintf(stderr, "LLVM ERROR: %s\n", reason);
    return;  // LLVM exits, as it would have without us
  }
  std::snprintf(task->fatal, sizeof(task->fatal), "error: %s\n", reason);
  std::longjmp(task->recovery, 1);
}

class FatalErrorGuard {
 public:
  FatalErrorGuard() {
    std::lock_guard lock(mutex_);
    if (users_++ == 0) llvm::install_fatal_error_handler(handle_fatal_error);
  }
  ~FatalErrorGuard() {
    std::lock_guard lock(mutex_);
    if (--users_ == 0) llvm::remove_fatal_error_handler();
  }

 private:
  static std::mutex mutex_;
  static int users_;
};
std::mutex FatalErrorGuard::mutex_;
int FatalErrorGuard::users_ = 0;

// Keeps what a fatal error interrupted reachable: it cannot be destroyed in the state it is in.
void abandon(Codegen* codegen) {
  static std::mutex mutex;
  static auto* abandoned = new std::vector<Codegen*>;
  std::lock_guard lock(mutex);
  abandoned->push_back(codegen);
}

char* copy_bytes(const std::string& bytes) {
  char* copy = static_cast<char*>(std::malloc(bytes.size() + 1));
  if (copy) std::memcpy(copy, bytes.c_str(), bytes.size() + 1);
  return copy;
}

void finish(Task& task, const std::string& log) {
  if (task.status == KACHEL_LLVM_OK) {
    std::string object = task.codegen->take_object();
    task.result->object = copy_bytes(object);
    task.result->object_size = object.size();
    if (!task.result->object) task.status = KACHEL_LLVM_NO_MEMORY;
  }
  if (!log.empty()) task.result->log = copy_bytes(log);
}

void* run_task(void* argument) {
  Task& task = *static_cast<Task*>(argument);
  task.codegen = new (std::nothrow) Codegen(*task.request);
  if (!task.codegen) {
    task.status = KACHEL_LLVM_NO_MEMORY;
    return nullptr;
  }
  current_task = &task;
  // Nothing between here and the jump back has a destructor.
  if (setjmp(task.recovery) == 0) {
    task.status = task.codegen->run();
    current_task = nullptr;
    finish(task, task.codegen->log());
    delete task.codegen;
  } else {
    current_task = nullptr;
    task.status = KACHEL_LLVM_FAILED;
    finish(task, task.codegen->log() + task.fatal);
    abandon(task.codegen);
  }
  return nullptr;
}

}  // namespace
}  // namespace kachel::llvm_module

KACHEL_LLVM_EXPORT int32_t kachel_llvm_interface(void) {
  return KACHEL_LLVM_INTERFACE;
}

KACHEL_LLVM_EXPORT const char* kachel_llvm_version(void) {
  return LLVM_VERSION_STRING;
}

KACHEL_LLVM_EXPORT int32_t kachel_llvm_compile(const KachelLlvmRequest* request, KachelLlvmResult* result) {
  using namespace kachel::llvm_module;
  *result = KachelLlvmResult{};
  FatalErrorGuard guard;
  auto task = std::make_unique<Task>();
  task->request = request;
  task->result = result;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  pthread_t thread;
  int error = pthread_create(&thread, &attributes, run_task, task.get());
  pthread_attr_destroy(&attributes);
  if (error != 0) return KACHEL_LLVM_NO_MEMORY;
  pthread_join(thread, nullptr);
  return task->status;
}

KACHEL_LLVM_EXPORT void kachel_llvm_release(KachelLlvmResult* result) {
  std::free(result->object);
  std::free(result->log);
  *result = KachelLlvmResult{};
}
