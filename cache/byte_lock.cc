#include "cache/byte_lock.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>

namespace kachel::cache {

bool set_byte_lock(int descriptor, int64_t at, ByteLock kind) {
  struct flock lock{};
  lock.l_type = kind == ByteLock::kNone ? F_UNLCK : kind == ByteLock::kShared ? F_RDLCK : F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = at;
  lock.l_len = 1;
  int rc;
  do {
    rc = ::fcntl(descriptor, F_OFD_SETLK, &lock);
  } while (rc != 0 && errno == EINTR);
  return rc == 0;
}

bool retry(uint64_t wait_us, uint64_t first_pause_us, uint64_t last_pause_us, const std::function<bool()>& attempt) {
  using Clock = std::chrono::steady_clock;
  if (attempt()) return true;
  const auto deadline = Clock::now() + std::chrono::microseconds(wait_us);
  for (uint64_t pause_us = first_pause_us; Clock::now() < deadline; pause_us = std::min(pause_us * 2, last_pause_us)) {
    std::this_thread::sleep_for(std::chrono::microseconds(pause_us));
    if (attempt()) return true;
  }
  return false;
}

}  // namespace kachel::cache
