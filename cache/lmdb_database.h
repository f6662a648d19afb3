// The one place that speaks to LMDB; its types stay in the .cc. Two tables of fixed names, transactions as callbacks.
//
// LMDB's own locks are off (MDB_NOLOCK): see FORMAT.md, "Locks". REQUIRES of every call: the caller excludes other
// transactions in this process, and holds GuardFile's kTransaction in the matching mode against other processes.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace kachel::cache {

enum class Failure {
  kNone,
  kMapFull,  // the map has reached its limit, or has no run of free pages that is long enough
  kNoSpace,  // the disk or the quota is full, or a write failed; nothing has changed
  kDamaged,  // LMDB found its own structure broken, or could not undo a failed write: do not go on
  kOther,
};

struct Outcome {
  Failure failure = Failure::kNone;
  int error = 0;  // LMDB's or the system's
  bool ok() const { return failure == Failure::kNone; }
  std::string text() const;
};

enum class TableId { kRecords, kUses };

// Valid during the callback that receives it. Views that it hands out point into the map and end with it, or with the
// next change.
class Transaction {
 public:
  // Null data if there is no such key.
  Outcome get(TableId table, std::string_view key, std::string_view* value);
  Outcome put(TableId table, std::string_view key, std::string_view value);
  Outcome erase(TableId table, std::string_view key);
  Outcome clear(TableId table);

  // Ascending from the first key >= `from`; stops when `visit` returns false. `visit` must not change the table.
  using Visit = std::function<bool(std::string_view key, std::string_view value)>;
  Outcome for_each(TableId table, std::string_view from, const Visit& visit);

  // Pages of all trees, times the page size; what is free is not counted.
  Outcome bytes_in_use(uint64_t* bytes);

 private:
  friend class LmdbDatabase;
  struct Impl;
  explicit Transaction(Impl& impl) : impl_(impl) {}
  Impl& impl_;
};

class LmdbDatabase {
 public:
  using Body = std::function<Outcome(Transaction&)>;

  // Creates the tables unless read-only. The map starts small and grows up to `limit_bytes`.
  static Outcome open(const std::string& path, uint64_t limit_bytes, bool read_only,
                      std::unique_ptr<LmdbDatabase>* out);
  ~LmdbDatabase();
  LmdbDatabase(const LmdbDatabase&) = delete;
  LmdbDatabase& operator=(const LmdbDatabase&) = delete;

  Outcome read(const Body& body);
  // Commits if `body` is ok, else changes nothing. `body` runs again after the map has grown.
  Outcome write(const Body& body);

  void raise_limit(uint64_t limit_bytes);

 private:
  struct Impl;
  explicit LmdbDatabase(std::unique_ptr<Impl> impl);
  Outcome run(const Body& body, bool read_only);
  Outcome run_once(const Body& body, bool read_only);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kachel::cache
