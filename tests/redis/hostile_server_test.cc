// Servers that hang, trickle, lie and leave, on a port of this process.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <thread>

#include "client.h"

namespace kachel::redis {
namespace {

// Serves one connection after another with `serve`, which returns when it has had enough.
class Server {
 public:
  explicit Server(std::function<void(int connection)> serve) : serve_(std::move(serve)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::bind(listener_, reinterpret_cast<sockaddr*>(&place), sizeof place) == 0);
    REQUIRE(::listen(listener_, 8) == 0);
    socklen_t size = sizeof place;
    REQUIRE(::getsockname(listener_, reinterpret_cast<sockaddr*>(&place), &size) == 0);
    port_ = ntohs(place.sin_port);
    thread_ = std::thread([this] {
      for (;;) {
        const int connection = ::accept(listener_, nullptr, nullptr);
        if (connection < 0) return;
        ++accepted;
        serve_(connection);
        ::close(connection);
      }
    });
  }
  ~Server() {
    stopping = true;
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    ::close(listener_);
  }
  std::string address(const std::string& options) const {
    return "redis://127.0.0.1:" + std::to_string(port_) + "/0?connect_ms=5000&" + options;
  }
  std::atomic<int> accepted{0};
  std::atomic<bool> stopping{false};

 private:
  const std::function<void(int)> serve_;
  int listener_ = -1;
  uint16_t port_ = 0;
  std::thread thread_;
};

void read_some(int connection) {
  char bytes[65536];
  (void)!::read(connection, bytes, sizeof bytes);
}
void write_all(int connection, const std::string& bytes) {
  (void)!::send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL);
}
// Until the other end goes.
void wait_for_end(int connection) {
  char byte;
  while (::recv(connection, &byte, 1, 0) > 0) {
  }
}

TEST_CASE("a server that does not answer costs one limit") {
  Server server([](int connection) { wait_for_end(connection); });
  Client client(server.address("command_ms=60"));
  CHECK(client.get("key") == KACHEL_REMOTE_FAILED);
  CHECK(client.says("no answer within 60 ms"));
  CHECK(client.seconds > 0.055);
  CHECK(client.seconds < 1);
  // What it says later would be the answer to another question: the connection is not used again.
  CHECK(client.get("key") == KACHEL_REMOTE_FAILED);
  CHECK(server.accepted == 2);
}

#ifdef KACHEL_REDIS_TLS
TEST_CASE("neither does one that says nothing where TLS is to begin, nor one that says something else") {
  Server silent([](int connection) { wait_for_end(connection); });
  Client client("rediss" + silent.address("command_ms=60").substr(5));
  CHECK(client.get("key") == KACHEL_REMOTE_FAILED);
  CHECK_MESSAGE(client.says("no answer within 60 ms"), client.why);
  CHECK(client.seconds < 1);
  Server other([](int connection) {
    read_some(connection);
    write_all(connection, "-ERR unknown command\r\n");
    wait_for_end(connection);
  });
  Client wrong("rediss" + other.address("command_ms=5000").substr(5));
  CHECK(wrong.get("key") == KACHEL_REMOTE_FAILED);
  CHECK_MESSAGE(wrong.says("does not speak TLS on this port"), wrong.why);
  Server leaving([](int connection) { read_some(connection); });
  Client left("rediss" + leaving.address("command_ms=5000").substr(5));
  CHECK(left.put("key", std::string(1 << 20, 'x')) == KACHEL_REMOTE_FAILED);  // and no SIGPIPE
  CHECK_MESSAGE(left.says("closed"), left.why);
}
#endif

