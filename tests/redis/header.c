/* kachel_redis.h on its own. */
#include "kachel_redis.h"

int32_t (*const kachel_test_get)(void *, const char *, size_t,
                                 int32_t (*)(void *, const void *, size_t), void *, char *, size_t) = kachel_redis_get;
