#include "runtime/cpu/cpu_info.h"

#include <sched.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <thread>

namespace kachel::runtime {
namespace {

// The processor's own text, which is also the "model name" of /proc/cpuinfo; that file is slow to open, since the
// kernel measures clock frequencies for it.
std::string model_name() {
  std::string name;
#if defined(__x86_64__)
  for (uint32_t leaf = 0x80000002; leaf <= 0x80000004; ++leaf) {
    uint32_t words[4] = {};
    if (!__get_cpuid(leaf, &words[0], &words[1], &words[2], &words[3])) break;
    name.append(reinterpret_cast<const char*>(words), sizeof(words));
  }
  name.resize(std::min(name.size(), name.find('\0')));
  name.erase(0, name.find_first_not_of(' '));
  name.resize(name.find_last_not_of(' ') + 1);
#endif
  return name.empty() ? "CPU" : name;
}

std::string vendor_name() {
#if defined(__x86_64__)
  uint32_t most = 0, words[3] = {};
  if (__get_cpuid(0, &most, &words[0], &words[2], &words[1]))
    return {reinterpret_cast<const char*>(words), sizeof(words)};
#endif
  return {};
}

int32_t usable_threads() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1u, std::thread::hardware_concurrency());  // more processors than the set holds
}

// "32768K" in cache/indexN/size; 0 where there is no such level that holds data.
int64_t cache_bytes(int wanted_level) {
  for (int index = 0; index < 8; ++index) {
    std::string folder = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
    std::ifstream level_file(folder + "level"), type_file(folder + "type"), size_file(folder + "size");
    int level = 0;
    std::string type, size;
    if (!(level_file >> level) || !(type_file >> type) || !(size_file >> size)) continue;
    if (level != wanted_level || type == "Instruction") continue;
    char* unit = nullptr;
    int64_t value = std::strtoll(size.c_str(), &unit, 10);
    return value * (*unit == 'K' ? 1024 : *unit == 'M' ? 1024 * 1024 : 1);
  }
  return 0;
}

}  // namespace

CpuInfo read_cpu_info() {
  CpuInfo info;
  info.name = model_name();
  info.vendor = vendor_name();
  info.threads = usable_threads();
  info.l2_bytes = cache_bytes(2);
  if (info.l2_bytes == 0) info.l2_bytes = std::max(0L, sysconf(_SC_LEVEL2_CACHE_SIZE));
  info.last_level_bytes = std::max({cache_bytes(4), cache_bytes(3), info.l2_bytes});
  info.memory_bytes = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  return info;
}

}  // namespace kachel::runtime
