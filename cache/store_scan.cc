// What concerns a store as a whole.
#include <set>

#include "cache/record.h"
#include "cache/store.h"

namespace kachel::cache {
namespace {

constexpr size_t kScanRows = 64;

}  // namespace

Status Store::clear() {
  if (!here()) return {Code::kStore, "the store belongs to the parent process"};
  KACHEL_TRY(memory_.clear());
  if (!disk_ || disk_->read_only()) return {};
  KACHEL_TRY(disk_->clear());
  note({.what = ChangeKind::kCleared});
  return {};
}

Result<uint64_t> Store::shrink(uint64_t bytes) {
  if (!here()) return {Code::kStore, "the store belongs to the parent process"};
  uint64_t left = memory_.shrink(bytes);
  if (disk_ && !disk_->read_only()) {
    KACHEL_ASSIGN(const uint64_t from_disk, disk_->shrink(bytes, take_touched(kMostTouched)));
    left += from_disk;
  }
  tell_evicted(left);
  return left;
}

Result<Verified> Store::verify() {
  if (!here()) return {Code::kStore, "the store belongs to the parent process"};
  Verified seen;
  const uint64_t before = damaged_;
  std::set<Slot> shown;
  bool ended = false;
  KACHEL_TRY(iterate_own(std::nullopt, [&](const EntryView&) { return ++seen.entries, true; }, &shown, &ended));
  seen.damaged = damaged_ - before;
  return seen;
}

Status Store::iterate(std::optional<Kind> kind, const Callback& callback) {
  if (!here()) return {Code::kStore, "the store belongs to the parent process"};
  std::set<Slot> shown;
  bool ended = false;
  Status status = iterate_own(kind, callback, &shown, &ended);
  for (size_t i = 0; status.ok() && !ended && i < layers_.size(); ++i)
    status = layers_[i]->iterate_own(kind, callback, &shown, &ended);
  return status;
}

// What was shown before hides what comes later: memory the disk, and both the layers.
Status Store::iterate_own(std::optional<Kind> kind, const Callback& callback, std::set<Slot>* shown, bool* ended) {
  Slot start{};
  if (kind) {
    start.fill(0xff);  // the last slot of the kind before
    start[0] = static_cast<uint8_t>(*kind) - 1;
  }
  for (Table* table : {static_cast<Table*>(&memory_), static_cast<Table*>(disk_.get())}) {
    if (!table) continue;
    for (std::optional<Slot> after = kind ? std::optional(start) : std::nullopt;;) {
      auto rows = table->scan(after ? &*after : nullptr, kScanRows);
      if (!rows.ok()) return rows.status();
      if (rows->empty()) break;
      after = rows->back().slot;
      for (const Row& row : *rows) {
        if (kind && row.slot[0] != static_cast<uint8_t>(*kind)) {
          after.reset();
          break;
        }
        if (shown->contains(row.slot)) continue;
        auto record = examine(*table, row);
        if (!record.ok()) continue;
        EntryView view{record->kind, record->key, record->payload, record->created_us, row.used_us};
        shown->insert(row.slot);
        *ended = !callback(view);
        if (*ended) return {};
      }
      if (!after) break;
    }
  }
  return {};
}

StoreStats Store::stat() {
  StoreStats stats;
  stats.location = location_;
  stats.durable = disk_ != nullptr;
  stats.writable = disk_ && !disk_->read_only();
  stats.max_bytes = disk_ ? options_.max_bytes : options_.memory_max_bytes;
  stats.hits = hits_;
  stats.layer_hits = layer_hits_;
  stats.misses = misses_;
  stats.puts = puts_;
  stats.damaged = damaged_;
  stats.foreign = foreign_;
  stats.refused = refused_;
  stats.evicted = evicted_;
  stats.refused_macs = refused_macs_;
  for (const auto& layer : layers_) stats.refused_macs += layer->refused_macs_;
  if (!here()) return stats;
  if (remote_) stats.remote = remote_->stats();
  for (Table* table : {static_cast<Table*>(&memory_), static_cast<Table*>(disk_.get())}) {
    if (!table) continue;
    auto uses = table->uses();
    if (!uses.ok()) continue;
    for (const Use& use : *uses) {
      KindTotals& totals = stats.kinds[static_cast<Kind>(use.slot[0])];
      ++totals.entries;
      totals.bytes += use.bytes;
      ++stats.entries;
      stats.bytes += use.bytes;
    }
  }
  return stats;
}

}  // namespace kachel::cache
