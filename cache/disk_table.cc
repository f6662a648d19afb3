// Room. LMDB copies what it changes: a transaction needs free pages before it yields any, deletions included, and what
// it frees can be used again two transactions later. A file filled to the last page could therefore not even be
// emptied. So an eighth of the limit is kept back. A write that would reach into it first evicts, in transactions of at
// most 64 entries between which others get their turn; evictions themselves live off the reserve.
//
// Large records need runs of adjacent pages. If free pages abound but no run is long enough, LMDB reports a full map;
// then eviction goes on, with two small transactions after each batch so that its pages come of age.
#include "cache/disk_table.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "cache/eviction.h"

namespace kachel::cache {
namespace {

using Mode = GuardFile::Mode;

constexpr uint64_t kPage_bytes = 4096, kInlineRecord_bytes = 2000, kRowOverhead_bytes = 160,
                   kWriteOverhead_bytes = 16 * kPage_bytes;
constexpr uint64_t kLeastReserve_bytes = 256 << 10, kMostReserve_bytes = 64 << 20, kScan_bytes = 8 << 20,
                   kLargest_bytes = uint64_t{1} << 30;
constexpr int kMostRounds = 1 << 16, kMostFragmentedRounds = 64;

// Slots of kind 0 belong to the table itself. This one is rewritten to age free pages.
constexpr Slot kTurnSlot{};

struct UseValue {
  uint64_t used_us, bytes;
};

std::string_view raw_bytes(const UseValue& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

bool parse(std::string_view key, std::string_view value, Use* use) {
  UseValue raw;
  if (key.size() != sizeof(Slot) || value.size() != sizeof(raw) || key[0] == 0) return false;
  std::memcpy(use->slot.data(), key.data(), key.size());
  std::memcpy(&raw, value.data(), sizeof(raw));
  use->used_us = raw.used_us;
  use->bytes = raw.bytes;
  return true;
}

// What a record takes in the file: pages of its own if large, its share of a page if small.
uint64_t footprint(const Row& row) {
  uint64_t size = row.record.size();
  if (size > kInlineRecord_bytes) size = (size + 16 + kPage_bytes - 1) / kPage_bytes * kPage_bytes;
  return size + kRowOverhead_bytes;
}

Outcome touch(Transaction& transaction, std::span<const Use> touched) {
  for (const Use& use : touched) {
    std::string_view value;
    Use old;
    if (Outcome got = transaction.get(TableId::kUses, bytes_of(use.slot), &value); !got.ok()) return got;
    if (!parse(bytes_of(use.slot), value, &old) || old.used_us >= use.used_us) continue;
    UseValue moved{use.used_us, old.bytes};
    if (Outcome put = transaction.put(TableId::kUses, bytes_of(use.slot), raw_bytes(moved)); !put.ok()) return put;
  }
  return {};
}

Outcome remove(Transaction& transaction, const Slot& slot) {
  if (Outcome out = transaction.erase(TableId::kRecords, bytes_of(slot)); !out.ok()) return out;
  return transaction.erase(TableId::kUses, bytes_of(slot));
}

}  // namespace

// Holds the table's mutex and the guard's transaction lock. REQUIRES: status ok before any use of the database.
class DiskTable::Session {
 public:
  Session(DiskTable& table, Mode mode) : table_(table), lock_(table.mutex_) {
    if (!table.failure_.empty()) {
      status = {Code::kStore, table.failure_};
    } else if (mode == Mode::kExclusive && table.file_->read_only) {
      status = {Code::kStore, "the store on disk is open for reading only"};
    } else if (GuardFile* guard = table.file_->guard.get()) {
      held_ = guard->begin(mode, table.stalled_ ? 0 : table.lock_wait_us_);
      table.stalled_ = !held_;
      if (!held_) status = {Code::kStore, "another process holds the store on disk"};
    }
  }
  ~Session() {
    if (held_) table_.file_->guard->end();
  }
  Status status;

