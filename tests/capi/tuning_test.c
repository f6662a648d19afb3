/* What a host may decide in tunings, through kachel.h alone and on the CPU: early prune, a performance model of its own,
 * top-k, a benchmark of its own, hooks, counts of runs, cancellation. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kachel.h"

static int failures = 0;

#define CHECK(condition)                                          \
  do {                                                            \
    if (!(condition)) {                                           \
      printf("line %d: %s does not hold\n", __LINE__, #condition); \
      ++failures;                                                 \
    }                                                             \
  } while (0)

#ifdef KACHEL_TEST_CPU

static const char *kText =
    "tile 1\n"
    "kernel add_one(X: f32[N], Y: inout f32[N])\n"
    "key N\n"
    "tune BN = 64 | 128 | 256 | 512, way = 1 | 2\n"
    "grid b < ceildiv(N, BN)\n"
    "{\n"
    "  fragment x: f32[BN], y: f32[BN]\n"
    "  x = X[b*BN +: BN]\n"
    "  y = Y[b*BN +: BN]\n"
    "  parallel i < BN { y[i] += x[i] + (way - way) }\n"
    "  Y[b*BN +: BN] = y\n"
    "}\n";
static const char *kDerived =
    "tile 1\n"
    "kernel add_one(X: f32[N], Y: inout f32[N])\n"
    "key N\n"
    "tune auto BN\n"
    "grid b < ceildiv(N, BN)\n"
    "{\n"
    "  fragment x: f32[BN], y: f32[BN]\n"
    "  x = X[b*BN +: BN]\n"
    "  y = Y[b*BN +: BN]\n"
    "  parallel i < BN { y[i] += x[i] }\n"
    "  Y[b*BN +: BN] = y\n"
    "}\n";

enum { N = 1000 };
static float x[N], y[N];

typedef struct host {
  int pruned, predicted, benchmarked, before, after, runs;
  int stop_at; /* callbacks until the tuning is ended; 0: never */
  int calls;
} host;

static int32_t next(host *h) {
  return ++h->calls == h->stop_at ? 7 : 0;
}

static void look_at(const kachel_configurations *all) {
  uint32_t i, j;
  CHECK(all->struct_size == sizeof *all);
  CHECK(strcmp(all->kernel, "add_one") == 0);
  CHECK(all->device.type == KACHEL_CPU);
  CHECK(all->dim_count == 1 && strcmp(all->dims[0], "N") == 0 && all->dim_values[0] == N);
  for (i = 0; i < all->count; ++i) {
    char text[64] = "";
    for (j = 0; j < all->tunable_count; ++j)
      snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s=%d", j ? "," : "", all->tunables[j],
               (int)all->values[i * all->tunable_count + j]);
    CHECK(strcmp(text, all->texts[i]) == 0);
  }
}

static int32_t prune(void *user, const kachel_configurations *all, uint8_t *keep) {
  host *h = user;
  uint32_t i;
  look_at(all);
  CHECK(all->count == 8 && all->tunable_count == 2);
  for (i = 0; i < all->count; ++i) {
    CHECK(keep[i] == 1);
    keep[i] = all->values[2 * i + 1] == 1;
  }
  ++h->pruned;
  return next(h);
}

static int32_t predict(void *user, const kachel_configurations *all, double *ns) {
  host *h = user;
  uint32_t i;
  look_at(all);
  for (i = 0; i < all->count; ++i) {
    CHECK(isnan(ns[i]));
    ns[i] = 1e6 / (double)all->values[all->tunable_count * i];
  }
  ++h->predicted;
  return next(h);
}

static int32_t benchmark(void *user, const kachel_configurations *one, const kachel_trial *trial, double *ns,
                         uint32_t capacity, uint32_t *count) {
  host *h = user;
  uint32_t i;
  look_at(one);
  CHECK(one->count == 1);
  CHECK(trial->struct_size == sizeof *trial);
  CHECK(capacity >= 100);
  for (i = 0; i < 5; ++i) {
    CHECK(trial->restore(trial->self) == KACHEL_OK);
    CHECK(trial->flush(trial->self) == KACHEL_OK);
    CHECK(trial->launch(trial->self, 2) == KACHEL_OK);
    CHECK(trial->synchronize(trial->self) == KACHEL_OK);
    ns[i] = one->values[0] == 256 ? 50 : 100;
  }
  *count = 5;
  ++h->benchmarked;
  return next(h);
}

static int32_t before_run(void *user, const kachel_configurations *one, void *stream) {
  host *h = user;
  look_at(one);
  (void)stream;
  CHECK(h->before == h->after);
  ++h->before;
  return next(h);
}
static int32_t after_run(void *user, const kachel_configurations *one, void *stream) {
  host *h = user;
  look_at(one);
  (void)stream;
  ++h->after;
  CHECK(h->before == h->after);
  return next(h);
}

static kachel_kernel *kernel_of(const char *text, const kachel_engine_options *options, kachel_engine **engine) {
  kachel_module *module = NULL;
  kachel_kernel *kernel = NULL;
  CHECK(kachel_engine_create(options, engine, NULL) == KACHEL_OK);
  CHECK(kachel_module_create(*engine, text, strlen(text), "tuning.tile", &module, NULL) == KACHEL_OK);
  CHECK(kachel_kernel_get(module, NULL, NULL, 0, &kernel, NULL) == KACHEL_OK);
  kachel_module_release(module);
  return kernel;
}

static int64_t shape[1] = {N};
static kachel_tensor tensors[2];
static kachel_arg args[2];

