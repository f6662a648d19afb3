// Runs the blocks of a launch on a fixed number of threads, the calling thread among them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

#include "runtime/cpu/worker_state.h"
#include "support/status.h"

namespace kachel::runtime {

// How long the calling thread itself computed, and for how many blocks: what one block costs, without the hand-over.
struct CallerShare {
  int64_t ns = 0;
  int64_t blocks = 0;
};

// Thread-safe: any number of threads may run launches at once, each of which then gets a share of the helpers. Helper
// threads start with the first launch that needs them, block all signals and sleep when idle. In the child of a fork,
// where they are gone, launches run on the calling thread alone.
class ThreadPool {
 public:
  // Does blocks [begin, end). `arena`: the bytes asked for, aligned to kArenaAlignment, private to the thread for the
  // duration of the call and otherwise uninitialised; null when no bytes were asked for. MXCSR has its default value.
  using Work = void (*)(void* context, int64_t begin, int64_t end, void* arena);

  static constexpr size_t kArenaAlignment = Arena::kAlignment;

  // threads: including the caller, at least 1. may_spin: they do not outnumber the processors.
  ThreadPool(int32_t threads, bool may_spin);
  // REQUIRES: no launch is running.
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int32_t threads() const { return threads_; }

  // Does every block once and returns when all are done. Allocates only where an arena must grow; kNoMemory, with no
  // block done, if the caller's cannot.
  Status run(int64_t blocks, size_t arena_bytes, Work work, void* context, CallerShare* share = nullptr);
  // The same, on the calling thread alone and in order.
  Status run_inline(int64_t blocks, size_t arena_bytes, Work work, void* context, CallerShare* share = nullptr);

 private:
  struct State;

  const int32_t threads_;
  State* state_;  // owned, except in the child of a fork
};

}  // namespace kachel::runtime
