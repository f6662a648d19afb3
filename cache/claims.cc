#include "cache/claims.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "cache/registry.h"

namespace kachel::cache {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kFirstPause_us = 100, kLastPause_us = 5000;

int64_t byte_of(const Digest& digest) {
  uint64_t word;
  std::memcpy(&word, digest.data(), sizeof(word));
  return static_cast<int64_t>(word >> 2);
}

bool set_lock(int descriptor, short type, int64_t at) {
  struct flock lock{};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = at;
  lock.l_len = 1;
  int rc;
  do {
    rc = ::fcntl(descriptor, F_OFD_SETLK, &lock);
  } while (rc != 0 && errno == EINTR);
  return rc == 0;
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
  if (held_.count(at) || !set_lock(descriptor_, F_WRLCK, at)) return false;
  held_.insert(at);
  return true;
}

bool Claims::take(const Digest& digest, uint64_t wait_us, const std::function<bool()>& give_up) {
  const int64_t at = byte_of(digest);
  if (try_take(at)) return true;
  const auto deadline = Clock::now() + std::chrono::microseconds(wait_us);
  for (uint64_t pause_us = kFirstPause_us; Clock::now() < deadline; pause_us = std::min(pause_us * 2, kLastPause_us)) {
    if (give_up && give_up()) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(pause_us));
    if (try_take(at)) return true;
  }
  return false;
}

void Claims::drop(const Digest& digest) {
  const int64_t at = byte_of(digest);
  std::lock_guard lock(mutex_);
  if (held_.erase(at)) set_lock(descriptor_, F_UNLCK, at);
}

}  // namespace kachel::cache
