// A kachel_redis as a test wants it.
#pragma once
#include <doctest/doctest.h>

#include <chrono>
#include <string>

#include "kachel_redis.h"

namespace kachel::redis {

class Client {
 public:
  explicit Client(const std::string& address) {
    char text[256] = "";
    REQUIRE_MESSAGE(kachel_redis_create(address.c_str(), &redis_, text, sizeof text) == KACHEL_OK, text);
  }
  ~Client() { kachel_redis_release(redis_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  int32_t put(const std::string& key, const std::string& value) {
    return timed([&](char* text, size_t size) {
      return kachel_redis_put(redis_, key.data(), key.size(), value.data(), value.size(), text, size);
    });
  }
  int32_t get(const std::string& key) {
    value.clear();
    auto give = [](void* sink, const void* bytes, size_t size) -> int32_t {
      static_cast<std::string*>(sink)->append(static_cast<const char*>(bytes), size);
      return 0;
    };
    return timed([&](char* text, size_t size) {
      return kachel_redis_get(redis_, key.data(), key.size(), give, &value, text, size);
    });
  }
  bool says(const std::string& part) const { return why.find(part) != std::string::npos; }
  kachel_redis* get() { return redis_; }

  std::string value, why;  // of the latest call
  double seconds = 0;

 private:
  template <class Call>
  int32_t timed(Call&& call) {
    char text[256] = "";
    const auto begin = std::chrono::steady_clock::now();
    const int32_t answer = call(text, sizeof text);
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    why = text;
    CHECK(why.find("secret") == std::string::npos);
    return answer;
  }
  kachel_redis* redis_ = nullptr;
};

}  // namespace kachel::redis
