/* A host that gives its engines a key-value store: two of them share a table, with and without a key. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kachel.h"

static int failures = 0;

#define CHECK(condition)                                        \
  do {                                                          \
    if (!(condition)) {                                         \
      printf("%s:%d: %s\n", __FILE__, __LINE__, #condition);    \
      ++failures;                                               \
    }                                                           \
  } while (0)

static const char *kText =
    "tile 1\n"
    "kernel twice(A: f32[N], C: out f32[N])\n"
    "key N\n"
    "tune BN = 16 | 32\n"
    "grid b < ceildiv(N, BN)\n"
    "{\n"
    "  fragment x: f32[BN]\n"
    "  x = A[b*BN +: BN]\n"
    "  parallel i < BN { x[i] = x[i] + x[i] }\n"
    "  C[b*BN +: BN] = x\n"
    "}\n";

/* The table. The engine calls from one thread of its own; the test looks at it while no engine lives. */
enum { ROOM = 64 };
struct table {
  char keys[ROOM][64];
  void *values[ROOM];
  size_t sizes[ROOM];
  int count, failing;
};

static int find(const struct table *table, const char *key, size_t key_size) {
  int i;
  for (i = 0; i < table->count; ++i)
    if (strlen(table->keys[i]) == key_size && memcmp(table->keys[i], key, key_size) == 0) return i;
  return -1;
}

static int32_t table_get(void *user, const char *key, size_t key_size,
                         int32_t (*give)(void *sink, const void *bytes, size_t size), void *sink, char *why,
                         size_t why_size) {
  struct table *table = user;
  int at = find(table, key, key_size);
  size_t half;
  if (table->failing) {
    snprintf(why, why_size, "the table is closed");
    return KACHEL_REMOTE_FAILED;
  }
  if (at < 0) return KACHEL_REMOTE_ABSENT;
  half = table->sizes[at] / 2;
  if (give(sink, table->values[at], half) != 0) return KACHEL_REMOTE_FAILED;
  give(sink, (char *)table->values[at] + half, table->sizes[at] - half);
  return KACHEL_REMOTE_DONE;
}

static int32_t table_put(void *user, const char *key, size_t key_size, const void *value, size_t size, char *why,
                         size_t why_size) {
  struct table *table = user;
  int at = find(table, key, key_size);
  (void)why;
  (void)why_size;
  if (table->failing) return 77; /* any value that is not known is a failure */
  if (key_size != 41 || strncmp(key, "kachel:1:", 9) != 0 || key[key_size] != 0) return KACHEL_REMOTE_FAILED;
  if (at < 0) {
    if (table->count == ROOM) return KACHEL_REMOTE_FAILED;
    at = table->count++;
    memcpy(table->keys[at], key, key_size);
  }
  free(table->values[at]);
  table->values[at] = malloc(size);
  memcpy(table->values[at], value, size);
  table->sizes[at] = size;
  return KACHEL_REMOTE_DONE;
}

struct log {
  char text[4096];
};
static void log_line(void *user, int32_t level, const char *message, size_t length) {
  struct log *log = user;
  size_t used = strlen(log->text);
  if (level < KACHEL_LOG_WARNING || used + length + 2 > sizeof log->text) return;
  memcpy(log->text + used, message, length);
  strcpy(log->text + used + length, "\n");
}

static kachel_engine_options options_of(struct table *table, struct log *log, const char *key) {
  kachel_engine_options options;
  memset(&options, 0, sizeof options);
  memset(log, 0, sizeof *log);
  options.struct_size = sizeof options;
  options.store_path = "";
  options.cpu_threads = 1;
  options.policy = KACHEL_POLICY_OFF;
  options.log = log_line;
  options.log_user = log;
  options.remote_get = table_get;
  options.remote_put = table_put;
  options.remote_user = table;
  options.store_key = key;
  options.store_key_size = key ? strlen(key) : 0;
  return options;
}

/* A machine: an engine with an empty store of its own, and one launch. */
static kachel_stats launch(const kachel_engine_options *options) {
  static float a[100], c[100];
  int64_t shape[1] = {100};
  kachel_tensor ta, tc;
  kachel_arg args[2];
  kachel_engine *engine = NULL;
  kachel_module *module = NULL;
  kachel_kernel *kernel = NULL;
  kachel_error *err = NULL;
  kachel_text *text = NULL;
  kachel_stats stats;
  char line[64];
  int i;
  memset(&ta, 0, sizeof ta);
  memset(args, 0, sizeof args);
  memset(&stats, 0, sizeof stats);
  stats.struct_size = sizeof stats;
  for (i = 0; i < 100; ++i) a[i] = (float)i, c[i] = 0;
  ta.device.type = KACHEL_CPU;
  ta.ndim = 1;
  ta.shape = shape;
  kachel_dtype_parse("f32", &ta.dtype);
  tc = ta;
  ta.data = a;
  tc.data = c;
  args[0].u.tensor = &ta;
  args[1].u.tensor = &tc;
  if (kachel_engine_create(options, &engine, &err) ||
      kachel_module_create(engine, kText, strlen(kText), "twice.tile", &module, &err) ||
      kachel_kernel_get(module, NULL, NULL, 0, &kernel, &err) || kachel_launch(kernel, args, 2, NULL, NULL, &err) ||
      kachel_engine_wait(engine, 20000000000, &err) || kachel_engine_metrics(engine, &text, &err)) {
    printf("%s\n", kachel_error_message(err));
    exit(1);
  }
  for (i = 0; i < 100; ++i) CHECK(c[i] == 2 * (float)i);
  CHECK(kachel_engine_stats(engine, &stats) == KACHEL_OK);
  snprintf(line, sizeof line, "\nkachel_remote_hits_total %d\n", (int)stats.remote_hits);
  CHECK(strstr(kachel_text_data(text), line) != NULL);
  kachel_text_release(text);
  kachel_kernel_release(kernel);
  kachel_module_release(module);
  kachel_engine_release(engine);
  return stats;
}

