// Against a real server, which with_server.sh runs beside this.
#include <array>
#include <cstdlib>
#include <thread>
#include <vector>

#include "client.h"
#include "server.h"

namespace kachel::redis {
namespace {

// Patient, on a machine that has much else to do; the last of two equal options counts.
constexpr const char* kPatient = "?connect_ms=5000&command_ms=5000&";
std::string by_socket(const std::string& options = "", const std::string& user = "") {
  return "unix://" + user + from_environment("REDIS_SOCKET") + kPatient + options;
}
std::string by_port(const std::string& database = "/0") {
  return "redis://127.0.0.1:" + from_environment("REDIS_PORT") + database + kPatient;
}

TEST_CASE("values go there and come back, by socket and by port") {
  Client socket(by_socket()), port(by_port());
  CHECK(socket.get("kachel:1:a") == KACHEL_REMOTE_ABSENT);
  std::string bytes;
  for (int i = 0; i < 100000; ++i) bytes += static_cast<char>(i * 7 % 256);
  for (const std::string& value : {std::string(), std::string("\0\r\n$-1\r\n", 8), bytes}) {
    REQUIRE_MESSAGE(socket.put("kachel:1:a", value) == KACHEL_REMOTE_DONE, socket.why);
    REQUIRE_MESSAGE(port.get("kachel:1:a") == KACHEL_REMOTE_DONE, port.why);
    CHECK(port.value == value);
  }
}

TEST_CASE("values of tens of megabytes") {
  Client client(by_socket());
  std::string value(48 << 20, 'v');
  value[12345678] = 'x';
  REQUIRE_MESSAGE(client.put("large", value) == KACHEL_REMOTE_DONE, client.why);
  MESSAGE("put in ", client.seconds, " s");
  REQUIRE_MESSAGE(client.get("large") == KACHEL_REMOTE_DONE, client.why);
  MESSAGE("got in ", client.seconds, " s");
  CHECK((client.value == value));
  CHECK(cli("del large") == "1");
}

TEST_CASE("databases, prefixes, and values that last for a time") {
  Client first(by_socket()), second(by_socket("db=1")), third(by_port("/1")),
      named(by_socket("prefix=team:&ttl_s=500"));
  REQUIRE(second.put("where", "in 1") == KACHEL_REMOTE_DONE);
  CHECK(first.get("where") == KACHEL_REMOTE_ABSENT);
  CHECK(third.get("where") == KACHEL_REMOTE_DONE);
  CHECK(third.value == "in 1");
  REQUIRE(named.put("mine", "x") == KACHEL_REMOTE_DONE);
  CHECK(cli("get team:mine") == "x");
  const int left = std::atoi(cli("ttl team:mine").c_str());
  CHECK(left > 400);
  CHECK(left <= 500);
  CHECK(cli("-n 1 ttl where") == "-1");
  CHECK(named.get("mine") == KACHEL_REMOTE_DONE);
  Client absent(by_socket("db=100"));
  CHECK(absent.get("x") == KACHEL_REMOTE_FAILED);
  CHECK(absent.says("refuses the database"));
}

TEST_CASE("passwords and users") {
  REQUIRE(cli("acl setuser reader on '>secret1' '~*' +get") == "OK");
  REQUIRE(cli("config set requirepass secret2") == "OK");
  const std::string admin = "--no-auth-warning -a secret2 ";
  Client none(by_socket()), wrong(by_socket("", ":secret0@")), right(by_socket("", ":secret2@")),
      reader(by_socket("", "reader:secret1@"));
  CHECK(none.get("x") == KACHEL_REMOTE_FAILED);
  CHECK(none.says("NOAUTH"));
  CHECK(wrong.get("x") == KACHEL_REMOTE_FAILED);
  CHECK(wrong.says("refuses user or password: WRONGPASS"));
  CHECK(right.put("x", "y") == KACHEL_REMOTE_DONE);
  CHECK(reader.get("x") == KACHEL_REMOTE_DONE);
  CHECK(reader.put("x", "z") == KACHEL_REMOTE_FAILED);
  CHECK(reader.says("NOPERM"));
  CHECK(right.get("x") == KACHEL_REMOTE_DONE);
  CHECK(right.value == "y");
  REQUIRE(cli(admin + "config set requirepass ''") == "OK");
  CHECK(none.put("x", "now") == KACHEL_REMOTE_DONE);
}

TEST_CASE("connections that the server ends, a server without room, a key of another type") {
  Client client(by_socket());
  REQUIRE(client.put("kept", "value") == KACHEL_REMOTE_DONE);
  (void)cli("client kill type normal");
  CHECK(client.get("kept") == KACHEL_REMOTE_DONE);
  REQUIRE(cli("config set maxmemory 1") == "OK");
  CHECK(client.put("more", std::string(1000, 'x')) == KACHEL_REMOTE_FAILED);
  CHECK(client.says("OOM"));
  CHECK(client.get("kept") == KACHEL_REMOTE_DONE);
  REQUIRE(cli("config set maxmemory 0") == "OK");
  CHECK(client.put("more", "x") == KACHEL_REMOTE_DONE);
  REQUIRE(cli("rpush list 1 2") == "2");
  CHECK(client.get("list") == KACHEL_REMOTE_FAILED);
  CHECK(client.says("WRONGTYPE"));
  CHECK(client.get("kept") == KACHEL_REMOTE_DONE);
}

TEST_CASE("a server that pauses") {
  Client client(by_socket("command_ms=50"));
  REQUIRE(client.put("kept", "value") == KACHEL_REMOTE_DONE);
  REQUIRE(cli("client pause 400") == "OK");
  CHECK(client.get("kept") == KACHEL_REMOTE_FAILED);
  CHECK(client.says("no answer within 50 ms"));
  CHECK(client.seconds < 0.4);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  CHECK(client.get("kept") == KACHEL_REMOTE_DONE);
  CHECK(client.value == "value");
}

TEST_CASE("threads that share one object") {
  Client client(by_socket());
  std::vector<std::thread> threads;
  std::array<int, 8> right{};
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i) {
        const std::string key = "t" + std::to_string(t), value(1 + i * 13, static_cast<char>('a' + t));
        std::string got;
        auto give = [](void* sink, const void* bytes, size_t size) -> int32_t {
          static_cast<std::string*>(sink)->append(static_cast<const char*>(bytes), size);
          return 0;
        };
        if (kachel_redis_put(client.get(), key.data(), key.size(), value.data(), value.size(), nullptr, 0) == 0 &&
            kachel_redis_get(client.get(), key.data(), key.size(), give, &got, nullptr, 0) == 0 && got == value)
          ++right[static_cast<size_t>(t)];
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (int count : right) CHECK(count == 100);
}

}  // namespace
}  // namespace kachel::redis
