// A launch is a job: a count of blocks and an atomic cursor. Whoever works on it takes the next chunk from the cursor
// until none is left. Jobs live on the stacks of their callers and are linked into a list while they have blocks to
// give, so that a launch allocates nothing. A caller always works on its own job and needs no helper to finish it;
// helpers choose the listed job with the fewest of them. A job may go when its caller has taken it off the list, after
// which no helper can join, and the last helper has left.
//
// Chunks are of equal size, an eighth of an even share: the imbalance at the end stays below an eighth, and the cursor
// is touched rarely enough to cost nothing. Waking a sleeping thread takes microseconds, as long as many kernels, so
// helpers look for new work for a moment before they sleep, and callers before they sleep for the last helper. With
// more threads than processors looking would steal from those that work; then nobody does.
#include "runtime/cpu/thread_pool.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace kachel::runtime {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kChunksPerThread = 8;
constexpr std::chrono::nanoseconds kSpin{20'000};

int64_t ns_since(Clock::time_point begin) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin).count();
}

void pause_processor() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

// Waits a moment for `done`; true if it came.
template <class Done>
bool spin_until(bool allowed, Done done) {
  if (done()) return true;
  if (!allowed) return false;
  Clock::time_point begin = Clock::now();
  do {
    for (int i = 0; i < 16; ++i) {
      if (done()) return true;
      pause_processor();
    }
  } while (Clock::now() - begin < kSpin);
  return false;
}

struct Job {
  ThreadPool::Work work = nullptr;
  void* context = nullptr;
  int64_t blocks = 0, chunk = 1;
  size_t arena_bytes = 0;
  alignas(64) std::atomic<int64_t> cursor{0};
  alignas(64) std::atomic<int32_t> helpers{0};  // joined under the mutex
  Job* previous = nullptr;
  Job* next = nullptr;

  bool exhausted() const { return cursor.load(std::memory_order_relaxed) >= blocks; }

  // Returns how many blocks it did.
  int64_t take_all(void* arena) {
    DefaultFloatMode mode;
    int64_t done = 0;
    for (;;) {
      int64_t begin = cursor.fetch_add(chunk, std::memory_order_relaxed);
      if (begin >= blocks) return done;
      int64_t end = std::min(begin + chunk, blocks);
      work(context, begin, end, arena);
      done += end - begin;
    }
  }
};

// Counts the forks this process descends from.
std::atomic<uint32_t> forks{0};

void watch_forks() {
  static std::once_flag once;
  std::call_once(once, [] { pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); }); });
}

}  // namespace

struct ThreadPool::State {
  State(int32_t helpers, bool spin) : helper_count(helpers), may_spin(spin), born(forks.load()) {}

  bool forked() const { return forks.load(std::memory_order_relaxed) != born; }

  // Returns with the mutex released.
  void publish(Job& job, std::unique_lock<std::mutex>& lock);
  void withdraw(Job& job);
  Job* pick();
  void start_helpers();
  void help();
  // An arena of at least that size, or null.
  Arena* borrow(size_t bytes);
  void give_back(Arena* arena);

  const int32_t helper_count;
  const bool may_spin;
  const uint32_t born;

  std::mutex mutex;
  std::condition_variable work_arrived, helper_left;
  std::atomic<uint32_t> published{0};  // changes with every publish
  Job* first = nullptr;
  int32_t sleeping = 0;
  bool started = false, stopping = false;
  std::vector<std::thread> helpers;
  std::vector<std::unique_ptr<Arena>> arenas;  // of callers, as many as ever ran at once
  std::vector<Arena*> free_arenas;             // capacity is that of `arenas`
};

void ThreadPool::State::publish(Job& job, std::unique_lock<std::mutex>& lock) {
  if (!started) start_helpers();
  job.next = first;
  if (first) first->previous = &job;
  first = &job;
  published.fetch_add(1, std::memory_order_release);
  int64_t wake = std::min<int64_t>(sleeping, (job.blocks - 1) / job.chunk);
  lock.unlock();
  for (; wake > 0; --wake) work_arrived.notify_one();
}

void ThreadPool::State::withdraw(Job& job) {
  {
    std::lock_guard lock(mutex);
    (job.previous ? job.previous->next : first) = job.next;
    if (job.next) job.next->previous = job.previous;
  }
  auto alone = [&] { return job.helpers.load(std::memory_order_acquire) == 0; };
  if (spin_until(may_spin, alone)) return;
  std::unique_lock lock(mutex);
  helper_left.wait(lock, alone);
}

