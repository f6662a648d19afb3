// A table in memory: what a store falls back to. Lives and dies with its store.
#pragma once
#include <map>
#include <mutex>

#include "cache/table.h"

namespace kachel::cache {

class MemoryTable : public Table {
 public:
  explicit MemoryTable(uint64_t limit_bytes) : limit_bytes_(limit_bytes) {}

  Result<std::optional<Row>> read(const Slot& slot) override;
  Result<uint64_t> write(std::span<const Row> rows, std::span<const Use> touched) override;
  Status erase(const Slot& slot, const std::string* only) override;
  Status clear() override;
  Result<std::vector<Row>> scan(const Slot* after, size_t limit) override;
  Result<std::vector<Use>> uses() override;
  uint64_t largest_record() const override { return limit_bytes_ / 4; }
  uint64_t shrink(uint64_t bytes);

 private:
  struct Entry {
    std::string record;
    uint64_t used_us;
  };
  std::vector<Use> uses_locked() const;
  void erase_locked(const Slot& slot);
  uint64_t evict_locked(uint64_t enough_bytes);

  const uint64_t limit_bytes_;
  std::mutex mutex_;
  std::map<Slot, Entry> entries_;
  uint64_t bytes_ = 0;
};

}  // namespace kachel::cache
