#include "runtime/cpu/cpu_features.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <utility>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace kachel::runtime {
namespace {

#if defined(__x86_64__)

enum Register { kEax, kEbx, kEcx, kEdx };
enum Needs { kNothing, kYmm, kZmm };  // register state that the operating system must save

struct Bit {
  const char* name;
  uint32_t leaf, subleaf;
  Register reg;
  int bit;
  Needs needs;
};

// From the CPUID tables of Intel's and AMD's architecture manuals.
constexpr Bit kBits[] = {
    {"sse3", 1, 0, kEcx, 0, kNothing},
    {"ssse3", 1, 0, kEcx, 9, kNothing},
    {"fma", 1, 0, kEcx, 12, kYmm},
    {"cx16", 1, 0, kEcx, 13, kNothing},
    {"sse4.1", 1, 0, kEcx, 19, kNothing},
    {"sse4.2", 1, 0, kEcx, 20, kNothing},
    {"movbe", 1, 0, kEcx, 22, kNothing},
    {"popcnt", 1, 0, kEcx, 23, kNothing},
    {"avx", 1, 0, kEcx, 28, kYmm},
    {"f16c", 1, 0, kEcx, 29, kYmm},
    {"bmi", 7, 0, kEbx, 3, kNothing},
    {"avx2", 7, 0, kEbx, 5, kYmm},
    {"bmi2", 7, 0, kEbx, 8, kNothing},
    {"avx512f", 7, 0, kEbx, 16, kZmm},
    {"avx512dq", 7, 0, kEbx, 17, kZmm},
    {"avx512ifma", 7, 0, kEbx, 21, kZmm},
    {"avx512cd", 7, 0, kEbx, 28, kZmm},
    {"avx512bw", 7, 0, kEbx, 30, kZmm},
    {"avx512vl", 7, 0, kEbx, 31, kZmm},
    {"avx512vbmi", 7, 0, kEcx, 1, kZmm},
    {"avx512vbmi2", 7, 0, kEcx, 6, kZmm},
    {"gfni", 7, 0, kEcx, 8, kNothing},
    {"avx512vnni", 7, 0, kEcx, 11, kZmm},
    {"avx512bitalg", 7, 0, kEcx, 12, kZmm},
    {"avx512vpopcntdq", 7, 0, kEcx, 14, kZmm},
    {"avx512fp16", 7, 0, kEdx, 23, kZmm},
    {"avxvnni", 7, 1, kEax, 4, kYmm},
    {"avx512bf16", 7, 1, kEax, 5, kZmm},
    {"lzcnt", 0x80000001, 0, kEcx, 5, kNothing},
    {"prfchw", 0x80000001, 0, kEcx, 8, kNothing},
};

Needs saved_state() {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr uint32_t kOsxsave = 1u << 27;
  if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx & kOsxsave)) return kNothing;
  uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  if ((low & 0x6) != 0x6) return kNothing;
  return (low & 0xe0) == 0xe0 ? kZmm : kYmm;
}

// Each leaf is asked once: under a hypervisor the instruction takes microseconds.
class Leaves {
 public:
  uint32_t get(uint32_t leaf, uint32_t subleaf, Register reg) {
    auto [found, is_new] = leaves_.try_emplace({leaf, subleaf});
    std::array<uint32_t, 4>& r = found->second;
    // Leaf 7 says in EAX how many subleaves it has; an absent leaf leaves the zeros.
    if (is_new && (subleaf == 0 || subleaf <= get(leaf, 0, kEax)))
      __get_cpuid_count(leaf, subleaf, &r[kEax], &r[kEbx], &r[kEcx], &r[kEdx]);
    return r[reg];
  }

 private:
  std::map<std::pair<uint32_t, uint32_t>, std::array<uint32_t, 4>> leaves_;
};

#endif  // __x86_64__

struct Level {
  const char* name;
  std::vector<const char*> features;  // beyond those of the level below
};

// The levels of the x86-64 psABI, highest first; osfxsr and lahf are left out, no 64-bit machine with the rest lacks
// them.
const std::vector<Level>& levels() {
  static const std::vector<Level> kLevels = {
      {"x86-64-v4", {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}},
      {"x86-64-v3", {"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"}},
      {"x86-64-v2", {"cx16", "popcnt", "sse3", "sse4.1", "sse4.2", "ssse3"}},
  };
  return kLevels;
}

}  // namespace

std::vector<std::string> detect_cpu_features() {
  std::vector<std::string> found;
#if defined(__x86_64__)
  Needs saved = saved_state();
  Leaves leaves;
  for (const Bit& bit : kBits)
    if (bit.needs <= saved && (leaves.get(bit.leaf, bit.subleaf, bit.reg) >> bit.bit & 1)) found.push_back(bit.name);
  std::sort(found.begin(), found.end());
#endif
  return found;
}

std::string cpu_level(const std::vector<std::string>& features) {
  auto has = [&](const char* name) { return std::find(features.begin(), features.end(), name) != features.end(); };
  std::string best = "x86-64";
  for (auto level = levels().rbegin(); level != levels().rend(); ++level) {
    if (!std::all_of(level->features.begin(), level->features.end(), has)) break;
    best = level->name;
  }
  return best;
}

std::string host_cpu_architecture() {
#if defined(__x86_64__)
  std::vector<std::string> features = detect_cpu_features();
  std::string text = "x86-64/" + cpu_level(features) + "/";
  for (size_t i = 0; i < features.size(); ++i) text += (i ? ",+" : "+") + features[i];
  return text;
#else
  return {};
#endif
}

bool CpuArchitecture::has(std::string_view feature) const {
  std::string wanted = ",+" + std::string(feature) + ",";
  return ("," + features + ",").find(wanted) != std::string::npos;
}

Result<CpuArchitecture> parse_cpu_architecture(std::string_view architecture) {
  constexpr std::string_view kFamily = "x86-64/";
  size_t slash = architecture.find('/', kFamily.size());
  if (architecture.substr(0, kFamily.size()) != kFamily || slash == std::string_view::npos)
    return unsupported("the CPU compiler makes code for 'x86-64/<cpu>/<features>', not for '" +
                       std::string(architecture) + "'");
  CpuArchitecture parsed;
  parsed.cpu = architecture.substr(kFamily.size(), slash - kFamily.size());
  parsed.features = architecture.substr(slash + 1);
  if (parsed.has("avx512f") || parsed.cpu == "x86-64-v4")
    parsed.vector_bits = 512;
  else if (parsed.has("avx") || parsed.cpu == "x86-64-v3")
    parsed.vector_bits = 256;
  return parsed;
}

}  // namespace kachel::runtime
