#include <algorithm>

#include "lowering/machine/machine.h"
#include "lowering/machine/rates.h"

namespace kachel::lowering {
namespace {

constexpr int kWarp = 32;
constexpr int kRegisterStep = 8;  // registers of a thread come in eights

}  // namespace

Residency residency_of(const WorkProfile& profile, int architecture) {
  const Machine& machine = machine_of(architecture);
  const int threads = (profile.teams * profile.threads + profile.producer_threads + kWarp - 1) / kWarp * kWarp;
  auto fit = [&](int of_threads) {
    const int each = machine.registers_per_sm / of_threads / kRegisterStep * kRegisterStep;
    return std::min(machine.registers_per_thread, each);
  };
  // The compiler counts in warp groups when it divides the registers among the threads of a block.
  const int groups = (threads + kGroupThreads - 1) / kGroupThreads * kGroupThreads;
  const int most = profile.consumer_registers ? profile.consumer_registers
                   : profile.blocks > 1       ? fit(profile.blocks * threads)
                                              : fit(groups);
  Residency residency;
  residency.spills = profile.most_live_registers + kLeastOtherRegisters > most;
  const int64_t wanted = profile.fragment_registers + kOtherRegisters + kRegisterStep - 1;
  // Where threads hand registers on, the launch gives all of them the same.
  residency.registers = profile.consumer_registers
                            ? fit(threads)
                            : static_cast<int>(std::min<int64_t>(wanted / kRegisterStep * kRegisterStep, most));
  const int64_t blocks =
      std::min({static_cast<int64_t>(machine.blocks_per_sm), static_cast<int64_t>(machine.threads_per_sm / threads),
                resident_by_shared(profile.shared_bytes, architecture),
                static_cast<int64_t>(machine.registers_per_sm / (residency.registers * threads))});
  residency.blocks = static_cast<int>(std::max<int64_t>(blocks, 1));
  return residency;
}

}  // namespace kachel::lowering
