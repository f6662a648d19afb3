// What kachel_redis.h declares: one connection behind a mutex, behind the C boundary.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <mutex>

#include "connection.h"
#include "kachel_redis.h"

struct kachel_redis {
  kachel::redis::Address address;
  std::string name;
  std::mutex mutex;
  std::unique_ptr<kachel::redis::Connection> connection;  // null: none is open
};

namespace {

using kachel::redis::Connection;
using kachel::redis::Reply;

void tell(char* why, size_t why_size, std::string_view text) {
  if (!why || why_size == 0) return;
  const size_t size = std::min(text.size(), why_size - 1);
  std::memcpy(why, text.data(), size);
  why[size] = 0;
}

// Null, and `why`. A connection that the server has closed meanwhile is made again, once.
Reply ask(kachel_redis& redis, std::initializer_list<std::string_view> words, std::string& why) {
  for (;;) {
    const bool fresh = !redis.connection;
    if (fresh) redis.connection = Connection::open(redis.address, why);
    if (!redis.connection) return nullptr;
    Reply reply = redis.connection->command(words, why);
    if (reply && reply->type != REDIS_REPLY_ERROR) return reply;
    // After an error too: it may be of a state that the next connection does not have.
    const bool again = !reply && !fresh && redis.connection->closed_by_peer();
    redis.connection.reset();
    if (reply) why = std::string(reply->str, reply->len);
    if (!again) return nullptr;
  }
}

// Runs `body`, which sets what is wrong; nothing is thrown to C.
template <class Body>
int32_t guarded(void* redis, char* why, size_t why_size, Body&& body) noexcept {
  if (!redis) {
    tell(why, why_size, "there is no kachel_redis");
    return KACHEL_REMOTE_FAILED;
  }
  try {
    auto& self = *static_cast<kachel_redis*>(redis);
    std::string wrong;
    const std::lock_guard lock(self.mutex);
    const int32_t answer = body(self, wrong);
    if (answer == KACHEL_REMOTE_FAILED) tell(why, why_size, self.name + ": " + wrong);
    return answer;
  } catch (const std::exception& exception) {
    tell(why, why_size, exception.what());
    return KACHEL_REMOTE_FAILED;
  }
}

}  // namespace

kachel_status kachel_redis_create(const char* address, kachel_redis** out, char* why, size_t why_size) {
  try {
    if (!address || !out) {
      tell(why, why_size, "`address` or `out` is NULL");
      return KACHEL_E_INVALID;
    }
    auto parsed = kachel::redis::parse_address(address);
    if (const auto* wrong = std::get_if<std::string>(&parsed)) {
      tell(why, why_size, *wrong);
      return KACHEL_E_INVALID;
    }
    auto redis = std::make_unique<kachel_redis>();
    redis->address = std::get<kachel::redis::Address>(std::move(parsed));
    if (redis->address.tls)
      if (const std::string wrong = kachel::redis::check_tls(redis->address); !wrong.empty()) {
        tell(why, why_size, wrong);
        return KACHEL_E_INVALID;
      }
    redis->name = redis->address.name();
    *out = redis.release();
    return KACHEL_OK;
  } catch (const std::exception& exception) {
    tell(why, why_size, exception.what());
    return KACHEL_E_NO_MEMORY;
  }
}

void kachel_redis_release(kachel_redis* redis) {
  delete redis;
}

const char* kachel_redis_name(const kachel_redis* redis) {
  return redis ? redis->name.c_str() : "";
}

kachel_status kachel_redis_attach(kachel_redis* redis, kachel_engine_options* options) {
  constexpr size_t kEnd = offsetof(kachel_engine_options, remote_user) + sizeof(void*);
  if (!redis || !options || options->struct_size < kEnd) return KACHEL_E_INVALID;
  options->remote_get = kachel_redis_get;
  options->remote_put = kachel_redis_put;
  options->remote_user = redis;
  return KACHEL_OK;
}

int32_t kachel_redis_get(void* redis, const char* key, size_t key_size,
                         int32_t (*give)(void* sink, const void* bytes, size_t size), void* sink, char* why,
                         size_t why_size) {
  return guarded(redis, why, why_size, [&](kachel_redis& self, std::string& wrong) -> int32_t {
    const Reply reply = ask(self, {"GET", self.address.prefix + std::string(key, key_size)}, wrong);
    if (!reply) return KACHEL_REMOTE_FAILED;
    if (reply->type == REDIS_REPLY_NIL) return KACHEL_REMOTE_ABSENT;
    if (reply->type != REDIS_REPLY_STRING) {
      wrong = "the reply to GET is no string";
      return KACHEL_REMOTE_FAILED;
    }
    (void)give(sink, reply->str, reply->len);  // in one piece, so that there is nothing to break off
    return KACHEL_REMOTE_DONE;
  });
}

int32_t kachel_redis_put(void* redis, const char* key, size_t key_size, const void* value, size_t size, char* why,
                         size_t why_size) {
  return guarded(redis, why, why_size, [&](kachel_redis& self, std::string& wrong) -> int32_t {
    const std::string name = self.address.prefix + std::string(key, key_size);
    const std::string_view bytes(static_cast<const char*>(value), size);
    const int64_t ttl_s = self.address.ttl_s;
    const Reply reply = ttl_s > 0 ? ask(self, {"SET", name, bytes, "EX", std::to_string(ttl_s)}, wrong)
                                  : ask(self, {"SET", name, bytes}, wrong);
    return reply ? KACHEL_REMOTE_DONE : KACHEL_REMOTE_FAILED;
  });
}
