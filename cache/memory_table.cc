#include "cache/memory_table.h"

#include "cache/eviction.h"

namespace kachel::cache {
namespace {
// What an entry costs beside its record: a slot, a node of the map, the string's own head.
constexpr uint64_t kOverhead_bytes = 128;
}  // namespace

Result<std::optional<Row>> MemoryTable::read(const Slot& slot) {
  std::lock_guard lock(mutex_);
  auto it = entries_.find(slot);
  if (it == entries_.end()) return std::optional<Row>();
  return std::optional<Row>(Row{slot, it->second.record, it->second.used_us});
}

Result<uint64_t> MemoryTable::write(std::span<const Row> rows, std::span<const Use> touched) {
  uint64_t need = 0, evicted = 0;
  for (const Row& row : rows) need += row.record.size() + kOverhead_bytes;
  if (need > limit_bytes_) return {Code::kStore, "more than the store in memory may hold"};
  std::lock_guard lock(mutex_);
  for (const Use& use : touched)
    if (auto it = entries_.find(use.slot); it != entries_.end()) it->second.used_us = use.used_us;
  while (bytes_ + need > limit_bytes_ && !entries_.empty())
    evicted += evict_locked(bytes_ + need - limit_bytes_ + limit_bytes_ / 16);
  for (const Row& row : rows) {
    erase_locked(row.slot);
    bytes_ += row.record.size() + kOverhead_bytes;
    entries_[row.slot] = {row.record, row.used_us};
  }
  return evicted;
}

uint64_t MemoryTable::shrink(uint64_t bytes) {
  std::lock_guard lock(mutex_);
  uint64_t evicted = 0;
  while (bytes_ > bytes && !entries_.empty()) evicted += evict_locked(bytes_ - bytes);
  return evicted;
}

uint64_t MemoryTable::evict_locked(uint64_t enough_bytes) {
  const std::vector<Use> leaving = oldest(uses_locked(), kEvictionBatch, enough_bytes);
  for (const Use& use : leaving) erase_locked(use.slot);
  return leaving.size();
}

Status MemoryTable::erase(const Slot& slot, const std::string* only) {
  std::lock_guard lock(mutex_);
  auto it = entries_.find(slot);
  if (it != entries_.end() && (!only || it->second.record == *only)) erase_locked(slot);
  return {};
}

Status MemoryTable::clear() {
  std::lock_guard lock(mutex_);
  entries_.clear();
  bytes_ = 0;
  return {};
}

Result<std::vector<Row>> MemoryTable::scan(const Slot* after, size_t limit) {
  std::lock_guard lock(mutex_);
  std::vector<Row> rows;
  auto it = after ? entries_.upper_bound(*after) : entries_.begin();
  for (; it != entries_.end() && rows.size() < limit; ++it)
    rows.push_back({it->first, it->second.record, it->second.used_us});
  return rows;
}

Result<std::vector<Use>> MemoryTable::uses() {
  std::lock_guard lock(mutex_);
  return uses_locked();
}

std::vector<Use> MemoryTable::uses_locked() const {
  std::vector<Use> uses;
  for (const auto& [slot, entry] : entries_) uses.push_back({slot, entry.used_us, entry.record.size()});
  return uses;
}

void MemoryTable::erase_locked(const Slot& slot) {
  auto it = entries_.find(slot);
  if (it == entries_.end()) return;
  bytes_ -= it->second.record.size() + kOverhead_bytes;
  entries_.erase(it);
}

}  // namespace kachel::cache
