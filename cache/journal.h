// What has become of a store on disk: a text file beside the data, to which whoever changes the store appends.
//
// A change is a line, and what is written at once is one append, which the system keeps in one piece: so that processes
// need no lock, and no line is synced, since what a power cut takes is history alone. A line that is torn or damaged is
// left out by readers. A file that has reached its limit becomes `journal.old`, in place of the one before. The path is
// opened for each append: nothing is held, by a child of fork() either. FORMAT.md has the bytes.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/table.h"
#include "support/status.h"

namespace kachel::cache {

// Names for people, of whoever makes an entry.
struct Label {
  std::string kernel, description;
};

enum class ChangeKind {
  kStored = 0,
  kFetched,   // from the remote
  kImported,  // from another store, or a text
  kDemoted,   // the sample of a configuration whose launch failed
  kBarred,    // that of one which crashed or timed out
  kReplaced,  // a decision, after a drift check
  kEvicted,   // for want of room
  kRemoved,
  kCleared,   // everything
  kDamaged,   // and removed
  kSetAside,  // the data file, since it was damaged
  kCount,
};
std::string_view change_name(ChangeKind kind);  // "stored", ...

struct Change {
  ChangeKind what = ChangeKind::kStored;
  Slot slot{};  // zero: not of one entry
  uint64_t bytes = 0;
  Label label;
  // Set by append().
  uint64_t unix_us = 0;
  int64_t pid = 0;
  std::string host, version;
};

// Stateless, hence thread-safe, and between processes too.
class Journal {
 public:
  static constexpr uint64_t kMost_bytes = uint64_t{1} << 20;  // of each of two files

  explicit Journal(std::string directory, uint64_t most_bytes = kMost_bytes)
      : path_(std::move(directory) + "/journal"), most_bytes_(most_bytes) {}

  // What cannot be written is not: history is worth no failure.
  void append(std::span<const Change> changes) const;

  struct Contents {
    std::vector<Change> changes;  // oldest first; labels that only another line about the entry has are filled in
    uint64_t damaged = 0;         // lines left out
  };
  Contents read() const;

 private:
  int open_to_append() const;

  const std::string path_;
  const uint64_t most_bytes_;
};

}  // namespace kachel::cache
