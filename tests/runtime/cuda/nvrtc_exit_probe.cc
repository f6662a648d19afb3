// Compiles once, then without end in three threads, and leaves with status 42 after argv[1] milliseconds.
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include "runtime/device.h"

// It leaves while threads of the library run.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_options() {
  return "report_thread_leaks=0";
}

int main(int argc, char** argv) {
  using namespace kachel::runtime;
  auto compiler = make_cuda_compiler({});
  auto* shared = compiler.release();  // the threads outlive main's variables
  (void)shared->compile({"extern \"C\" __global__ void f() {}", "f", "sm_90a", 0});
  std::string body;
  for (int i = 0; i < 60; ++i) body += "  x[" + std::to_string(i) + "] = x[" + std::to_string(i + 1) + "] * 2 + 1;\n";
  for (int t = 0; t < 3; ++t)
    std::thread([=] {
      for (int i = 0;; ++i) {
        const std::string text = "extern \"C\" __global__ void f(float* x) {\n" + body + "x[" + std::to_string(i) +
                                 "] = " + std::to_string(t) + ";\n}\n";
        (void)shared->compile({text, "f", "sm_90a", t == 0 ? int64_t{5'000'000'000} : 0});
      }
    }).detach();
  std::this_thread::sleep_for(std::chrono::milliseconds(argc > 1 ? std::atoi(argv[1]) : 100));
  std::exit(42);
}
