// One connection to a server, over hiredis: commands with limits that a server which trickles or hangs cannot stretch.
#pragma once
#include <hiredis/hiredis.h>

#include <chrono>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

#include "address.h"
#include "transport.h"

namespace kachel::redis {

struct ReplyDeleter {
  void operator()(redisReply* reply) const { freeReplyObject(reply); }
};
using Reply = std::unique_ptr<redisReply, ReplyDeleter>;

// Not thread-safe.
class Connection {
 public:
  // Connected, authenticated, the server as well where that is asked for, and with its database chosen; or null, and
  // `why`.
  static std::unique_ptr<Connection> open(const Address& address, std::string& why);

  // Null, and `why`, where none came: the connection is of no further use then. An error of the server's is a reply.
  Reply command(std::initializer_list<std::string_view> words, std::string& why);
  // Whether the latest failure was that the other end had closed, as servers do with connections that idle.
  bool closed_by_peer() const { return closed_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct ContextDeleter {
    void operator()(redisContext* context) const { redisFree(context); }
  };
  Connection(const Address& address, redisContext* context);
  bool begin(const Address& address, std::string& why);
  bool greet(const Address& address, std::string& why);
  bool send(std::string_view bytes, Clock::time_point deadline, std::string& why);
  Reply receive(Clock::time_point deadline, std::string& why);
  // Whether to try again what has come to `progress`.
  bool goes_on(const Progress& progress, Clock::time_point deadline, std::string& why);
  bool wait(short events, Clock::time_point deadline, std::string& why);

  const std::chrono::milliseconds idle_;  // the longest that no byte may move
  const std::unique_ptr<redisContext, ContextDeleter> context_;
  std::unique_ptr<Transport> transport_;
  bool closed_ = false;
};

}  // namespace kachel::redis