Job* ThreadPool::State::pick() {
  Job* best = nullptr;
  int32_t fewest = 0;
  for (Job* job = first; job; job = job->next) {
    int32_t count = job->helpers.load(std::memory_order_relaxed);
    if (job->exhausted() || (best && count >= fewest)) continue;
    best = job;
    fewest = count;
  }
  return best;
}

void ThreadPool::State::start_helpers() {
  started = true;
  // Helpers inherit a full signal mask: handlers of the host do not expect to run on a thread of ours.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  helpers.reserve(helper_count);
  try {
    for (int32_t i = 0; i < helper_count; ++i) helpers.emplace_back([this] { help(); });
  } catch (const std::system_error&) {
    // The process may have no more threads; those it got will do.
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void ThreadPool::State::help() {
  Arena arena;
  std::unique_lock lock(mutex);
  while (!stopping) {
    const uint32_t seen = published.load(std::memory_order_relaxed);
    if (Job* job = pick()) {
      job->helpers.fetch_add(1, std::memory_order_relaxed);
      lock.unlock();
      // Without memory for its arena a helper leaves the job to the others.
      const bool able = arena.reserve(job->arena_bytes);
      if (able) job->take_all(job->arena_bytes ? arena.data() : nullptr);
      lock.lock();
      if (job->helpers.fetch_sub(1, std::memory_order_release) == 1) helper_left.notify_all();  // and hands off the job
      if (able) continue;
    }
    auto changed = [&] { return published.load(std::memory_order_acquire) != seen; };
    lock.unlock();
    bool found = spin_until(may_spin, changed);
    lock.lock();
    if (found) continue;
    ++sleeping;
    work_arrived.wait(lock, [&] { return stopping || changed(); });
    --sleeping;
  }
}

Arena* ThreadPool::State::borrow(size_t bytes) {
  Arena* arena = nullptr;
  {
    std::lock_guard lock(mutex);
    if (free_arenas.empty()) {
      arenas.push_back(std::make_unique<Arena>());
      free_arenas.reserve(arenas.size());
      arena = arenas.back().get();
    } else {
      arena = free_arenas.back();
      free_arenas.pop_back();
    }
  }
  if (arena->reserve(bytes)) return arena;
  give_back(arena);
  return nullptr;
}

void ThreadPool::State::give_back(Arena* arena) {
  std::lock_guard lock(mutex);
  free_arenas.push_back(arena);
}

ThreadPool::ThreadPool(int32_t threads, bool may_spin) : threads_(std::max(threads, 1)) {
  watch_forks();
  state_ = new State(threads_ - 1, may_spin);
}

ThreadPool::~ThreadPool() {
  // After a fork the mutex may be held and the threads to join do not exist: what the child inherited is left alone.
  if (state_->forked()) return;
  {
    std::lock_guard lock(state_->mutex);
    state_->stopping = true;
  }
  state_->work_arrived.notify_all();
  for (std::thread& helper : state_->helpers) helper.join();
  delete state_;
}

Status ThreadPool::run(int64_t blocks, size_t arena_bytes, Work work, void* context, CallerShare* share) {
  if (blocks <= 1 || threads_ == 1 || state_->forked()) return run_inline(blocks, arena_bytes, work, context, share);
  Arena* arena = nullptr;
  if (arena_bytes > 0) {
    arena = state_->borrow(arena_bytes);
    if (!arena) return Status(Code::kNoMemory, "no memory for the arena of a CPU kernel");
  }
  Job job;
  job.work = work;
  job.context = context;
  job.blocks = blocks;
  job.chunk = std::max<int64_t>(1, blocks / (threads_ * kChunksPerThread));
  job.arena_bytes = arena_bytes;
  std::unique_lock lock(state_->mutex);
  state_->publish(job, lock);
  Clock::time_point begin = Clock::now();
  int64_t done = job.take_all(arena ? arena->data() : nullptr);
  if (share) *share = {ns_since(begin), done};
  state_->withdraw(job);
  if (arena) state_->give_back(arena);
  return {};
}

Status ThreadPool::run_inline(int64_t blocks, size_t arena_bytes, Work work, void* context, CallerShare* share) {
  if (blocks <= 0) return {};
  Arena own;
  Arena* arena = nullptr;
  const bool forked = state_->forked();
  if (arena_bytes > 0) {
    arena = forked ? &own : state_->borrow(arena_bytes);
    if (!arena || !arena->reserve(arena_bytes))
      return Status(Code::kNoMemory, "no memory for the arena of a CPU kernel");
  }
  Clock::time_point begin = Clock::now();
  {
    DefaultFloatMode mode;
    work(context, 0, blocks, arena ? arena->data() : nullptr);
  }
  if (share) *share = {ns_since(begin), blocks};
  if (arena && !forked) state_->give_back(arena);
  return {};
}

}  // namespace kachel::runtime
