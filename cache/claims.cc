#include "cache/claims.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "cache/byte_lock.h"
#include "cache/registry.h"

namespace kachel::cache {
namespace {

constexpr uint64_t kFirstPause_us = 100, kLastPause_us = 5000;

int64_t byte_of(const Digest& digest) {
  uint64_t word;
  std::memcpy(&word, digest.data(), sizeof(word));
  return static_cast<int64_t>(word >> 2);
}

}  // namespace

Result<std::unique_ptr<Claims>> Claims::open(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_CLOEXEC | O_NOFOLLOW | O_RDWR | O_CREAT, 0600);
  if (descriptor < 0) return {Code::kStore, fmt::format("{}: {}", path, std::strerror(errno))};
  std::unique_ptr<Claims> claims(new Claims(descriptor));
  struct stat info;
  if (::fstat(descriptor, &info) != 0 || !S_ISREG(info.st_mode))
    return {Code::kStore, fmt::format("{}: not a regular file", path)};
  return claims;
}

Claims::Claims(int descriptor) : descriptor_(descriptor), owner_(::getpid()) {
  close_in_child(descriptor);
}

Claims::~Claims() {
  if (::getpid() != owner_) return;
  keep_in_child(descriptor_);
  ::close(descriptor_);
}

bool Claims::try_take(int64_t at) {
  std::lock_guard lock(mutex_);
  if (held_.count(at) || !set_byte_lock(descriptor_, at, ByteLock::kExclusive)) return false;
  held_.insert(at);
  return true;
}

bool Claims::take(const Digest& digest, uint64_t wait_us, const std::function<bool()>& give_up) {
  const int64_t at = byte_of(digest);
  bool wanted = true;
  const bool ended = retry(wait_us, kFirstPause_us, kLastPause_us, [&] {
    wanted = !give_up || !give_up();
    return !wanted || try_take(at);
  });
  return ended && wanted;
}

void Claims::drop(const Digest& digest) {
  const int64_t at = byte_of(digest);
  std::lock_guard lock(mutex_);
  if (held_.erase(at)) set_byte_lock(descriptor_, at, ByteLock::kNone);
}

}  // namespace kachel::cache
