// NVRTC itself; needs no GPU. Every case says so loudly where this machine has no NVRTC.
#include <fmt/format.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "runtime/cuda/cubin_check.h"
#include "runtime/cuda/ptxas_log.h"
#include "tests/runtime/cuda/cuda_test_support.h"

namespace kachel::runtime::cuda {
namespace {

using Clock = std::chrono::steady_clock;

// Takes NVRTC seconds, nearly all of them in one pass that never asks whether to go on.
std::string slow_text() {
  std::string text = "extern \"C\" __global__ void slow(float* x, long long n) {\n  float a[64];\n";
  text += "  for (int i = 0; i < 64; ++i) a[i] = x[i];\n";
  for (int k = 0; k < 1500; ++k)
    text += fmt::format("  if (n & (1ll << {})) a[{}] = a[{}] + a[{}] * {}.f;\n", k % 40, (k * 7 + 3) % 64,
                        (k * 13 + 5) % 64, (k * 29 + 11) % 64, k);
  return text + "  for (int i = 0; i < 64; ++i) x[i] = a[i];\n}\n";
}

// Uses more registers than it is given.
constexpr const char* kSpillingText = R"(
struct P { float* x; long long n; };
extern "C" __global__ void __launch_bounds__(1024, 2) spilling(const __grid_constant__ P p) {
  __shared__ float s[64];
  float a[128];
  s[threadIdx.x & 63] = p.x[threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 128; i++) a[i] = p.x[i + threadIdx.x * 128] + s[i & 63];
  for (int k = 0; k < p.n; k++) {
#pragma unroll
    for (int i = 0; i < 128; i++) a[i] = a[i] * a[(i * 7 + 1) % 128] + 1.f;
  }
#pragma unroll
  for (int i = 0; i < 128; i++) p.x[threadIdx.x * 128 + i] = a[i];
}
)";

constexpr const char* kSetmaxnregText = R"(
extern "C" __global__ void unbounded(float* x) {
  if (threadIdx.x < 128) asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
  else asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
  x[threadIdx.x] = 1;
}
)";

}  // namespace

TEST_CASE("no NVRTC where one was said to be") {
  // What the person who runs the tests has chosen, for the other cases.
  const char* chosen = std::getenv("KACHEL_NVRTC");
  const std::string kept = chosen ? chosen : "";
  REQUIRE(unsetenv("KACHEL_NVRTC") == 0);
  for (const char* path : {"/nowhere/libnvrtc.so.13", "/usr/include"}) {
    CAPTURE(path);
    DeviceOptions options;
    options.nvrtc_path = path;
    auto compiler = make_cuda_compiler(options);
    Status status = compiler->compile({kAddText, "add", "sm_90a", 0}).status();
    CHECK(status.code() == Code::kNoDevice);
    CHECK(status.message().find(path) != std::string::npos);
    CHECK(status.message().find("pip install nvidia-cuda-nvrtc") != std::string::npos);
    CHECK(status.message().find("KACHEL_NVRTC") != std::string::npos);
    CHECK(!compiler->opened());
    CHECK(compiler->version().empty());
  }
  // The environment goes before the option.
  REQUIRE(setenv("KACHEL_NVRTC", "/elsewhere", 1) == 0);
  Status status = make_cuda_compiler({})->compile({kAddText, "add", "sm_90a", 0}).status();
  REQUIRE(unsetenv("KACHEL_NVRTC") == 0);
  CHECK(status.message().find("/elsewhere") != std::string::npos);
  // A library that is no NVRTC.
  DeviceOptions options;
  options.nvrtc_path = "libm.so.6";
  status = make_cuda_compiler(options)->compile({kAddText, "add", "sm_90a", 0}).status();
  CHECK(status.code() == Code::kNoDevice);
  CHECK(status.message().find("lacks nvrtc") != std::string::npos);
  if (chosen) REQUIRE(setenv("KACHEL_NVRTC", kept.c_str(), 1) == 0);
}

TEST_CASE("a text without headers compiles for every architecture that is served") {
  auto compiler = compiler_or_skip();
  if (!compiler) return;
  CHECK(!compiler->opened());
  CHECK(compiler->version().empty());
  for (const char* architecture : {"sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a"}) {
    CAPTURE(architecture);
    CompileResult result = value_of(compiler->compile({kAddText, "add", architecture, 0}));
    if (result.log.find("does not know") != std::string::npos) {
      MESSAGE("SKIPPED: ", compiler->version(), " does not know ", std::string(architecture));
      continue;
    }
    CHECK(check_cubin(result.binary).ok());
    CHECK(result.usage.registers > 0);
    CHECK(result.usage.spill_bytes == 0);
    CHECK(result.usage.shared_bytes == 0);
    CHECK(result.compile_ns > 0);
    CHECK(result.log.find(architecture) != std::string::npos);
    CHECK(value_of(compiler->compile({kAddText, "add", architecture, 0})).binary == result.binary);
  }
  CHECK(compiler->opened());
  CHECK(compiler->version().starts_with("nvrtc 1"));
}

