#include "lowering/machine/register_room.h"

#include <algorithm>

#include "lowering/machine/machine.h"
#include "lowering/tile_ir/live_ranges.h"

namespace kachel::lowering {

int blocks_with_registers(const LoopKernel& kernel, int architecture) {
  constexpr int64_t kBesideArrays = 28;  // registers: addresses, counters, what an instruction needs
  constexpr int64_t kLeast = 64;         // ptxas 13.0 refused a wgmma with 40 (C7602), whatever lives
  const Machine& machine = machine_of(architecture);
  const int64_t by_shared = resident_by_shared(kernel.shared_bytes, architecture);
  if (kernel.registers || kernel.teams > 1 || by_shared < 2) return 1;
  if (kernel.producer.empty()) return 0;
  const int64_t threads = kernel.threads + kernel.producer_threads;
  const int64_t wanted = std::max(most_live_registers(kernel) + kBesideArrays, kLeast);
  const int64_t by_registers = machine.registers_per_sm / (threads * wanted);
  const int64_t by_threads = machine.threads_per_sm / threads;
  return static_cast<int>(std::max<int64_t>(std::min({by_shared, by_registers, by_threads}), 1));
}

}  // namespace kachel::lowering
