// The store: keys to payloads, in memory and, where there is a disk that can be trusted with it, on disk.
//
// A bad disk is never the caller's problem. Whatever is wrong with the path, the file system, the file or an entry, the
// store answers with a miss, keeps new entries in memory and writes one line to the log.
#pragma once
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/claims.h"
#include "cache/disk_table.h"
#include "cache/journal.h"
#include "cache/key.h"
#include "cache/mac.h"
#include "cache/memory_table.h"
#include "cache/record.h"
#include "cache/remote.h"
#include "support/log.h"
#include "support/status.h"

namespace kachel::cache {

struct StoreOptions {
  std::string path;        // a directory, made if missing; "": memory only. See default_store_path()
  uint64_t max_bytes = 0;  // of the data file; 0: 4 GiB; at least 1 MiB
  bool read_only = false;  // change nothing on disk; puts stay in memory
  // Paths of stores that are read where this one has nothing, the first before the next: what a deployment ships. One
  // that cannot be read is left out, with a line in the log.
  std::vector<std::string> layers;
  // Beneath the layers: asked last, given what is put here.
  RemoteOptions remote;
  // What is put carries a MAC then, and what layers and the remote give must have one. Null: neither.
  std::shared_ptr<const MacKeys> mac_keys;
  bool only_authentic = false;  // of a store of strangers: what is in it must have one too
  Log* log = nullptr;           // must outlive the store; null: a log of its own (KACHEL_LOG)

  uint64_t memory_max_bytes = uint64_t{256} << 20;
  uint64_t lock_wait_us = 2'000'000;           // for other processes, before a get misses or a put stays in memory
  uint64_t touch_after_us = 3'600'000'000ull;  // a use is recorded if the last recorded one is older
  std::string local_root = "/var/tmp";         // stands in for paths on shared file systems; "": memory only there
  uint64_t assume_filesystem = 0;              // statfs magic to go by; 0 asks the system
};

struct KindTotals {
  uint64_t entries = 0, bytes = 0;
};

struct StoreStats {
  std::string location;   // the private directory on disk, or "memory"
  bool durable = false;   // served from disk
  bool writable = false;  // and puts reach it
  uint64_t max_bytes = 0;
  std::map<Kind, KindTotals> kinds;
  uint64_t entries = 0, bytes = 0;          // of all kinds, memory included
  uint64_t hits = 0, misses = 0, puts = 0;  // of this store object
  uint64_t layer_hits = 0;                  // those of the hits that a layer served
  uint64_t damaged = 0;                     // entries found damaged, and removed where possible
  uint64_t foreign = 0;                     // entries of another key under the same digest
  uint64_t refused = 0;                     // puts that the disk did not take; they stay in memory where they fit
  uint64_t evicted = 0;
  uint64_t refused_macs = 0;  // entries from elsewhere without a valid MAC, layers' included
  RemoteStats remote;         // hits are among the hits, misses among the misses
};

struct Entry {
  Key key;
  std::string payload;
  Label label = {};  // for the journal, which calls this:
  ChangeKind what = ChangeKind::kStored;
};

// Views, valid during the callback.
struct EntryView {
  Kind kind;
  std::string_view key;  // canonical bytes; see parse_key, describe_key
  std::string_view payload;
  uint64_t created_us, used_us;
};

// What verify() has seen.
struct Verified {
  uint64_t entries = 0;  // sound ones
  uint64_t damaged = 0;  // removed, where that may be done
};

// Thread-safe. After fork() the child's copy serves nothing (every get misses, every put fails) and may only be
// destroyed; the child may open a store of its own. Two stores of one path, in one process or several, share their
// entries.
class Store {
 public:
  // Fails for mistakes of the caller only, never for what it finds on disk.
  static Result<std::shared_ptr<Store>> open(StoreOptions options);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  std::optional<std::string> get(const Key& key);
  // Without the remote: for questions that are not worth waiting for it.
  std::optional<std::string> get_here(const Key& key);

