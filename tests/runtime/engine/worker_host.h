// An engine on a fake device that tunes in workers (test_worker.cc).
#pragma once
#include <cstdlib>
#include <mutex>

#include "runtime/engine/report/tuning_view.h"
#include "tests/runtime/engine/engine_fixture.h"

namespace kachel::runtime {

// What the workers that start from now on do.
struct Orders {
  explicit Orders(const std::string& what) { ::setenv("KACHEL_TEST_WORKER", what.c_str(), 1); }
  ~Orders() { ::unsetenv("KACHEL_TEST_WORKER"); }
};

class Host : public EngineFixture {
 public:
  explicit Host(const std::string& store = "", const std::string& worker = KACHEL_TEST_WORKER_PATH)
      : EngineFixture(store) {
    options.worker.path = worker;
    options.worker.run_limit_ns = 400'000'000;
    options.worker.hello_limit_ns = 10'000'000'000;
    options.compile_threads = 2;
    options.log = [this](LogLevel level, std::string_view line) {
      std::lock_guard lock(mutex_);
      if (level >= LogLevel::kWarning) warnings_.emplace_back(line);
    };
    options.events = [this](const Event& event) {
      std::lock_guard lock(mutex_);
      events_.push_back(event);
    };
    cost = [this](int64_t, int64_t, const FakeLaunch& launch) -> int64_t {
      std::lock_guard lock(mutex_);
      launched_.push_back(tile_of(launch.text));
      return 10'000;
    };
  }
  Status go(tuner::Policy policy = tuner::Policy::kBlocking, const std::string& text = kScale) {
    return scale(*kernel(text), 64, 64, policy);
  }
  TuningView view(const std::string& text = kScale) {
    HostTensorF32 a({64, 64}, 1.5f), c({64, 64}, -1);
    Arg args[] = {a.tensor(), c.tensor(), float_arg(2)};
    auto view = read_tuning(*kernel(text), args);
    REQUIRE_MESSAGE(view.ok(), view.status().message());
    return *std::move(view);
  }
  // Tiles, in the order of launches in this process.
  std::vector<std::string> launched() {
    std::lock_guard lock(mutex_);
    return launched_;
  }
  std::vector<std::string> warnings() {
    std::lock_guard lock(mutex_);
    return warnings_;
  }
  EngineStats stats() { return engine()->stats(); }
  std::vector<Event> events(EventKind kind) {
    std::lock_guard lock(mutex_);
    std::vector<Event> found;
    for (const Event& event : events_)
      if (event.kind == kind) found.push_back(event);
    return found;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> launched_, warnings_;
  std::vector<Event> events_;
};

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != text.npos;
}

}  // namespace kachel::runtime
