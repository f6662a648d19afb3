#include "remote.h"

#ifdef KACHEL_CLI_REDIS
#include "kachel_redis.h"
#endif

namespace kachel::cli {

#ifdef KACHEL_CLI_REDIS

namespace {

class RedisStore : public RemoteStore {
 public:
  explicit RedisStore(kachel_redis* redis) : redis_(redis) {}
  ~RedisStore() override { kachel_redis_release(redis_); }
  RedisStore(const RedisStore&) = delete;
  RedisStore& operator=(const RedisStore&) = delete;
  void attach(kachel_engine_options* options) override { (void)kachel_redis_attach(redis_, options); }

 private:
  kachel_redis* const redis_;
};

}  // namespace

Outcome<std::unique_ptr<RemoteStore>> open_remote(const std::string& address) {
  kachel_redis* redis = nullptr;
  char why[256] = "";
  if (kachel_redis_create(address.c_str(), &redis, why, sizeof why) != KACHEL_OK)
    return usage(std::string("--remote, or $KACHEL_REMOTE: ") + why);
  return std::unique_ptr<RemoteStore>(std::make_unique<RedisStore>(redis));
}

#else

Outcome<std::unique_ptr<RemoteStore>> open_remote(const std::string&) {
  return usage(
      "--remote, or $KACHEL_REMOTE: this command was built without hiredis; install libhiredis-dev and build it again");
}

#endif

}  // namespace kachel::cli
