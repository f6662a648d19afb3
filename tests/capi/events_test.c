/* Events through kachel.h alone: what a callback is given, that the log says the same, and what waits to be asked for.
 */
#define _GNU_SOURCE /* mkdtemp */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kachel.h"

static int failures = 0;

#define CHECK(condition)                                           \
  do {                                                             \
    if (!(condition)) {                                            \
      printf("line %d: %s does not hold\n", __LINE__, #condition); \
      ++failures;                                                  \
    }                                                              \
  } while (0)

enum { MOST = 256 };
typedef struct heard {
  int events, texts, kinds[64], levels[4];
  char messages[MOST][256], texts_of[MOST][256];
  char tuned_configuration[64], tuned_key[64];
  double tuned_median_ns;
  int64_t tuned_candidates;
} heard;

static void on_log(void *user, int32_t level, const char *message, size_t length) {
  heard *h = user;
  CHECK(level >= KACHEL_LOG_DEBUG && level <= KACHEL_LOG_ERROR);
  if (h->texts < MOST) snprintf(h->texts_of[h->texts], 256, "%.*s", (int)length, message);
  ++h->texts;
}

static void on_event(void *user, const kachel_event *event) {
  heard *h = user;
  size_t i;
  char name[80];
  CHECK(event->struct_size == sizeof *event);
  CHECK(event->kind >= 0 && event->kind < 64);
  CHECK(event->unix_us > 0 && event->duration_ns >= 0);
  CHECK(event->kernel && event->key && event->message && event->name);
  CHECK(event->field_count == 0 || event->fields != NULL);
  CHECK(event->json[0] == '{' && event->json[strlen(event->json) - 1] == '}');
  snprintf(name, sizeof name, "\"event\":\"%s\"", event->name);
  CHECK(strstr(event->json, name) != NULL);
  for (i = 0; i < event->field_count; ++i) {
    const kachel_event_field *field = &event->fields[i];
    snprintf(name, sizeof name, "\"%s\":", field->name);
    CHECK(strstr(event->json, name) != NULL);
    CHECK(field->kind == KACHEL_FIELD_INT || field->kind == KACHEL_FIELD_FLOAT || field->kind == KACHEL_FIELD_TEXT);
    if (event->kind != KACHEL_EVENT_TUNED) continue;
    if (strcmp(field->name, "configuration") == 0 && field->kind == KACHEL_FIELD_TEXT)
      snprintf(h->tuned_configuration, sizeof h->tuned_configuration, "%s", field->u.text);
    if (strcmp(field->name, "median_ns") == 0 && field->kind == KACHEL_FIELD_FLOAT) h->tuned_median_ns = field->u.f;
    if (strcmp(field->name, "candidates") == 0 && field->kind == KACHEL_FIELD_INT) h->tuned_candidates = field->u.i;
  }
  if (event->kind == KACHEL_EVENT_TUNED) snprintf(h->tuned_key, sizeof h->tuned_key, "%s", event->key);
  ++h->kinds[event->kind];
  ++h->levels[event->level];
  if (h->events < MOST) snprintf(h->messages[h->events], 256, "%s", event->message);
  ++h->events;
}

static kachel_engine *engine_with(heard *h, const char *store, uint32_t kept, uint64_t drift_check_ns,
                                  kachel_status expected) {
  kachel_engine_options options;
  kachel_tuning_options tuning;
  kachel_engine *engine = NULL;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.store_path = store;
  options.cpu_threads = 1;
  options.tune_budget_ns = 120000000000; /* both configurations, however busy the machine is; few runs of each */
  memset(&tuning, 0, sizeof tuning);
  tuning.struct_size = sizeof tuning;
  tuning.warmup_runs = 1, tuning.min_runs = 3, tuning.max_runs = 12;
  options.tuning = &tuning;
  if (h) {
    options.log = on_log, options.log_user = h;
    options.event = on_event, options.event_user = h;
  }
  options.events_kept = kept;
  options.drift_check_ns = drift_check_ns;
  CHECK(kachel_engine_create(&options, &engine, NULL) == expected);
  return engine;
}

static kachel_engine *engine_of(heard *h, const char *store, uint32_t kept, kachel_status expected) {
  return engine_with(h, store, kept, 0, expected);
}

/* A store that cannot be: one event, of which the log has the message. */
static void test_store(void) {
  heard h;
  kachel_engine *engine;
  memset(&h, 0, sizeof h);
  engine = engine_of(&h, "/proc/nowhere", 0, KACHEL_OK);
  CHECK(h.events == 1 && h.kinds[KACHEL_EVENT_STORE_DEGRADED] == 1 && h.levels[KACHEL_LOG_WARNING] == 1);
  CHECK(h.texts == 1 && strcmp(h.texts_of[0], h.messages[0]) == 0);
  kachel_engine_release(engine);
}

static void test_kept(void) {
  kachel_engine *engine = engine_of(NULL, "/proc/nowhere", 4, KACHEL_OK);
  kachel_text *text = NULL;
  kachel_error *err = NULL;
  CHECK(kachel_engine_events(engine, &text, NULL) == KACHEL_OK);
  CHECK(strstr(kachel_text_data(text), "\"event\":\"store_degraded\"") != NULL);
  CHECK(kachel_text_data(text)[kachel_text_size(text) - 1] == '\n');
  kachel_text_release(text);
  CHECK(kachel_engine_events(engine, &text, NULL) == KACHEL_OK);
  CHECK(kachel_text_size(text) == 0);
  kachel_text_release(text);
  CHECK(kachel_engine_events(NULL, &text, NULL) == KACHEL_E_INVALID);
  CHECK(kachel_engine_events(engine, NULL, NULL) == KACHEL_E_INVALID);
  kachel_engine_release(engine);

  engine = engine_of(NULL, "", 0, KACHEL_OK);
  CHECK(kachel_engine_events(engine, &text, &err) == KACHEL_E_INVALID);
  CHECK(err && strstr(kachel_error_message(err), "events_kept") != NULL);
  kachel_error_release(err);
  kachel_engine_release(engine);
  CHECK(engine_of(NULL, "", 65537, KACHEL_E_INVALID) == NULL);
}

#ifdef KACHEL_TEST_CPU
static const char *kText =
    "tile 1\n"
    "kernel add_one(X: f32[N], Y: out f32[N])\n"
    "key N\n"
    "tune BN = 64 | 256\n"
    "grid b < ceildiv(N, BN)\n"
    "{\n"
    "  fragment x: f32[BN]\n"
    "  x = X[b*BN +: BN]\n"
    "  parallel i < BN { x[i] += 1 }\n"
    "  Y[b*BN +: BN] = x\n"
    "}\n";

static int32_t find_tuning(void *user, const kachel_store_entry *entry) {
  if (strcmp(entry->kind, "tuning") == 0) snprintf(user, 64, "%s", entry->digest);
  return 0;
}

typedef struct history {
  int changes, decisions, stop_at;
  char digest[64];
} history;

static int32_t on_change(void *user, const kachel_store_change *change) {
  history *h = user;
  CHECK(change->struct_size == sizeof *change);
  CHECK(change->unix_us > 0 && change->pid > 0 && change->bytes > 0);
  CHECK(strcmp(change->what, "stored") == 0 && strcmp(change->kernel, "add_one") == 0);
  CHECK(strlen(change->digest) == 32 && strlen(change->host) > 0 && strcmp(change->version, kachel_version()) == 0);
  if (strcmp(change->kind, "tuning") == 0) {
    ++h->decisions;
    CHECK(strstr(change->description, "BN=") == change->description);
    snprintf(h->digest, sizeof h->digest, "%s", change->digest);
  }
  return ++h->changes == h->stop_at;
}

/* What was stored is in the store's log, under the digest that events and entries have. */
static void test_log(kachel_engine *engine, const char *tuned_key) {
  history h;
  uint64_t damaged = 99;
  int all;
  memset(&h, 0, sizeof h);
  CHECK(kachel_store_log(engine, on_change, &h, &damaged, NULL) == KACHEL_OK);
  CHECK(damaged == 0);
  CHECK(h.decisions == 1 && strcmp(h.digest, tuned_key) == 0);
  all = h.changes;
  CHECK(all >= 5); /* two binaries, two samples, a decision */
  memset(&h, 0, sizeof h);
  h.stop_at = 2;
  CHECK(kachel_store_log(engine, on_change, &h, NULL, NULL) == KACHEL_OK);
  CHECK(h.changes == 2);
  CHECK(kachel_store_log(engine, NULL, &h, NULL, NULL) == KACHEL_E_INVALID);
  CHECK(kachel_store_log(NULL, on_change, &h, NULL, NULL) == KACHEL_E_INVALID);
}

/* In another process, as it were: what is stored is checked, and each check says what came of it. */
static void test_drift(const char *folder, const kachel_arg *args) {
  heard h;
  kachel_stats stats;
  kachel_engine *engine;
  kachel_module *module = NULL;
  kachel_kernel *kernel = NULL;
  int launches;
  memset(&h, 0, sizeof h);
  memset(&stats, 0, sizeof stats);
  stats.struct_size = sizeof stats;
  engine = engine_with(&h, folder, 0, 1000000, KACHEL_OK);
  CHECK(kachel_module_create(engine, kText, strlen(kText), NULL, &module, NULL) == KACHEL_OK);
  CHECK(kachel_kernel_get(module, NULL, NULL, 0, &kernel, NULL) == KACHEL_OK);
  for (launches = 0; stats.drift_checks == 0 && launches < 10000; ++launches) {
    CHECK(kachel_launch(kernel, args, 2, NULL, NULL, NULL) == KACHEL_OK);
    CHECK(kachel_engine_wait(engine, -1, NULL) == KACHEL_OK);
    CHECK(kachel_engine_stats(engine, &stats) == KACHEL_OK);
  }
  CHECK(stats.drift_checks == 1);
  CHECK(h.kinds[KACHEL_EVENT_DRIFT_CHECKED] + h.kinds[KACHEL_EVENT_DRIFT_NOTICED] +
            h.kinds[KACHEL_EVENT_DECISION_REPLACED] ==
        1);
  CHECK(h.kinds[KACHEL_EVENT_DECISION_REPLACED] == (int)stats.drift_replacements);
  CHECK(stats.tunings == 0);
  CHECK(kachel_launch(kernel, args, 2, NULL, NULL, NULL) == KACHEL_OK);
  kachel_kernel_release(kernel);
  kachel_module_release(module);
  kachel_engine_release(engine);
}

static void test_tuning(void) {
  static float x[1000], y[1000];
  int64_t shape = 1000;
  heard h;
  char digest[64] = "", folder[256], remove[300];
  kachel_engine *engine;
  kachel_module *module = NULL;
  kachel_kernel *kernel = NULL;
  kachel_tensor tensors[2];
  kachel_arg args[2];
  kachel_stats stats;
  int i, before;
  memset(&h, 0, sizeof h);
  memset(tensors, 0, sizeof tensors);
  memset(args, 0, sizeof args);
  for (i = 0; i < 2; ++i) {
    tensors[i].data = i ? y : x;
    tensors[i].device.type = KACHEL_CPU;
    tensors[i].ndim = 1;
    tensors[i].dtype.code = 2, tensors[i].dtype.bits = 32, tensors[i].dtype.lanes = 1;
    tensors[i].shape = &shape;
    args[i].kind = KACHEL_ARG_TENSOR;
    args[i].u.tensor = &tensors[i];
  }
  snprintf(folder, sizeof folder, "%s/kachel-events-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
  CHECK(mkdtemp(folder) != NULL);
  engine = engine_of(&h, folder, 0, KACHEL_OK);
  CHECK(kachel_module_create(engine, kText, strlen(kText), NULL, &module, NULL) == KACHEL_OK);
  CHECK(kachel_kernel_get(module, NULL, NULL, 0, &kernel, NULL) == KACHEL_OK);
  CHECK(kachel_launch(kernel, args, 2, NULL, NULL, NULL) == KACHEL_OK);
  CHECK(y[999] == 1);
  memset(&stats, 0, sizeof stats);
  stats.struct_size = sizeof stats;
  CHECK(kachel_engine_stats(engine, &stats) == KACHEL_OK);
  CHECK(stats.compiles >= 2 && h.kinds[KACHEL_EVENT_COMPILED] == (int)stats.compiles);
  CHECK(h.kinds[KACHEL_EVENT_TUNED] == 1);
  CHECK(strcmp(h.tuned_configuration, "BN=64") == 0 || strcmp(h.tuned_configuration, "BN=256") == 0);
  CHECK(h.tuned_median_ns > 0);
  CHECK(h.tuned_candidates == 2);
  CHECK(kachel_store_iterate(engine, find_tuning, digest, NULL) == KACHEL_OK);
  CHECK(strcmp(h.tuned_key, digest) == 0);
  CHECK(h.events == h.texts && h.events <= MOST);
  for (i = 0; i < h.events && i < MOST; ++i) CHECK(strcmp(h.messages[i], h.texts_of[i]) == 0);
  before = h.events;
  for (i = 0; i < 10; ++i) CHECK(kachel_launch(kernel, args, 2, NULL, NULL, NULL) == KACHEL_OK);
  CHECK(h.events == before);
  test_log(engine, digest);
  kachel_kernel_release(kernel);
  kachel_module_release(module);
  kachel_engine_release(engine);
  test_drift(folder, args);
  snprintf(remove, sizeof remove, "rm -r '%s'", folder);
  CHECK(system(remove) == 0);
}
#endif

int main(void) {
  test_store();
  test_kept();
#ifdef KACHEL_TEST_CPU
  test_tuning();
#endif
  if (failures == 0) printf("all passed\n");
  return failures != 0;
}
