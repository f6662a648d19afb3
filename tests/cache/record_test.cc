#include "cache/record.h"

#include <doctest/doctest.h>

#include "tests/cache/support.h"

namespace kachel::cache {
namespace {

using namespace testing;

TEST_CASE("a record gives back what it was given") {
  for (size_t size : {0, 1, 100, 5000, 100000}) {
    Key key = number_key(size);
    std::string payload = payload_of(1, size), bytes = encode(key, payload, 1234567890123);
    auto record = decode(bytes);
    REQUIRE(record.ok());
    CHECK(record->kind == Kind::kPlan);
    CHECK(record->created_us == 1234567890123);
    CHECK(record->key == key.bytes);
    CHECK(record->payload == payload);
  }
}

TEST_CASE("no flipped byte, no cut and no addition goes unnoticed") {
  const std::string bytes = encode(number_key(3), payload_of(2, 200), 5);
  for (size_t at = 0; at < bytes.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = bytes;
      bad[at] ^= static_cast<char>(1 << bit);
      auto record = decode(bad);
      REQUIRE_FALSE(record.ok());
      REQUIRE_FALSE(record.status().message().empty());
    }
    // A copy of exact size, so that a sanitizer sees any read beyond it.
    std::vector<char> cut(bytes.begin(), bytes.begin() + at);
    REQUIRE_FALSE(decode({cut.data(), cut.size()}).ok());
  }
  CHECK_FALSE(decode(bytes + '\0').ok());
  CHECK_FALSE(decode("").ok());
}

TEST_CASE("lengths that lie under a valid checksum are refused") {
  const std::string bytes = encode(number_key(3), "payload", 5);
  const std::string body = bytes.substr(0, bytes.size() - sizeof(Digest));
  REQUIRE(decode(sealed(body)).ok());
  for (uint64_t length : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 20, ~uint64_t{0}, ~uint64_t{0} - 7}) {
    std::string bad = body;
    std::memcpy(bad.data() + 16, &length, sizeof(length));
    CHECK_FALSE(decode(sealed(bad)).ok());
  }
  for (char flag : {1, 2, 64}) {
    std::string flags = body;
    flags[7] = flag;
    CHECK_FALSE(decode(sealed(flags)).ok());
  }
  Random random(11);
  for (int round = 0; round < 20000; ++round) {
    std::string bad = body.substr(0, 8 + random.below(body.size()));
    for (uint64_t n = 1 + random.below(3); n > 0; --n)
      bad[8 + random.below(bad.size() - 7) - 1] ^= 1 << random.below(8);
    bad = sealed(bad);
    if (auto record = decode(bad); record.ok()) REQUIRE(record->key.size() + record->payload.size() < bad.size());
  }
}

}  // namespace
}  // namespace kachel::cache
