// Messages over a socket, in pieces, in excess, and what is none.
#include <doctest/doctest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "runtime/engine/process/channel.h"
#include "runtime/engine/process/handshake.h"
#include "runtime/engine/worker/messages.h"

namespace kachel::runtime {
namespace {

using Clock = std::chrono::steady_clock;

struct Ends {
  Ends() {
    int sockets[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) == 0);
    raw = sockets[0];
    channel = std::make_unique<Channel>(sockets[1]);
  }
  ~Ends() {
    if (raw >= 0) ::close(raw);
  }
  void say(std::string_view bytes) {
    REQUIRE(::send(raw, bytes.data(), bytes.size(), MSG_NOSIGNAL) == ssize_t(bytes.size()));
  }
  Result<std::optional<Message>> hear() { return channel->receive(Clock::now() + std::chrono::milliseconds(50)); }

  int raw;
  std::unique_ptr<Channel> channel;
};

std::string bytes_of(const Message& message) {
  Ends ends;
  REQUIRE(ends.channel->send(message, Channel::kNever).ok());
  std::string bytes(17 + message.body.size() + 1, '\0');
  const ssize_t got = ::recv(ends.raw, bytes.data(), bytes.size(), 0);
  REQUIRE(got > 0);
  bytes.resize(static_cast<size_t>(got));
  return bytes;
}

TEST_CASE("messages arrive whole, however they are cut") {
  const std::string two = bytes_of({7, 3, "hello"}) + bytes_of({8, 4, ""});
  for (size_t cut = 0; cut <= two.size(); ++cut) {
    Ends ends;
    ends.say(two.substr(0, cut));
    std::thread later([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      ends.say(two.substr(cut));
    });
    for (const Message& expected : {Message{7, 3, "hello"}, Message{8, 4, ""}}) {
      auto heard = ends.channel->receive(Clock::now() + std::chrono::seconds(10));
      REQUIRE(heard.ok());
      REQUIRE(heard->has_value());
      CHECK((*heard)->call == expected.call);
      CHECK((*heard)->type == expected.type);
      CHECK((*heard)->body == expected.body);
    }
    later.join();
    auto nothing = ends.channel->receive(Clock::now());
    REQUIRE(nothing.ok());
    CHECK(!nothing->has_value());
  }
}

TEST_CASE("what is no message, and an end that is closed, are errors") {
  Ends nonsense;
  nonsense.say("HTTP/1.1 400 Bad Request\r\n\r\n");
  CHECK(nonsense.hear().status().code() == Code::kInvalid);
  Ends huge;
  std::string bytes = bytes_of({1, 1, ""});
  bytes.replace(4, 4, "\xff\xff\xff\xff");
  huge.say(bytes);
  CHECK(huge.hear().status().code() == Code::kInvalid);
  Ends closed;
  CHECK(closed.channel->is_open());
  closed.say(bytes_of({1, 1, "half"}).substr(0, 19));
  ::close(closed.raw);
  closed.raw = -1;
  CHECK(!closed.channel->is_open());
  CHECK(closed.hear().status().code() == Code::kInternal);
  CHECK(closed.channel->send({1, 1, "x"}, Channel::kNever).code() == Code::kInternal);  // and no SIGPIPE
}

TEST_CASE("an end that takes nothing is given up at the deadline") {
  Ends ends;
  const auto begun = Clock::now();
  const Status sent = ends.channel->send({1, 1, std::string(1 << 24, 'x')}, begun + std::chrono::milliseconds(50));
  CHECK(sent.code() == Code::kBusy);
  CHECK(Clock::now() - begun < std::chrono::seconds(5));
  CHECK(ends.channel->send({1, 1, std::string(Channel::kMostBytes + 1, 'x')}, Channel::kNever).code() ==
        Code::kInternal);
}

TEST_CASE("a task is read back as it was written, and no part of it as another one") {
  WorkerTask task;
  task.devices = {"nvrtc", "llvm", 3};
  task.devices.launches_apart = true;
  task.compile_limit_ns = 5;
  task.device = {1, 0};
  task.text = "tile 1\n";
  task.consts = {{"causal", 1, 0}, {"scale", 0, 0.5}};
  task.arguments.push_back({WorkerTensor{ir::DType::I32, {4, 5}, {5, 1}, 80, 16, true}, 0});
  task.arguments.push_back({std::nullopt, 42});
  task.candidates = {{16, 32}, {64, 32}};
  const std::string bytes = encode_task(task);
  auto read = decode_task(bytes);
  REQUIRE(read.has_value());
  CHECK(encode_task(*read) == bytes);
  CHECK(read->devices.launches_apart);
  CHECK(read->arguments[0].tensor->strides == std::vector<int64_t>{5, 1});
  CHECK(WorkerTask::copies(*read->arguments[0].tensor));
  CHECK(read->arguments[1].scalar == 42);
  for (size_t size = 0; size < bytes.size(); ++size) CHECK(!decode_task(bytes.substr(0, size)));
  CHECK(!decode_task(bytes + "x"));

  const std::string answer = encode_answer({invalid("why"), "body"});
  CHECK(decode_answer(answer)->status.message() == "why");
  CHECK(decode_answer(answer)->body == "body");
  for (size_t size = 0; size < answer.size(); ++size) CHECK(!decode_answer(answer.substr(0, size)));

  const Hello hello{3, "build"};
  CHECK(decode_hello(encode_hello(hello) + "of a later version") == hello);
  CHECK(!decode_hello("KHel"));
}

}  // namespace
}  // namespace kachel::runtime
