// What the CPU device does beyond the conformance suite.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xmmintrin.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "tests/runtime/cpu/cpu_test_support.h"
#include "tests/runtime/device_conformance.h"

namespace kachel::runtime {
namespace {

struct Loaded {
  Loaded(Device& device, const std::string& text, uint32_t shared_bytes = 0) {
    std::string binary = compile_or_fail(text, "kernel");
    auto loaded = device.load(binary);
    REQUIRE(loaded.ok());
    module = *std::move(loaded);
    auto found = module->function("kernel", shared_bytes);
    REQUIRE(found.ok());
    function = *std::move(found);
  }
  std::unique_ptr<DeviceModule> module;
  std::unique_ptr<DeviceFunction> function;
};

TEST_CASE("properties name the machine and its threads") {
  auto device = open_cpu_device(test_options(3));
  REQUIRE(device.ok());
  const DeviceProperties& properties = (*device)->properties();
  CHECK(properties.kind == DeviceKind::kCpu);
  CHECK(properties.multiprocessors == 3);
  CHECK(properties.max_threads_per_block == 1);
  CHECK(properties.architecture == host_cpu_architecture());
  CHECK(properties.model.find(" x3") != std::string::npos);
  CHECK(open_cpu_device(test_options(-1)).status().code() == Code::kInvalid);
}

TEST_CASE("impossible launches are refused") {
  auto device = open_cpu_device(test_options(2));
  REQUIRE(device.ok());
  Loaded loaded(**device, kernel_text(""));
  uint64_t params = 0;
  CHECK(loaded.function->launch({4, 2, 0}, &params, 8, nullptr).code() == Code::kInvalid);
  CHECK(loaded.function->launch({4, 1, 0}, &params, 7, nullptr).code() == Code::kInvalid);
  CHECK(loaded.function->launch({4, 1, 0xffffffff}, &params, 8, nullptr).code() == Code::kUnsupported);
  CHECK(loaded.function->launch({4, 1, 0}, &params, 8, nullptr).ok());
}

TEST_CASE("kernels see default rounding and subnormals whatever the host has set") {
  auto device = open_cpu_device(test_options(2));
  REQUIRE(device.ok());
  Loaded loaded(**device, R"(
define void @kernel(ptr %params, i64 %begin, i64 %end, i64 %blocks, ptr %arena) {
entry:
  %in = load ptr, ptr %params
  %out.at = getelementptr ptr, ptr %params, i64 1
  %out = load ptr, ptr %out.at
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %next, %loop ]
  %at = getelementptr float, ptr %in, i64 %i
  %x = load float, ptr %at
  %y = fmul float %x, 0.5
  %to = getelementptr float, ptr %out, i64 %i
  store float %y, ptr %to
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}
)");
  std::vector<float> in(64, 0x1p-140f), out(64, 0);
  struct {
    const float* in;
    float* out;
  } params{in.data(), out.data()};
  const unsigned before = _mm_getcsr();
  const unsigned flushing = before | 0x8040;  // flush to zero, subnormals are zero
  for (uint32_t blocks : {1u, 64u}) {
    std::fill(out.begin(), out.end(), 0.0f);
    _mm_setcsr(flushing);
    Status status = loaded.function->launch({blocks, 1, 0}, &params, sizeof(params), nullptr);
    const unsigned after = _mm_getcsr();
    _mm_setcsr(before);
    REQUIRE(status.ok());
    CHECK((after & 0x8040) == 0x8040);
    for (uint32_t i = 0; i < blocks; ++i) CHECK(out[i] == 0x1p-141f);
  }
}

TEST_CASE("a module outlives its device") {
  auto device = open_cpu_device(test_options(2));
  REQUIRE(device.ok());
  auto loaded =
      std::make_unique<Loaded>(**device, kernel_text("  %p = load ptr, ptr %params\n  store i64 %blocks, ptr %p"));
  device->reset();
  int64_t out = 0;
  int64_t* params = &out;
  CHECK(loaded->function->launch({1, 1, 0}, &params, 8, nullptr).ok());
  CHECK(out == 1);
}

// The same kernel on all threads and inline adds up to the same, again and again: the choice between the two is made by
// what the last launch cost.
TEST_CASE("short launches stay on the caller, long ones spread, results are the same") {
  auto device = open_cpu_device(test_options(4));
  REQUIRE(device.ok());
  ConformanceTarget target = cpu_conformance_target(test_options(4));
  auto compiled = compile_probe(**device, target.scale_text, "probe_scale");
  REQUIRE(compiled.ok());
  auto module = (*device)->load(compiled->binary);
  REQUIRE(module.ok());
  auto function = (*module)->function("probe_scale", 0);
  REQUIRE(function.ok());
  for (int64_t count : {int64_t{4}, int64_t{300'000}, int64_t{16}, int64_t{300'000}}) {
    std::vector<int32_t> in(static_cast<size_t>(count), 5), out(static_cast<size_t>(count), 1);
    ScaleParams params{in.data(), out.data(), count, 2, 3};
    for (int i = 0; i < 10; ++i) REQUIRE((*function)->launch({64, 1, 0}, &params, sizeof(params), nullptr).ok());
    CHECK(std::count(out.begin(), out.end(), 1 + 10 * 13) == count);
  }
}

#if !defined(__SANITIZE_THREAD__)  // which does not follow a fork of a process with threads
TEST_CASE("the child of a fork can launch") {
  auto device = open_cpu_device(test_options(3));
  REQUIRE(device.ok());
  Loaded loaded(**device, kernel_text(R"(
  %p = load ptr, ptr %params
  store i64 %end, ptr %p
  store i8 1, ptr %arena)"),
                4096);
  int64_t out = 0;
  int64_t* params = &out;
  for (int i = 0; i < 3; ++i) REQUIRE(loaded.function->launch({100, 1, 4096}, &params, 8, nullptr).ok());
  pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    alarm(20);
    bool ok = loaded.function->launch({100, 1, 4096}, &params, 8, nullptr).ok() && out == 100;
    loaded.function.reset();
    loaded.module.reset();
    device->reset();  // joins no thread that does not exist
    _exit(ok ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(loaded.function->launch({100, 1, 4096}, &params, 8, nullptr).ok());
}
#endif

}  // namespace
}  // namespace kachel::runtime