TEST_CASE("a server that trickles costs twenty limits") {
  Server server([&](int connection) {
    read_some(connection);
    write_all(connection, "$100000\r\n");
    for (int i = 0; i < 300 && ::send(connection, "x", 1, MSG_NOSIGNAL) == 1; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
  });
  Client client(server.address("command_ms=20"));
  CHECK(client.get("key") == KACHEL_REMOTE_FAILED);
  CHECK(client.says("no answer within 400 ms"));
  CHECK(client.seconds > 0.3);
  CHECK(client.seconds < 5);
}

TEST_CASE("a server that is none") {
  for (const char* says : {"HTTP/1.1 400 Bad Request\r\n\r\n", "SSH-2.0-OpenSSH_9.2\r\n", "\r\n\r\n", "$abc\r\n",
                           "*-7\r\n", "$-9\r\nx", ":12x\r\n", "\xff\xfe"}) {
    Server server([=](int connection) {
      read_some(connection);
      write_all(connection, says);
      wait_for_end(connection);
    });
    Client client(server.address("command_ms=100"));
    CHECK_MESSAGE(client.get("key") == KACHEL_REMOTE_FAILED, says);
    CHECK_FALSE(client.why.empty());
    CHECK(client.seconds < 1);
  }
  for (const char* says : {":1\r\n", "+OK\r\n"}) {
    Server server([=](int connection) {
      read_some(connection);
      write_all(connection, says);
      wait_for_end(connection);
    });
    Client client(server.address("command_ms=100"));
    CHECK(client.get("key") == KACHEL_REMOTE_FAILED);
    CHECK(client.says("no string"));
  }
}

TEST_CASE("lengths that nobody will send are not waited for, nor made room for") {
  for (const char* says : {"$536870911\r\nx", "$99999999999999999999\r\n", "*1000000\r\n$1\r\nx\r\n",
                           "*1\r\n$1\r\nx\r\n", "*2147483647\r\n"}) {
    Server server([=](int connection) {
      read_some(connection);
      write_all(connection, says);
      wait_for_end(connection);
    });
    Client client(server.address("command_ms=50"));
    CHECK(client.get("key") == KACHEL_REMOTE_FAILED);
    CHECK(client.seconds < 1);
  }
}

TEST_CASE("a server that leaves: while it is written to, before it answers, in the middle of a value") {
  {
    Server server([](int) {});
    Client client(server.address("command_ms=200"));
    for (int i = 0; i < 3; ++i) {
      CHECK(client.put("key", std::string(8 << 20, 'x')) == KACHEL_REMOTE_FAILED);  // and no SIGPIPE
      CHECK(client.says("closed"));
    }
  }
  Server server([](int connection) {
    read_some(connection);
    write_all(connection, "$10\r\nabc");
  });
  Client client(server.address("command_ms=200"));
  CHECK(client.get("key") == KACHEL_REMOTE_FAILED);
  CHECK(client.says("closed"));
  CHECK(server.accepted == 1);  // a new connection is not tried twice
}

TEST_CASE("a server that has closed an idle connection is asked on a new one") {
  Server server([](int connection) {
    read_some(connection);
    write_all(connection, "$2\r\nok\r\n");
  });
  Client client(server.address("command_ms=200"));
  for (int i = 0; i < 3; ++i) {
    CHECK(client.get("key") == KACHEL_REMOTE_DONE);
    CHECK(client.value == "ok");
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  CHECK(server.accepted == 3);
}

TEST_CASE("nobody is there") {
  std::string address;
  {
    Server server([](int) {});
    address = server.address("");
  }
  Client client(address);
  CHECK(client.get("key") == KACHEL_REMOTE_FAILED);
  CHECK(client.says("refused"));
  CHECK(client.says("redis://127.0.0.1:"));
  Client socket("unix:///nowhere/at/all");
  CHECK(socket.put("key", "value") == KACHEL_REMOTE_FAILED);
  CHECK(socket.says("No such file"));
  Client name("redis://no-such-host.invalid");
  CHECK(name.get("key") == KACHEL_REMOTE_FAILED);
}

TEST_CASE("arguments that are none") {
  kachel_redis* redis = nullptr;
  char why[8] = "";
  CHECK(kachel_redis_create(nullptr, &redis, nullptr, 0) == KACHEL_E_INVALID);
  CHECK(kachel_redis_create("redis://h", nullptr, nullptr, 0) == KACHEL_E_INVALID);
  CHECK(kachel_redis_create("nonsense", &redis, why, sizeof why) == KACHEL_E_INVALID);
  CHECK(std::strlen(why) == 7);
  CHECK(redis == nullptr);
  CHECK(kachel_redis_get(nullptr, "k", 1, nullptr, nullptr, why, sizeof why) == KACHEL_REMOTE_FAILED);
  CHECK(std::string(kachel_redis_name(nullptr)).empty());
  kachel_redis_release(nullptr);

  Client client("redis://:secret@h:1/2");
  CHECK(std::string(kachel_redis_name(client.get())) == "redis://h:1/2");
  kachel_engine_options options{};
  CHECK(kachel_redis_attach(client.get(), nullptr) == KACHEL_E_INVALID);
  CHECK(kachel_redis_attach(client.get(), &options) == KACHEL_E_INVALID);
  options.struct_size = offsetof(kachel_engine_options, remote_user);
  CHECK(kachel_redis_attach(client.get(), &options) == KACHEL_E_INVALID);
  options.struct_size = sizeof options;
  CHECK(kachel_redis_attach(client.get(), &options) == KACHEL_OK);
  CHECK((options.remote_get == kachel_redis_get));
  CHECK(options.remote_user == client.get());
}

}  // namespace
}  // namespace kachel::redis
