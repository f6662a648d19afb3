// Opening, step by step:
//
//   1. Take the guard's usage lock. Exclusively, if nobody has the store open: then we may repair. Else shared, waiting
//   for
//      whoever is just repairing.
//   2. Take the transaction lock, so that no writer moves pages under the check.
//   3. Check the data file with reads. A walk of its whole structure is due unless the last user closed it cleanly: the
//      note in the guard file names this boot of the machine, the file's inode, length and time of change. A killed
//      process leaves no such note, a power cut changes the boot, a copy or an editor changes the rest. Where others
//      have the store open, the first of them has walked it.
//   4. A bad file is renamed, if we are alone and may write; else there is no store on disk for this process.
//   5. Only now does LMDB see the file.
//
// At close the last user stamps the file with a time of its own choice and notes it. The kernel's time stamps come from
// a clock that ticks every few milliseconds, so a change right after the note could otherwise leave the stamp as it
// was.
#include "cache/store_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <thread>

#include "cache/file_check.h"
#include "cache/journal.h"

namespace kachel::cache {
namespace {

using Range = GuardFile::Range;
using Mode = GuardFile::Mode;

constexpr uint64_t kOpenWait_us = 5'000'000, kOpenTurn_us = 500;
constexpr int kMostSetAside = 4, kOpenTries = 5;
constexpr const char* kInUse = "kachel store 1\nin use";

std::string boot_id() {
  char buffer[64];
  int descriptor = ::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return {};
  ssize_t size = ::read(descriptor, buffer, sizeof(buffer));
  ::close(descriptor);
  while (size > 0 && buffer[size - 1] == '\n') --size;
  return size > 0 ? std::string(buffer, size) : std::string();
}

// What the note reads if the file is as it was left; "" if that cannot be known.
std::string clean_note(int descriptor) {
  const std::string boot = boot_id();
  struct stat info;
  if (boot.empty() || ::fstat(descriptor, &info) != 0) return {};
  return fmt::format("kachel store 1\nclean boot={} inode={} bytes={} changed={}.{:09}", boot, info.st_ino,
                     info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
}

// Renames the bad file; the oldest of those that were set aside before makes room.
bool set_aside(const std::string& data_path, std::string* target) {
  std::string candidate;
  struct timespec oldest{};
  for (int n = 1; n <= kMostSetAside; ++n) {
    std::string name = fmt::format("{}.damaged-{}", data_path, n);
    struct stat info;
    if (::lstat(name.c_str(), &info) != 0) {
      candidate = name;
      break;
    }
    if (n == 1 || info.st_mtim.tv_sec < oldest.tv_sec ||
        (info.st_mtim.tv_sec == oldest.tv_sec && info.st_mtim.tv_nsec < oldest.tv_nsec)) {
      candidate = name;
      oldest = info.st_mtim;
    }
  }
  *target = candidate;
  return ::rename(data_path.c_str(), candidate.c_str()) == 0;
}

class Opener {
 public:
  Opener(const std::string& directory, uint64_t limit_bytes, bool read_only)
      : directory_(directory), limit_bytes_(limit_bytes), file_(std::make_unique<StoreFile>()) {
    file_->read_only = read_only;
    file_->data_path = directory + "/data.mdb";
  }

  Result<std::unique_ptr<StoreFile>> open() {
    KACHEL_TRY(open_guard());
    KACHEL_TRY(lock());
    KACHEL_TRY(open_data());
    KACHEL_TRY(check());
    KACHEL_TRY(open_database());
    if (file_->guard) {
      if (alone_ && !file_->read_only) file_->guard->write_note(kInUse);
      if (alone_) file_->guard->try_lock(Range::kUsage, Mode::kShared);
      file_->guard->end();
    }
    return std::move(file_);
  }

 private:
  static Status failed(std::string why) { return {Code::kStore, std::move(why)}; }

  Status open_guard() {
    const std::string path = directory_ + "/guard";
    auto guard = GuardFile::open(path, file_->read_only);
    if (!guard.ok() && !file_->read_only) {
      file_->read_only = true;
      file_->notice = guard.status().message();
      guard = GuardFile::open(path, true);
    }
    if (guard.ok()) {
      file_->guard = *std::move(guard);
      return {};
    }
    // A writer makes the guard before anything else, so where there is none, nobody writes.
    struct stat info;
    return ::lstat(path.c_str(), &info) != 0 && errno == ENOENT ? Status() : guard.status();
  }

  Status lock() {
    GuardFile* guard = file_->guard.get();
    if (!guard) return {};
    if (!lock_usage()) return failed(fmt::format("{} is being opened by another process for too long", directory_));
    if (!guard->begin(file_->read_only ? Mode::kShared : Mode::kExclusive, kOpenWait_us))
      return failed(fmt::format("{} is being written by another process for too long", directory_));
    return {};
  }

  // Exclusively if possible, tried anew at each turn: whoever was just opening the store may have been killed at it.
  bool lock_usage() {
    GuardFile* guard = file_->guard.get();
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::microseconds(kOpenWait_us);
    do {
      alone_ = !file_->read_only && guard->try_lock(Range::kUsage, Mode::kExclusive);
      if (alone_) return true;
      if (guard->lock(Range::kUsage, Mode::kShared, kOpenTurn_us)) {
        alone_ = !file_->read_only && guard->try_lock(Range::kUsage, Mode::kExclusive);
        return true;
      }
    } while (std::chrono::steady_clock::now() < deadline);
    return false;
  }

  Status open_data() {
    constexpr int kFlags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    const char* path = file_->data_path.c_str();
    if (!file_->read_only) {
      file_->descriptor = ::open(path, O_RDWR | O_CREAT | kFlags, 0600);
      if (file_->descriptor < 0 && (errno == EACCES || errno == EROFS || errno == EPERM)) {
        file_->read_only = true;
        file_->notice = fmt::format("{}: {}", path, std::strerror(errno));
      }
    }
    if (file_->read_only) file_->descriptor = ::open(path, O_RDONLY | kFlags);
    if (file_->descriptor >= 0) return {};
    return failed(fmt::format("{}: {}", path, std::strerror(errno)));
  }

  Status check() {
    struct stat info;
    if (::fstat(file_->descriptor, &info) == 0 && info.st_uid != ::geteuid() && info.st_uid != 0)
      return failed(fmt::format("{} belongs to user {}", file_->data_path, info.st_uid));
    bool walked = false;
    if (file_->guard) {
      const std::string note = file_->guard->read_note(), clean = clean_note(file_->descriptor);
      walked = !clean.empty() && note == clean;
      // A reader cannot tell a store in use from one whose last user was killed, so it walks.
      if (!alone_ && !file_->read_only) walked = true;
    }
    std::string problem = check_data_file(file_->descriptor, walked ? CheckDepth::kMeta : CheckDepth::kTree);
    if (problem.empty() && file_->read_only && ::fstat(file_->descriptor, &info) == 0 && info.st_size == 0)
      return failed(fmt::format("{} is empty", file_->data_path));
    return problem.empty() ? Status() : replace(problem);
  }

  // The file is bad: begins a fresh one.
  Status replace(const std::string& problem) {
    if (!alone_ || file_->read_only) return failed(fmt::format("{} is damaged: {}", file_->data_path, problem));
    std::string target;
    if (!set_aside(file_->data_path, &target))
      return failed(fmt::format("{} is damaged: {}; it cannot be set aside: {}", file_->data_path, problem,
                                std::strerror(errno)));
    file_->notice =
        fmt::format("{} was damaged ({}) and lies now in {}; a fresh one was begun", file_->data_path, problem, target);
    const Change change{.what = ChangeKind::kSetAside, .label = {{}, problem + "; lies now in " + target}};
    Journal(directory_).append({&change, 1});
    ::close(file_->descriptor);
    file_->descriptor = -1;
    return open_data();
  }

  Status open_database() {
    Outcome outcome;
    bool replaced = false;
    for (int attempt = 0; attempt < kOpenTries; ++attempt) {
      outcome = LmdbDatabase::open(file_->data_path, limit_bytes_, file_->read_only, &file_->database);
      if (outcome.ok()) return {};
      if (outcome.failure == Failure::kDamaged && !replaced) {
        replaced = true;
        KACHEL_TRY(replace(outcome.text()));
      } else if (outcome.error != EINVAL && outcome.error != EAGAIN && outcome.error != EINTR) {
        break;
      } else {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    }
    return failed(fmt::format("{}: {}", file_->data_path, outcome.text()));
  }

  const std::string directory_;
  const uint64_t limit_bytes_;
  std::unique_ptr<StoreFile> file_;
  bool alone_ = false;
};

}  // namespace

StoreFile::~StoreFile() {
  close(false);
}

void StoreFile::close(bool clean) {
  database.reset();
  if (guard && clean && !read_only && descriptor >= 0) {
    // Let go first: of two that close at once, one then finds itself alone.
    guard->unlock(Range::kUsage);
    if (guard->try_lock(Range::kUsage, Mode::kExclusive)) {
      struct timespec times[2] = {{0, UTIME_OMIT}, {}};
      ::clock_gettime(CLOCK_REALTIME, &times[1]);
      if (::futimens(descriptor, times) == 0) guard->write_note(clean_note(descriptor));
    }
  }
  guard.reset();
  if (descriptor >= 0) ::close(descriptor);
  descriptor = -1;
}

Result<std::unique_ptr<StoreFile>> open_store_file(const std::string& directory, uint64_t limit_bytes, bool read_only) {
  return Opener(directory, limit_bytes, read_only).open();
}

}  // namespace kachel::cache
