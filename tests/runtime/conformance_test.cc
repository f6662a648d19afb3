#include <doctest/doctest.h>

#include "tests/runtime/device_conformance.h"

namespace kachel::runtime {
namespace {

DeviceOptions options_with_threads(int32_t threads) {
  DeviceOptions options;
  options.cpu_compiler_path = KACHEL_LLVM_MODULE;
  options.cpu_threads = threads;
  return options;
}

TEST_CASE("the fake device conforms") {
  check_device_conformance(fake_conformance_target());
}

#ifdef KACHEL_HAVE_CUDA_SOURCES
TEST_CASE("the CUDA device conforms") {
  check_device_conformance(cuda_conformance_target({}));
}
#endif

TEST_CASE("the CPU device conforms with all threads") {
  check_device_conformance(cpu_conformance_target(options_with_threads(0)));
}

TEST_CASE("the CPU device conforms with one thread") {
  check_device_conformance(cpu_conformance_target(options_with_threads(1)));
}

TEST_CASE("the CPU device conforms with more threads than processors") {
  check_device_conformance(cpu_conformance_target(options_with_threads(7)));
}

}  // namespace
}  // namespace kachel::runtime
