// Stores beneath a store, and entries that move between stores.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <map>
#include <thread>

#include "cache/default_path.h"
#include "cache/transfer.h"
#include "tests/cache/support.h"

namespace kachel::cache {
namespace {

using namespace testing;

std::map<std::string, std::string> all_of(Store& store, std::optional<Kind> kind = std::nullopt) {
  std::map<std::string, std::string> entries;
  REQUIRE(store
              .iterate(kind,
                       [&](const EntryView& entry) {
                         CHECK(entries.emplace(entry.key, entry.payload).second);
                         return true;
                       })
              .ok());
  return entries;
}

TEST_CASE("what a store lacks is read from its layers, the first before the next") {
  Scratch user, first, second;
  {
    auto store = open_store({.path = first.store()});
    REQUIRE(store->put(number_key(1), "first").ok());
    REQUIRE(store->put(number_key(2), "first").ok());
    auto other = open_store({.path = second.store()});
    REQUIRE(other->put(number_key(2), "second").ok());
    REQUIRE(other->put(number_key(3, Kind::kTuning), "second").ok());
  }
  auto store = open_store({.path = user.store(), .layers = {first.store(), second.store()}});
  REQUIRE(store->put(number_key(1), "own").ok());
  CHECK(store->get(number_key(1)) == "own");
  CHECK(store->get(number_key(2)) == "first");
  CHECK(store->get(number_key(3, Kind::kTuning)) == "second");
  CHECK_FALSE(store->get(number_key(4)));
  StoreStats stats = store->stat();
  CHECK(stats.hits == 3);
  CHECK(stats.layer_hits == 2);
  CHECK(stats.misses == 1);
  CHECK(stats.entries == 1);

  const auto entries = all_of(*store);
  CHECK(entries.size() == 3);
  CHECK(entries.at(number_key(1).bytes) == "own");
  CHECK(entries.at(number_key(2).bytes) == "first");
  CHECK(all_of(*store, Kind::kTuning).size() == 1);
  // It ends where it is told to, in a layer too.
  int seen = 0;
  REQUIRE(store->iterate(std::nullopt, [&](const EntryView&) { return ++seen < 2; }).ok());
  CHECK(seen == 2);

  // Nothing of a layer is changed.
  REQUIRE(store->put(number_key(2), "own").ok());
  REQUIRE(store->erase(number_key(3, Kind::kTuning)).ok());
  REQUIRE(store->clear().ok());
  CHECK(store->get(number_key(2)) == "first");
  CHECK(store->get(number_key(3, Kind::kTuning)) == "second");
  CHECK(open_store({.path = first.store(), .read_only = true})->stat().entries == 2);
}

TEST_CASE("layers are read while their owner writes to them, and under a store in memory") {
  Scratch shared;
  auto owner = open_store({.path = shared.store()});
  auto reader = open_store({.layers = {shared.store()}});
  CHECK_FALSE(reader->get(number_key(1)));
  REQUIRE(owner->put(number_key(1), "later").ok());
  CHECK(reader->get(number_key(1)) == "later");
}

TEST_CASE("a layer that cannot be read is left out, with a line in the log") {
  Scratch user, damaged;
  const std::string data = damaged.store() + "/store-1/data.mdb";
  {
    REQUIRE(open_store({.path = damaged.store()})->put(number_key(1), "x").ok());
  }
  std::string bytes = read_file(data);
  for (char& byte : bytes) byte = 7;
  write_file(data, bytes);
  TestLog log;
  auto store =
      open_store({.path = user.store(), .layers = {user.path() + "/nowhere", damaged.store()}, .log = log.get()});
  CHECK(log.says("nowhere"));
  CHECK(log.says(damaged.store()));
  CHECK_FALSE(store->get(number_key(1)));
  REQUIRE(store->put(number_key(1), "own").ok());
  CHECK(store->get(number_key(1)) == "own");
  CHECK(read_file(data) == bytes);
}

TEST_CASE("a layer whose directories nobody may write to") {
  Scratch user, shipped;
  {
    REQUIRE(open_store({.path = shipped.store()})->put(number_key(1), "shipped").ok());
  }
  const std::string inner = shipped.store() + "/store-1";
  REQUIRE(::chmod(inner.c_str(), 0555) == 0);
  auto store = open_store({.path = user.store(), .layers = {shipped.store()}});
  CHECK(store->get(number_key(1)) == "shipped");
  REQUIRE(::chmod(inner.c_str(), 0700) == 0);
}

TEST_CASE("entries are copied from store to store, layers included, replacing what is there") {
  Scratch from_path, layer_path, to_path;
  {
    REQUIRE(open_store({.path = layer_path.store()})->put(number_key(500), "layer").ok());
  }
  auto from = open_store({.path = from_path.store(), .layers = {layer_path.store()}});
  auto to = open_store({.path = to_path.store()});
  for (uint64_t i = 0; i < 200; ++i)
    REQUIRE(from->put(number_key(i, i % 2 ? Kind::kPlan : Kind::kSample), payload_of(i, 100 + i * 37)).ok());
  REQUIRE(to->put(number_key(3), "older").ok());
  REQUIRE(to->put(number_key(999), "kept").ok());
  auto copied = copy_entries(*from, *to);
  REQUIRE_MESSAGE(copied.ok(), copied.status().message());
  CHECK(*copied == 201);
  to.reset();
  to = open_store({.path = to_path.store()});
  CHECK(to->stat().entries == 202);
  for (uint64_t i = 0; i < 200; ++i)
    CHECK(to->get(number_key(i, i % 2 ? Kind::kPlan : Kind::kSample)) == payload_of(i, 100 + i * 37));
  CHECK(to->get(number_key(500)) == "layer");
  CHECK(to->get(number_key(999)) == "kept");
}

TEST_CASE("a copy that has no room says so") {
  Scratch from_path(Scratch::kOnDisk), to_path(Scratch::kOnDisk);
  auto from = open_store({.path = from_path.store(), .max_bytes = uint64_t{64} << 20});
  REQUIRE(from->put(number_key(1), payload_of(1, size_t{3} << 20)).ok());
  auto to = open_store({.path = to_path.store(), .max_bytes = uint64_t{1} << 20});
  CHECK(copy_entries(*from, *to).status().code() == Code::kStore);
}

TEST_CASE("shrinking removes what was used longest ago") {
  Scratch scratch(Scratch::kOnDisk);
  auto store = open_store({.path = scratch.store(), .touch_after_us = 0});
  for (uint64_t i = 0; i < 300; ++i) {
    REQUIRE(store->put(number_key(i), payload_of(i, 20000)).ok());
    if (i % 100 == 99) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  for (uint64_t i = 0; i < 20; ++i) REQUIRE(store->get(number_key(i)));
  auto removed = store->shrink(3'000'000);
  REQUIRE_MESSAGE(removed.ok(), removed.status().message());
  CHECK(*removed > 150);
  const StoreStats stats = store->stat();
  CHECK(stats.entries == 300 - *removed);
  CHECK(stats.entries > 80);
  for (uint64_t i = 0; i < 20; ++i) CHECK(store->get(number_key(i)));
  CHECK_FALSE(store->get(number_key(25)));
  CHECK(store->get(number_key(299)));
  CHECK(store->shrink(3'000'000).ok());
  REQUIRE(store->shrink(0).ok());
  CHECK(store->stat().entries == 0);
  REQUIRE(store->put(number_key(1), "again").ok());

  auto memory = open_store({});
  for (uint64_t i = 0; i < 10; ++i) REQUIRE(memory->put(number_key(i), payload_of(i, 1000)).ok());
  CHECK(*memory->shrink(3000) >= 7);
}

TEST_CASE("verify counts sound entries and removes damaged ones") {
  Scratch scratch;
  {
    auto store = open_store({.path = scratch.store()});
    for (uint64_t i = 0; i < 20; ++i) REQUIRE(store->put(number_key(i), payload_of(i, 300)).ok());
  }
  std::string bytes = read_file(scratch.data());
  const std::string payload = payload_of(7, 300);
  for (size_t at = 0; (at = bytes.find(payload, at)) != bytes.npos; ++at) bytes[at + 100] ^= 1;
  write_file(scratch.data(), bytes);
  TestLog log;
  auto store = open_store({.path = scratch.store(), .log = log.get()});
  auto seen = store->verify();
  REQUIRE(seen.ok());
  CHECK(seen->entries == 19);
  CHECK(seen->damaged == 1);
  CHECK(store->verify()->damaged == 0);
  CHECK(store->stat().entries == 19);
}

TEST_CASE("paths of layers") {
  CHECK(split_paths("").empty());
  CHECK(split_paths(":").empty());
  CHECK(split_paths("/a") == std::vector<std::string>{"/a"});
  CHECK(split_paths("/a::/b c:") == std::vector<std::string>{"/a", "/b c"});
  CHECK(default_store_layers([](const char*) -> const char* { return nullptr; }).empty());
  CHECK(default_store_layers([](const char* name) -> const char* {
          return std::string_view(name) == "KACHEL_SYSTEM_CACHE" ? "/x" : nullptr;
        }) == "/x");
}

}  // namespace
}  // namespace kachel::cache