static void make_args(void) {
  int i;
  memset(tensors, 0, sizeof tensors);
  memset(args, 0, sizeof args);
  for (i = 0; i < 2; ++i) {
    tensors[i].data = i ? y : x;
    tensors[i].device.type = KACHEL_CPU;
    tensors[i].ndim = 1;
    tensors[i].shape = shape;
    kachel_dtype_parse("f32", &tensors[i].dtype);
    args[i].kind = KACHEL_ARG_TENSOR;
    args[i].u.tensor = &tensors[i];
  }
  for (i = 0; i < N; ++i) x[i] = 1, y[i] = (float)i;
}

static int tried(kachel_kernel *kernel, char *winner) {
  kachel_tuning *tuning = NULL;
  int32_t i;
  int count = 0;
  winner[0] = 0;
  if (kachel_tuning_get(kernel, args, 2, &tuning, NULL) != KACHEL_OK) return -1;
  for (i = 0; i < kachel_tuning_count(tuning); ++i) {
    kachel_candidate candidate;
    candidate.struct_size = sizeof candidate;
    CHECK(kachel_tuning_candidate(tuning, i, &candidate) == KACHEL_OK);
    count += candidate.state != KACHEL_CANDIDATE_UNTRIED;
    if (i == kachel_tuning_winner(tuning)) strcpy(winner, candidate.configuration);
  }
  kachel_tuning_release(tuning);
  return count;
}

static void test_benchmark(void) {
  host h = {0};
  kachel_engine *engine = NULL;
  kachel_engine_options options;
  kachel_tuning_options tuning;
  kachel_kernel *kernel;
  char winner[64];
  int i;
  memset(&options, 0, sizeof options);
  memset(&tuning, 0, sizeof tuning);
  tuning.struct_size = sizeof tuning;
  tuning.user = &h;
  tuning.prune = prune;
  tuning.predict = predict;
  tuning.benchmark = benchmark;
  options.struct_size = sizeof options;
  options.store_path = "";
  options.tune_trials = 3;
  options.tuning = &tuning;
  kernel = kernel_of(kText, &options, &engine);
  memset(&tuning, 0xff, sizeof tuning); /* it was read */
  make_args();
  CHECK(kachel_prepare(kernel, args, 2, NULL, NULL, NULL) == KACHEL_OK);
  CHECK(h.pruned == 1 && h.predicted == 1 && h.benchmarked == 3);
  CHECK(tried(kernel, winner) == 3);
  CHECK(strcmp(winner, "BN=256,way=1") == 0);
  for (i = 0; i < N; ++i) CHECK(y[i] == (float)i);
  CHECK(kachel_launch(kernel, args, 2, NULL, NULL, NULL) == KACHEL_OK);
  for (i = 0; i < N; ++i) CHECK(y[i] == (float)i + 1);
  kachel_kernel_release(kernel);
  kachel_engine_release(engine);
}

static void test_launch_options(void) {
  host h = {0};
  kachel_engine *engine = NULL;
  kachel_engine_options options;
  kachel_launch_options launch;
  kachel_tuning_options tuning;
  kachel_kernel *kernel;
  kachel_error *err = NULL;
  char winner[64];
  memset(&options, 0, sizeof options);
  memset(&launch, 0, sizeof launch);
  memset(&tuning, 0, sizeof tuning);
  options.struct_size = sizeof options;
  options.store_path = "";
  launch.struct_size = sizeof launch;
  launch.tuning = &tuning;
  launch.tune_trials = 2;
  tuning.struct_size = sizeof tuning;
  tuning.user = &h;
  tuning.before_run = before_run;
  tuning.after_run = after_run;
  tuning.warmup_runs = 1;
  tuning.min_runs = 3;
  tuning.max_runs = 3;
  make_args();
  kernel = kernel_of(kDerived, &options, &engine);

  h.stop_at = 5;
  CHECK(kachel_prepare(kernel, args, 2, &launch, NULL, &err) == KACHEL_E_CANCELLED);
  CHECK(err && strstr(kachel_error_message(err), "the callback `before_run` ended the tuning: it returned 7") != NULL);
  kachel_error_release(err), err = NULL;
  CHECK(tried(kernel, winner) == -1);

  memset(&h, 0, sizeof h);
  CHECK(kachel_prepare(kernel, args, 2, &launch, NULL, NULL) == KACHEL_OK);
  CHECK(tried(kernel, winner) == 2);
  CHECK(h.before == h.after && h.before >= 2 && h.before <= 2 * 4);
  launch.tune_trials = 4;
  CHECK(kachel_prepare(kernel, args, 2, &launch, NULL, NULL) == KACHEL_OK);
  CHECK(tried(kernel, winner) == 4);
  launch.tune_trials = 1;
  memset(&h, 0, sizeof h);
  CHECK(kachel_prepare(kernel, args, 2, &launch, NULL, NULL) == KACHEL_OK);
  CHECK(h.before == 0);

  tuning.min_runs = 9;
  CHECK(kachel_prepare(kernel, args, 2, &launch, NULL, &err) == KACHEL_E_INVALID);
  CHECK(err && strstr(kachel_error_message(err), "min_runs (9) is more than max_runs (3)") != NULL);
  kachel_error_release(err), err = NULL;
  tuning.struct_size = 4;
  CHECK(kachel_prepare(kernel, args, 2, &launch, NULL, NULL) == KACHEL_E_INVALID);
  kachel_kernel_release(kernel);
  kachel_engine_release(engine);
}

int main(void) {
  test_benchmark();
  test_launch_options();
  if (failures == 0) printf("all passed\n");
  return failures != 0;
}

#else

int main(void) {
  printf("SKIPPED: there is no CPU compiler\n");
  return 0;
}

#endif
