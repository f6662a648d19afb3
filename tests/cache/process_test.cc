// Several processes, dead processes, stopped processes, forked processes.
#include <doctest/doctest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>

#include "cache/guard_file.h"
#include "tests/cache/support.h"

namespace kachel::cache {
namespace {

using namespace testing;
using Milliseconds = std::chrono::milliseconds;

size_t size_of(uint64_t number) {
  return number % 3 == 0 ? 20000 : 300;
}
std::string payload(uint64_t number) {
  return payload_of(number, size_of(number));
}

bool nothing_set_aside(const Scratch& scratch) {
  for (const std::string& name : files_below(scratch.store()))
    if (name.find("damaged") != std::string::npos) return false;
  return true;
}

TEST_CASE("two processes write at once and read each other's entries") {
  Scratch scratch;
  constexpr uint64_t kEach = 60;
  auto work = [&](uint64_t mine, uint64_t theirs) {
    auto opened = Store::open({.path = scratch.store()});
    if (!opened.ok()) return 1;
    Store& store = **opened;
    for (uint64_t i = 0; i < kEach; ++i)
      if (!store.put(number_key(mine + i), payload(mine + i)).ok()) return 2;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    for (uint64_t i = 0; i < kEach;) {
      auto got = store.get(number_key(theirs + i));
      if (got && *got != payload(theirs + i)) return 3;
      if (got) ++i;
      if (std::chrono::steady_clock::now() > deadline) return 4;
    }
    return store.stat().refused == 0 ? 0 : 5;
  };
  pid_t a = start_child([&] { return work(0, 1000); }), b = start_child([&] { return work(1000, 0); });
  CHECK(wait_child(a) == 0);
  CHECK(wait_child(b) == 0);
  CHECK(open_store({.path = scratch.store()})->stat().entries == 2 * kEach);
}

TEST_CASE("many processes open an empty store at once") {
  for (int round = 0; round < 3; ++round) {
    Scratch scratch;
    Pipe gate;
    std::vector<pid_t> children;
    for (uint64_t c = 0; c < 16; ++c)
      children.push_back(start_child([&, c] {
        ::close(gate.ends[1]);
        char byte;
        if (::read(gate.ends[0], &byte, 1) != 0) return 1;  // until the parent lets go
        auto store = Store::open({.path = scratch.store()});
        if (!store.ok() || !(*store)->stat().writable) return 2;
        if (!(*store)->put(number_key(c), payload(c)).ok()) return 3;
        if ((*store)->get(number_key(c)) != payload(c)) return 4;
        return (*store)->stat().refused == 0 ? 0 : 5;
      }));
    ::close(gate.ends[1]);
    gate.ends[1] = -1;
    for (pid_t child : children) CHECK(wait_child(child) == 0);
    CHECK(open_store({.path = scratch.store()})->stat().entries == 16);
    CHECK(nothing_set_aside(scratch));
  }
}

TEST_CASE("a writer killed at any time loses at most the entry it was at [rounds]") {
  Scratch scratch(Scratch::kOnDisk);
  Random random(23);
  uint64_t next = 0;
  for (int round = 0; round < 30 * rounds_factor(); ++round) {
    CAPTURE(round);
    Pipe done;
    pid_t child = start_child([&] {
      auto store = Store::open({.path = scratch.store(), .max_bytes = 4 << 20});
      if (!store.ok() || !(*store)->stat().writable) return 1;
      for (uint64_t i = next;; ++i) {
        if (!(*store)->put(number_key(i), payload(i)).ok()) return 2;
        if ((*store)->stat().refused > 0) return 3;
        done.send(i);
      }
    });
    uint64_t last = done.receive();
    std::this_thread::sleep_for(std::chrono::microseconds(random.below(12000)));
    ::kill(child, SIGKILL);
    REQUIRE(wait_child(child) == -SIGKILL);
    ::close(done.ends[1]);
    done.ends[1] = -1;
    for (uint64_t value; ::read(done.ends[0], &value, sizeof(value)) == sizeof(value);) last = value;
    TestLog log;
    auto store = open_store({.path = scratch.store(), .max_bytes = 4 << 20, .log = log.get()});
    REQUIRE(store->stat().writable);
    CHECK(log.text() == "");
    for (uint64_t i = next; i <= last; ++i) REQUIRE((store->get(number_key(i)) == payload(i)));
    if (auto torn = store->get(number_key(last + 1))) REQUIRE((*torn == payload(last + 1)));
    next = last + 2;
  }
  CHECK(nothing_set_aside(scratch));
}

TEST_CASE("others go on when a process dies within its transaction") {
  Scratch scratch;
  auto store = open_store({.path = scratch.store(), .lock_wait_us = 2'000'000});
  CHECK(store->put(number_key(1), "one").ok());
  Pipe held;
  pid_t child = start_child([&] {
    auto guard = GuardFile::open(scratch.store() + "/store-1/guard", false);
    if (!guard.ok() || !(*guard)->begin(GuardFile::Mode::kExclusive, 1'000'000)) return 1;
    held.send(1);
    ::pause();
    return 0;
  });
  held.receive();
  std::thread killer([&] {
    std::this_thread::sleep_for(Milliseconds(50));
    ::kill(child, SIGKILL);
  });
  CHECK(store->get(number_key(1)) == "one");
  killer.join();
  CHECK(wait_child(child) == -SIGKILL);
  CHECK(store->put(number_key(2), "two").ok());
  CHECK(store->stat().refused == 0);
}

TEST_CASE("a process that stops within its transaction delays others once, not for ever") {
  Scratch scratch;
  TestLog log;
  auto store = open_store({.path = scratch.store(), .log = log.get(), .lock_wait_us = 50'000});
  CHECK(store->put(number_key(1), "one").ok());
  Pipe held;
  pid_t child = start_child([&] {
    auto guard = GuardFile::open(scratch.store() + "/store-1/guard", false);
    if (!guard.ok() || !(*guard)->begin(GuardFile::Mode::kExclusive, 1'000'000)) return 1;
    held.send(1);
    ::pause();
    return 0;
  });
  held.receive();
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 100; ++i) CHECK_FALSE(store->get(number_key(1)).has_value());
  CHECK(store->put(number_key(2), "two").ok());
  CHECK(store->get(number_key(2)) == "two");
  CHECK(std::chrono::steady_clock::now() - start < Milliseconds(1500));
  CHECK(store->stat().refused == 1);
  CHECK(log.says("another process holds"));
  ::kill(child, SIGKILL);
  wait_child(child);
  CHECK(store->get(number_key(1)) == "one");
  CHECK(store->put(number_key(3), "three").ok());
  CHECK(store->stat().refused == 1);
}

TEST_CASE("a store does not cross a fork; a new one does") {
  Scratch scratch;
  TestLog log;
  auto store = open_store({.path = scratch.store(), .log = log.get()});
  CHECK(store->put(number_key(1), "one").ok());
  CHECK(run_child([&] {
          if (store->get(number_key(1)) || store->get(number_key(1))) return 1;
          if (store->put(number_key(2), "x").ok() || store->clear().ok() || store->erase(number_key(1)).ok()) return 2;
          if (store->iterate(std::nullopt, [](const EntryView&) { return true; }).ok()) return 3;
          if (log.count() != 1 || !log.says("child")) return 4;
          auto mine = Store::open({.path = scratch.store()});
          if (!mine.ok() || (*mine)->get(number_key(1)) != "one") return 5;
          store.reset();  // must neither unlock nor unmap what the parent uses
          if (!(*mine)->put(number_key(3), "three").ok() || !(*mine)->stat().writable) return 6;
          return 0;
        }) == 0);
  CHECK(store->get(number_key(3)) == "three");
  CHECK(store->put(number_key(4), "four").ok());
  CHECK(store->get(number_key(1)) == "one");
  CHECK(store->stat().refused == 0);
}

TEST_CASE("a child forked in the middle of a write holds no lock" * doctest::skip(!kForksBesideThreads)) {
  Scratch scratch;
  auto store = open_store({.path = scratch.store()});
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::thread writer([&] {
    for (uint64_t i = 0; !stop; ++i)
      if (!store->put(number_key(i % 50), payload(i % 50)).ok()) ++wrong;
  });
  std::vector<pid_t> children;
  for (uint64_t c = 0; c < 10; ++c) {
    std::this_thread::sleep_for(Milliseconds(3));
    children.push_back(start_child([&, c] {
      if (store->get(number_key(0))) return 1;
      auto mine = Store::open({.path = scratch.store(), .lock_wait_us = 10'000'000});
      if (!mine.ok() || !(*mine)->stat().writable) return 2;
      if (!(*mine)->put(number_key(1000 + c), payload(1000 + c)).ok()) return 3;
      std::this_thread::sleep_for(Milliseconds(60));
      return (*mine)->get(number_key(1000 + c)) == payload(1000 + c) ? 0 : 4;
    }));
  }
  std::this_thread::sleep_for(Milliseconds(20));
  stop = true;
  writer.join();
  for (pid_t child : children) CHECK(wait_child(child) == 0);
  CHECK(wrong == 0);
  CHECK(store->stat().refused == 0);
  for (uint64_t c = 0; c < 10; ++c) CHECK((store->get(number_key(1000 + c)) == payload(1000 + c)));
}

// The parent dies within a transaction while its child lives on, with copies of all its descriptors.
TEST_CASE("a child does not inherit the locks of a parent that dies") {
  Scratch scratch;
  {
    CHECK(open_store({.path = scratch.store()})->put(number_key(1), "one").ok());
  }
  Pipe ready;
  pid_t parent = start_child([&] {
    auto store = Store::open({.path = scratch.store()});
    if (!store.ok()) return 1;
    std::thread writer([&] {
      for (uint64_t i = 0;; ++i) (void)(*store)->put(number_key(i), payload(i));
    });
    std::this_thread::sleep_for(Milliseconds(30));
    pid_t grandchild = ::fork();
    if (grandchild == 0) {
      ready.send(static_cast<uint64_t>(::getpid()));  // by now its handlers of fork() have run
      std::this_thread::sleep_for(std::chrono::seconds(20));
      ::_exit(0);
    }
    ::pause();
    return 0;
  });
  pid_t grandchild = static_cast<pid_t>(ready.receive());
  ::kill(parent, SIGKILL);
  CHECK(wait_child(parent) == -SIGKILL);
  auto store = open_store({.path = scratch.store(), .lock_wait_us = 3'000'000});
  CHECK(store->put(number_key(2), "two").ok());
  CHECK(store->stat().writable);
  CHECK(store->stat().refused == 0);
  store.reset();
  // Nobody else holds the store open, so that the close counts as clean.
  CHECK(read_file(scratch.store() + "/store-1/guard").find("clean") != std::string::npos);
  ::kill(grandchild, SIGKILL);
}

// Containers that share a volume: equal process ids, locks that must exclude all the same.
TEST_CASE("processes of different pid namespaces share a store") {
  Scratch scratch;
  Pipe gate;
  auto contained = [&](uint64_t base) {
    return start_child([&, base] {
      ::close(gate.ends[1]);
      if (::unshare(CLONE_NEWPID) != 0) return 77;
      return run_child([&] {
        if (::getpid() != 1) return 1;
        char byte;
        if (::read(gate.ends[0], &byte, 1) != 0) return 2;
        auto store = Store::open({.path = scratch.store()});
        if (!store.ok()) return 3;
        for (uint64_t i = 0; i < 30; ++i) {
          if (!(*store)->put(number_key(base + i), payload(base + i)).ok()) return 4;
          if ((*store)->get(number_key(base + i)) != payload(base + i)) return 5;
        }
        return (*store)->stat().refused == 0 ? 0 : 6;
      });
    });
  };
  pid_t a = contained(0), b = contained(100);
  ::close(gate.ends[1]);
  gate.ends[1] = -1;
  int first = wait_child(a), second = wait_child(b);
  if (first == 77) {
    MESSAGE("skipped: this user may not make namespaces");
    return;
  }
  CHECK(first == 0);
  CHECK(second == 0);
  auto store = open_store({.path = scratch.store()});
  for (uint64_t i = 0; i < 30; ++i) {
    CHECK((store->get(number_key(i)) == payload(i)));
    CHECK((store->get(number_key(100 + i)) == payload(100 + i)));
  }
  CHECK(nothing_set_aside(scratch));
}

TEST_CASE("batches are all there or not at all, whatever kills the writer [rounds]") {
  Scratch scratch(Scratch::kOnDisk);
  Random random(31);
  for (int round = 0; round < 8 * rounds_factor(); ++round) {
    const uint64_t base = 10000 * static_cast<uint64_t>(round);
    pid_t child = start_child([&] {
      auto store = Store::open({.path = scratch.store()});
      for (uint64_t batch = 0;; ++batch) {
        std::vector<Entry> entries;
        for (uint64_t i = 0; i < 10; ++i) entries.push_back({number_key(base + batch * 10 + i), payload(i)});
        if (!(*store)->put_many(entries).ok()) return 1;
      }
    });
    std::this_thread::sleep_for(std::chrono::microseconds(5000 + random.below(15000)));
    ::kill(child, SIGKILL);
    CHECK(wait_child(child) == -SIGKILL);
    auto store = open_store({.path = scratch.store()});
    for (uint64_t batch = 0;; ++batch) {
      int found = 0;
      for (uint64_t i = 0; i < 10; ++i) found += store->get(number_key(base + batch * 10 + i)).has_value();
      REQUIRE((found == 0 || found == 10));
      if (found == 0) break;
    }
  }
}

}  // namespace
}  // namespace kachel::cache
