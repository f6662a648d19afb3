// The server that with_server.sh runs beside a test.
#pragma once
#include <doctest/doctest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace kachel::redis {

inline std::string from_environment(const char* name) {
  const char* value = std::getenv(name);
  REQUIRE_MESSAGE(value != nullptr, "this runs under with_server.sh");
  return value;
}

// What redis-cli says, as an administrator.
inline std::string cli(const std::string& command) {
  const std::string whole = "redis-cli -s " + from_environment("REDIS_SOCKET") + " " + command + " 2>&1";
  std::FILE* pipe = ::popen(whole.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::string said;
  std::array<char, 256> bytes;
  while (std::fgets(bytes.data(), bytes.size(), pipe)) said += bytes.data();
  ::pclose(pipe);
  while (!said.empty() && said.back() == '\n') said.pop_back();
  return said;
}

}  // namespace kachel::redis
