#include "cache/guard_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "cache/byte_lock.h"

namespace kachel::cache {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kNote_bytes = 256;
constexpr uint64_t kFirstPause_us = 20, kLastPause_us = 1000;

}  // namespace

Result<std::unique_ptr<GuardFile>> GuardFile::open(const std::string& path, bool read_only) {
  int flags = O_CLOEXEC | O_NOFOLLOW | (read_only ? O_RDONLY : O_RDWR | O_CREAT);
  int descriptor = ::open(path.c_str(), flags, 0600);
  if (descriptor < 0) return {Code::kStore, fmt::format("{}: {}", path, std::strerror(errno))};
  struct stat info;
  std::unique_ptr<GuardFile> guard(new GuardFile(descriptor, read_only));
  if (::fstat(descriptor, &info) != 0 || !S_ISREG(info.st_mode))
    return {Code::kStore, fmt::format("{}: not a regular file", path)};
  return guard;
}

GuardFile::~GuardFile() {
  ::close(descriptor_);
}

bool GuardFile::try_lock(Range range, Mode mode) {
  return set_byte_lock(descriptor_, static_cast<int>(range),
                       mode == Mode::kShared ? ByteLock::kShared : ByteLock::kExclusive);
}

bool GuardFile::lock(Range range, Mode mode, uint64_t wait_us) {
  return retry(wait_us, kFirstPause_us, kLastPause_us, [&] { return try_lock(range, mode); });
}

void GuardFile::unlock(Range range) {
  set_byte_lock(descriptor_, static_cast<int>(range), ByteLock::kNone);
}

bool GuardFile::begin(Mode mode, uint64_t wait_us) {
  if (read_only_) return lock(Range::kTransaction, mode, wait_us);
  const auto start = Clock::now();
  if (!lock(Range::kTurnstile, Mode::kExclusive, wait_us)) return false;
  uint64_t used_us = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start).count();
  bool locked = lock(Range::kTransaction, mode, wait_us - std::min(wait_us, used_us));
  unlock(Range::kTurnstile);
  return locked;
}

std::string GuardFile::read_note() const {
  char buffer[kNote_bytes];
  ssize_t size = ::pread(descriptor_, buffer, sizeof(buffer), 0);
  std::string note(buffer, size > 0 ? size : 0);
  note.resize(note.find_last_not_of('\n') + 1);
  return note;
}

// Written over in place: some file systems flush a file that was cut to nothing and written anew, which takes
// milliseconds.
bool GuardFile::write_note(std::string_view note) {
  if (note.size() > kNote_bytes) return false;
  std::string padded(note);
  padded.resize(kNote_bytes, '\n');
  return ::pwrite(descriptor_, padded.data(), padded.size(), 0) == static_cast<ssize_t>(padded.size());
}

}  // namespace kachel::cache
