// Facts about the host that do not change while it runs, from the processor and /sys.
#pragma once
#include <cstdint>
#include <string>

namespace kachel::runtime {

struct CpuInfo {
  std::string name;      // "AMD EPYC 9B45"; "CPU" where the processor does not say
  std::string vendor;    // "AuthenticAMD", "GenuineIntel"
  int32_t threads = 1;   // hardware threads that this process may run on
  int64_t l2_bytes = 0;  // of one core
  int64_t last_level_bytes = 0;
  int64_t memory_bytes = 0;
};

CpuInfo read_cpu_info();

}  // namespace kachel::runtime
