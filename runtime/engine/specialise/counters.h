// What happened, for kachel_stats. Launches are counted in shards, one cache line each, so that threads that launch at
// the same time do not pass a line back and forth; everything else is rare.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>

namespace kachel::runtime {

class LaunchCounter {
 public:
  void add() { shards_[shard()].value.fetch_add(1, std::memory_order_relaxed); }
  uint64_t total() const {
    uint64_t sum = 0;
    for (const Shard& shard : shards_) sum += shard.value.load(std::memory_order_relaxed);
    return sum;
  }

 private:
  static constexpr unsigned kShards = 1 << 5;  // as shard() has bits
  struct alignas(64) Shard {
    std::atomic<uint64_t> value{0};
  };
  // By where the thread's stack is: needs no thread-local variable, for which a shared library calls a function.
  static unsigned shard() {
    const auto stack = reinterpret_cast<uintptr_t>(__builtin_frame_address(0)) >> 16;
    return static_cast<unsigned>(stack * 0x9e3779b97f4a7c15ull >> 59);
  }
  std::array<Shard, kShards> shards_;
};

struct Counters {
  LaunchCounter launches;
  std::atomic<uint64_t> compiles{0}, loads{0}, measurements{0}, tunings{0}, specialisations{0}, lowerings{0};
  std::atomic<uint64_t> background_tunings{0}, background_failures{0}, drift_checks{0}, drift_replacements{0};
  std::atomic<uint64_t> workers{0}, workers_lost{0};
  std::atomic<uint64_t> damaged_plans{0};  // records that passed the store's checksum but not decode_plan()
  std::atomic<double> last_load_ns{0};
};

}  // namespace kachel::runtime