static void shares(void) {
  static struct table table;
  struct log log;
  kachel_engine_options options = options_of(&table, &log, "");
  kachel_stats stats;
  int before;
  options.policy = KACHEL_POLICY_BLOCKING;
  options.tune_budget_ns = 2000000000u;
  stats = launch(&options);
  before = table.count;
  CHECK(stats.tunings == 1 && stats.compiles >= 2 && stats.remote_hits == 0 && stats.remote_misses > 0);
  CHECK(before > 0 && stats.remote_puts == (uint64_t)before && log.text[0] == 0);
  stats = launch(&options);
  CHECK(stats.tunings == 0 && stats.compiles == 0 && stats.measurements == 0 && stats.remote_hits == 2);
  CHECK(stats.remote_puts == 0 && table.count == before && log.text[0] == 0);

  /* With a key that the table's entries do not carry, the binary is made anew and signed; then it is found. */
  options = options_of(&table, &log, "the key of our machines");
  stats = launch(&options);
  CHECK(stats.compiles == 1 && stats.remote_hits == 0 && stats.store_refused_macs > 0);
  CHECK(strstr(log.text, "without a MAC"));
  stats = launch(&options);
  CHECK(stats.compiles == 0 && stats.remote_hits == 1);
  /* Keys are exchanged: the old one is accepted. */
  options = options_of(&table, &log, "the key of tomorrow....");
  options.accepted_store_key = "the key of our machines";
  options.accepted_store_key_size = strlen(options.accepted_store_key);
  stats = launch(&options);
  CHECK(stats.compiles == 0 && stats.remote_hits == 1 && strstr(log.text, "another key") == NULL);
  options.accepted_store_key = NULL;
  options.accepted_store_key_size = 0;
  stats = launch(&options);
  CHECK(stats.compiles == 1 && stats.remote_hits == 0 && strstr(log.text, "another key"));

  table.failing = 1;
  options = options_of(&table, &log, "");
  stats = launch(&options);
  CHECK(stats.compiles == 1 && stats.remote_errors >= 2 && strstr(log.text, "the table is closed"));
}

static void refuses(int line, const kachel_engine_options *options, const char *words) {
  kachel_engine *engine = NULL;
  kachel_error *err = NULL;
  if (kachel_engine_create(options, &engine, &err) != KACHEL_E_INVALID || engine != NULL ||
      strstr(kachel_error_message(err), words) == NULL) {
    printf("line %d: %s\n", line, kachel_error_message(err));
    ++failures;
  }
  kachel_error_release(err);
  kachel_engine_release(engine);
}

static void keys(void) {
  static struct table table;
  struct log log;
  char path[] = "/tmp/kachel-remote-XXXXXX";
  int file = mkstemp(path);
  kachel_engine_options options = options_of(&table, &log, "too short");
  kachel_stats stats;
  refuses(__LINE__, &options, "9 bytes; use 16 to 4096");
  options.store_key = NULL;
  refuses(__LINE__, &options, "store_key_size is set without store_key");
  options = options_of(&table, &log, "");
  options.accepted_store_key = "an old key without a new one";
  options.accepted_store_key_size = 20;
  refuses(__LINE__, &options, "accepted_store_key");

  /* In a file that a variable names, unless the host says something. */
  CHECK(write(file, "the key in a file\n", 18) == 18);
  close(file);
  setenv("KACHEL_STORE_KEY_FILE", path, 1);
  options = options_of(&table, &log, NULL);
  stats = launch(&options);
  CHECK(stats.remote_puts > 0 && stats.store_refused_macs == 0);
  options = options_of(&table, &log, "the key in a file\n");
  stats = launch(&options);
  CHECK(stats.remote_hits == 1);
  options = options_of(&table, &log, NULL);
  chmod(path, 0644);
  refuses(__LINE__, &options, "chmod 600");
  remove(path);
  refuses(__LINE__, &options, "No such file");
  options = options_of(&table, &log, "");
  stats = launch(&options);
  CHECK(stats.remote_hits == 1);
  unsetenv("KACHEL_STORE_KEY_FILE");
}

int main(void) {
  shares();
  keys();
  if (failures == 0) printf("ok\n");
  return failures != 0;
}
