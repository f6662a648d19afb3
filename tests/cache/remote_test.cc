// A key-value store of the host's beneath a store: what goes there, what comes back, and what a bad one cannot do.
#include <doctest/doctest.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "cache/transfer.h"
#include "support/bytes.h"
#include "tests/cache/fake_remote.h"
#include "tests/cache/support.h"

namespace kachel::cache {
namespace {

using namespace testing;

constexpr uint64_t kLong_us = 20'000'000;

std::string name_of(const Key& key) {
  return "kachel:1:" + to_hex({reinterpret_cast<const char*>(key.digest.data()), key.digest.size()});
}

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Pauses that a test can wait for.
RemoteOptions brisk(FakeRemote& fake) {
  RemoteOptions options = fake.options();
  options.wait_us = 300'000;
  options.pause_us = 300'000;
  options.most_pause_us = 600'000;
  return options;
}

void pause_ms(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

TEST_CASE("what one store is given another one finds, and keeps") {
  FakeRemote fake;
  Scratch first, second;
  {
    auto store = open_store({.path = first.store(), .remote = fake.options()});
    REQUIRE(store->put(number_key(1), "one").ok());
    const Entry two[] = {{number_key(2), "two"}, {number_key(3, Kind::kTuning), "three"}};
    REQUIRE(store->put_many(two).ok());
    REQUIRE(store->flush(kLong_us));
    CHECK(store->stat().remote.puts == 3);
    CHECK(fake.gets == 0);
    CHECK(store->get(number_key(1)) == "one");
    CHECK(fake.gets == 0);  // it has it itself
  }
  const auto values = fake.values();
  CHECK(values.size() == 3);
  REQUIRE(values.contains(name_of(number_key(1))));
  CHECK(decode(values.at(name_of(number_key(1))))->payload == "one");
  CHECK(name_of(number_key(1)).size() == 9 + 32);

  auto store = open_store({.path = second.store(), .remote = fake.options()});
  CHECK_FALSE(store->get_here(number_key(1)));
  CHECK(fake.gets == 0);
  CHECK(store->get(number_key(1)) == "one");
  CHECK(store->get(number_key(3, Kind::kTuning)) == "three");
  CHECK_FALSE(store->get(number_key(4)));
  CHECK(fake.gets == 3);
  CHECK(store->get(number_key(1)) == "one");
  CHECK(fake.gets == 3);
  const StoreStats stats = store->stat();
  CHECK(stats.remote.hits == 2);
  CHECK(stats.remote.misses == 1);
  CHECK(stats.remote.errors == 0);
  CHECK(stats.hits == 3);
  CHECK(stats.misses == 2);
  CHECK(stats.entries == 2);
  CHECK(fake.puts == 3);  // nothing that came from there goes back
  store.reset();
  CHECK(open_store({.path = second.store()})->get(number_key(1)) == "one");
}

TEST_CASE("layers come before the remote, and a store in memory has one as well") {
  FakeRemote fake;
  Scratch shipped;
  REQUIRE(open_store({.path = shipped.store()})->put(number_key(1), "shipped").ok());
  auto store = open_store({.layers = {shipped.store()}, .remote = fake.options()});
  CHECK(store->get(number_key(1)) == "shipped");
  CHECK(fake.gets == 0);
  REQUIRE(store->put(number_key(2), "made").ok());
  REQUIRE(store->flush(kLong_us));
  CHECK(fake.values().size() == 1);
  // Either callback alone.
  RemoteOptions reads = fake.options(), writes = fake.options();
  reads.put = nullptr;
  writes.get = nullptr;
  auto reader = open_store({.remote = reads}), writer = open_store({.remote = writes});
  CHECK(reader->get(number_key(2)) == "made");
  CHECK_FALSE(writer->get(number_key(2)));
  REQUIRE(reader->put(number_key(5), "x").ok());
  REQUIRE(writer->put(number_key(6), "y").ok());
  CHECK(reader->flush(kLong_us));
  CHECK(writer->flush(kLong_us));
  CHECK(fake.values().size() == 2);
  CHECK(writer->stat().remote.misses == 0);
}

TEST_CASE("what is put shortly before the end arrives") {
  FakeRemote fake;
  {
    auto store = open_store({.remote = fake.options()});
    for (uint64_t i = 0; i < 100; ++i) REQUIRE(store->put(number_key(i), payload_of(i, 1000)).ok());
  }
  CHECK(fake.values().size() == 100);
}

TEST_CASE("values that are no records of the key are misses") {
  FakeRemote fake;
  TestLog log;
  const Key key = number_key(1);
  const std::string good = encode(key, "payload", 5);
  auto store = open_store({.remote = fake.options(), .log = log.get()});
  size_t bad = 0;
  auto refuses = [&](const std::string& value) {
    fake.set(name_of(key), value);
    CHECK_FALSE(store->get(key));
    ++bad;
  };
  refuses("");
  refuses("x");
  refuses(payload_of(3, 100000));
  refuses(good + "x");
  for (size_t size = 0; size < good.size(); size += 7) refuses(good.substr(0, size));
  Random random(5);
  for (int round = 0; round < 300; ++round) {
    std::string broken = good;
    broken[random.below(broken.size())] ^= static_cast<char>(1 + random.below(255));
    refuses(broken);
  }
  const uint64_t damaged = bad;
  refuses(encode(number_key(2), "of another key", 5));
  StoreStats stats = store->stat();
  CHECK(stats.damaged == damaged);
  CHECK(stats.foreign == 1);
  CHECK(stats.remote.misses == bad);
  CHECK(stats.remote.hits == 0);
  CHECK(stats.entries == 0);
  CHECK(log.says("is damaged"));
  CHECK(log.count() == 1);
  // A value that another kind of entry has under the same number.
  fake.set(name_of(key), good);
  CHECK(store->get(key) == "payload");
}

TEST_CASE("with a key only what carries its MAC is taken from elsewhere") {
  FakeRemote fake;
  const auto keys = keys_of({"the key of our machines"}), old = keys_of({"the key of yesterday.."}),
             both = keys_of({"the key of our machines", "the key of yesterday.."});
  auto put = [&](uint64_t number, std::shared_ptr<const MacKeys> with) {
    auto store = open_store({.remote = fake.options(), .mac_keys = std::move(with)});
    REQUIRE(store->put(number_key(number), "payload").ok());
  };
  put(1, keys);
  put(2, nullptr);
  put(3, old);
  // A record that is authentic, under the name of another.
  fake.set(name_of(number_key(4)), fake.values().at(name_of(number_key(1))));

  Scratch scratch;
  TestLog log;
  auto store = open_store({.path = scratch.store(), .remote = fake.options(), .mac_keys = keys, .log = log.get()});
  CHECK(store->get(number_key(1)) == "payload");
  CHECK_FALSE(store->get(number_key(2)));
  CHECK_FALSE(store->get(number_key(3)));
  CHECK_FALSE(store->get(number_key(4)));
  CHECK_FALSE(store->get(number_key(2)));
  StoreStats stats = store->stat();
  CHECK(stats.refused_macs == 3);
  CHECK(stats.foreign == 1);
  CHECK(stats.remote.misses == 4);
  CHECK(log.says("without a MAC"));
  CHECK(log.says("another key"));
  CHECK(log.count() == 2);
  // Its own place needs no MAC: it was filled before there was a key.
  REQUIRE(open_store({.path = scratch.store()})->put(number_key(9), "older").ok());
  CHECK(store->get(number_key(9)) == "older");

  // While keys are exchanged, the old one still opens what it signed, and what is kept is signed with the new one.
  FakeRemote next;
  auto during = open_store({.remote = fake.options(), .mac_keys = both});
  CHECK(during->get(number_key(3)) == "payload");
  CHECK(during->get(number_key(1)) == "payload");
  // A store without a key takes all.
  auto trusting = open_store({.remote = fake.options()});
  CHECK(trusting->get(number_key(1)) == "payload");
  CHECK(trusting->get(number_key(2)) == "payload");
}

TEST_CASE("layers and copies from other stores need MACs too") {
  const auto keys = keys_of({"the key of our machines"});
  Scratch with, without, own;
  {
    auto signing = open_store({.path = with.store(), .mac_keys = keys});
    REQUIRE(signing->put(number_key(1), "signed").ok());
    REQUIRE(open_store({.path = without.store()})->put(number_key(2), "unsigned").ok());
  }
  TestLog log;
  auto store =
      open_store({.path = own.store(), .layers = {with.store(), without.store()}, .mac_keys = keys, .log = log.get()});
  CHECK(store->get(number_key(1)) == "signed");
  CHECK_FALSE(store->get(number_key(2)));
  CHECK(store->stat().refused_macs == 1);
  CHECK(log.says(without.store()));

  // Copying signs, and takes only what is signed.
  Scratch shipped, again;
  REQUIRE(open_store({.path = again.store()})->put(number_key(7), "made before there was a key").ok());
  auto from = open_store({.path = again.store(), .mac_keys = keys});
  CHECK(*copy_entries(*from, *open_store({.path = shipped.store(), .mac_keys = keys})) == 1);
  auto strangers = [&](const std::string& path) {
    return open_store({.path = path, .read_only = true, .mac_keys = keys, .only_authentic = true, .log = log.get()});
  };
  CHECK(strangers(shipped.store())->get(number_key(7)));
  auto to = open_store({.mac_keys = keys});
  CHECK(*copy_entries(*strangers(shipped.store()), *to) == 1);
  CHECK(*copy_entries(*strangers(without.store()), *to) == 0);
  CHECK(to->stat().refused_macs == 1);
  CHECK(to->get(number_key(7)) == "made before there was a key");
  // What is refused is left where it is.
  CHECK(open_store({.path = without.store()})->get(number_key(2)) == "unsigned");
}

TEST_CASE("a remote that fails costs misses, one line, and is left alone for a while") {
  FakeRemote fake;
  TestLog log;
  fake.failing = true;
  auto store = open_store({.remote = brisk(fake), .log = log.get()});
  CHECK_FALSE(store->get(number_key(1)));
  CHECK(fake.gets == 1);
  for (int i = 0; i < 20; ++i) CHECK_FALSE(store->get(number_key(1)));
  CHECK(fake.gets == 1);
  CHECK(store->stat().remote.errors == 1);
  CHECK(store->stat().remote.skipped == 20);
  CHECK(log.says("the map is told to fail"));
  // Puts have a circuit of their own, and what waits behind one that failed is given up.
  for (uint64_t i = 0; i < 20; ++i) REQUIRE(store->put(number_key(i), "x").ok());
  REQUIRE(store->flush(kLong_us));
  CHECK(fake.puts == 1);
  CHECK(store->get(number_key(3)) == "x");
  CHECK(log.count() == 1);
  // Each further failure doubles the pause, to a limit; a success ends all that.
  pause_ms(350);
  CHECK_FALSE(store->get(number_key(100)));
  CHECK(fake.gets == 2);
  pause_ms(350);
  CHECK_FALSE(store->get(number_key(100)));
  CHECK(fake.gets == 2);
  fake.failing = false;
  fake.set(name_of(number_key(100)), encode(number_key(100), "there", 1));
  pause_ms(350);
  CHECK(store->get(number_key(100)) == "there");
  CHECK_FALSE(store->get(number_key(101)));
  CHECK(fake.gets == 4);
  REQUIRE(store->put(number_key(5), "later").ok());
  REQUIRE(store->flush(kLong_us));
  CHECK(fake.values().contains(name_of(number_key(5))));
  CHECK(log.count() == 1);
}

TEST_CASE("a remote that hangs costs its limit once, and delays no put") {
  FakeRemote fake;
  TestLog log;
  RemoteOptions options = brisk(fake);
  options.pause_us = options.most_pause_us = 1000;
  auto store = open_store({.remote = options, .log = log.get()});
  fake.set(name_of(number_key(1)), encode(number_key(1), "there", 1));
  fake.hold();
  const double first = seconds_of([&] { CHECK_FALSE(store->get(number_key(1))); });
  CHECK(first >= 0.29);
  CHECK(log.says("no answer within 300 ms"));
  pause_ms(5);  // the circuit would let the next one through, but the call is not back
  const double more = seconds_of([&] {
    for (uint64_t i = 0; i < 50; ++i) {
      CHECK_FALSE(store->get(number_key(i)));
      REQUIRE(store->put(number_key(100 + i), "x").ok());
    }
  });
  CHECK(more < 0.25);
  CHECK(fake.gets == 1);
  CHECK(fake.puts == 0);
  CHECK_FALSE(store->flush(1000));
  fake.release();
  REQUIRE(store->flush(kLong_us));
  CHECK(store->get(number_key(1)) == "there");
  CHECK(store->stat().remote.errors == 1);
  CHECK(log.count() == 1);
}

TEST_CASE("a get that is slow serves, and is the last for a while") {
  FakeRemote fake;
  TestLog log;
  RemoteOptions options = fake.options();
  options.slow_us = 20'000;
  options.wait_us = kLong_us;
  options.pause_us = kLong_us;
  auto store = open_store({.remote = options, .log = log.get()});
  for (uint64_t i = 0; i < 10; ++i) fake.set(name_of(number_key(i)), encode(number_key(i), "there", 1));
  fake.hold();
  std::thread later([&] {
    while (fake.inside == 0) pause_ms(1);
    pause_ms(40);
    fake.release();
  });
  CHECK(store->get(number_key(0)) == "there");
  later.join();
  for (uint64_t i = 1; i < 10; ++i) CHECK_FALSE(store->get(number_key(i)));
  CHECK(fake.gets == 1);
  CHECK(store->stat().remote.hits == 1);
  CHECK(store->stat().remote.errors == 1);
  CHECK(log.says("it took"));
}

TEST_CASE("many who ask at once are answered one after another, and who waits too long blames nobody") {
  FakeRemote fake;
  TestLog log;
  RemoteOptions options = brisk(fake);
  options.slow_us = kLong_us;
  options.get = [](const std::string&, const RemoteOptions::Append&) -> RemoteAnswer {
    pause_ms(40);
    return {RemoteAnswer::kAbsent, {}};
  };
  auto store = open_store({.remote = options, .log = log.get()});
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < 16; ++i) threads.emplace_back([&, i] { CHECK_FALSE(store->get(number_key(i))); });
  for (std::thread& thread : threads) thread.join();
  const RemoteStats stats = store->stat().remote;
  CHECK(stats.errors == 0);
  CHECK(stats.misses + stats.skipped == 16);
  CHECK(stats.misses >= 2);
  CHECK(stats.skipped >= 1);
  CHECK(log.count() == 0);
}

TEST_CASE("many threads that wait for the same remote see one failure") {
  for (bool hangs : {true, false}) {
    FakeRemote fake;
    RemoteOptions options = brisk(fake);
    if (!hangs) options.wait_us = kLong_us;
    options.most_pause_us = kLong_us;
    auto store = open_store({.remote = options});
    fake.failing = true;
    fake.hold();
    std::vector<std::thread> threads;
    for (uint64_t i = 0; i < 16; ++i) threads.emplace_back([&, i] { CHECK_FALSE(store->get(number_key(i))); });
    if (!hangs) {
      pause_ms(100);  // until they wait
      fake.release();
    }
    for (std::thread& thread : threads) thread.join();
    fake.release();
    REQUIRE(store->flush(kLong_us));
    fake.failing = false;
    pause_ms(350);  // one pause, that of a first failure
    CHECK_FALSE(store->get(number_key(1)));
    CHECK(fake.gets == 2);
    CHECK(store->stat().remote.misses == 1);
  }
}

TEST_CASE("values without end, and a queue without room") {
  FakeRemote fake;
  TestLog log;
  RemoteOptions options = brisk(fake);
  options.most_bytes = 10000;
  options.pause_us = 0;
  auto store = open_store({.remote = options, .log = log.get()});
  fake.set(name_of(number_key(1)), std::string(20001, 'x'));
  CHECK_FALSE(store->get(number_key(1)));
  CHECK(log.says("too long"));
  fake.hold();
  REQUIRE(store->put(number_key(2), "first").ok());
  while (fake.inside == 0) pause_ms(1);
  for (uint64_t i = 10; i < 20; ++i) REQUIRE(store->put(number_key(i), payload_of(i, 3000)).ok());
  CHECK(store->stat().remote.skipped == 7);
  fake.release();
  REQUIRE(store->flush(kLong_us));
  CHECK(store->stat().remote.puts == 4);
  CHECK(store->get(number_key(19)) == payload_of(19, 3000));
}

TEST_CASE("a store ends though its remote fails or is slow, and a child of fork leaves it alone") {
  FakeRemote fake;
  {
    RemoteOptions options = brisk(fake);
    options.close_us = 20'000;
    auto store = open_store({.remote = options});
    fake.hold();
    for (uint64_t i = 0; i < 10; ++i) REQUIRE(store->put(number_key(i), "x").ok());
    while (fake.inside == 0) pause_ms(1);
    std::thread later([&] {
      pause_ms(60);
      fake.release();
    });
    store.reset();
    later.join();
  }
  CHECK(fake.values().size() == 1);  // the others came too late

  auto store = open_store({.remote = fake.options()});
  REQUIRE(store->put(number_key(1), "x").ok());
  REQUIRE(store->flush(kLong_us));
  const int gets = fake.gets;
  CHECK(run_child([&] {
          const bool missed = !store->get(number_key(50)) && !store->put(number_key(51), "x").ok();
          store.reset();
          return missed && fake.gets == gets ? 0 : 1;
        }) == 0);
  CHECK_FALSE(store->get(number_key(50)));
  CHECK(fake.gets == gets + 1);
}

TEST_CASE("an import is given to the remote as a whole") {
  FakeRemote fake;
  Scratch from;
  {
    auto filled = open_store({.path = from.store()});
    for (uint64_t i = 0; i < 150; ++i) REQUIRE(filled->put(number_key(i), payload_of(i, 1000)).ok());
  }
  RemoteOptions options = fake.options();
  options.most_bytes = 100'000;  // of the queue, through which all of them do not fit at once
  auto store = open_store({.remote = options});
  CHECK(*copy_entries(*open_store({.path = from.store(), .read_only = true}), *store) == 150);
  CHECK(fake.values().size() == 150);
}

}  // namespace
}  // namespace kachel::cache
