#include "cache/store.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <set>
#include <thread>

#include "tests/cache/support.h"

namespace kachel::cache {
namespace {

using namespace testing;

// The same behaviour is expected of a store in memory and of one on disk.
void for_both(const std::function<void(const StoreOptions&)>& body) {
  SUBCASE("memory") {
    body({});
  }
  SUBCASE("disk") {
    Scratch scratch;
    body({.path = scratch.store()});
  }
}

TEST_CASE("entries come back, are replaced, erased and cleared") {
  for_both([](const StoreOptions& options) {
    auto store = open_store(options);
    CHECK_FALSE(store->get(number_key(1)).has_value());
    for (size_t size : {0, 1, 1999, 2000, 4096, 70000}) {
      CHECK(store->put(number_key(size), payload_of(size, size)).ok());
      CHECK((store->get(number_key(size)) == payload_of(size, size)));
    }
    CHECK(store->put(number_key(1), "another").ok());
    CHECK(store->get(number_key(1)) == "another");
    CHECK(store->erase(number_key(1)).ok());
    CHECK(store->erase(number_key(1)).ok());
    CHECK_FALSE(store->get(number_key(1)).has_value());
    CHECK(store->stat().entries == 5);
    CHECK(store->clear().ok());
    CHECK(store->stat().entries == 0);
    CHECK_FALSE(store->get(number_key(4096)).has_value());
    CHECK(store->put(number_key(1), "again").ok());
    CHECK(store->get(number_key(1)) == "again");
  });
}

TEST_CASE("statistics count what happened") {
  for_both([](const StoreOptions& options) {
    auto store = open_store(options);
    store->get(number_key(1));
    CHECK(store->put(number_key(1), "12345").ok());
    CHECK(store->put(number_key(1, Kind::kSample), "1").ok());
    CHECK(store->put(number_key(2, Kind::kSample), "2").ok());
    store->get(number_key(1));
    store->get(number_key(2, Kind::kSample));
    StoreStats stats = store->stat();
    CHECK(stats.hits == 2);
    CHECK(stats.misses == 1);
    CHECK(stats.puts == 3);
    CHECK(stats.entries == 3);
    CHECK(stats.kinds[Kind::kPlan].entries == 1);
    CHECK(stats.kinds[Kind::kSample].entries == 2);
    CHECK(stats.bytes == stats.kinds[Kind::kPlan].bytes + stats.kinds[Kind::kSample].bytes);
    CHECK(stats.durable == !options.path.empty());
    CHECK(stats.damaged + stats.foreign + stats.refused + stats.evicted == 0);
  });
}

TEST_CASE("iteration shows each entry of a kind once, and ends when told") {
  for_both([](const StoreOptions& options) {
    auto store = open_store(options);
    std::vector<Entry> samples;
    for (uint64_t i = 0; i < 300; ++i) samples.push_back({number_key(i, Kind::kSample), payload_of(i, i)});
    CHECK(store->put_many(samples).ok());
    CHECK(store->put(number_key(1, Kind::kPlan), "p").ok());
    CHECK(store->put(number_key(1, Kind::kProgram), "q").ok());
    std::set<std::string> keys;
    size_t shown = 0;
    auto collect = [&](const EntryView& entry) {
      ++shown;
      keys.insert(std::string(entry.key));
      CHECK(entry.created_us > 1'600'000'000'000'000);
      CHECK(entry.used_us >= entry.created_us);
      return true;
    };
    CHECK(store->iterate(Kind::kSample, collect).ok());
    CHECK(shown == 300);
    CHECK(keys.size() == 300);
    CHECK(store->iterate(std::nullopt, collect).ok());
    CHECK(shown == 602);
    CHECK(keys.size() == 302);
    CHECK(store->iterate(Kind::kTuning, collect).ok());
    CHECK(shown == 602);
    shown = 0;
    CHECK(store->iterate(Kind::kSample, [&](const EntryView&) { return ++shown < 7; }).ok());
    CHECK(shown == 7);
    // The callback may use the store.
    CHECK(store->iterate(Kind::kPlan, [&](const EntryView&) { return store->erase(number_key(1)).ok(); }).ok());
    CHECK_FALSE(store->get(number_key(1)).has_value());
  });
}

TEST_CASE("entries outlive the store") {
  Scratch scratch(Scratch::kOnDisk);
  TestLog log;
  for (int round = 0; round < 3; ++round) {
    auto store = open_store({.path = scratch.store(), .log = log.get()});
    for (uint64_t i = 0; i < 10u * round; ++i) CHECK((store->get(number_key(i)) == payload_of(i, 3000)));
    for (uint64_t i = 10 * round; i < 10u * (round + 1); ++i)
      CHECK(store->put(number_key(i), payload_of(i, 3000)).ok());
  }
  CHECK(log.count() == 0);
}

TEST_CASE("two stores of one path share their entries, by whatever name the path goes") {
  Scratch scratch;
  auto a = open_store({.path = scratch.store()});
  auto b = open_store({.path = scratch.path() + "/./x/../store"});
  CHECK(a->put(number_key(1), "one").ok());
  CHECK(b->get(number_key(1)) == "one");
  a.reset();
  CHECK(b->put(number_key(2), "two").ok());
  auto c = open_store({.path = scratch.store(), .read_only = true});
  CHECK(c->get(number_key(2)) == "two");
  CHECK(c->put(number_key(3), "three").ok());
  CHECK(c->get(number_key(3)) == "three");
  CHECK_FALSE(b->get(number_key(3)).has_value());
}

TEST_CASE("the same digest under another key is a miss, not a wrong answer") {
  for_both([](const StoreOptions& options) {
    auto store = open_store(options);
    Key key = number_key(1), other = number_key(2);
    other.digest = key.digest;
    CHECK(store->put(key, "mine").ok());
    CHECK_FALSE(store->get(other).has_value());
    CHECK(store->stat().foreign == 1);
    CHECK(store->stat().damaged == 0);
    CHECK(store->get(key) == "mine");
  });
}

TEST_CASE("a store opened for reading makes nothing") {
  Scratch scratch;
  auto store = open_store({.path = scratch.store(), .read_only = true});
  CHECK_FALSE(store->stat().durable);
  CHECK(store->put(number_key(1), "x").ok());
  CHECK(store->get(number_key(1)) == "x");
  CHECK(files_below(scratch.path()).empty());
}

TEST_CASE("only mistakes of the caller are errors") {
  CHECK(Store::open({.path = std::string("a\0b", 3)}).status().code() == Code::kInvalid);
  CHECK(Store::open({.path = "", .max_bytes = 1}).ok());
  CHECK(Store::open({.path = "/dev/null"}).ok());
}

TEST_CASE("an entry that even memory cannot hold is refused") {
  auto store = open_store({.memory_max_bytes = 1 << 20});
  CHECK(store->put(number_key(1), std::string(2 << 20, 'x')).code() == Code::kStore);
  for (uint64_t i = 0; i < 100; ++i) CHECK(store->put(number_key(i), payload_of(i, 50000)).ok());
  CHECK(store->stat().bytes <= 1 << 20);
  CHECK(store->stat().evicted > 50);
  CHECK((store->get(number_key(99)) == payload_of(99, 50000)));
}

TEST_CASE("threads share a store") {
  for_both([](const StoreOptions& options) {
    auto store = open_store(options);
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        for (uint64_t i = 0; i < 30; ++i) {
          uint64_t number = 1000 * t + i;
          if (!store->put(number_key(number), payload_of(number, 5000)).ok()) ++wrong;
          if (store->get(number_key(number)) != payload_of(number, 5000)) ++wrong;
          uint64_t theirs = 1000 * ((t + 1) % 4) + i;
          if (auto got = store->get(number_key(theirs)); got && *got != payload_of(theirs, 5000)) ++wrong;
          if (i % 10 == 0 && !store->iterate(Kind::kPlan, [](const EntryView&) { return true; }).ok()) ++wrong;
        }
      });
    for (std::thread& thread : threads) thread.join();
    CHECK(wrong == 0);
    CHECK(store->stat().entries == 120);
  });
}

TEST_CASE("stores open and close at once in many threads") {
  Scratch scratch;
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < 10; ++i) {
        auto store = Store::open({.path = scratch.store()});
        if (!store.ok() || !(*store)->stat().writable) ++wrong;
        if (!(*store)->put(number_key(t), "x").ok() || !(*store)->get(number_key(t))) ++wrong;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

}  // namespace
}  // namespace kachel::cache
