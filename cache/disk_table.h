// The table on disk: a store's files, their locks and their limit on size. One per directory and process (Registry).
#pragma once
#include <sys/types.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "cache/journal.h"
#include "cache/store_file.h"
#include "cache/table.h"

namespace kachel::cache {

struct DiskOptions {
  std::string directory;  // exists, private
  uint64_t limit_bytes;
  uint64_t lock_wait_us;  // how long an operation waits for other processes
  bool read_only;
};

// Within the process one transaction runs at a time; each is short: records are copied out or written, never handled,
// under the lock. After a failure that leaves LMDB unusable every operation fails at once.
class DiskTable : public Table {
 public:
  static Result<std::unique_ptr<DiskTable>> open(const DiskOptions& options);
  // In a child of the process that opened it, the table is abandoned instead: what it holds belongs to the parent.
  ~DiskTable() override;

  Result<std::optional<Row>> read(const Slot& slot) override;
  Result<uint64_t> write(std::span<const Row> rows, std::span<const Use> touched) override;
  Status erase(const Slot& slot, const std::string* only) override;
  Status clear() override;
  Result<std::vector<Row>> scan(const Slot* after, size_t limit) override;
  Result<std::vector<Use>> uses() override;
  uint64_t largest_record() const override;

  // In batches, until at most so much is in use. How many entries have left.
  Result<uint64_t> shrink(uint64_t bytes, std::span<const Use> touched);
  void raise_limit(uint64_t limit_bytes);
  bool read_only() const { return file_->read_only; }
  const std::string& notice() const { return file_->notice; }
  const Journal& journal() const { return journal_; }  // evictions are in it; the rest is whoever's who calls
  int guard_descriptor() const { return file_->guard ? file_->guard->descriptor() : -1; }

 private:
  class Session;
  DiskTable(std::unique_ptr<StoreFile> file, const DiskOptions& options);

  uint64_t soft_limit() const;
  Result<uint64_t> write_touched(std::span<const Use> touched);
  Status settle(const Outcome& outcome);
  Outcome collect_uses(Transaction& transaction, std::vector<Use>* uses);
  Outcome evict(uint64_t enough_bytes, std::span<const Use> touched, uint64_t* evicted);
  Outcome age_free_pages();

  const pid_t owner_;
  const uint64_t lock_wait_us_;
  std::atomic<uint64_t> limit_bytes_;
  const Journal journal_;
  std::mutex mutex_;  // guards all below
  std::unique_ptr<StoreFile> file_;
  std::string failure_;   // why LMDB can no longer be used; or ""
  bool stalled_ = false;  // the last wait for another process was in vain, so the next one does not wait
};

}  // namespace kachel::cache
