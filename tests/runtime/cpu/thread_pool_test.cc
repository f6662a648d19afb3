#include "runtime/cpu/thread_pool.h"

#include <doctest/doctest.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

namespace kachel::runtime {
namespace {

struct Tally {
  explicit Tally(int64_t blocks) : runs(static_cast<size_t>(blocks)) {}
  static void work(void* context, int64_t begin, int64_t end, void*) {
    auto& tally = *static_cast<Tally*>(context);
    for (int64_t i = begin; i < end; ++i) ++tally.runs[static_cast<size_t>(i)];
  }
  bool each_once() const {
    for (const auto& count : runs)
      if (count != 1) return false;
    return true;
  }
  std::vector<std::atomic<int>> runs;
};

TEST_CASE("every block runs once") {
  for (int32_t threads : {1, 2, 5}) {
    ThreadPool pool(threads, threads <= 2);
    for (int64_t blocks : {0, 1, 2, 3, 39, 40, 41, 1000, 70'001}) {
      CAPTURE(threads);
      CAPTURE(blocks);
      Tally spread(blocks), alone(blocks);
      CHECK(pool.run(blocks, 0, Tally::work, &spread).ok());
      CHECK(spread.each_once());
      CHECK(pool.run_inline(blocks, 0, Tally::work, &alone).ok());
      CHECK(alone.each_once());
    }
  }
}

TEST_CASE("many launches from many threads at once") {
  ThreadPool pool(4, false);
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  for (int t = 0; t < 8; ++t)
    callers.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i) {
        Tally tally(1 + t * 13 + i);
        if (!pool.run(1 + t * 13 + i, static_cast<size_t>(t) * 64, Tally::work, &tally).ok() || !tally.each_once())
          ++wrong;
      }
    });
  for (std::thread& caller : callers) caller.join();
  CHECK(wrong == 0);
}

// Two blocks that wait for each other finish only on two threads.
TEST_CASE("helpers do take part") {
  ThreadPool pool(2, true);
  struct Meeting {
    std::atomic<int> arrived{0};
    std::atomic<bool> met{true};
  } meeting;
  auto work = [](void* context, int64_t begin, int64_t end, void*) {
    auto& m = *static_cast<Meeting*>(context);
    for (int64_t i = begin; i < end; ++i) {
      ++m.arrived;
      auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (m.arrived < 2)
        if (std::chrono::steady_clock::now() > deadline) {
          m.met = false;
          return;
        }
    }
  };
  for (int i = 0; i < 20; ++i) {
    meeting.arrived = 0;
    CHECK(pool.run(2, 0, work, &meeting).ok());
    CHECK(meeting.met);
  }
  // After a sleep as well as in a row.
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  meeting.arrived = 0;
  CHECK(pool.run(2, 0, work, &meeting).ok());
  CHECK(meeting.met);
}

TEST_CASE("two launches at once share the helpers") {
  // Four blocks of two launches wait for all four: two callers alone would not do.
  ThreadPool pool(3, false);
  struct Meeting {
    std::atomic<int> arrived{0};
    std::atomic<bool> met{true};
  } meeting;
  auto work = [](void* context, int64_t, int64_t, void*) {
    auto& m = *static_cast<Meeting*>(context);
    ++m.arrived;
    auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (m.arrived < 4)
      if (std::chrono::steady_clock::now() > deadline) {
        m.met = false;
        return;
      }
  };
  std::thread other([&] { (void)pool.run(2, 0, work, &meeting); });
  CHECK(pool.run(2, 0, work, &meeting).ok());
  other.join();
  CHECK(meeting.met);
}

TEST_CASE("arenas are private, aligned and as large as asked") {
  ThreadPool pool(4, false);
  struct Context {
    size_t bytes = 0;
    std::atomic<int> wrong{0};
  } context;
  auto work = [](void* opaque, int64_t begin, int64_t end, void* arena) {
    auto& c = *static_cast<Context*>(opaque);
    if (reinterpret_cast<uintptr_t>(arena) % ThreadPool::kArenaAlignment != 0) ++c.wrong;
    auto* bytes = static_cast<unsigned char*>(arena);
    for (int64_t i = begin; i < end; ++i) {
      std::memset(bytes, static_cast<int>(i), c.bytes);
      std::this_thread::yield();
      for (size_t b = 0; b < c.bytes; ++b)
        if (bytes[b] != static_cast<unsigned char>(i)) ++c.wrong;
    }
  };
  for (size_t bytes : {1, 64, 100, 5000, 10, 20'000}) {
    context.bytes = bytes;
    CHECK(pool.run(50, bytes, work, &context).ok());
    CHECK(pool.run_inline(5, bytes, work, &context).ok());
  }
  CHECK(context.wrong == 0);
  auto none = [](void* opaque, int64_t, int64_t, void* arena) {
    if (arena) ++static_cast<Context*>(opaque)->wrong;
  };
  CHECK(pool.run(50, 0, none, &context).ok());
  CHECK(context.wrong == 0);
}

TEST_CASE("no memory for an arena is an error and runs nothing") {
  ThreadPool pool(2, false);
  Tally tally(4);
  CHECK(pool.run(4, size_t{1} << 60, Tally::work, &tally).code() == Code::kNoMemory);
  CHECK(pool.run_inline(4, size_t{1} << 60, Tally::work, &tally).code() == Code::kNoMemory);
  for (const auto& count : tally.runs) CHECK(count == 0);
  CHECK(pool.run(4, 64, Tally::work, &tally).ok());
  CHECK(tally.each_once());
}

TEST_CASE("the caller's share is what it did itself") {
  ThreadPool alone(1, true);
  Tally tally(10);
  CallerShare share;
  CHECK(alone.run(10, 0, Tally::work, &tally, &share).ok());
  CHECK(share.blocks == 10);
  CHECK(share.ns >= 0);
}

TEST_CASE("helpers block signals, callers keep theirs") {
  ThreadPool pool(3, false);
  struct Context {
    std::thread::id caller = std::this_thread::get_id();
    std::atomic<int> helpers_open{0}, caller_blocked{0}, arrived{0};
  } context;
  auto work = [](void* opaque, int64_t, int64_t, void*) {
    auto& c = *static_cast<Context*>(opaque);
    ++c.arrived;
    auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (c.arrived < 3 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    bool blocked = sigismember(&mask, SIGUSR1) == 1;
    if (std::this_thread::get_id() == c.caller)
      c.caller_blocked += blocked;
    else
      c.helpers_open += !blocked;
  };
  CHECK(pool.run(3, 0, work, &context).ok());
  CHECK(context.helpers_open == 0);
  CHECK(context.caller_blocked == 0);
}

TEST_CASE("pools come and go") {
  for (int i = 0; i < 30; ++i) {
    ThreadPool pool(3, i % 2 == 0);
    if (i % 3 == 0) continue;  // never used: no thread was started
    Tally tally(17);
    CHECK(pool.run(17, 128, Tally::work, &tally).ok());
    CHECK(tally.each_once());
  }
}

}  // namespace
}  // namespace kachel::runtime
