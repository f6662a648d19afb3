/* kachel_redis.h - a remote store for Kachel's engines in a server that speaks Redis' protocol. C99. UNSTABLE, as kachel.h.
 *
 *   kachel_redis *redis;
 *   char why[256];
 *   if (kachel_redis_create("redis://cache.example/0", &redis, why, sizeof why)) ...
 *   kachel_redis_attach(redis, &options);      before kachel_engine_create
 *   ...
 *   kachel_redis_release(redis);               after everything of that engine is released
 *
 * Threads  Everything may be called from any thread at once; calls of one object wait for each other.
 * Limits   There is one connection, made when it is needed and made again when it has broken. Connecting takes at most
 *          connect_ms for each address of the host (beside the name's look-up, which the system limits), and a command
 *          ends once command_ms have passed in which no byte moved, or 20 times that in all. The engine leaves a server
 *          that fails alone for a while; this library does not.
 * Security What arrives is as trustworthy as all who can write to the server: use the engine's store_key. The connection
 *          is encrypted, and the server has to prove who it is, with rediss:// alone. docs/sharing.md has more. */
#ifndef KACHEL_REDIS_H_
#define KACHEL_REDIS_H_

#include "kachel.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kachel_redis kachel_redis;

/* Connects to nothing yet. Addresses:
 *   redis://[[user]:password@]host[:port][/database][?options]     port 6379, database 0; [::1] in brackets
 *   rediss://...                                                   the same through TLS, where built with OpenSSL
 *   unix://[[user]:password@]/path/to/socket[?options]
 * Options, with & between them: db=0 (as the database), prefix=text (before every key), ttl_s=0 (how long a value lasts
 * after it was put; 0: for ever), connect_ms=50, command_ms=200; of rediss:// ca=FILE (who may have signed the server's
 * certificate; else whom the system trusts), cert=FILE and key=FILE (the client's own), all in PEM, which are read again
 * for each connection. %40 and the like stand for bytes.
 * KACHEL_E_INVALID for an address that is none of this or files that are of no use, with the mend in `why` (may be NULL),
 * never with a password. */
KACHEL_API kachel_status kachel_redis_create(const char *address, kachel_redis **out, char *why, size_t why_size);
KACHEL_API void kachel_redis_release(kachel_redis *redis);
/* The address without user, password and options; lives as long as the object. */
KACHEL_API const char *kachel_redis_name(const kachel_redis *redis);

/* Sets remote_get, remote_put and remote_user. The object is borrowed until the last handle of the engine is gone.
 * KACHEL_E_INVALID for NULL, and for options whose struct_size ends before those fields. */
KACHEL_API kachel_status kachel_redis_attach(kachel_redis *redis, kachel_engine_options *options);

/* The callbacks themselves; `redis` is a kachel_redis. */
KACHEL_API int32_t kachel_redis_get(void *redis, const char *key, size_t key_size,
                                    int32_t (*give)(void *sink, const void *bytes, size_t size), void *sink, char *why,
                                    size_t why_size);
KACHEL_API int32_t kachel_redis_put(void *redis, const char *key, size_t key_size, const void *value, size_t size,
                                    char *why, size_t why_size);

#ifdef __cplusplus
}
#endif
#endif /* KACHEL_REDIS_H_ */
