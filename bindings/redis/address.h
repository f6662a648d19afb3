// The address of a server, as kachel_redis.h describes it.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

namespace kachel::redis {

struct Address {
  std::string host = "127.0.0.1", socket;  // one of them: the socket where it is not ""
  int port = 6379, database = 0;
  std::string user, password;  // "": none
  std::string prefix;
  int64_t connect_ms = 50, command_ms = 200;
  int64_t ttl_s = 0;  // 0: values last for ever
  bool tls = false;
  std::string ca, certificate, key;  // files; "": those that the system trusts, none, none

  std::string name() const;  // without user, password and options
};

// Or what is wrong with it and how to mend that, without any secret in it.
std::variant<Address, std::string> parse_address(std::string_view text);

}  // namespace kachel::redis
