// Decisions from the store that are checked: what has become slower since is found out and replaced, what has not is
// left alone.
#include <condition_variable>
#include <map>
#include <thread>

#include "runtime/engine/report/tuning_view.h"
#include "tests/runtime/engine/engine_fixture.h"

namespace kachel::runtime {
namespace {

using tuner::Policy;

constexpr int64_t kLong_ns = 60'000'000'000;

// 32 x 16 is the fastest, then 64 x 16 and 64 x 32, unless a test says otherwise. `major` above 0: outputs are compared
// with a generic lowering's, which is never wrong; 0: with the first candidate's, as on a CPU.
class Checked : public EngineFixture {
 public:
  explicit Checked(const std::string& store, int64_t drift_check_ns = 1, int32_t major = 0)
      : EngineFixture(store, {.compute_major = major}) {
    options.lower = [own = options.lower](const ir::Kernel& kernel, const lowering::Target& target, uint64_t facts,
                                          const lowering::LowerOptions& how) -> Result<lowering::Lowered> {
      KACHEL_ASSIGN(lowering::Lowered lowered, own(kernel, target, facts, how));
      if (target.generic) lowered.text.replace(lowered.text.find("fragment x"), 10, "fragment g");
      return lowered;
    };
    options.tune_budget_ns = 600'000'000'000;
    options.drift_check_ns = drift_check_ns;
    options.events = [this](const Event& event) {
      std::lock_guard lock(mutex_);
      events_.push_back(event);
    };
    cost = [this](int64_t bm, int64_t bn, const FakeLaunch& launch) -> int64_t {
      std::lock_guard lock(mutex_);
      const std::string tile = tile_of(launch.text);
      if (!launch.stream) served_ = tile;
      if (launch.stream) ++measured_[tile];
      const auto found = takes.find(tile);
      return found == takes.end() ? 20'000 + bm + bn : found->second;
    };
  }
  std::map<std::string, int64_t> takes = {{"32, 16", 5'000}, {"64, 16", 6'000}, {"64, 32", 7'000}};

  // Launches until a check has been made, which must be within a minute.
  void launch_until_checked(KernelHandle& kernel, Policy policy = Policy::kBlocking) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(kLong_ns);
    while (engine()->stats().drift_checks == 0) {
      REQUIRE(std::chrono::steady_clock::now() < until);
      REQUIRE(scale(kernel, 64, 64, policy).ok());
      REQUIRE(engine()->background().wait(kLong_ns));
    }
    REQUIRE(engine()->background().wait(kLong_ns));  // a check that other threads brought about counts as it begins
  }
  std::string served() {
    std::lock_guard lock(mutex_);
    return served_;
  }
  std::map<std::string, int> measured() {
    std::lock_guard lock(mutex_);
    return measured_;
  }
  std::vector<Event> of(EventKind kind) {
    std::lock_guard lock(mutex_);
    std::vector<Event> found;
    for (const Event& event : events_)
      if (event.kind == kind) found.push_back(event);
    return found;
  }
  TuningView view(KernelHandle& kernel) {
    HostTensorF32 a({64, 64}, 1.5f), c({64, 64}, -1);
    Arg args[] = {a.tensor(), c.tensor(), float_arg(2)};
    auto view = read_tuning(kernel, args);
    REQUIRE_MESSAGE(view.ok(), view.status().message());
    return *std::move(view);
  }

 private:
  std::mutex mutex_;
  std::string served_;
  std::map<std::string, int> measured_;
  std::vector<Event> events_;
};

void decide(const std::string& store, int32_t major = 0) {
  Checked first(store, 0, major);
  auto kernel = first.kernel();
  REQUIRE(first.scale(*kernel, 64, 64, Policy::kBlocking).ok());
  REQUIRE(first.scale(*kernel, 64, 64, Policy::kBlocking).ok());
  REQUIRE(first.served() == "32, 16");
}

std::string text_of(const Event& event, const std::string& name) {
  for (const EventField& field : event.fields)
    if (field.name == name) return std::get<std::string>(field.value);
  return "(none)";
}
double number_of(const Event& event, const std::string& name) {
  for (const EventField& field : event.fields)
    if (field.name == name) return std::get<double>(field.value);
  return -1;
}

TEST_CASE("a winner that has become slower is replaced by its runner-up, for good") {
  for (Policy policy : {Policy::kBlocking, Policy::kBackground}) {
    TempDir dir;
    decide(dir.path());
    {
      Checked checked(dir.path());
      checked.takes["32, 16"] = 9'000;
      auto kernel = checked.kernel();
      REQUIRE(checked.scale(*kernel, 64, 64, policy).ok());
      CHECK(checked.served() == "32, 16");
      checked.launch_until_checked(*kernel, policy);
      REQUIRE(checked.scale(*kernel, 64, 64, policy).ok());
      CHECK(checked.served() == "64, 16");
      const EngineStats stats = checked.engine()->stats();
      CHECK(stats.drift_replacements == 1);
      CHECK(stats.tunings == 0);
      CHECK(stats.background_failures == 0);
      // The ranked ones alone were run.
      for (const auto& [tile, runs] : checked.measured()) {
        CAPTURE(tile);
        CHECK((tile == "32, 16" || tile == "64, 16" || tile == "64, 32"));
      }
      CHECK(checked.measured().size() == 3);
      const auto replaced = checked.of(EventKind::kDecisionReplaced);
      REQUIRE(replaced.size() == 1);
      CHECK(text_of(replaced[0], "configuration") == "BM=32,BN=16");
      CHECK(text_of(replaced[0], "replaced_by") == "BM=64,BN=16");
      CHECK(number_of(replaced[0], "recorded_ns") == 5'000);
      CHECK(number_of(replaced[0], "measured_ns") == 9'000);
      CHECK(number_of(replaced[0], "best_ns") == 6'000);
      CHECK(checked.state().guards_intact());
    }
    Checked later(dir.path(), 0);
    auto kernel = later.kernel();
    REQUIRE(later.scale(*kernel, 64, 64, Policy::kCachedOnly).ok());
    CHECK(later.served() == "64, 16");
    CHECK(later.engine()->stats().measurements == 0);
    REQUIRE(later.scale(*kernel, 64, 64, Policy::kBlocking).ok());  // the decision is complete as before
    CHECK(later.engine()->stats().measurements == 0);
    const TuningView view = later.view(*kernel);
    CHECK(view.candidates[static_cast<size_t>(view.winner)].configuration == "BM=64,BN=16");
    uint64_t replaced = 0;
    for (const cache::Change& change : later.engine()->store().journal().changes) {
      if (change.what != cache::ChangeKind::kReplaced) continue;
      ++replaced;
      CHECK(change.slot[0] == static_cast<uint8_t>(cache::Kind::kTuning));
      CHECK(change.label.kernel == "scale");
    }
    CHECK(replaced == 1);
  }
}

TEST_CASE("a decision that holds stays, and is checked again") {
  TempDir dir;
  decide(dir.path());
  Checked checked(dir.path());
  auto kernel = checked.kernel();
  const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(kLong_ns);
  while (checked.engine()->stats().drift_checks < 3) {
    REQUIRE(std::chrono::steady_clock::now() < until);
    REQUIRE(checked.scale(*kernel, 64, 64, Policy::kBlocking).ok());
    CHECK(checked.served() == "32, 16");
    REQUIRE(checked.engine()->background().wait(kLong_ns));
  }
  CHECK(checked.engine()->stats().drift_replacements == 0);
  CHECK(checked.of(EventKind::kDecisionReplaced).empty());
  CHECK(checked.of(EventKind::kDriftNoticed).empty());
  CHECK(checked.of(EventKind::kDriftChecked).size() >= 3);
  // Nothing of what was measured is lost, and the samples of the tuning are still the first.
  const TuningView view = checked.view(*kernel);
  CHECK(view.candidates[static_cast<size_t>(view.winner)].configuration == "BM=32,BN=16");
}

TEST_CASE("a runner-up within the tie band replaces nobody") {
  TempDir dir;
  decide(dir.path());
  Checked checked(dir.path());
  checked.takes["64, 16"] = 4'970;  // 0.6 % less
  auto kernel = checked.kernel();
  checked.launch_until_checked(*kernel);
  CHECK(checked.engine()->stats().drift_replacements == 0);
  REQUIRE(checked.scale(*kernel, 64, 64, Policy::kBlocking).ok());
  CHECK(checked.served() == "32, 16");
}

TEST_CASE("slower clocks are noticed, and change nothing") {
  TempDir dir;
  decide(dir.path());
  Checked checked(dir.path());
  for (auto& [tile, ns] : checked.takes) ns = ns * 3 / 2;
  auto kernel = checked.kernel();
  checked.launch_until_checked(*kernel);
  CHECK(checked.engine()->stats().drift_replacements == 0);
  const auto noticed = checked.of(EventKind::kDriftNoticed);
  REQUIRE(!noticed.empty());
  CHECK(number_of(noticed[0], "recorded_ns") == 5'000);
  CHECK(number_of(noticed[0], "measured_ns") == 7'500);
  CHECK(text_of(noticed[0], "replaced_by").empty());
}

TEST_CASE("a winner that computes something else now is replaced and never serves again") {
  TempDir dir;
  decide(dir.path(), 9);
  {
    Checked checked(dir.path(), 1, 9);
    auto kernel = checked.kernel();
    REQUIRE(checked.scale(*kernel, 64, 64, Policy::kBlocking).ok());
    checked.wrong_tile = "32, 16";
    const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(kLong_ns);
    while (checked.engine()->stats().drift_checks == 0) {
      REQUIRE(std::chrono::steady_clock::now() < until);
      (void)checked.scale(*kernel, 64, 64, Policy::kBlocking);
      REQUIRE(checked.engine()->background().wait(kLong_ns));
    }
    CHECK(checked.engine()->stats().drift_replacements == 1);
    REQUIRE(checked.scale(*kernel, 64, 64, Policy::kBlocking).ok());
    CHECK(checked.served() == "64, 16");
    CHECK(checked.of(EventKind::kCandidateRejected).size() == 1);
    const auto replaced = checked.of(EventKind::kDecisionReplaced);
    REQUIRE(replaced.size() == 1);
    CHECK(number_of(replaced[0], "measured_ns") == 0);
  }
  Checked later(dir.path(), 0, 9);
  REQUIRE(later.scale(*later.kernel(), 64, 64, Policy::kOff).ok());
  CHECK(later.served() == "64, 16");
}

TEST_CASE("where a device has nothing to compare with, a winner that errs does not bar the others") {
  TempDir dir;
  decide(dir.path());
  {
    Checked checked(dir.path());
    auto kernel = checked.kernel();
    REQUIRE(checked.scale(*kernel, 64, 64, Policy::kBlocking).ok());
    checked.wrong_tile = "32, 16";
    const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(kLong_ns);
    while (checked.engine()->stats().drift_checks == 0) {
      REQUIRE(std::chrono::steady_clock::now() < until);
      (void)checked.scale(*kernel, 64, 64, Policy::kBlocking);
      REQUIRE(checked.engine()->background().wait(kLong_ns));
    }
    CHECK(checked.engine()->stats().drift_replacements == 0);
    CHECK(!checked.of(EventKind::kCandidateRejected).empty());  // said, and not held against them
  }
  Checked later(dir.path(), 0);
  const TuningView view = later.view(*later.kernel());
  for (const auto& candidate : view.candidates) CHECK(candidate.state != tuner::CandidateState::kRejectedWrong);
}

TEST_CASE(
    "nothing is checked unless it is asked for, nor what this engine has tuned, nor where nothing may be measured") {
  TempDir dir, own;
  decide(dir.path());
  struct Case {
    const std::string& store;
    int64_t drift_check_ns;
    Policy policy;
    bool frozen;
  };
  const Case cases[] = {{dir.path(), 0, Policy::kBlocking, false},
                        {dir.path(), 1, Policy::kOff, false},
                        {dir.path(), 1, Policy::kCachedOnly, false},
                        {dir.path(), 1, Policy::kBlocking, true},
                        {own.path(), 1, Policy::kBlocking, false}};
  for (const Case& each : cases) {
    CAPTURE(static_cast<int>(each.policy));
    Checked checked(each.store, each.drift_check_ns);
    auto kernel = checked.kernel();
    if (each.frozen) checked.engine()->freeze();
    REQUIRE(checked.scale(*kernel, 64, 64, each.policy).ok());
    const uint64_t measurements = checked.engine()->stats().measurements;
    for (int i = 0; i < 20; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      REQUIRE(checked.scale(*kernel, 64, 64, each.policy).ok());
    }
    REQUIRE(checked.engine()->background().wait(kLong_ns));
    CHECK(checked.engine()->stats().drift_checks == 0);
    CHECK(checked.engine()->stats().measurements == measurements);
  }
}

TEST_CASE("a check that is due waits for a policy that may measure") {
  TempDir dir;
  decide(dir.path());
  Checked checked(dir.path());
  auto kernel = checked.kernel();
  for (int i = 0; i < 20; ++i) {
    REQUIRE(checked.scale(*kernel, 64, 64, Policy::kOff).ok());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  CHECK(checked.engine()->stats().drift_checks == 0);
  checked.launch_until_checked(*kernel);
  CHECK(checked.engine()->stats().drift_checks >= 1);
}

TEST_CASE("a capture finds what served, though a check is due") {
  TempDir dir;
  decide(dir.path());
  Checked checked(dir.path());
  auto kernel = checked.kernel();
  REQUIRE(checked.scale(*kernel, 64, 64, Policy::kBlocking).ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // due by now, as good as always
  void* stream = reinterpret_cast<void*>(uintptr_t{0x77});
  checked.state().set_capturing(stream, true);
  const uint64_t measurements = checked.engine()->stats().measurements;
  for (int i = 0; i < 5; ++i) CHECK(checked.scale(*kernel, 64, 64, Policy::kBlocking, stream).ok());
  CHECK(checked.engine()->stats().measurements == measurements);
  CHECK(checked.state().capture_violations() == 0);
  checked.state().set_capturing(stream, false);
  checked.launch_until_checked(*kernel);
  CHECK(checked.state().capture_violations() == 0);
}

TEST_CASE("copies that find no room are tried again, those that never will are given up") {
  TempDir dir;
  decide(dir.path());
  Checked checked(dir.path());
  checked.options.background_bytes = 4096;
  auto kernel = checked.kernel();
  const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(kLong_ns);
  while (checked.engine()->stats().background_failures == 0) {
    REQUIRE(std::chrono::steady_clock::now() < until);
    REQUIRE(checked.scale(*kernel, 64, 64, Policy::kBlocking).ok());
  }
  for (int i = 0; i < 20; ++i) {
    REQUIRE(checked.scale(*kernel, 64, 64, Policy::kBlocking).ok());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  CHECK(checked.engine()->stats().background_failures == 1);
  CHECK(checked.engine()->stats().drift_checks == 0);
  CHECK(checked.of(EventKind::kUntuned).size() == 1);
  CHECK(checked.engine()->background_taken() == 0);
}

TEST_CASE("a kernel that is released ends its check, and leaves no timer behind") {
  TempDir dir;
  decide(dir.path());
  std::mutex mutex;
  std::condition_variable changed;
  bool reached = false, open = false;
  Checked checked(dir.path());
  checked.options.progress = [&](const TuneProgress&) {
    std::unique_lock lock(mutex);
    reached = true;
    changed.notify_all();
    changed.wait(lock, [&] { return open; });
    return true;
  };
  auto kernel = checked.kernel();
  const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(kLong_ns);
  for (bool there = false; !there;) {
    REQUIRE(std::chrono::steady_clock::now() < until);
    REQUIRE(checked.scale(*kernel, 64, 64, Policy::kBlocking).ok());
    std::lock_guard lock(mutex);
    there = reached;
  }
  std::thread release([&] { kernel.reset(); });
  while (!checked.engine()->background().ends()) std::this_thread::yield();
  {
    std::lock_guard lock(mutex);
    open = true;
  }
  changed.notify_all();
  release.join();
  CHECK(checked.engine()->background().pending() == 0);
  CHECK(checked.engine()->stats().drift_checks == 0);
  CHECK(checked.state().live_allocations() == 0);
  REQUIRE(checked.scale(*checked.kernel(), 64, 64, Policy::kOff).ok());
  CHECK(checked.served() == "32, 16");
}

TEST_CASE("threads launch while their decisions are checked") {
  TempDir dir;
  decide(dir.path());
  Checked checked(dir.path());
  checked.takes["32, 16"] = 9'000;
  auto kernel = checked.kernel();
  (void)checked.state();
  std::atomic<int> failed{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 300; ++i) failed += !checked.scale(*kernel, 64, 64, Policy::kBlocking).ok();
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(failed == 0);
  checked.launch_until_checked(*kernel);
  REQUIRE(checked.scale(*kernel, 64, 64, Policy::kBlocking).ok());
  CHECK(checked.served() == "64, 16");
  CHECK(checked.engine()->stats().drift_replacements == 1);
  kernel.reset();
  CHECK(checked.state().live_allocations() == 0);
  CHECK(checked.state().guards_intact());
}

TEST_CASE("timers of the background fire in their order, wait for nobody and end with their owner") {
  class Background background;
  std::mutex mutex;
  std::vector<int> order;
  auto note = [&](int number) {
    return [&, number](const std::atomic<bool>&) {
      std::lock_guard lock(mutex);
      order.push_back(number);
    };
  };
  int owner = 0, other = 0;
  REQUIRE(background.submit_after(&owner, 30'000'000, note(3)));
  REQUIRE(background.submit_after(&owner, 10'000'000, note(2)));
  REQUIRE(background.submit_after(&other, kLong_ns * 1000, note(9)));
  REQUIRE(background.submit_after(&owner, INT64_MAX, note(9)));
  REQUIRE(background.submit(&owner, note(1)));
  CHECK(background.wait(kLong_ns));  // timers are not pending
  const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(kLong_ns);
  for (size_t done = 0; done < 3;) {
    REQUIRE(std::chrono::steady_clock::now() < until);
    std::this_thread::yield();
    std::lock_guard lock(mutex);
    done = order.size();
  }
  CHECK(order == std::vector<int>{1, 2, 3});
  REQUIRE(background.submit_after(&owner, 5'000'000, note(9)));
  background.cancel(&owner);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(order.size() == 3);
}

}  // namespace
}  // namespace kachel::runtime
