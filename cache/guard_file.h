// The guard file beside the data file: who uses the store, who reads or writes it now, and whether it was closed
// cleanly.
//
// Locks are open-file-description locks (fcntl F_OFD_SETLK). They belong to the open file, not to a process id or a
// thread: the kernel drops them when the holder dies, they exclude across PID namespaces, two copies of this library in
// one process exclude each other, and a second open and close of the file by anybody drops nothing.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "support/status.h"

namespace kachel::cache {

class GuardFile {
 public:
  enum class Range {
    kUsage = 0,        // shared while the store is open; exclusive to repair it or to note a clean close
    kTransaction = 1,  // shared for the length of a read, exclusive for the length of a write
    kTurnstile = 2,    // passed through on the way to kTransaction, so that nobody is overtaken for ever
  };
  enum class Mode { kShared, kExclusive };

  // Creates the file (0600) unless `read_only`. A symbolic link is refused.
  static Result<std::unique_ptr<GuardFile>> open(const std::string& path, bool read_only);
  ~GuardFile();
  GuardFile(const GuardFile&) = delete;
  GuardFile& operator=(const GuardFile&) = delete;

  // Not thread-safe per object: callers serialise. Waiting polls, so that a stopped holder cannot hang its peers.
  // Changing the mode of a lock that is held is atomic. A read-only guard can only share.
  bool try_lock(Range range, Mode mode);
  bool lock(Range range, Mode mode, uint64_t wait_us);
  void unlock(Range range);

  // kTransaction by way of the turnstile.
  bool begin(Mode mode, uint64_t wait_us);
  void end() { unlock(Range::kTransaction); }

  // The text that the last owner left, without newlines at its end; "" if unreadable. At most 256 bytes. REQUIRES for
  // write_note: kUsage held exclusively.
  std::string read_note() const;
  bool write_note(std::string_view note);

  int descriptor() const { return descriptor_; }

 private:
  GuardFile(int descriptor, bool read_only) : descriptor_(descriptor), read_only_(read_only) {}
  const int descriptor_;
  const bool read_only_;
};

}  // namespace kachel::cache
