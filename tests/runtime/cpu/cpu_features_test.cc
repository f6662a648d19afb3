#include "runtime/cpu/cpu_features.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>

#include "runtime/cpu/cpu_info.h"

namespace kachel::runtime {
namespace {

// What the kernel says of the first processor, in its own names.
std::string kernel_line(const std::string& name) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.rfind(name, 0) == 0) return line.substr(line.find(':') + 2);
  return {};
}

std::vector<std::string> kernel_flags() {
  std::istringstream words(kernel_line("flags"));
  return {std::istream_iterator<std::string>(words), {}};
}

TEST_CASE("features agree with the operating system's view") {
  const std::pair<const char*, const char*> kNames[] = {
      {"avx", "avx"},
      {"avx2", "avx2"},
      {"fma", "fma"},
      {"f16c", "f16c"},
      {"bmi", "bmi1"},
      {"bmi2", "bmi2"},
      {"movbe", "movbe"},
      {"popcnt", "popcnt"},
      {"sse4.1", "sse4_1"},
      {"sse4.2", "sse4_2"},
      {"avx512f", "avx512f"},
      {"avx512bw", "avx512bw"},
      {"avx512vl", "avx512vl"},
      {"avx512dq", "avx512dq"},
      {"avx512cd", "avx512cd"},
      {"avx512vnni", "avx512_vnni"},
      {"lzcnt", "abm"},
      {"gfni", "gfni"},
      {"avxvnni", "avx_vnni"},
      {"avx512bf16", "avx512_bf16"},
      {"sse3", "pni"},
      {"ssse3", "ssse3"},
      {"cx16", "cx16"},
      {"avx512vbmi", "avx512vbmi"},
      {"prfchw", "3dnowprefetch"},
  };
  std::vector<std::string> flags = kernel_flags(), features = detect_cpu_features();
  REQUIRE(!flags.empty());
  CHECK(std::is_sorted(features.begin(), features.end()));
  for (auto [ours, theirs] : kNames) {
    CAPTURE(ours);
    bool here = std::find(features.begin(), features.end(), ours) != features.end();
    CHECK(here == (std::find(flags.begin(), flags.end(), theirs) != flags.end()));
  }
}

TEST_CASE("levels need every feature of those below") {
  const std::vector<std::string> v2 = {"cx16", "popcnt", "sse3", "sse4.1", "sse4.2", "ssse3"};
  auto with = [](std::vector<std::string> base, const std::vector<std::string>& more) {
    base.insert(base.end(), more.begin(), more.end());
    return base;
  };
  auto v3 = with(v2, {"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"});
  auto v4 = with(v3, {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"});
  CHECK(cpu_level({}) == "x86-64");
  CHECK(cpu_level(v2) == "x86-64-v2");
  CHECK(cpu_level(v3) == "x86-64-v3");
  CHECK(cpu_level(v4) == "x86-64-v4");
  v4.erase(std::find(v4.begin(), v4.end(), "fma"));
  CHECK(cpu_level(v4) == "x86-64-v2");
}

TEST_CASE("architecture strings are taken apart as they are put together") {
  auto host = parse_cpu_architecture(host_cpu_architecture());
  REQUIRE(host.ok());
  CHECK(host->cpu == cpu_level(detect_cpu_features()));
  for (const std::string& feature : detect_cpu_features()) CHECK(host->has(feature));
  CHECK(!host->has("avx5"));

  auto narrow = parse_cpu_architecture("x86-64/x86-64-v3/+avx2,+fma");
  REQUIRE(narrow.ok());
  CHECK(narrow->vector_bits == 256);
  CHECK(narrow->has("fma"));
  CHECK(!narrow->has("avx"));
  CHECK(parse_cpu_architecture("x86-64/x86-64/")->vector_bits == 128);
  CHECK(parse_cpu_architecture("x86-64/x86-64-v4/+avx512f")->vector_bits == 512);
  for (const char* bad : {"", "x86-64", "x86-64/", "x86-64/x86-64-v3", "sm_90a", "aarch64/generic/"})
    CHECK(parse_cpu_architecture(bad).status().code() == Code::kUnsupported);
}

TEST_CASE("the host says something of itself") {
  CpuInfo info = read_cpu_info();
  CHECK(info.name == kernel_line("model name"));
  CHECK(info.vendor == kernel_line("vendor_id"));
  CHECK(info.threads >= 1);
  CHECK(info.memory_bytes > 0);
  CHECK(info.last_level_bytes >= info.l2_bytes);
}

}  // namespace
}  // namespace kachel::runtime
