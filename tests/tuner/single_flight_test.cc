#include "tuner/single_flight.h"

#include <doctest/doctest.h>

#include <atomic>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace kachel::tuner {
namespace {

using Role = SingleFlight::Role;

TEST_CASE("the second to come is told that the key is busy, another key is free") {
  SingleFlight flights;
  auto first = flights.join("k", 0);
  CHECK(first.role() == Role::kLeader);
  CHECK(flights.join("k", 0).role() == Role::kBusy);
  CHECK(flights.join("k", 1'000'000).role() == Role::kBusy);
  CHECK(flights.join(std::string_view("k\0x", 3), 0).role() == Role::kLeader);
  CHECK(flights.in_flight() == 1);
  first.release();
  first.release();
  CHECK(flights.in_flight() == 0);
  CHECK(flights.join("k", 0).role() == Role::kLeader);
}

TEST_CASE("a ticket holds the key across moves and lets go once") {
  SingleFlight flights;
  {
    auto a = flights.join("a", 0);
    auto moved = std::move(a);
    CHECK(moved.role() == Role::kLeader);
    CHECK(flights.in_flight() == 1);
    moved = flights.join("b", 0);  // lets "a" go
    CHECK(flights.join("a", 0).role() == Role::kLeader);
    CHECK(flights.join("b", 0).role() == Role::kBusy);
  }
  CHECK(flights.in_flight() == 0);
}

TEST_CASE("those who wait learn that the leader has finished") {
  SingleFlight flights;
  auto leader = flights.join("k", 0);
  std::atomic<int> waited = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] { waited += flights.join("k", SingleFlight::kForever).role() == Role::kWaited; });
  // One that comes after the release would lead, so give the four time to queue up; a late one fails no other check.
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  leader.release();
  for (std::thread& thread : threads) thread.join();
  CHECK(waited == 4);
}

TEST_CASE("sixteen threads tune each key once") {
  constexpr int kThreads = 16, kKeys = 5;
  SingleFlight flights;
  std::mutex store_mutex;
  std::map<std::string, int> store;  // stands for the cache: key → who tuned it
  std::atomic<int> tunings = 0, inside[kKeys] = {}, overlaps = 0;
  auto stored = [&](const std::string& key) {
    std::lock_guard lock(store_mutex);
    return store.count(key) > 0;
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 40; ++i) {
        int number = (t + i) % kKeys;
        std::string key = "key" + std::to_string(number);
        while (!stored(key)) {
          auto ticket = flights.join(key, SingleFlight::kForever);
          if (ticket.role() != Role::kLeader || stored(key)) continue;
          overlaps += inside[number]++ != 0;
          std::this_thread::sleep_for(std::chrono::milliseconds(2));
          ++tunings;
          --inside[number];
          std::lock_guard lock(store_mutex);
          store[key] = t;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(tunings == kKeys);
  CHECK(overlaps == 0);
  CHECK(flights.in_flight() == 0);
}

TEST_CASE("a key changes hands without a gap under contention") {
  SingleFlight flights;
  int unguarded = 0;  // a race here is what the thread sanitizer would see
  std::vector<std::thread> threads;
  for (int t = 0; t < 16; ++t) {
    threads.emplace_back([&] {
      for (int won = 0; won < 20;) {
        auto ticket = flights.join("one", SingleFlight::kForever);
        if (ticket.role() != Role::kLeader) continue;
        ++unguarded;
        ++won;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(unguarded == 16 * 20);
}

}  // namespace
}  // namespace kachel::tuner
