// Keys, the files that hold them, and records that carry MACs.
#include "cache/mac.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/default_path.h"
#include "cache/mac_key_file.h"
#include "cache/record.h"
#include "support/bytes.h"
#include "tests/cache/support.h"

namespace kachel::cache {
namespace {

using namespace testing;

std::string_view bytes_of(const Mac& mac) {
  return {reinterpret_cast<const char*>(mac.data()), mac.size()};
}

TEST_CASE("a MAC is that of its key and its bytes alone, on every machine") {
  const auto keys = keys_of({"0123456789abcdef"});
  const Mac mac = keys->sign("abc");
  // Keyed BLAKE2b-256 by Python's hashlib, with the key blake2b(secret, key="kachel record key 1", 32 bytes).
  CHECK(to_hex(bytes_of(mac)) == "edf0b69e2b3e1372b328d1a0312d55eaca22deb8211436f636a7e166577bdaa0");
  CHECK(keys->accepts("abc", bytes_of(mac)));
  CHECK_FALSE(keys->accepts("abd", bytes_of(mac)));
  CHECK_FALSE(keys->accepts("", bytes_of(mac)));
  CHECK_FALSE(keys->accepts("abc", ""));
  CHECK_FALSE(keys->accepts("abc", bytes_of(mac).substr(1)));
  for (size_t at = 0; at < mac.size(); ++at) {
    Mac bad = mac;
    bad[at] ^= 0x10;
    CHECK_FALSE(keys->accepts("abc", bytes_of(bad)));
  }
  CHECK_FALSE(keys_of({"0123456789abcdeg"})->accepts("abc", bytes_of(mac)));
  CHECK_FALSE(keys_of({std::string("0123456789abcdef\n")})->accepts("abc", bytes_of(mac)));
}

TEST_CASE("the first key signs, all are accepted") {
  const auto old = keys_of({"the old key of all"}), both = keys_of({"the new key of all", "the old key of all"}),
             next = keys_of({"the new key of all"});
  CHECK(both->accepts("x", bytes_of(old->sign("x"))));
  CHECK(next->accepts("x", bytes_of(both->sign("x"))));
  CHECK_FALSE(next->accepts("x", bytes_of(old->sign("x"))));
}

TEST_CASE("keys that are too short or too long") {
  CHECK_FALSE(MacKeys::create({}).ok());
  CHECK_FALSE(MacKeys::create({""}).ok());
  CHECK(MacKeys::create({std::string(15, 'k')}).status().message().find("15 bytes") != std::string::npos);
  CHECK(MacKeys::create({std::string(16, 'k')}).ok());
  const std::string longest(MacKeys::kMostBytes, 'k'), longer = longest + "k";
  CHECK(MacKeys::create({longest}).ok());
  CHECK_FALSE(MacKeys::create({longest, longer}).ok());
}

TEST_CASE("a key file is its owner's alone") {
  Scratch scratch;
  const std::string path = scratch.path() + "/key";
  auto refused = [&](const std::string& what) {
    const auto read = read_mac_key(path);
    REQUIRE_FALSE(read.ok());
    CHECK(read.status().code() == Code::kInvalid);
    CHECK_MESSAGE(read.status().message().find(what) != std::string::npos, read.status().message());
  };
  refused("No such file");
  const std::string secret = "a secret of some length\n";
  write_file(path, secret);
  for (mode_t mode : {0640, 0604, 0660, 0666, 0610}) {
    REQUIRE(::chmod(path.c_str(), mode) == 0);
    refused("chmod 600");
  }
  for (mode_t mode : {0600, 0400}) {
    REQUIRE(::chmod(path.c_str(), mode) == 0);
    CHECK(*read_mac_key(path) == secret);
  }
  REQUIRE(::chmod(path.c_str(), 0600) == 0);
  write_file(path, std::string(100000, 'k'));
  CHECK_FALSE(MacKeys::create({*read_mac_key(path)}).ok());  // not read to its end, and not cut either
  if (::geteuid() == 0) {
    REQUIRE(::chown(path.c_str(), 12345, 0) == 0);
    refused("belongs to user 12345");
  }
  REQUIRE(::unlink(path.c_str()) == 0);
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  refused("not a regular file");
  REQUIRE(::unlink(path.c_str()) == 0);
  REQUIRE(::mkdir(path.c_str(), 0700) == 0);
  refused("not a regular file");
}

TEST_CASE("the variable that names key files") {
  CHECK(default_mac_key_files([](const char*) -> const char* { return nullptr; }).empty());
  CHECK(default_mac_key_files([](const char* name) -> const char* {
          return std::string_view(name) == "KACHEL_STORE_KEY_FILE" ? "/new:/old" : nullptr;
        }) == "/new:/old");
}

TEST_CASE("a record carries a MAC over all that it says") {
  const auto keys = keys_of({"0123456789abcdef"}), others = keys_of({"another key of 16"});
  const Key key = number_key(3);
  const std::string bytes = encode(key, "payload", 5, keys.get());
  auto record = decode(bytes);
  REQUIRE(record.ok());
  CHECK(record->key == key.bytes);
  CHECK(record->payload == "payload");
  CHECK(record->mac.size() == sizeof(Mac));
  CHECK(authentic(*record, *keys));
  CHECK_FALSE(authentic(*record, *others));

  const std::string plain = encode(key, "payload", 5);
  record = decode(plain);
  REQUIRE(record.ok());
  CHECK(record->mac.empty());
  CHECK_FALSE(authentic(*record, *keys));
  CHECK(bytes.size() == plain.size() + sizeof(Mac));

  // Whoever has no key can mend a checksum, but whatever he changes shows.
  const std::string body = bytes.substr(0, bytes.size() - sizeof(Digest));
  size_t decoded = 0;
  for (size_t at = 0; at < body.size(); ++at) {
    std::string bad = body;
    bad[at] ^= 4;
    bad = sealed(bad);
    record = decode(bad);
    if (!record.ok()) continue;
    ++decoded;
    REQUIRE_FALSE(authentic(*record, *keys));
  }
  CHECK(decoded >= key.bytes.size() + 7 + sizeof(Mac));
  // A MAC that is cut off, or is too many: neither is a record.
  for (size_t cut = 1; cut <= sizeof(Mac); ++cut) CHECK_FALSE(decode(sealed(body.substr(0, body.size() - cut))).ok());
  CHECK_FALSE(decode(sealed(body + "x")).ok());
  // That of another record.
  const std::string other = encode(number_key(4), "payload", 5, keys.get());
  std::string swapped = body.substr(0, body.size() - sizeof(Mac)) +
                        other.substr(other.size() - sizeof(Digest) - sizeof(Mac), sizeof(Mac));
  swapped = sealed(swapped);
  record = decode(swapped);
  REQUIRE(record.ok());
  CHECK_FALSE(authentic(*record, *keys));
}

}  // namespace
}  // namespace kachel::cache
