// Many threads, few keys, all of it at once. Two seconds by default; KACHEL_STRESS_SECONDS for longer.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <random>
#include <thread>

#include "runtime/engine/report/tuning_view.h"
#include "tests/runtime/engine/engine_fixture.h"

namespace kachel::runtime {
namespace {

using tuner::Policy;

double seconds() {
  const char* given = std::getenv("KACHEL_STRESS_SECONDS");
  return given ? std::atof(given) : 2.0;
}

TEST_CASE("sixteen threads launch, tune, bind and release over thirty-two keys") {
  EngineFixture fixture;
  // Kernels run on fake time; the tuner's clock must not let real time cut tunings short.
  fixture.options.tune_budget_ns = 600'000'000'000;
  fixture.state().set_cost([](const FakeLaunch&) { return 10'000; });
  auto shared = fixture.kernel();
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> launches{0};
  std::atomic<int> wrong{0};
  std::mutex mutex;
  std::string first;
  auto note = [&](const std::string& what) {
    ++wrong;
    std::lock_guard lock(mutex);
    if (first.empty()) first = what;
  };
  auto work = [&](unsigned seed) {
    std::mt19937 random(seed);
    std::shared_ptr<KernelHandle> own = shared;
    while (!stop.load(std::memory_order_relaxed)) {
      const int64_t m = 1 + random() % 8, n = 4 + random() % 4 * 4;
      HostTensorF32 a({m, n}, 1.5f), c({m, n}, -1);
      Arg args[] = {a.tensor(), c.tensor(), float_arg(2)};
      constexpr Policy kPolicies[] = {Policy::kBlocking, Policy::kBackground, Policy::kOff};
      const Policy policy = kPolicies[random() % 3];
      Status status;
      switch (random() % 6) {
        case 0: {
          auto call = own->bind(args, fixture.settings(policy));
          if (!call.ok()) {
            status = call.status();
            break;
          }
          void* pointers[] = {a.data.data(), c.data.data()};
          int64_t scalars[] = {static_cast<int64_t>(std::bit_cast<uint32_t>(2.0f))};
          status = (*call)->launch(pointers, scalars, nullptr);
          break;
        }
        case 1: {
          auto module = ir::load(kScale);
          auto model = KernelModel::create(module->kernels[0], {});
          own = std::make_shared<KernelHandle>(fixture.engine(), *model);
          status = own->launch(args, fixture.settings(policy), nullptr);
          break;
        }
        case 2: {
          auto view = read_tuning(*own, args);
          if (!view.ok() && view.status().code() != Code::kNotCached) status = view.status();
          if (view.ok() && view->winner < 0) note("a tuning without a winner");
          c.data.assign(c.data.size(), 3);
          break;
        }
        default:
          status = own->launch(args, fixture.settings(policy), nullptr);
          ++launches;
      }
      if (!status.ok()) note(status.message());
      for (float value : c.data)
        if (status.ok() && value != 3) note(fmt::format("an element is {}", value));
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 16; ++i) threads.emplace_back(work, i);
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds()));
  stop = true;
  for (std::thread& thread : threads) thread.join();
  CHECK_MESSAGE(wrong == 0, first);
  CHECK(launches > 100);
  REQUIRE(fixture.engine()->background().wait(60'000'000'000));
  const EngineStats stats = fixture.engine()->stats();
  CHECK(stats.compiles == 6);
  CHECK(stats.loads == 6);
  CHECK(stats.tunings <= 32);
  CHECK(fixture.state().live_allocations() == 0);
  CHECK(fixture.state().guards_intact());
}

TEST_CASE("one thread tunes a key, the others wait for it") {
  EngineFixture fixture;
  fixture.options.tune_budget_ns = 600'000'000'000;
  auto kernel = fixture.kernel();
  (void)fixture.state();
  std::vector<std::thread> threads;
  std::atomic<int> failed{0};
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] { failed += !fixture.scale(*kernel, 64, 64, Policy::kBlocking).ok(); });
  for (std::thread& thread : threads) thread.join();
  CHECK(failed == 0);
  CHECK(fixture.engine()->stats().tunings == 1);
  CHECK(fixture.engine()->stats().compiles == 6);
}

}  // namespace
}  // namespace kachel::runtime
