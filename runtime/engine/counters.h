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
  static constexpr unsigned kShards = 32;
  struct alignas(64) Shard {
    std::atomic<uint64_t> value{0};
  };
  static unsigned shard() {
    static std::atomic<unsigned> next{0};
    thread_local const unsigned mine = next.fetch_add(1, std::memory_order_relaxed) % kShards;
    return mine;
  }
  std::array<Shard, kShards> shards_;
};

struct Counters {
  LaunchCounter launches;
  std::atomic<uint64_t> compiles{0}, loads{0}, measurements{0}, tunings{0}, specialisations{0}, lowerings{0};
  std::atomic<uint64_t> damaged_plans{0};  // records that passed the store's checksum but not decode_plan()
  std::atomic<double> last_load_ns{0};
};

}  // namespace kachel::runtime
