#include "cache/transfer.h"

namespace kachel::cache {
namespace {

constexpr size_t kBatch = 64;
constexpr size_t kBatch_bytes = size_t{8} << 20;
constexpr uint64_t kRemoteWait_us = 60'000'000;  // for a batch; its puts are given up long before if they fail

}  // namespace

Result<uint64_t> copy_entries(Store& from, Store& to, const Describe& describe) {
  uint64_t copied = 0;
  size_t bytes = 0;
  std::vector<Entry> batch;
  Status status;
  const uint64_t refused = to.stat().refused, refused_macs = from.stat().refused_macs;
  auto flush = [&] {
    if (batch.empty()) return true;
    status = to.put_many(batch);
    if (status.ok() && to.stat().refused != refused)
      status = Status(Code::kStore, "the store that is copied to has no room, or cannot be written; see the log");
    if (status.ok()) copied += batch.size(), (void)to.flush(kRemoteWait_us);
    batch.clear();
    bytes = 0;
    return status.ok();
  };
  KACHEL_TRY(from.iterate(std::nullopt, [&](const EntryView& entry) {
    batch.push_back({{entry.kind, digest_of(entry.key), std::string(entry.key)},
                     std::string(entry.payload),
                     describe ? describe(entry.kind, entry.payload) : Label(),
                     ChangeKind::kImported});
    bytes += entry.payload.size();
    return (batch.size() < kBatch && bytes < kBatch_bytes) || flush();
  }));
  if (status.ok()) flush();
  to.count_refused_macs(from.stat().refused_macs - refused_macs);
  if (!status.ok()) return status;
  return copied;
}

}  // namespace kachel::cache
