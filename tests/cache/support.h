// What the cache tests share: scratch directories, child processes, a log that can be asked.
#pragma once
#include <sys/types.h>

#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "cache/key.h"
#include "cache/store.h"
#include "support/log.h"

namespace kachel::cache::testing {

// A directory of its own, removed with all it holds. In memory (/dev/shm) unless there is none, since these tests
// commit thousands of times; kOnDisk for much data. $KACHEL_TEST_DIR overrides both.
class Scratch {
 public:
  enum Medium { kAnywhere, kOnDisk };
  explicit Scratch(Medium medium = kAnywhere);
  ~Scratch();
  const std::string& path() const { return path_; }
  std::string store() const { return path_ + "/store"; }
  std::string data() const { return store() + "/store-1/data.mdb"; }

 private:
  std::string path_;
};

// Numbers from one process to another.
struct Pipe {
  Pipe();
  ~Pipe();
  void send(uint64_t value);
  uint64_t receive();
  int ends[2];
};

// Collects messages of level warning and above.
class TestLog {
 public:
  TestLog();
  Log* get() { return &log_; }
  size_t count() const;
  std::string text() const;
  bool says(const std::string& part) const { return text().find(part) != std::string::npos; }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
  Log log_;
};

// Whether a child that is forked while other threads allocate can allocate itself. Not with the address sanitizer,
// whose allocator's locks are copied as they are.
#ifdef __SANITIZE_ADDRESS__
inline constexpr bool kForksBesideThreads = false;
#else
inline constexpr bool kForksBesideThreads = true;
#endif

// Runs `body` in a forked child; the child's exit status is what it returns, never a return into the test.
pid_t start_child(const std::function<int()>& body);
// The exit status, or minus the signal.
int wait_child(pid_t child);
int run_child(const std::function<int()>& body);

std::shared_ptr<Store> open_store(StoreOptions options);

std::shared_ptr<const MacKeys> keys_of(const std::vector<std::string_view>& secrets);
// The body of a record with the checksum that belongs to it.
std::string sealed(std::string body);

Key number_key(uint64_t number, Kind kind = Kind::kPlan);
// Bytes that depend on the number alone, `size` of them.
std::string payload_of(uint64_t number, size_t size);

std::string read_file(const std::string& path);
void write_file(const std::string& path, const std::string& bytes);
std::vector<std::string> files_below(const std::string& directory);

// $KACHEL_CACHE_ROUNDS, a factor for tests that get better with time; 1 if unset.
int rounds_factor();

// A small deterministic generator.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 2654435761u + 88172645463325252ull) {}
  uint64_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    return state_ ^= state_ << 17;
  }
  uint64_t below(uint64_t limit) { return next() % limit; }

 private:
  uint64_t state_;
};

}  // namespace kachel::cache::testing
