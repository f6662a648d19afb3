// Engines that share a remote store: nothing is made twice, and nothing that is wrong with it reaches a launch.
#include <chrono>
#include <thread>

#include "tests/cache/fake_remote.h"
#include "tests/runtime/engine/engine_fixture.h"

namespace kachel::runtime {
namespace {

using cache::testing::FakeRemote;
using tuner::Policy;

constexpr uint64_t kLong_us = 20'000'000;

std::shared_ptr<const cache::MacKeys> key(std::string_view secret) {
  return *cache::MacKeys::create({secret});
}

// What a machine whose store is empty made, having launched one kernel.
EngineStats made_by_newcomer(FakeRemote& fake, Policy policy, std::shared_ptr<const cache::MacKeys> keys = nullptr) {
  EngineFixture fixture;
  fixture.options.store_remote = fake.options();
  fixture.options.store_mac_keys = std::move(keys);
  auto kernel = fixture.kernel();
  const Status status = fixture.scale(*kernel, 64, 64, policy);
  CHECK_MESSAGE(status.ok(), status.message());
  REQUIRE(fixture.engine()->store().flush(kLong_us));
  return fixture.engine()->stats();
}

TEST_CASE("of two machines that share a remote store the second compiles and measures nothing") {
  FakeRemote fake;
  const EngineStats first = made_by_newcomer(fake, Policy::kBlocking);
  CHECK(first.compiles == 6);
  CHECK(first.tunings == 1);
  CHECK(first.remote.puts == fake.values().size());
  CHECK(first.remote.misses > 0);
  for (Policy policy : {Policy::kBlocking, Policy::kCachedOnly, Policy::kOff, Policy::kBackground}) {
    const EngineStats second = made_by_newcomer(fake, policy);
    CHECK(second.compiles == 0);
    CHECK(second.lowerings == 0);
    CHECK(second.measurements == 0);
    CHECK(second.tunings == 0);
    CHECK(second.remote.hits == 2);  // the decision and its binary
    CHECK(second.remote.puts == 0);
  }
}

TEST_CASE("with a key a stranger's entries are made anew, and a friend's are not") {
  FakeRemote fake;
  (void)made_by_newcomer(fake, Policy::kBlocking);
  const EngineStats first = made_by_newcomer(fake, Policy::kBlocking, key("the key of our machines"));
  CHECK(first.compiles == 6);
  CHECK(first.tunings == 1);
  CHECK(first.remote.hits == 0);
  CHECK(first.store_refused_macs > 0);
  const EngineStats second = made_by_newcomer(fake, Policy::kBlocking, key("the key of our machines"));
  CHECK(second.compiles == 0);
  CHECK(second.tunings == 0);
  CHECK(second.store_refused_macs == 0);
  CHECK(made_by_newcomer(fake, Policy::kOff, key("the key of their machines")).remote.hits == 0);
}

TEST_CASE("values of a remote that are sound records of nonsense are made anew, there too") {
  FakeRemote fake;
  (void)made_by_newcomer(fake, Policy::kBlocking);
  for (const auto& [name, value] : fake.values()) {
    const auto record = cache::decode(value);
    REQUIRE(record.ok());
    const cache::Key key{record->kind, cache::digest_of(record->key), std::string(record->key)};
    fake.set(name, cache::encode(key, "nonsense", record->created_us));
  }
  const EngineStats mended = made_by_newcomer(fake, Policy::kBlocking);
  CHECK(mended.compiles == 6);
  CHECK(mended.tunings == 1);
  CHECK(made_by_newcomer(fake, Policy::kBlocking).compiles == 0);
}

TEST_CASE("a remote that fails or goes away is not noticed by launches") {
  FakeRemote fake;
  fake.failing = true;
  const EngineStats alone = made_by_newcomer(fake, Policy::kBlocking);
  CHECK(alone.compiles == 6);
  CHECK(alone.tunings == 1);
  CHECK(alone.remote.errors == 2);  // a get and a put
  CHECK(alone.remote.skipped > 0);
  CHECK(fake.gets == 1);

  FakeRemote other;
  EngineFixture fixture;
  fixture.options.store_remote = other.options();
  auto kernel = fixture.kernel();
  REQUIRE(fixture.scale(*kernel, 64, 64, Policy::kBlocking).ok());
  other.failing = true;
  REQUIRE(fixture.scale(*kernel, 64, 64, Policy::kBlocking).ok());
  REQUIRE(fixture.scale(*kernel, 65, 64, Policy::kBlocking).ok());
  CHECK(fixture.engine()->stats().tunings == 2);
}

TEST_CASE("while a remote hangs, warm launches go on and cold ones wait for its limit alone") {
  FakeRemote fake;
  EngineFixture fixture;
  fixture.options.store_remote = fake.options();
  fixture.options.store_remote.wait_us = 800'000;
  auto kernel = fixture.kernel();
  REQUIRE(fixture.scale(*kernel, 64, 64, Policy::kOff).ok());
  REQUIRE(fixture.engine()->store().flush(kLong_us));
  const EngineStats before = fixture.engine()->stats();
  fake.hold();
  using Clock = std::chrono::steady_clock;
  std::atomic<bool> done{false};
  Clock::duration cold{};
  std::thread launching([&] {
    const auto begin = Clock::now();
    CHECK(fixture.scale(*kernel, 80, 48, Policy::kBlocking).ok());
    cold = Clock::now() - begin;
    done = true;
  });
  while (fake.inside == 0) std::this_thread::yield();
  // The same handle, while its other launch waits.
  Clock::duration longest{};
  int warm = 0;
  while (!done) {
    const auto begin = Clock::now();
    REQUIRE(fixture.scale(*kernel, 64, 64, Policy::kOff).ok());
    longest = std::max(longest, Clock::now() - begin);
    ++warm;
  }
  launching.join();
  CHECK(warm > 10);
  CHECK(longest < std::chrono::milliseconds(600));
  CHECK(cold > std::chrono::milliseconds(790));
  CHECK(fixture.engine()->stats().tunings == before.tunings + 1);
  CHECK(fixture.engine()->stats().remote.errors == 1);
  fake.release();
}

}  // namespace
}  // namespace kachel::runtime
