// How structs grow, errors are owned and handles live: the rules at the head of kachel.h, as an older and a newer
// caller meet them.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "capi/boundary.h"
#include "capi/kachel.h"

namespace {

constexpr const char* kText = R"(tile 1
kernel one(A: f32[N], C: out f32[N])
grid b < ceildiv(N, 16)
{
  fragment x: f32[16]
  x = A[b*16 +: 16]
  C[b*16 +: 16] = x
}
kernel two(A: f32[N], C: out f32[N])
grid b < ceildiv(N, 16)
{
  fragment x: f32[16]
  x = A[b*16 +: 16]
  C[b*16 +: 16] = x
})";

kachel_engine* make_engine() {
  kachel_engine_options options{};
  options.struct_size = sizeof options;
  options.store_path = "";
  kachel_engine* engine = nullptr;
  kachel_error* err = nullptr;
  REQUIRE(kachel_engine_create(&options, &engine, &err) == KACHEL_OK);
  REQUIRE(err == nullptr);
  return engine;
}

TEST_CASE("an older caller's options end early, and the rest is default") {
  kachel_engine_options options{};
  options.struct_size = offsetof(kachel_engine_options, store_max_bytes);
  options.store_path = "";
  options.policy = 99;  // beyond what this caller knows: not read
  kachel_engine* engine = nullptr;
  CHECK(kachel_engine_create(&options, &engine, nullptr) == KACHEL_OK);
  // What it asks for is cut to its size, and nothing behind is touched.
  kachel_stats stats;
  std::memset(&stats, 0x5a, sizeof stats);
  stats.struct_size = offsetof(kachel_stats, measurements);
  CHECK(kachel_engine_stats(engine, &stats) == KACHEL_OK);
  CHECK(stats.struct_size == offsetof(kachel_stats, measurements));
  CHECK(stats.loads == 0);
  CHECK(stats.measurements == 0x5a5a5a5a5a5a5a5aull);
  kachel_engine_release(engine);
}

TEST_CASE("a newer caller gets zeros for what this library does not know") {
  struct Newer {
    kachel_stats known;
    uint64_t later[3];
  } newer;
  std::memset(&newer, 0x5a, sizeof newer);
  newer.known.struct_size = sizeof newer;
  kachel_engine* engine = make_engine();
  CHECK(kachel_engine_stats(engine, &newer.known) == KACHEL_OK);
  CHECK(newer.known.struct_size == sizeof newer);
  for (uint64_t word : newer.later) CHECK(word == 0);
  kachel_engine_release(engine);
}

TEST_CASE("exceptions become statuses at the boundary") {
  using namespace kachel;
  kachel_error* err = nullptr;
  CHECK(capi::guarded(&err, []() -> Status { throw std::bad_alloc(); }) == KACHEL_E_NO_MEMORY);
  CHECK(std::string(kachel_error_message(err)) == "out of memory");
  kachel_error_release(err);
  kachel_error_release(err);  // the static one: harmless
  err = nullptr;
  CHECK(capi::guarded(&err, []() -> Status { throw std::runtime_error("surprise"); }) == KACHEL_E_INTERNAL);
  CHECK(std::string(kachel_error_message(err)).find("surprise") != std::string::npos);
  kachel_error_release(err);
  err = nullptr;
  CHECK(capi::guarded(&err, []() -> Status { throw 1; }) == KACHEL_E_INTERNAL);
  CHECK(err != nullptr);
  kachel_error_release(err);
  err = nullptr;
  CHECK(capi::guarded(&err, []() -> Status { return {Code::kCompile, "no", "line 1: log"}; }) == KACHEL_E_COMPILE);
  CHECK(std::string(kachel_error_log(err)) == "line 1: log");
  kachel_error_release(err);
  CHECK(capi::guarded_value(7, []() -> int { throw 1; }) == 7);
}

TEST_CASE("errors belong to the call that made them, whatever the thread") {
  kachel_engine* engine = make_engine();
  std::vector<std::thread> threads;
  std::atomic<int> mixed{0};
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      const std::string name = "program" + std::to_string(t) + ".tile";
      for (int i = 0; i < 50; ++i) {
        kachel_error* err = nullptr;
        kachel_module* module = nullptr;
        if (kachel_module_create(engine, "nonsense", 8, name.c_str(), &module, &err) != KACHEL_E_INVALID) ++mixed;
        if (!err || std::string(kachel_error_message(err)).find(name) == std::string::npos) ++mixed;
        kachel_error_release(err);
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(mixed == 0);
  kachel_engine_release(engine);
}

TEST_CASE("a module of several kernels wants a name") {
  kachel_engine* engine = make_engine();
  kachel_module* module = nullptr;
  REQUIRE(kachel_module_create(engine, kText, std::strlen(kText), nullptr, &module, nullptr) == KACHEL_OK);
  kachel_kernel* kernel = nullptr;
  kachel_error* err = nullptr;
  CHECK(kachel_kernel_get(module, nullptr, nullptr, 0, &kernel, &err) == KACHEL_E_INVALID);
  CHECK(std::string(kachel_error_message(err)).find("2 kernels") != std::string::npos);
  kachel_error_release(err);
  CHECK(kachel_kernel_get(module, "two", nullptr, 0, &kernel, nullptr) == KACHEL_OK);
  CHECK(std::string(kachel_kernel_name(kernel)) == "two");
  kachel_module_release(module);
  kachel_engine_release(engine);
  kachel_kernel_release(kernel);
}

TEST_CASE("a child of fork may release what its parent made") {
  kachel_engine* engine = make_engine();
  kachel_module* module = nullptr;
  REQUIRE(kachel_module_create(engine, kText, std::strlen(kText), nullptr, &module, nullptr) == KACHEL_OK);
  // The CPU device has threads of its own, which a child does not.
  int32_t count = 0;
  REQUIRE(kachel_engine_device_count(engine, &count) == KACHEL_OK);
  kachel_device_info info{};
  info.struct_size = sizeof info;
  REQUIRE(kachel_engine_device_info(engine, count - 1, &info, nullptr) == KACHEL_OK);
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    kachel_module_release(module);
    kachel_engine_release(engine);
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  kachel_module_release(module);
  kachel_engine_release(engine);
}

}  // namespace
