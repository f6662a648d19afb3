#include "runtime/engine/launch/dispatch_table.h"

#include <doctest/doctest.h>

#include <thread>

namespace kachel::runtime {
namespace {

// The table only compares and hands out these pointers.
const Specialisation* fake(uintptr_t id) {
  return reinterpret_cast<const Specialisation*>(0x1000 + 16 * id);
}

Signature signature(uint64_t id, uint64_t facts = 0) {
  Signature made;
  made.count = 4;
  made.words[0] = 7;
  made.words[1] = 1;
  made.words[kFactsWord] = facts;
  made.words[3] = id;
  made.hash = id * 0x9e3779b97f4a7c15ull + facts;
  return made;
}

TEST_CASE("what was published is found, replaced and forgotten") {
  DispatchTable<Specialisation> table;
  CHECK(table.find(signature(1)) == nullptr);
  for (uint64_t i = 0; i < 5000; ++i) REQUIRE(table.publish(signature(i), fake(i)));
  for (uint64_t i = 0; i < 5000; ++i) REQUIRE(table.find(signature(i)) == fake(i));
  CHECK(table.size() == 5000);
  CHECK(table.publish(signature(17), fake(9999)));
  CHECK(table.find(signature(17)) == fake(9999));
  CHECK(table.publish(signature(17), nullptr));
  CHECK(table.find(signature(17)) == nullptr);
  CHECK(table.size() == 5000);
}

TEST_CASE("what is forgotten and found again, however often, takes no more memory") {
  DispatchTable<Specialisation> table;
  for (uint64_t i = 0; i < 50; ++i) REQUIRE(table.publish(signature(i), fake(i)));
  for (int round = 0; round < 100; ++round) {
    CHECK(table.publish(signature(7), nullptr));
    CHECK(table.find(signature(7)) == nullptr);
    CHECK(table.publish(signature(7), fake(round % 2 ? 7 : 8)));
    CHECK(table.find(signature(7)) == fake(round % 2 ? 7 : 8));
  }
  CHECK(table.kept() == 52);  // forgotten, and the other one
  CHECK(table.find(signature(8)) == fake(8));
}

TEST_CASE("equal hashes are told apart") {
  DispatchTable<Specialisation> table;
  Signature a = signature(1), b = signature(2);
  b.hash = a.hash;
  CHECK(table.publish(a, fake(1)));
  CHECK(table.publish(b, fake(2)));
  CHECK(table.find(a) == fake(1));
  CHECK(table.find(b) == fake(2));
}

TEST_CASE("a full table refuses and goes on serving") {
  DispatchTable<Specialisation> table;
  for (uint64_t i = 0; i < DispatchTable<Specialisation>::kMaxEntries; ++i)
    REQUIRE(table.publish(signature(i), fake(i)));
  CHECK_FALSE(table.publish(signature(DispatchTable<Specialisation>::kMaxEntries), fake(1)));
  CHECK(table.publish(signature(5), fake(6)));
  CHECK(table.find(signature(5)) == fake(6));
  CHECK(table.find(signature(DispatchTable<Specialisation>::kMaxEntries)) == nullptr);
}

TEST_CASE("weaker facts serve stronger calls, never the reverse") {
  DispatchTable<Specialisation> table;
  table.publish(signature(1, 0b001), fake(1));
  table.publish(signature(1, 0b011), fake(3));
  table.publish(signature(1, 0b100), fake(4));
  CHECK(table.find_weaker(signature(1, 0b111)) == fake(3));
  CHECK(table.find_weaker(signature(1, 0b101)) == fake(4));
  CHECK(table.find_weaker(signature(1, 0b001)) == fake(1));
  CHECK(table.find_weaker(signature(1, 0b010)) == nullptr);
  CHECK(table.find_weaker(signature(2, 0b111)) == nullptr);
}

TEST_CASE("readers see whole entries while writers grow the table") {
  DispatchTable<Specialisation> table;
  constexpr uint64_t kKeys = 4000;
  std::atomic<bool> done{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int reader = 0; reader < 3; ++reader)
    threads.emplace_back([&, reader] {
      for (uint64_t i = reader; !done.load(); i = (i + 7) % kKeys) {
        const Specialisation* found = table.find(signature(i));
        if (found && found != fake(i) && found != fake(i + kKeys)) ++wrong;
      }
    });
  for (int writer = 0; writer < 2; ++writer)
    threads.emplace_back([&, writer] {
      for (uint64_t i = writer; i < kKeys; i += 2) {
        table.publish(signature(i), fake(i));
        table.publish(signature(i), fake(i + kKeys));
      }
    });
  threads[3].join();
  threads[4].join();
  done = true;
  for (int i = 0; i < 3; ++i) threads[i].join();
  CHECK(wrong == 0);
  for (uint64_t i = 0; i < kKeys; ++i) REQUIRE(table.find(signature(i)) == fake(i + kKeys));
}

}  // namespace
}  // namespace kachel::runtime
