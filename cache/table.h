// What a store keeps its records in: DiskTable or MemoryTable. A table moves bytes; it knows neither records nor keys.
// Every operation is atomic, may be called from any thread and reports failure as Code::kStore.
#pragma once
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/key.h"
#include "support/status.h"

namespace kachel::cache {

// Where an entry lies: the kind, then the digest. Ordered by its bytes, so that a kind is a range.
using Slot = std::array<uint8_t, 1 + sizeof(Digest)>;

inline Slot slot_of(const Key& key) {
  Slot slot;
  slot[0] = static_cast<uint8_t>(key.kind);
  std::memcpy(slot.data() + 1, key.digest.data(), key.digest.size());
  return slot;
}
inline std::string_view bytes_of(const Slot& slot) {
  return {reinterpret_cast<const char*>(slot.data()), slot.size()};
}

struct Row {
  Slot slot;
  std::string record;
  uint64_t used_us;  // since 1970, UTC
};

struct Use {
  Slot slot;
  uint64_t used_us;
  uint64_t bytes;  // of the record
};

class Table {
 public:
  virtual ~Table() = default;

  virtual Result<std::optional<Row>> read(const Slot& slot) = 0;
  // All rows or none, replacing what lies there. `touched` moves the time of use of entries that still exist; it is a
  // hint and may be dropped. Entries that were used longest ago give way where room is short; the result counts them.
  virtual Result<uint64_t> write(std::span<const Row> rows, std::span<const Use> touched) = 0;
  // With `only`, nothing happens unless the record there has just these bytes.
  virtual Status erase(const Slot& slot, const std::string* only) = 0;
  virtual Status clear() = 0;

  // Up to `limit` rows with slots > `after` (from the start if null), ascending.
  virtual Result<std::vector<Row>> scan(const Slot* after, size_t limit) = 0;
  virtual Result<std::vector<Use>> uses() = 0;
  virtual uint64_t largest_record() const = 0;
};

}  // namespace kachel::cache
