// conformance [--device cpu|cuda] [--examples DIR] [--seed N] [--only NAME] [--verbose]
// Exit status 0 if every case passed. Prints the first failures and a summary.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/conformance/examples.h"

using namespace kachel;

int main(int argc, char** argv) {
  std::string device_name = "cpu", examples = "examples", only;
  uint64_t seed = 1;
  bool verbose = false;
  for (int i = 1; i < argc; ++i) {
    std::string flag = argv[i];
    auto next = [&] { return i + 1 < argc ? argv[++i] : ""; };
    if (flag == "--device")
      device_name = next();
    else if (flag == "--examples")
      examples = next();
    else if (flag == "--seed")
      seed = std::strtoull(next(), nullptr, 10);
    else if (flag == "--only")
      only = next();
    else if (flag == "--verbose")
      verbose = true;
    else {
      std::fprintf(stderr, "unknown option %s\n", flag.c_str());
      return 2;
    }
  }
  auto device = device_name == "cuda" ? runtime::open_cuda_device(0, {}) : runtime::open_cpu_device({});
  if (!device.ok()) {
    std::fprintf(stderr, "%s: %s\n", device_name.c_str(), device.status().message().c_str());
    return 1;
  }
  auto cases = conformance::example_cases(examples, seed);
  if (!cases.ok()) {
    std::fprintf(stderr, "%s\n", cases.status().message().c_str());
    return 1;
  }
  int passed = 0, failed = 0;
  int64_t elements = 0, undecided = 0;
  for (const conformance::Case& test : *cases) {
    if (!only.empty() && test.name.find(only) == std::string::npos) continue;
    conformance::Report report = conformance::run_case(**device, test);
    elements += report.elements;
    undecided += report.undecided;
    report.passed() ? ++passed : ++failed;
    if (!report.passed() || verbose)
      std::printf("%s %s: %s (median bound %.1f ulp)\n", report.passed() ? "ok" : "FAILED", test.name.c_str(),
                  report.describe().c_str(), report.median_bound_ulps);
  }
  std::printf("%s: %lld elements compared, %lld undecided\n%d passed, %d failed\n",
              (*device)->properties().name.c_str(), static_cast<long long>(elements), static_cast<long long>(undecided),
              passed, failed);
  return failed != 0 || passed == 0;
}
