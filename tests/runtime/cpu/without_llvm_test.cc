// LLVM is opened by the first compilation and by nothing else. The process maps are the witness. Each case needs a
// process in which nothing was compiled yet, so the second one starts this program again.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/runtime/cpu/cpu_test_support.h"
#include "tests/runtime/device_conformance.h"

namespace kachel::runtime {
namespace {

bool llvm_is_mapped() {
  std::ifstream maps("/proc/self/maps");
  std::string text(std::istreambuf_iterator<char>(maps), {});
  return text.find("libLLVM") != std::string::npos || text.find("libkachel_llvm") != std::string::npos;
}

bool scale_works(Device& device, std::string_view binary) {
  auto module = device.load(binary);
  if (!module.ok()) return false;
  auto function = (*module)->function("probe_scale", 0);
  if (!function.ok()) return false;
  std::vector<int32_t> in(1000, 4), out(1000, 0);
  ScaleParams params{in.data(), out.data(), 1000, 10, 2};
  if (!(*function)->launch({16, 1, 0}, &params, sizeof(params), nullptr).ok()) return false;
  return out == std::vector<int32_t>(1000, 42);
}

const char kStored[] = "KACHEL_TEST_STORED_OBJECT";

TEST_CASE("a stored object runs in a process without LLVM" * doctest::skip(std::getenv(kStored) == nullptr)) {
  // The compiler would not be found either.
  DeviceOptions options;
  options.cpu_compiler_path = "/nonexistent";
  auto device = open_cpu_device(options);
  REQUIRE(device.ok());
  std::ifstream file(std::getenv(kStored), std::ios::binary);
  std::string binary(std::istreambuf_iterator<char>(file), {});
  REQUIRE(!binary.empty());
  CHECK(scale_works(**device, binary));
  CHECK(!llvm_is_mapped());
  CHECK(!(*device)->compiler().opened());
}

TEST_CASE("LLVM is opened by the first compilation" * doctest::skip(std::getenv(kStored) != nullptr)) {
  auto device = open_cpu_device(test_options());
  REQUIRE(device.ok());
  CHECK(!llvm_is_mapped());
  CHECK(!(*device)->compiler().opened());
  CHECK((*device)->compiler().version().empty());
  ConformanceTarget target = cpu_conformance_target(test_options());
  auto compiled = compile_probe(**device, target.scale_text, "probe_scale");
  INFO(compiled.status().message());
  REQUIRE(compiled.ok());
  CHECK(llvm_is_mapped());
  CHECK((*device)->compiler().version().rfind("llvm 19.", 0) == 0);
  CHECK(scale_works(**device, compiled->binary));

  char path[] = "/tmp/kachel_object_XXXXXX";
  int descriptor = mkstemp(path);
  REQUIRE(descriptor >= 0);
  REQUIRE(write(descriptor, compiled->binary.data(), compiled->binary.size()) ==
          static_cast<ssize_t>(compiled->binary.size()));
  close(descriptor);
  pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    setenv(kStored, path, 1);
    execl("/proc/self/exe", "without_llvm", static_cast<char*>(nullptr));
    _exit(127);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  unlink(path);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace kachel::runtime