  // Replaces what was there. Ok means that later gets of this process find it; stat() tells what the disk refused. The
  // remote is given it later, on a thread of its own.
  Status put(const Key& key, std::string_view payload, const Label& label = {});
  // In one transaction: after a crash all of them are there or none.
  Status put_many(std::span<const Entry> entries);
  // Until the remote has what was put, or has failed to take it; false after `timeout_us`.
  bool flush(uint64_t timeout_us);

  // The right to make the entry, among all processes and stores that share the path.
  class Claim {
   public:
    Claim() = default;
    Claim(Claim&& other) noexcept { *this = std::move(other); }
    Claim& operator=(Claim&& other) noexcept {
      std::swap(store_, other.store_), std::swap(digest_, other.digest_), std::swap(waited_, other.waited_);
      return *this;
    }
    ~Claim();
    // Somebody else held it meanwhile, or holds it still: look again.
    bool waited() const { return waited_; }

   private:
    friend class Store;
    Store* store_ = nullptr;  // null: nothing is held
    Digest digest_{};
    bool waited_ = false;
  };
  // Waits at most `wait_us` for another one's claim, or until `give_up` (may be empty) says so; goes on without one
  // then, and where the store is in memory or for reading only. REQUIRES: the store outlives the claim.
  Claim claim(const Key& key, uint64_t wait_us, const std::function<bool()>& give_up = {});

  Status erase(const Key& key);
  Status clear();
  // Entries that were used longest ago leave, in batches, until the data take at most `bytes`. How many have left.
  Result<uint64_t> shrink(uint64_t bytes);
  // Reads every entry, without layers.
  Result<Verified> verify();

  // Every sound entry of the kind, or of all kinds, those of layers last and not if they are in the store as well; ends
  // when the callback returns false. The callback may use the store. Entries that come or go meanwhile may be seen or
  // not.
  using Callback = std::function<bool(const EntryView&)>;
  Status iterate(std::optional<Kind> kind, const Callback& callback);

  // What has become of what is on disk, this store's own, by whichever process; nothing in memory.
  Journal::Contents journal();

  StoreStats stat();
  void count_refused_macs(uint64_t more) { refused_macs_ += more; }  // seen on the way here

 private:
  static constexpr size_t kMostTouched = 4096;
  static uint64_t now_us();

  explicit Store(StoreOptions options);
  void open_disk();
  void open_layers();
  void open_remote();
  Status iterate_own(std::optional<Kind> kind, const Callback& callback, std::set<Slot>* shown, bool* ended);
  bool here();
  std::optional<std::string> find_here(const Key& key);
  std::optional<std::string> fetch(const Key& key);
  bool admits(const Record& record);
  Status publish(std::vector<Row> rows, std::span<const Change> changes);
  std::optional<std::string> look_up(Table& table, const Slot& slot, const Key& key);
  Result<Record> examine(Table& table, const Row& row);
  Status write_rows(std::span<const Row> rows, std::span<const Change> changes);
  void note(const Change& change);
  std::vector<Use> take_touched(size_t most);
  void say(EventKind kind, const std::string& message, std::vector<EventField> fields = {});
  void say_once(const std::string& topic, EventKind kind, const std::string& message, const std::string& key = {});
  void tell_evicted(uint64_t entries);

  const StoreOptions options_;
  const pid_t owner_;
  Log own_log_;
  Log& log_;
  std::string location_ = "memory";
  MemoryTable memory_;
  std::shared_ptr<DiskTable> disk_;  // or null
  std::unique_ptr<Claims> claims_;   // or null
  std::vector<std::shared_ptr<Store>> layers_;
  std::unique_ptr<Remote> remote_;  // or null
  std::mutex touched_mutex_;
  std::map<Slot, uint64_t> touched_;  // time of use in us, not yet written
  std::atomic<uint64_t> hits_{0}, layer_hits_{0}, misses_{0}, puts_{0}, damaged_{0}, foreign_{0}, refused_{0},
      evicted_{0}, refused_macs_{0};
};

}  // namespace kachel::cache
