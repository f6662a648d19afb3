// Many processes, one store: nothing is made twice.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "tests/runtime/engine/engine_fixture.h"

namespace kachel::runtime {
namespace {

using tuner::Policy;

struct Made {
  uint64_t compiles, tunings;
  bool right;
};

// What `count` processes that begin at once have made together.
Made all_of(int count, const std::string& store, const std::function<Status(EngineFixture&)>& work) {
  int gate[2], results[2];
  REQUIRE(::pipe(gate) == 0);
  REQUIRE(::pipe(results) == 0);
  std::vector<pid_t> children;
  for (int i = 0; i < count; ++i) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child > 0) {
      children.push_back(child);
      continue;
    }
    ::close(gate[1]);
    char byte;
    (void)!::read(gate[0], &byte, 1);  // ends when the parent closes its end
    Made made{};
    {
      EngineFixture fixture(store);
      fixture.options.tune_budget_ns = 600'000'000'000;
      // Real time as well, so that processes meet.
      fixture.options.progress = [](const TuneProgress&) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return true;
      };
      made.right = work(fixture).ok();
      const EngineStats stats = fixture.engine()->stats();
      made.compiles = stats.compiles;
      made.tunings = stats.tunings;
    }
    (void)!::write(results[1], &made, sizeof made);
    ::_exit(0);
  }
  ::close(gate[0]);
  ::close(gate[1]);
  Made total{0, 0, true};
  for (int i = 0; i < count; ++i) {
    Made made;
    REQUIRE(::read(results[0], &made, sizeof made) == sizeof made);
    total.compiles += made.compiles;
    total.tunings += made.tunings;
    total.right &= made.right;
  }
  for (pid_t child : children) ::waitpid(child, nullptr, 0);
  ::close(results[0]);
  ::close(results[1]);
  return total;
}

TEST_CASE("64 processes on an empty store compile each binary once and tune once") {
  TempDir dir;
  const Made tuned = all_of(64, dir.path(), [](EngineFixture& fixture) {
    auto kernel = fixture.kernel();
    return fixture.scale(*kernel, 64, 64, Policy::kBlocking);
  });
  CHECK(tuned.right);
  CHECK(tuned.compiles == 6);
  CHECK(tuned.tunings == 1);
}

TEST_CASE("nor does policy off compile twice, and a tuning that dies holds nobody up") {
  TempDir dir;
  const Made first = all_of(32, dir.path(), [](EngineFixture& fixture) {
    auto kernel = fixture.kernel();
    return fixture.scale(*kernel, 64, 64, Policy::kOff);
  });
  CHECK(first.right);
  CHECK(first.compiles == 1);
  CHECK(first.tunings == 0);

  int measuring[2];
  REQUIRE(::pipe(measuring) == 0);
  const pid_t dying = ::fork();
  REQUIRE(dying >= 0);
  if (dying == 0) {
    EngineFixture fixture(dir.path());
    fixture.options.progress = [&](const TuneProgress& progress) {
      if (progress.phase != tuner::Phase::kMeasuring) return true;
      (void)!::write(measuring[1], "m", 1);
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      ::_exit(9);
    };
    auto kernel = fixture.kernel();
    (void)fixture.scale(*kernel, 64, 64, Policy::kBlocking);
    ::_exit(0);
  }
  char byte;
  REQUIRE(::read(measuring[0], &byte, 1) == 1);
  ::close(measuring[0]);
  ::close(measuring[1]);
  const Made after = all_of(8, dir.path(), [](EngineFixture& fixture) {
    auto kernel = fixture.kernel();
    return fixture.scale(*kernel, 64, 64, Policy::kBlocking);
  });
  int status = 0;
  ::waitpid(dying, &status, 0);
  CHECK(WEXITSTATUS(status) == 9);
  CHECK(after.right);
  CHECK(after.tunings == 1);
}

}  // namespace
}  // namespace kachel::runtime