TEST_CASE("spills, static shared memory and lost performance are reported") {
  auto compiler = compiler_or_skip();
  if (!compiler) return;
  CompileResult spilling = value_of(compiler->compile({kSpillingText, "spilling", "sm_90a", 0}));
  CHECK(spilling.usage.registers == 32);
  CHECK(spilling.usage.spill_bytes > 0);
  CHECK(spilling.usage.shared_bytes == 256);
  CompileResult unbounded = value_of(compiler->compile({kSetmaxnregText, "unbounded", "sm_90a", 0}));
  PtxasReport report = parse_ptxas_log(unbounded.log, "unbounded");
  REQUIRE(report.losses.size() >= 1);
  CHECK(report.losses[0].find("C7508") != std::string::npos);
}

TEST_CASE("a text that does not compile gives its error and the log") {
  auto compiler = compiler_or_skip();
  if (!compiler) return;
  Status status = compiler->compile({"extern \"C\" __global__ void f( { nothing; }\n", "f", "sm_90a", 0}).status();
  CHECK(status.code() == Code::kCompile);
  CHECK(status.message().find("error") != std::string::npos);
  CHECK(status.log().find("f.cu(1)") != std::string::npos);
  // What the front end lets through and ptxas does not.
  status = compiler->compile({"extern \"C\" __global__ void f() { asm(\"nonsense;\"); }\n", "f", "sm_90a", 0}).status();
  CHECK(status.code() == Code::kCompile);
  CHECK(!status.log().empty());
  // An instruction of another architecture.
  status = compiler->compile({kSetmaxnregText, "unbounded", "sm_80", 0}).status();
  CHECK(status.code() == Code::kCompile);

  status = compiler->compile({kAddText, "subtract", "sm_90a", 0}).status();
  CHECK(status.code() == Code::kCompile);
  CHECK(status.message().find("defines no kernel \"subtract\"") != std::string::npos);
  CHECK(compiler->compile({"", "f", "sm_90a", 0}).status().code() == Code::kCompile);
  CHECK(compiler->compile({std::string_view("a\0b", 3), "f", "sm_90a", 0}).status().code() == Code::kInvalid);
  CHECK(compiler->compile({kAddText, "add", "sm_90 -G", 0}).status().code() == Code::kInvalid);
  CHECK(compiler->compile({kAddText, "add", "sm_35", 0}).status().code() == Code::kUnsupported);
}

TEST_CASE("a device that NVRTC does not know yet is served by PTX, and the log says so") {
  auto compiler = compiler_or_skip();
  if (!compiler) return;
  CompileResult result = value_of(compiler->compile({kAddText, "add", "sm_990a", 0}));
  CHECK(result.binary.find(".entry add(") != std::string::npos);
  CHECK(check_cubin(result.binary).ok());
  CHECK(result.log.find("does not know sm_990a") != std::string::npos);
  CHECK(result.usage.registers == -1);
}

TEST_CASE("sixteen compilations at once") {
  auto compiler = compiler_or_skip();
  if (!compiler) return;
  std::vector<std::thread> threads;
  std::vector<std::string> problems(16);
  std::vector<CompileResult> results(16);
  for (int t = 0; t < 16; ++t)
    threads.emplace_back([&, t] {
      const std::string entry = fmt::format("kernel_{}", t);
      const std::string text = fmt::format(
          "extern \"C\" __global__ void {}(float* x) {{ __shared__ float s[{}]; s[threadIdx.x] = x[threadIdx.x]; "
          "__syncthreads(); x[0] = s[1]; }}",
          entry, 32 * (t + 1));
      const int64_t limit_ns = t % 2 ? int64_t{300'000'000'000} : 0;
      Result<CompileResult> result = compiler->compile({text, entry, t % 3 ? "sm_90a" : "sm_80", limit_ns});
      if (result.ok())
        results[t] = *std::move(result);
      else
        problems[t] = result.status().message() + result.status().log();
    });
  for (std::thread& thread : threads) thread.join();
  for (int t = 0; t < 16; ++t) {
    CAPTURE(t);
    CHECK(problems[t] == "");
    CHECK(results[t].usage.shared_bytes == 128 * (t + 1));  // each got its own log
  }
}

TEST_CASE("the time limit holds even where NVRTC does not ask") {
  auto compiler = compiler_or_skip();
  if (!compiler) return;
  Status status = compiler->compile({kAddText, "add", "sm_90a", 1}).status();
  CHECK(status.code() == Code::kCompile);
  CHECK(status.message().find("time limit") != std::string::npos);

  const auto begun = Clock::now();
  status = compiler->compile({slow_text(), "slow", "sm_90a", 300'000'000}).status();
  const auto taken = Clock::now() - begun;
  CHECK(status.code() == Code::kCompile);
  CHECK(status.message().find("time limit of 300 ms") != std::string::npos);
  CHECK(taken >= std::chrono::milliseconds(290));
  CHECK(taken < std::chrono::milliseconds(1800));
  // The compiler serves on, beside the one that was given up.
  CHECK(compiler->compile({kAddText, "add", "sm_90a", 300'000'000'000}).ok());
}

TEST_CASE("a process that exits while it compiles keeps its exit status") {
  if (!compiler_or_skip()) return;
  for (const std::string milliseconds : {"1", "60", "110", "170"}) {
    CAPTURE(milliseconds);
    const int status = std::system((beside_this_program(KACHEL_NVRTC_EXIT_PROBE) + " " + milliseconds).c_str());
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 42);
  }
}

}  // namespace kachel::runtime::cuda
