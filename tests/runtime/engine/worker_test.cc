// Tunings in a worker process: what a candidate does to it, the host does not feel. The worker is test_worker.cc, on a
// fake device; limits are short, so that what would hang for ever takes part of a second.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <mutex>
#include <thread>

#include "runtime/engine/process/handshake.h"
#include "runtime/engine/report/tuning_view.h"
#include "tests/runtime/engine/worker_host.h"

namespace kachel::runtime {
namespace {

using tuner::CandidateState;
using tuner::Policy;

TEST_CASE("a worker compiles, checks and measures, and this process launches the winner alone") {
  TempDir dir;
  {
    Host host(dir.path());
    REQUIRE(host.go().ok());
    CHECK(host.launched() == std::vector<std::string>{"64, 32"});
    CHECK(host.state().count(FakeCall::kCompile) == 0);
    CHECK(host.state().count(FakeCall::kLoad) == 1);
    CHECK(host.state().live_allocations() == 0);
    const EngineStats stats = host.stats();
    CHECK(stats.compiles == 6);
    CHECK(stats.measurements > 20);
    CHECK(stats.tunings == 1);
    CHECK(stats.workers == 1);
    CHECK(stats.workers_lost == 0);
    CHECK(host.warnings().empty());
    // What is compiled there is said here.
    const std::vector<Event> compiled = host.events(EventKind::kCompiled);
    CHECK(compiled.size() >= 6);
    for (const Event& event : compiled) {
      CHECK(event.kernel == "scale");
      CHECK(contains(event.message, "worker: "));
      CHECK(event.fields.back().name == "in_worker");
    }
    const TuningView view = host.view();
    CHECK(view.winner == 5);
    for (const auto& candidate : view.candidates) CHECK(candidate.samples > 0);
    CHECK(view.candidates[5].median_ns == doctest::Approx(200'000 - 1000 * (64 + 32)));
    // Another key: the same worker.
    REQUIRE(host.scale(*host.kernel(), 128, 64, Policy::kBlocking).ok());
    CHECK(host.stats().workers == 2);
    CHECK(host.stats().compiles == 6);
  }
  Host later(dir.path());
  REQUIRE(later.go().ok());
  CHECK(later.stats().workers == 0);
  CHECK(later.stats().compiles == 0);
  CHECK(later.launched() == std::vector<std::string>{"64, 32"});
}

// The fastest, in each way and at each step.
TEST_CASE("a candidate that takes the worker down costs the worker, and is remembered") {
  struct Case {
    const char* orders;
    CandidateState state;
    const char* message;
  };
  const Case cases[] = {
      {"crash@lower:64, 32", CandidateState::kCrashed, "signal 11"},
      {"crash@run1:64, 32", CandidateState::kCrashed, "signal 11"},
      {"kill@run5:64, 32", CandidateState::kCrashed, "signal 9"},
      {"exit@run7:64, 32", CandidateState::kCrashed, "exited with status 7"},
      {"lose@run1:64, 32", CandidateState::kCrashed, "device failed for good"},
      {"hang@run1:64, 32", CandidateState::kTimedOut, "no end after 400 ms"},
      {"hang@run6:64, 32", CandidateState::kTimedOut, "no end after 400 ms"},
  };
  for (const Case& each : cases) {
    CAPTURE(each.orders);
    TempDir dir;
    {
      const Orders orders(each.orders);
      Host host(dir.path());
      REQUIRE(host.go().ok());
      CHECK(host.launched() == std::vector<std::string>{"64, 16"});
      const EngineStats stats = host.stats();
      CHECK(stats.workers_lost >= 1);
      CHECK(stats.workers_lost <= 2);
      CHECK(stats.workers == stats.workers_lost + 1);
      CHECK(!host.engine()->device_lost());
      const TuningView view = host.view();
      CHECK(view.candidates[5].state == each.state);
      CHECK_MESSAGE(contains(view.candidates[5].message, each.message), view.candidates[5].message);
      for (size_t i = 0; i < 5; ++i) CHECK(view.candidates[i].samples > 0);
      REQUIRE(host.warnings().size() == 1);
      CHECK_MESSAGE(contains(host.warnings()[0], "BM=64,BN=32 is not tried again"), host.warnings()[0]);
      const bool late = each.state == CandidateState::kTimedOut;
      const auto harm = host.events(late ? EventKind::kCandidateTimedOut : EventKind::kCandidateCrashed);
      REQUIRE(harm.size() == 1);
      CHECK(harm[0].message == host.warnings()[0]);
      CHECK(std::get<std::string>(harm[0].fields[0].value) == "BM=64,BN=32");
      CHECK(host.events(late ? EventKind::kCandidateCrashed : EventKind::kCandidateTimedOut).empty());
    }
    // Another process, another list: what is known is not tried again.
    std::string text = kScale;
    text.replace(text.find("BN = 16"), 7, "BN = 8 | 16");
    const Orders orders(each.orders);
    Host later(dir.path());
    REQUIRE(later.go(Policy::kBlocking, text).ok());
    CHECK(later.stats().tunings == 1);
    CHECK(later.stats().workers == 1);
    CHECK(later.stats().workers_lost == 0);
    const TuningView view = later.view(text);
    CHECK(view.candidates[8].state == each.state);
    CHECK(view.candidates[7].configuration == "BM=64,BN=16");
    CHECK(view.winner == 7);
  }
}

TEST_CASE("a decision from the store is checked in a worker, and a candidate that crashes there is no winner") {
  TempDir dir;
  {
    Host host(dir.path());
    REQUIRE(host.go().ok());
    REQUIRE(host.launched() == std::vector<std::string>{"64, 32"});
  }
  const Orders orders("crash@run3:64, 32");
  Host later(dir.path());
  later.options.drift_check_ns = 1;
  auto kernel = later.kernel();
  while (later.stats().drift_checks == 0) {
    REQUIRE(later.scale(*kernel, 64, 64, Policy::kBlocking).ok());
    REQUIRE(later.engine()->background().wait(60'000'000'000));
  }
  CHECK(later.stats().drift_replacements == 1);
  CHECK(later.stats().workers_lost >= 1);
  CHECK(later.events(EventKind::kCandidateCrashed).size() == 1);
  REQUIRE(later.scale(*kernel, 64, 64, Policy::kBlocking).ok());
  CHECK(later.launched().back() == "64, 16");
  CHECK(later.view().candidates[5].state == CandidateState::kCrashed);
}

TEST_CASE("a compilation that has no end is ended") {
  const Orders orders("hang@lower:64, 32");
  Host host;
  host.options.compile_limit_ns = 100'000'000;
  REQUIRE(host.go().ok());
  CHECK(host.view().candidates[5].state == CandidateState::kTimedOut);
  CHECK(host.launched() == std::vector<std::string>{"64, 16"});
}

TEST_CASE("of several that crash while they compile side by side, each one is blamed, and no other") {
  const Orders orders("crash@lower:16, 32;exit@lower:32, 16;crash@run1:16, 16");
  Host host;
  host.options.compile_threads = 6;
  REQUIRE(host.go().ok());
  const TuningView view = host.view();
  const CandidateState expected[] = {CandidateState::kCrashed, CandidateState::kCrashed, CandidateState::kCrashed};
  for (size_t i = 0; i < 3; ++i) CHECK(view.candidates[i].state == expected[i]);
  for (size_t i = 3; i < 6; ++i) CHECK(view.candidates[i].samples > 0);
  CHECK(view.winner == 5);
}

TEST_CASE("after a number of workers the best so far decides, the rest is left untried") {
  const Orders orders("crash@run5:32, 32;crash@run5:64, 16;crash@run5:64, 32");
  Host host;
  host.options.worker.restarts = 1;
  REQUIRE(host.go().ok());
  CHECK(host.stats().workers == 2);
  CHECK(host.stats().workers_lost == 2);
  size_t crashed = 0;
  const TuningView view = host.view();
  for (const auto& candidate : view.candidates) crashed += candidate.state == CandidateState::kCrashed;
  CHECK(crashed == 2);
  CHECK(view.candidates[static_cast<size_t>(view.winner)].samples > 0);
}

TEST_CASE("where all crash, none of them serves") {
  const Orders orders(
      "crash@run1:16, 16;crash@run1:16, 32;crash@run1:32, 16;crash@run1:32, 32;crash@run1:64, 16;crash@run1:64, 32");
  Host host;
  Status refused = host.go();
  CHECK(refused.code() == Code::kLaunch);
  CHECK(host.launched().empty());
  CHECK(host.go(Policy::kOff).code() == Code::kLaunch);
  CHECK(host.launched().empty());
}

TEST_CASE("a reference that crashes is remembered where another one is made") {
  std::string text = kScale;
  text.replace(text.find("BN = 16 | 32"), 12, "BN = 16 | 32 | 48");
  TempDir dir;
  {
    Host host(dir.path());
    REQUIRE(host.go().ok());
  }
  const Orders orders("crash@run1:16, 16");
  {
    Host host(dir.path());
    REQUIRE(host.go(Policy::kBlocking, text).ok());
    CHECK(host.stats().workers_lost == 1);
    const TuningView view = host.view(text);
    CHECK(view.candidates[0].configuration == "BM=16,BN=16");
    CHECK(view.candidates[0].state == CandidateState::kCrashed);
    CHECK_MESSAGE(contains(view.candidates[0].message, "signal 11"), view.candidates[0].message);
    for (size_t i = 1; i < view.candidates.size(); ++i) CHECK(view.candidates[i].samples > 0);
  }
  text.replace(text.find("BM = 16"), 7, "BM = 16 | 24");
  Host later(dir.path());
  REQUIRE(later.go(Policy::kBlocking, text).ok());
  CHECK(later.stats().tunings == 1);
  CHECK(later.stats().workers_lost == 0);
  CHECK(later.view(text).candidates[0].state == CandidateState::kCrashed);
}

TEST_CASE("what is no worker is not used: here instead, or not at all where that is demanded") {
  struct Case {
    const char *path, *orders, *message;
  };
  const std::string old =
      fmt::format("is of another build: it has protocol {} and lowering version 1", kWorkerProtocol + 1);
  const Case cases[] = {{"/nonexistent/worker", "", "cannot be run: No such file"},
                        {"/tmp", "", "cannot be run: Permission denied"},
                        {"kachel-no-such-worker", "", "cannot be run"},
                        {KACHEL_TEST_WORKER_PATH, "garbage", "does not speak as a worker does"},
                        {KACHEL_TEST_WORKER_PATH, "leave", "exited with status 7"},
                        {KACHEL_TEST_WORKER_PATH, "silent", "in time"},
                        {KACHEL_TEST_WORKER_PATH, "old", old.c_str()},
                        {"/bin/true", "", "does not speak as a worker does"}};
  for (const Case& each : cases)
    for (bool required : {false, true}) {
      CAPTURE(each.path);
      CAPTURE(each.orders);
      CAPTURE(required);
      const Orders orders(each.orders);
      Host host("", each.path);
      host.options.worker.required = required;
      if (std::string(each.orders) == "silent") host.options.worker.hello_limit_ns = 200'000'000;
      REQUIRE(host.go().ok());
      REQUIRE(host.scale(*host.kernel(), 128, 64, Policy::kBlocking).ok());
      CHECK((host.stats().measurements == 0) == required);
      CHECK(host.stats().tunings == (required ? 0 : 2));
      REQUIRE(host.warnings().size() == 1);
      CHECK_MESSAGE(contains(host.warnings()[0], each.message), host.warnings()[0]);
      CHECK(contains(host.warnings()[0], required ? "served as under the policy off" : "in this process"));
    }
}

TEST_CASE("a worker that says nonsense after its greeting is ended") {
  const Orders orders("nonsense");
  Host host;
  REQUIRE(host.go().ok());
  REQUIRE(!host.warnings().empty());
  CHECK_MESSAGE(contains(host.warnings()[0], "it said what is no message"), host.warnings()[0]);
}

TEST_CASE("tensors that are too large are left where they are, which is said once") {
  Host host;
  host.options.worker.most_bytes = 10'000;
  auto kernel = host.kernel();
  for (int64_t rows : {64, 128}) REQUIRE(host.scale(*kernel, rows, 64, Policy::kBlocking).ok());
  CHECK(host.stats().workers == 0);
  CHECK(host.stats().measurements == 0);
  REQUIRE(host.warnings().size() == 1);
  CHECK(contains(host.warnings()[0], "more than 10000"));
  REQUIRE(host.scale(*kernel, 16, 16, Policy::kBlocking).ok());
  CHECK(host.stats().tunings == 1);
}

TEST_CASE("signals of the host's are its own, and no process is left") {
  struct sigaction before {};
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  for (bool ignored : {true, false}) {
    if (ignored) REQUIRE(::sigaction(SIGCHLD, &ignore, &before) == 0);
    {
      const Orders orders("crash@run3:64, 32");
      Host host;
      REQUIRE(host.go().ok());
      CHECK(host.view().candidates[5].state == CandidateState::kCrashed);
      struct sigaction now {};
      REQUIRE(::sigaction(SIGCHLD, nullptr, &now) == 0);
      CHECK((now.sa_handler == SIG_IGN) == ignored);
    }
    if (ignored) REQUIRE(::sigaction(SIGCHLD, &before, nullptr) == 0);
    CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);
    CHECK(errno == ECHILD);
  }
}

TEST_CASE("two threads tune at once, each in a worker of its own") {
  const Orders orders("crash@run4:64, 32");
  Host host;
  auto kernel = host.kernel();
  (void)host.engine();
  Status done[2];
  std::thread threads[2];
  for (int i = 0; i < 2; ++i)
    threads[i] = std::thread([&, i] { done[i] = host.scale(*kernel, 64 * (i + 1), 64, Policy::kBlocking); });
  for (std::thread& thread : threads) thread.join();
  for (const Status& status : done) CHECK_MESSAGE(status.ok(), status.message());
  CHECK(host.stats().tunings == 2);
  for (const std::string& tile : host.launched()) CHECK(tile != "64, 32");
}

TEST_CASE("the background tunes in a worker, and lets go of one that hangs as soon as its handle goes") {
  {
    Host host;
    auto kernel = host.kernel();
    REQUIRE(host.scale(*kernel, 64, 64, Policy::kBackground).ok());
    REQUIRE(host.engine()->background().wait(60'000'000'000));
    CHECK(host.stats().background_tunings == 1);
    CHECK(host.stats().workers == 1);
    REQUIRE(host.scale(*kernel, 64, 64, Policy::kBackground).ok());
    CHECK(host.launched().back() == "64, 32");
    for (const std::string& tile : host.launched()) CHECK((tile == "16, 16" || tile == "64, 32"));
  }
  const Orders orders("hang@run2:16, 32");
  Host host;
  host.options.worker.run_limit_ns = 600'000'000'000;
  auto kernel = host.kernel();
  REQUIRE(host.scale(*kernel, 64, 64, Policy::kBackground).ok());
  while (host.stats().workers == 0 || host.stats().compiles < 6)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const auto begun = std::chrono::steady_clock::now();
  kernel.reset();
  CHECK(std::chrono::steady_clock::now() - begun < std::chrono::seconds(5));
  CHECK(host.stats().background_tunings == 0);
}

TEST_CASE("the progress callback cancels a tuning in a worker") {
  Host host;
  host.options.progress = [](const TuneProgress& progress) { return progress.phase != tuner::Phase::kMeasuring; };
  CHECK(host.go().code() == Code::kCancelled);
  CHECK(host.launched().empty());
  CHECK(host.go(Policy::kOff).ok());
}

// The state of a process in /proc; 'X' where there is none.
char state_of(pid_t id) {
  std::ifstream file("/proc/" + std::to_string(id) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return 'X';
  const size_t end = line.rfind(')');
  return end == line.npos ? 'X' : line[end + 2];
}

TEST_CASE("a worker that is killed while it waits for work is replaced, and nobody is blamed") {
  TempDir dir;
  const std::string ids = dir.path() + "/ids";
  ::setenv("KACHEL_TEST_WORKER_PIDS", ids.c_str(), 1);
  Host host;
  auto kernel = host.kernel();
  REQUIRE(host.scale(*kernel, 64, 64, Policy::kBlocking).ok());
  pid_t worker = 0;
  std::ifstream(ids) >> worker;
  REQUIRE(worker > 0);
  REQUIRE(::kill(worker, SIGKILL) == 0);
  while (state_of(worker) != 'Z' && state_of(worker) != 'X') std::this_thread::sleep_for(std::chrono::milliseconds(1));
  REQUIRE(host.scale(*kernel, 128, 64, Policy::kBlocking).ok());
  ::unsetenv("KACHEL_TEST_WORKER_PIDS");
  CHECK(host.stats().tunings == 2);
  CHECK(host.stats().workers_lost == 0);
  CHECK(host.warnings().empty());
  CHECK(state_of(worker) == 'X');
  host.engine()->freeze();
  CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);
}

TEST_CASE("a worker does not outlive its host, whatever the host's other children hold open") {
  TempDir dir;
  const std::string ids = dir.path() + "/ids";
  const Orders orders("hang@run1:16, 16");
  ::setenv("KACHEL_TEST_WORKER_PIDS", ids.c_str(), 1);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    // Made here, so that its descriptors are in the grandchild as well.
    std::thread([ids] {
      while (!std::ifstream(ids).peek()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      if (::fork() == 0) {
        for (int standard : {0, 1, 2}) ::close(standard);
        std::this_thread::sleep_for(std::chrono::seconds(6));
        ::_exit(0);
      }
      ::_exit(9);
    }).detach();
    Host host;
    host.options.worker.run_limit_ns = 600'000'000'000;
    (void)host.go();
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  ::unsetenv("KACHEL_TEST_WORKER_PIDS");
  CHECK(WEXITSTATUS(status) == 9);
  pid_t worker = 0;
  std::ifstream(ids) >> worker;
  REQUIRE(worker > 0);
  char state = 'R';
  for (int i = 0; i < 500 && state != 'X' && state != 'Z'; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    state = state_of(worker);
  }
  CHECK((state == 'X' || state == 'Z'));
}

}  // namespace
}  // namespace kachel::runtime
