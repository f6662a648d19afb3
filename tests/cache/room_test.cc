// Full maps, full disks, growth and who gives way.
#include <doctest/doctest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <thread>

#include "cache/eviction.h"
#include "tests/cache/support.h"

namespace kachel::cache {
namespace {

using namespace testing;

TEST_CASE("the oldest give way, as many as needed, at most a batch") {
  std::vector<Use> uses;
  for (uint8_t i = 0; i < 200; ++i) uses.push_back({{1, i}, uint64_t{1000} - i, 10});
  auto some = oldest(uses, 64, 35);
  REQUIRE(some.size() == 4);
  CHECK(some[0].used_us == 801);
  CHECK(some[3].used_us == 804);
  CHECK(oldest(uses, 64, 1 << 20).size() == 64);
  CHECK(oldest(uses, 64, 0).size() == 1);
  CHECK(oldest({}, 64, 10).empty());
  for (Use& use : uses) use.used_us = 5;
  std::reverse(uses.begin(), uses.end());
  CHECK(oldest(uses, 64, 20)[1].slot[1] == 1);
}

TEST_CASE("a full store evicts and keeps to its limit") {
  Scratch scratch;
  TestLog log;
  StoreOptions options{.path = scratch.store(), .max_bytes = 2 << 20, .log = log.get()};
  {
    auto store = open_store(options);
    for (uint64_t i = 0; i < 150; ++i) {
      const size_t size = 1000 + (i * 7919) % 90000;
      REQUIRE(store->put(number_key(i), payload_of(i, size)).ok());
      REQUIRE(store->get(number_key(i)) == payload_of(i, size));
    }
    StoreStats stats = store->stat();
    CHECK(stats.refused == 0);
    CHECK(stats.evicted + stats.entries == 150);
    CHECK(stats.entries > 15);
  }
  CHECK(std::filesystem::file_size(scratch.data()) <= 2 << 20);
  auto store = open_store(options);
  size_t found = 0;
  for (uint64_t i = 0; i < 150; ++i)
    if (auto payload = store->get(number_key(i))) {
      ++found;
      CHECK((*payload == payload_of(i, 1000 + (i * 7919) % 90000)));
    }
  CHECK(found == store->stat().entries);
  CHECK(store->get(number_key(149)).has_value());
  CHECK(log.count() == 0);
}

TEST_CASE("what is used stays") {
  Scratch scratch;
  auto store = open_store({.path = scratch.store(), .max_bytes = 1 << 20, .touch_after_us = 0});
  for (uint64_t hot = 0; hot < 3; ++hot) CHECK(store->put(number_key(hot), payload_of(hot, 20000)).ok());
  for (uint64_t i = 10; i < 120; ++i) {
    for (uint64_t hot = 0; hot < 3; ++hot) REQUIRE((store->get(number_key(hot)) == payload_of(hot, 20000)));
    REQUIRE(store->put(number_key(i), payload_of(i, 30000)).ok());
  }
  CHECK(store->stat().evicted > 50);
}

TEST_CASE("uses are remembered across a restart") {
  Scratch scratch;
  StoreOptions options{.path = scratch.store(), .max_bytes = 1 << 20, .touch_after_us = 0};
  {
    auto store = open_store(options);
    for (uint64_t i = 0; i < 10; ++i) CHECK(store->put(number_key(i), payload_of(i, 50000)).ok());
  }
  {
    CHECK(open_store(options)->get(number_key(0)).has_value());
  }
  auto store = open_store(options);
  for (uint64_t i = 10; i < 18; ++i) CHECK(store->put(number_key(i), payload_of(i, 50000)).ok());
  CHECK(store->get(number_key(0)).has_value());
  CHECK_FALSE(store->get(number_key(1)).has_value());
}

TEST_CASE("many small entries fill and turn over a store") {
  Scratch scratch;
  auto store = open_store({.path = scratch.store(), .max_bytes = 1 << 20});
  for (uint64_t batch = 0; batch < 12; ++batch) {
    std::vector<Entry> samples;
    for (uint64_t i = 0; i < 400; ++i) samples.push_back({number_key(1000 * batch + i, Kind::kSample), "123456789"});
    REQUIRE(store->put_many(samples).ok());
    REQUIRE(store->get(samples.back().key).has_value());
  }
  CHECK(store->stat().refused == 0);
  CHECK(store->stat().evicted > 0);
  CHECK(store->stat().entries > 1000);
}

TEST_CASE("an entry too large for the disk stays in memory, with one line") {
  Scratch scratch;
  TestLog log;
  auto store = open_store({.path = scratch.store(), .max_bytes = 1 << 20, .log = log.get()});
  for (uint64_t i = 0; i < 3; ++i) CHECK(store->put(number_key(i), payload_of(i, 400000)).ok());
  CHECK((store->get(number_key(2)) == payload_of(2, 400000)));
  CHECK(store->stat().refused == 3);
  CHECK(log.count() == 1);
  // Replaced by one that fits, the disk has it.
  CHECK(store->put(number_key(2), "small").ok());
  CHECK(store->get(number_key(2)) == "small");
  store.reset();
  CHECK(open_store({.path = scratch.store()})->get(number_key(2)) == "small");
}

TEST_CASE("a lowered limit makes room before it takes new entries") {
  Scratch scratch;
  {
    auto store = open_store({.path = scratch.store(), .max_bytes = 8 << 20});
    for (uint64_t i = 0; i < 50; ++i) CHECK(store->put(number_key(i), payload_of(i, 100000)).ok());
  }
  auto store = open_store({.path = scratch.store(), .max_bytes = 1 << 20});
  CHECK((store->get(number_key(49)) == payload_of(49, 100000)));
  CHECK(store->put(number_key(100), payload_of(100, 100000)).ok());
  CHECK(store->stat().refused == 0);
  CHECK(store->stat().bytes < 1 << 20);
  CHECK((store->get(number_key(100)) == payload_of(100, 100000)));
}

// The map of this process starts at 16 MiB; another process takes the file beyond it, then this one grows further.
TEST_CASE("a store grows, under the eyes of another process, too") {
  Scratch scratch(Scratch::kOnDisk);
  StoreOptions options{.path = scratch.store(), .max_bytes = 200 << 20};
  auto store = open_store(options);
  CHECK(store->put(number_key(0), "first").ok());
  CHECK(run_child([&] {
          auto other = Store::open(options);
          std::vector<Entry> entries;
          for (uint64_t i = 1; i <= 24; ++i) entries.push_back({number_key(i), payload_of(i, 1 << 20)});
          return other.ok() && (*other)->put_many(entries).ok() && (*other)->stat().refused == 0 ? 0 : 1;
        }) == 0);
  CHECK((store->get(number_key(24)) == payload_of(24, 1 << 20)));
  std::vector<Entry> entries;
  for (uint64_t i = 30; i < 50; ++i) entries.push_back({number_key(i), payload_of(i, 1 << 20)});
  CHECK(store->put_many(entries).ok());
  CHECK(store->stat().refused == 0);
  CHECK((store->get(number_key(49)) == payload_of(49, 1 << 20)));
  CHECK(store->get(number_key(0)) == "first");
}

// Writes until the disk refuses; every entry must be there for this process, and what reached the disk for the next.
int fill_until_refused(const std::string& path) {
  TestLog log;
  uint64_t last = 0;
  {
    auto store = Store::open({.path = path, .log = log.get()});
    if (!store.ok() || !(*store)->stat().writable) return 1;
    for (; (*store)->stat().refused < 3; ++last) {
      if (last > 500) return 2;
      if (!(*store)->put(number_key(last), payload_of(last, 40000)).ok()) return 3;
    }
    for (uint64_t i = 0; i < last; ++i)
      if ((*store)->get(number_key(i)) != payload_of(i, 40000)) return 4;
  }
  if (log.count() == 0 || log.count() > 3) return 5;
  auto store = Store::open({.path = path});
  if (!store.ok() || !(*store)->stat().durable || (*store)->stat().entries == 0) return 6;
  for (uint64_t i = 0; i < last; ++i)
    if (auto got = (*store)->get(number_key(i)); got && *got != payload_of(i, 40000)) return 7;
  auto names = files_below(path);
  return std::any_of(names.begin(), names.end(), [](auto& n) { return n.find("damaged") != n.npos; }) ? 8 : 0;
}

TEST_CASE("a file that may not grow") {
  Scratch scratch;
  CHECK(run_child([&] {
          ::signal(SIGXFSZ, SIG_IGN);
          struct rlimit limit{};
          limit.rlim_cur = limit.rlim_max = 1 << 20;
          if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 20;
          return fill_until_refused(scratch.store());
        }) == 0);
}

TEST_CASE("a full disk") {
  Scratch scratch;
  std::filesystem::create_directories(scratch.store());
  int result = run_child([&] {
    // A file system of 1 MiB that only this child sees.
    if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return 77;
    if (::mount("tmpfs", scratch.store().c_str(), "tmpfs", 0, "size=1m,mode=0700") != 0) return 77;
    return fill_until_refused(scratch.store());
  });
  if (result == 77) {
    MESSAGE("skipped: this user may not mount");
    return;
  }
  CHECK(result == 0);
}

TEST_CASE("too little address space for the map is no error") {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  Scratch scratch(Scratch::kOnDisk);
  CHECK(run_child([&] {
          auto opened = Store::open({.path = scratch.store(), .max_bytes = 1 << 30});
          if (!opened.ok()) return 1;
          // Room for a map of 32 MiB, not for the next of 64.
          struct rlimit limit{};
          limit.rlim_cur = limit.rlim_max =
              std::stoull(read_file("/proc/self/statm")) * ::getpagesize() + (uint64_t{40} << 20);
          if (::setrlimit(RLIMIT_AS, &limit) != 0) return 2;
          Store& store = **opened;
          for (uint64_t i = 0; i < 40; ++i) {
            if (!store.put(number_key(i), payload_of(i, 1 << 20)).ok()) return 3;
            if (store.get(number_key(i)) != payload_of(i, 1 << 20)) return 4;
          }
          return store.stat().refused > 0 ? 0 : 5;
        }) == 0);
#endif
}

}  // namespace
}  // namespace kachel::cache