 private:
  DiskTable& table_;
  std::lock_guard<std::mutex> lock_;
  bool held_ = false;
};

Result<std::unique_ptr<DiskTable>> DiskTable::open(const DiskOptions& options) {
  auto file = open_store_file(options.directory, options.limit_bytes, options.read_only);
  if (!file.ok()) return file.status();
  return std::unique_ptr<DiskTable>(new DiskTable(*std::move(file), options));
}

DiskTable::DiskTable(std::unique_ptr<StoreFile> file, const DiskOptions& options)
    : owner_(::getpid()),
      lock_wait_us_(options.lock_wait_us),
      limit_bytes_(options.limit_bytes),
      journal_(options.directory),
      file_(std::move(file)) {}

DiskTable::~DiskTable() {
  if (::getpid() != owner_) {
    // Closing would unmap and unlock what the parent uses, and the guard's descriptor is closed in a child already.
    (void)file_.release();
    return;
  }
  file_->close(failure_.empty());
}

Status DiskTable::settle(const Outcome& outcome) {
  if (outcome.ok()) return {};
  if (outcome.failure == Failure::kDamaged) failure_ = fmt::format("the store on disk is given up: {}", outcome.text());
  return {Code::kStore, outcome.text()};
}

Result<std::optional<Row>> DiskTable::read(const Slot& slot) {
  Session session(*this, Mode::kShared);
  KACHEL_TRY(session.status);
  std::optional<Row> row;
  KACHEL_TRY(settle(file_->database->read([&](Transaction& transaction) {
    std::string_view record, value;
    Outcome out = transaction.get(TableId::kRecords, bytes_of(slot), &record);
    if (!out.ok() || !record.data()) return out;
    row = Row{slot, std::string(record), 0};
    out = transaction.get(TableId::kUses, bytes_of(slot), &value);
    Use use;
    if (out.ok() && parse(bytes_of(slot), value, &use)) row->used_us = use.used_us;
    return out;
  })));
  return row;
}

Result<uint64_t> DiskTable::write(std::span<const Row> rows, std::span<const Use> touched) {
  if (rows.empty()) return write_touched(touched);
  uint64_t need = kWriteOverhead_bytes, evicted = 0;
  for (const Row& row : rows) need += footprint(row);
  if (need > soft_limit()) return {Code::kStore, "more than the store on disk may hold"};
  auto put_all = [&](Transaction& transaction) {
    for (const Row& row : rows) {
      UseValue use{row.used_us, row.record.size()};
      if (Outcome out = transaction.put(TableId::kRecords, bytes_of(row.slot), row.record); !out.ok()) return out;
      if (Outcome out = transaction.put(TableId::kUses, bytes_of(row.slot), raw_bytes(use)); !out.ok()) return out;
    }
    return touch(transaction, touched);
  };
  int fragmented = 0;
  for (int round = 0; round < kMostRounds && fragmented < kMostFragmentedRounds; ++round) {
    Session session(*this, Mode::kExclusive);
    KACHEL_TRY(session.status);
    uint64_t in_use = 0, batch = 0;
    KACHEL_TRY(settle(file_->database->read([&](Transaction& t) { return t.bytes_in_use(&in_use); })));
    uint64_t excess = need;
    if (in_use + need <= soft_limit()) {
      Outcome out = file_->database->write(put_all);
      if (out.ok()) return evicted;
      if (out.failure != Failure::kMapFull) return settle(out);
      ++fragmented;
    } else {
      excess = in_use + need - soft_limit();
    }
    KACHEL_TRY(settle(evict(excess + limit_bytes_ / 16, touched, &batch)));
    if (fragmented > 0) KACHEL_TRY(settle(age_free_pages()));
    if (batch == 0 && fragmented == 0) break;
    evicted += batch;
  }
  return {Code::kStore, "the store on disk is full"};
}

Result<uint64_t> DiskTable::shrink(uint64_t bytes, std::span<const Use> touched) {
  uint64_t evicted = 0;
  for (;;) {
    Session session(*this, Mode::kExclusive);
    KACHEL_TRY(session.status);
    uint64_t in_use = 0, batch = 0;
    KACHEL_TRY(settle(file_->database->read([&](Transaction& t) { return t.bytes_in_use(&in_use); })));
    if (in_use <= bytes) return evicted;
    KACHEL_TRY(settle(evict(in_use - bytes, touched, &batch)));
    KACHEL_TRY(settle(age_free_pages()));
    if (batch == 0) return evicted;
    evicted += batch;
  }
}

// Hints alone are not worth an eviction.
Result<uint64_t> DiskTable::write_touched(std::span<const Use> touched) {
  Session session(*this, Mode::kExclusive);
  KACHEL_TRY(session.status);
  KACHEL_TRY(settle(file_->database->write([&](Transaction& transaction) { return touch(transaction, touched); })));
  return 0;
}

// One batch, fewer if not even the reserve has room for more.
Outcome DiskTable::evict(uint64_t enough_bytes, std::span<const Use> touched, uint64_t* evicted) {
  Outcome out;
  std::vector<Change> changes;
  for (size_t batch = kEvictionBatch; batch > 0; batch /= 4) {
    out = file_->database->write([&](Transaction& transaction) {
      *evicted = 0;
      changes.clear();
      std::vector<Use> uses;
      Outcome step = touch(transaction, touched);
      if (step.ok()) step = collect_uses(transaction, &uses);
      if (!step.ok()) return step;
      for (const Use& use : oldest(std::move(uses), batch, enough_bytes)) {
        if (step = remove(transaction, use.slot); !step.ok()) return step;
        ++*evicted;
        changes.push_back({.what = ChangeKind::kEvicted, .slot = use.slot, .bytes = use.bytes});
      }
      return step;
    });
    if (out.failure != Failure::kMapFull) break;
    if (Outcome aged = age_free_pages(); !aged.ok()) return aged;
  }
  if (out.ok())
    journal_.append(changes);
  else
    *evicted = 0;
  return out;
}

Outcome DiskTable::age_free_pages() {
  for (uint64_t turn = 0; turn < 2; ++turn) {
    UseValue value{turn, 0};
    Outcome out = file_->database->write([&](Transaction& transaction) {
      return transaction.put(TableId::kUses, bytes_of(kTurnSlot), raw_bytes(value));
    });
    if (!out.ok()) return out;
  }
  return {};
}

Status DiskTable::erase(const Slot& slot, const std::string* only) {
  Session session(*this, Mode::kExclusive);
  KACHEL_TRY(session.status);
  return settle(file_->database->write([&](Transaction& transaction) {
    if (only) {
      std::string_view record;
      Outcome out = transaction.get(TableId::kRecords, bytes_of(slot), &record);
      if (!out.ok() || record != *only) return out;
    }
    return remove(transaction, slot);
  }));
}

Status DiskTable::clear() {
  Session session(*this, Mode::kExclusive);
  KACHEL_TRY(session.status);
  Outcome out = file_->database->write([&](Transaction& transaction) {
    Outcome step = transaction.clear(TableId::kRecords);
    return step.ok() ? transaction.clear(TableId::kUses) : step;
  });
  for (uint64_t evicted = 1; out.failure == Failure::kMapFull && evicted > 0;) {
    if (out = evict(~uint64_t{0}, {}, &evicted); out.ok() && evicted > 0) out.failure = Failure::kMapFull;
  }
  return settle(out);
}

Result<std::vector<Row>> DiskTable::scan(const Slot* after, size_t limit) {
  Session session(*this, Mode::kShared);
  KACHEL_TRY(session.status);
  std::vector<Row> rows;
  KACHEL_TRY(settle(file_->database->read([&](Transaction& transaction) {
    rows.clear();
    uint64_t bytes = 0;
    std::string_view from = after ? bytes_of(*after) : std::string_view();
    return transaction.for_each(TableId::kRecords, from, [&](std::string_view key, std::string_view record) {
      if (key.size() != sizeof(Slot) || key == from) return true;
      Row row{{}, std::string(record), 0};
      std::memcpy(row.slot.data(), key.data(), key.size());
      std::string_view value;
      Use use;
      if (transaction.get(TableId::kUses, key, &value).ok() && parse(key, value, &use)) row.used_us = use.used_us;
      rows.push_back(std::move(row));
      bytes += record.size();
      return rows.size() < limit && bytes < kScan_bytes;
    });
  })));
  return rows;
}

Outcome DiskTable::collect_uses(Transaction& transaction, std::vector<Use>* uses) {
  uses->clear();
  return transaction.for_each(TableId::kUses, {}, [&](std::string_view key, std::string_view value) {
    if (Use use; parse(key, value, &use)) uses->push_back(use);
    return true;
  });
}

Result<std::vector<Use>> DiskTable::uses() {
  Session session(*this, Mode::kShared);
  KACHEL_TRY(session.status);
  std::vector<Use> uses;
  KACHEL_TRY(settle(file_->database->read([&](Transaction& transaction) { return collect_uses(transaction, &uses); })));
  return uses;
}

uint64_t DiskTable::soft_limit() const {
  return limit_bytes_ - std::clamp(limit_bytes_ / 8, kLeastReserve_bytes, kMostReserve_bytes);
}

uint64_t DiskTable::largest_record() const {
  return std::min(limit_bytes_ / 4, kLargest_bytes);
}

void DiskTable::raise_limit(uint64_t limit_bytes) {
  std::lock_guard lock(mutex_);
  limit_bytes_ = std::max<uint64_t>(limit_bytes_, limit_bytes);
  file_->database->raise_limit(limit_bytes_);
}

}  // namespace kachel::cache
