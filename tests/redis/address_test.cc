#include "address.h"

#include <doctest/doctest.h>

#include <random>

namespace kachel::redis {
namespace {

Address good(std::string_view text) {
  auto parsed = parse_address(text);
  const auto* wrong = std::get_if<std::string>(&parsed);
  REQUIRE_MESSAGE(!wrong, std::string(text), ": ", wrong ? *wrong : "");
  return std::get<Address>(parsed);
}

void bad(std::string_view text, const std::string& words) {
  auto parsed = parse_address(text);
  const auto* wrong = std::get_if<std::string>(&parsed);
  REQUIRE_MESSAGE(wrong, std::string(text));
  CHECK_MESSAGE(wrong->find(words) != std::string::npos, std::string(text), ": ", *wrong);
  CHECK(wrong->find("secret") == std::string::npos);
}

TEST_CASE("addresses of hosts") {
  Address a = good("redis://cache.example");
  CHECK(a.host == "cache.example");
  CHECK(a.port == 6379);
  CHECK(a.database == 0);
  CHECK(a.password.empty());
  CHECK(a.connect_ms == 50);
  CHECK(a.command_ms == 200);
  CHECK(a.ttl_s == 0);
  CHECK(a.name() == "redis://cache.example:6379/0");
  a = good("redis://me:s%40c:r@t@[::1]:7000/3?prefix=team%2fa%3a&ttl_s=86400&connect_ms=10&command_ms=1000");
  CHECK(a.host == "::1");
  CHECK(a.port == 7000);
  CHECK(a.database == 3);
  CHECK(a.user == "me");
  CHECK(a.password == "s@c:r@t");
  CHECK(a.prefix == "team/a:");
  CHECK(a.ttl_s == 86400);
  CHECK(a.connect_ms == 10);
  CHECK(a.command_ms == 1000);
  CHECK(a.name() == "redis://[::1]:7000/3");
  a = good("redis://:secret@10.0.0.1:1");
  CHECK(a.user.empty());
  CHECK(a.password == "secret");
  CHECK(a.name() == "redis://10.0.0.1:1/0");
  CHECK(good("redis://").host == "127.0.0.1");
  CHECK(good("redis://:6380").port == 6380);
  CHECK(good("redis://h/").database == 0);
  CHECK(good("redis://h/?db=4").database == 4);
  CHECK(good("redis://h?&db=4&").database == 4);
}

TEST_CASE("addresses of hosts that speak TLS") {
  CHECK_FALSE(good("redis://h").tls);
  Address a = good("rediss://me:secret@cache.example:7000/2?ca=/etc/a%26b.crt&cert=c.crt&key=c.key&ttl_s=5");
  CHECK(a.tls);
  CHECK(a.ca == "/etc/a&b.crt");
  CHECK(a.certificate == "c.crt");
  CHECK(a.key == "c.key");
  CHECK(a.ttl_s == 5);
  CHECK(a.name() == "rediss://cache.example:7000/2");
  CHECK(good("rediss://h").ca.empty());
}

TEST_CASE("addresses of sockets") {
  Address a = good("unix:///run/redis/s.sock?db=2");
  CHECK(a.socket == "/run/redis/s.sock");
  CHECK(a.database == 2);
  CHECK(a.name() == "unix:///run/redis/s.sock?db=2");
  a = good("unix://me:pass@/run/a%20b@c");
  CHECK(a.socket == "/run/a b@c");
  CHECK(a.password == "pass");
  CHECK(a.name() == "unix:///run/a b@c");
}

TEST_CASE("what is wrong with an address, and how to mend it") {
  bad("", "an address is redis://");
  bad("cache.example:6379", "an address is redis://");
  bad("http://cache.example", "an address is redis://");
  bad("rediss://h?cert=/a", "cert and key go together");
  bad("rediss://h?key=/a", "cert and key go together");
  bad("rediss://h?ca=%2", "a % of ca");
  bad("redis://h?ca=/a", "rediss://");
  bad("unix:///s?key=/a", "rediss://");
  bad("redis://h:0", "1 to 65535");
  bad("redis://h:70000", "1 to 65535");
  bad("redis://h:secret/0", "1 to 65535");
  bad("redis://[::1", "ends with ]");
  bad("redis://[::1]x", "stands a port");
  bad("redis://[]", "host is empty");
  bad("redis://h/x", "a database is a number");
  bad("redis://h/-1", "a database is a number");
  bad("redis://h/1/2", "a database is a number");
  bad("redis://me@h", "a user needs a password");
  bad("redis://me:%4x@h", "%25");
  bad("redis://me:%00@h", "%25");
  bad("redis://me:secret%@h", "%25");
  bad("redis://h?ttl=1", "there is no such option");
  bad("redis://h?ttl_s=-1", "a whole number");
  bad("redis://h?ttl_s=", "a whole number");
  bad("redis://h?connect_ms=0", "from 1 to");
  bad("redis://h?command_ms=1e3", "a whole number");
  bad("redis://h?prefix=%", "prefix");
  bad("unix://", "absolute");
  bad("unix://relative", "absolute");
  bad("unix:///" + std::string(107, 's'), "at most 107");
  bad(std::string_view("redis://a\0b", 11), "zero byte");
}

TEST_CASE("no text breaks the parser") {
  std::mt19937 random(7);
  const std::string_view pieces[] = {"redis://", "unix://", "rediss://", "@", ":", "/", "?",  "&",      "=",    "%",
                                     "%41",      "[",       "]",         "a", "0", "9", "db", "prefix", "ttl_s"};
  for (int round = 0; round < 50000; ++round) {
    std::string text = round % 2 ? "redis://" : "";
    for (unsigned n = random() % 12; n > 0; --n) text += pieces[random() % std::size(pieces)];
    auto parsed = parse_address(text);
    if (const auto* address = std::get_if<Address>(&parsed)) {
      CHECK((!address->host.empty() || !address->socket.empty()));
      CHECK(address->port > 0);
    } else {
      CHECK_FALSE(std::get<std::string>(parsed).empty());
    }
  }
}

}  // namespace
}  // namespace kachel::redis
