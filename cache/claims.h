// Who makes an entry: processes that share a store claim a key before they compile or tune for it, so that one of them
// does and the others find the result.
//
// A claim is an open-file-description lock on one byte of an empty file, the byte that the key's digest names. The
// kernel drops it when its holder dies, it excludes across PID namespaces and between two stores of one process, and
// nothing is left to be cleared away. Two keys at one byte wait for each other in vain, which does no harm.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "cache/checksum.h"
#include "support/status.h"

namespace kachel::cache {

// Thread-safe.
class Claims {
 public:
  // Creates the file (0600). A symbolic link is refused.
  static Result<std::unique_ptr<Claims>> open(const std::string& path);
  ~Claims();
  Claims(const Claims&) = delete;
  Claims& operator=(const Claims&) = delete;

  // False after `wait_us` in which somebody else held it, or once `give_up` (may be empty; asked now and then) says so.
  // Waiting polls, so that a stopped holder cannot hang its peers.
  bool take(const Digest& digest, uint64_t wait_us, const std::function<bool()>& give_up);
  void drop(const Digest& digest);

 private:
  explicit Claims(int descriptor);
  bool try_take(int64_t at);

  const int descriptor_;
  const pid_t owner_;       // in its children the descriptor is closed
  std::mutex mutex_;        // guards held_
  std::set<int64_t> held_;  // by this object: to its own descriptor a lock is no obstacle
};

}  // namespace kachel::cache
