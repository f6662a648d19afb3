// What a store says of what befalls it, as events.
#include <doctest/doctest.h>

#include "cache/record.h"
#include "tests/cache/fake_remote.h"
#include "tests/cache/support.h"

namespace kachel::cache {
namespace {

using namespace testing;

struct Events {
  std::vector<Event> of(EventKind kind) const {
    std::vector<Event> found;
    for (const Event& event : all)
      if (event.kind == kind) found.push_back(event);
    return found;
  }
  std::vector<Event> all;
  Log log{{}, [this](const Event& event) { all.push_back(event); }};
};

int64_t number_of(const Event& event, const std::string& name) {
  for (const EventField& field : event.fields)
    if (field.name == name) return std::get<int64_t>(field.value);
  return -1;
}
std::string text_of(const Event& event, const std::string& name) {
  for (const EventField& field : event.fields)
    if (field.name == name) return std::get<std::string>(field.value);
  return "(none)";
}

TEST_CASE("a store that works says nothing") {
  Scratch scratch;
  Events events;
  auto store = open_store({.path = scratch.store(), .log = &events.log});
  for (uint64_t i = 0; i < 8; ++i) REQUIRE(store->put(number_key(i), payload_of(i, 1000)).ok());
  REQUIRE(store->get(number_key(3)).has_value());
  REQUIRE(store->erase(number_key(3)).ok());
  CHECK(events.all.empty());
}

TEST_CASE("what gave way is counted in events as in the statistics") {
  Scratch scratch;
  Events events;
  auto store = open_store({.path = scratch.store(), .max_bytes = 2 << 20, .log = &events.log});
  for (uint64_t i = 0; i < 60; ++i) REQUIRE(store->put(number_key(i), payload_of(i, 90000)).ok());
  REQUIRE(store->shrink(1 << 20).ok());
  uint64_t entries = 0;
  for (const Event& event : events.of(EventKind::kStoreEvicted)) {
    CHECK(event.level == LogLevel::kInfo);
    CHECK(text_of(event, "store") == scratch.store());
    entries += static_cast<uint64_t>(number_of(event, "entries"));
  }
  CHECK(entries > 0);
  CHECK(entries == store->stat().evicted);
  CHECK(events.of(EventKind::kStoreEvicted).size() == events.all.size());
}

TEST_CASE("a store that is not where it should be says how it may be used") {
  Events events;
  auto store = open_store({.path = "/proc/nowhere", .log = &events.log});
  REQUIRE(events.all.size() == 1);
  CHECK(events.all[0].kind == EventKind::kStoreDegraded);
  CHECK(events.all[0].level == LogLevel::kWarning);
  CHECK(text_of(events.all[0], "access") == "memory");
  CHECK(text_of(events.all[0], "store") == "/proc/nowhere");
}

TEST_CASE("an entry that is damaged is named by its digest, one without a MAC is refused") {
  Scratch scratch;
  Events events;
  const Key key = number_key(1);
  FakeRemote remote;
  remote.set("kachel:1:" + key.hex(), "nonsense");
  auto store = open_store({.path = scratch.store(), .remote = remote.options(), .log = &events.log});
  CHECK_FALSE(store->get(key).has_value());
  REQUIRE(events.all.size() == 1);
  CHECK(events.all[0].kind == EventKind::kStoreDamaged);

  Scratch signed_scratch;
  Events more;
  remote.set("kachel:1:" + key.hex(), encode(key, "payload", 1, nullptr));
  auto wary = open_store({.path = signed_scratch.store(),
                          .remote = remote.options(),
                          .mac_keys = keys_of({"0123456789abcdef"}),
                          .log = &more.log});
  CHECK_FALSE(wary->get(key).has_value());
  REQUIRE(more.all.size() == 1);
  CHECK(more.all[0].kind == EventKind::kStoreRefused);
}

TEST_CASE("a remote that fails is said with the reason and the pause") {
  Scratch scratch;
  Events events;
  RemoteOptions remote;
  remote.get = [](const std::string&, const RemoteOptions::Append&) {
    return RemoteAnswer{RemoteAnswer::kFailed, "no route"};
  };
  auto store = open_store({.path = scratch.store(), .remote = remote, .log = &events.log});
  CHECK_FALSE(store->get(number_key(1)).has_value());
  REQUIRE(events.all.size() == 1);
  CHECK(events.all[0].kind == EventKind::kRemoteFailed);
  CHECK(text_of(events.all[0], "call") == "get");
  CHECK(text_of(events.all[0], "reason") == "no route");
  CHECK(number_of(events.all[0], "errors") == 1);
}

}  // namespace
}  // namespace kachel::cache
