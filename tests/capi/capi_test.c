/* A C99 program that uses nothing but kachel.h: a kernel from text to results on the CPU, tuned, bound, checked, found
 * again by a second engine. */
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

static void must(int line, kachel_status status, kachel_error **err) {
  if (status != KACHEL_OK || *err != NULL) {
    printf("line %d: %s: %s\n%s\n", line, kachel_status_name(status), kachel_error_message(*err), kachel_error_log(*err));
    exit(1);
  }
}
#define MUST(call) must(__LINE__, (call), &err)

static const char *kText =
    "tile 1\n"
    "kernel scale_rows<T: f32 | bf16, const offset: i32, const factor: f32>(\n"
    "    A: T[M, N], row: f32[M], C: out T[M, N], s: f32)\n"
    "key M, N\n"
    "tune BM = 8 | 32, BN = 32 | 64\n"
    "grid by < ceildiv(M, BM), bx < ceildiv(N, BN)\n"
    "{\n"
    "  fragment x: T[BM, BN], r: f32[BM]\n"
    "  x = A[by*BM +: BM, bx*BN +: BN]\n"
    "  r = row[by*BM +: BM]\n"
    "  parallel i < BM, j < BN { x[i, j] = x[i, j] * s * factor + r[i] + offset }\n"
    "  C[by*BM +: BM, bx*BN +: BN] = x\n"
    "}\n";

#ifdef KACHEL_TEST_CPU

enum { M = 45, N = 70 };
static float a[M][N], row[M], c[M][N], before[M][N];

static void log_line(void *user, int32_t level, const char *message, size_t length) {
  (void)message;
  if (level >= KACHEL_LOG_WARNING && length > 0) ++*(int *)user;
}
static int32_t count_progress(void *user, const kachel_progress *progress) {
  if (progress->struct_size != sizeof *progress || strcmp(progress->kernel, "scale_rows") != 0) return 1;
  ++*(int *)user;
  return 0;
}
static int32_t count_entry(void *user, const kachel_store_entry *entry) {
  if (entry->struct_size >= sizeof *entry && strcmp(entry->kernel, "scale_rows") == 0 && strlen(entry->digest) == 32 &&
      entry->bytes > 0 && entry->created_unix_s > 1600000000 && strlen(entry->description) > 0)
    ++*(int *)user;
  return 0;
}

static kachel_tensor tensor(void *data, int32_t ndim, int64_t *shape) {
  kachel_tensor made;
  memset(&made, 0, sizeof made);
  made.data = data;
  made.device.type = KACHEL_CPU;
  made.ndim = ndim;
  kachel_dtype_parse("f32", &made.dtype);
  made.shape = shape;
  return made;
}

static void check_values(float s) {
  int i, j, wrong = 0;
  for (i = 0; i < M; ++i)
    for (j = 0; j < N; ++j) wrong += c[i][j] != a[i][j] * s * 0.5f + row[i] + 3;
  CHECK(wrong == 0);
}

/* One process's worth of work. Returns the engine's statistics. */
static kachel_stats work(const char *store, int second, char winner[64]) {
  kachel_error *err = NULL;
  kachel_engine *engine = NULL;
  kachel_module *module = NULL;
  kachel_kernel *kernel = NULL;
  kachel_call *call = NULL;
  kachel_tuning *tuning = NULL;
  kachel_text *text = NULL;
  kachel_engine_options options;
  kachel_launch_options exact;
  kachel_store_info info;
  kachel_stats stats;
  kachel_check_result check;
  kachel_candidate candidate;
  kachel_const consts[2] = {{"offset", 3, 0}, {"factor", 0, 0.5}};
  int64_t shape[2] = {M, N}, row_shape[1] = {M}, got[5], dims[2] = {M, N};
  int64_t bits;
  kachel_tensor ta = tensor(a, 2, shape), trow = tensor(row, 1, row_shape), tc = tensor(c, 2, shape), tbefore = tc;
  kachel_arg args[4], initial[4];
  kachel_param_info param;
  kachel_device_info device;
  void *pointers[3], *memory = NULL, *stream = NULL;
  int32_t count = 0, i;
  int warnings = 0, progress = 0, entries = 0;
  float s = 2, four = 4;
  kachel_device cpu = {KACHEL_CPU, 0};

  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.store_path = store;
  options.cpu_threads = 2;
  options.tune_budget_ns = 60000000000u;
  options.log = log_line;
  options.log_user = &warnings;
  options.progress = count_progress;
  options.progress_user = &progress;
  MUST(kachel_engine_create(&options, &engine, &err));
  MUST(kachel_module_create(engine, kText, strlen(kText), "scale.tile", &module, &err));
  CHECK(kachel_module_kernel_count(module) == 1 && strcmp(kachel_module_kernel_name(module, 0), "scale_rows") == 0);
  CHECK(kachel_module_const_count(module, 0) == 2 && strcmp(kachel_module_const_type(module, 0, 1), "f32") == 0);
  MUST(kachel_kernel_get(module, "scale_rows", consts, 2, &kernel, &err));

  memset(&param, 0, sizeof param);
  param.struct_size = sizeof param;
  CHECK(kachel_kernel_param_count(kernel) == 4);
  CHECK(kachel_kernel_param(kernel, 2, &param) == KACHEL_OK && strcmp(param.name, "C") == 0 &&
        strcmp(param.type, "T") == 0 && strcmp(param.shape, "M, N") == 0 && param.kind == KACHEL_OUT && param.rank == 2);
  CHECK(kachel_kernel_param(kernel, 3, &param) == KACHEL_OK && strcmp(param.type, "f32") == 0 &&
        param.kind == KACHEL_SCALAR && param.rank == 0);
  CHECK(kachel_kernel_dim_count(kernel) == 2 && strcmp(kachel_kernel_dim_name(kernel, 1), "N") == 0 &&
        !kachel_kernel_dim_is_static(kernel, 1));
  CHECK(kachel_kernel_type_count(kernel) == 1 && kachel_kernel_type_option_count(kernel, 0) == 2 &&
        strcmp(kachel_kernel_type_option(kernel, 0, 1), "bf16") == 0);
  MUST(kachel_kernel_param_shape(kernel, 1, dims, 2, got, &err));
  CHECK(got[0] == M && got[1] == 0);

  memset(args, 0, sizeof args);
  args[0].u.tensor = &ta;
  args[1].u.tensor = &trow;
  args[2].u.tensor = &tc;
  args[3].kind = KACHEL_ARG_FLOAT;
  args[3].u.f = s;
  memset(c, 0, sizeof c);
  memcpy(before, c, sizeof c);
  MUST(kachel_launch(kernel, args, 4, NULL, NULL, &err));
  check_values(s);

  /* Judged by the interpreter, and found out where it is wrong. */
  memcpy(initial, args, sizeof args);
  tbefore.data = before;
  initial[2].u.tensor = &tbefore;
  memset(&check, 0, sizeof check);
  check.struct_size = sizeof check;
  MUST(kachel_check(kernel, initial, args, 4, NULL, &check, &err));
  CHECK(check.elements == M * N && check.mismatches == 0 && check.first[0] == 0 && check.median_bound_ulps < 64);
  c[M - 1][N - 1] += 1;
  MUST(kachel_check(kernel, initial, args, 4, "BM=32,BN=64", &check, &err));
  CHECK(check.mismatches == 1 && strstr(check.first, "`C`") != NULL);

  memset(c, 0, sizeof c);
  MUST(kachel_bind(kernel, args, 4, NULL, &call, &err));
  pointers[0] = a;
  pointers[1] = row;
  pointers[2] = c;
  bits = 0;
  memcpy(&bits, &four, sizeof four);
  CHECK(kachel_call_launch(call, pointers, &bits, NULL) == KACHEL_OK);
  check_values(4);

  MUST(kachel_tuning_get(kernel, args, 4, &tuning, &err));
  CHECK(kachel_tuning_count(tuning) == 4 && kachel_tuning_winner(tuning) >= 0 && kachel_tuning_total_ns(tuning) > 0);
  CHECK(kachel_tuning_from_store(tuning) == second);
  memset(&candidate, 0, sizeof candidate);
  candidate.struct_size = sizeof candidate;
  for (i = 0; i < kachel_tuning_count(tuning); ++i) {
    CHECK(kachel_tuning_candidate(tuning, i, &candidate) == KACHEL_OK);
    CHECK(candidate.state == KACHEL_CANDIDATE_MEASURED || candidate.state == KACHEL_CANDIDATE_PRUNED);
    CHECK(candidate.samples > 0 && candidate.median_ns > 0 && candidate.low_ns <= candidate.high_ns);
    if (i == kachel_tuning_winner(tuning)) strncpy(winner, candidate.configuration, 63);
  }

  memset(&exact, 0, sizeof exact);
  exact.struct_size = sizeof exact;
  exact.configuration = "BM=8,BN=32";
  memset(c, 0, sizeof c);
  if (!second) {
    MUST(kachel_launch(kernel, args, 4, &exact, NULL, &err));
    check_values(s);
    for (i = KACHEL_EXPLAIN_SUMMARY; i <= KACHEL_EXPLAIN_CONFIGURATION; ++i) {
      MUST(kachel_explain(kernel, args, 4, &exact, i, &text, &err));
      CHECK(strlen(kachel_text_data(text)) == kachel_text_size(text));
      if (i == KACHEL_EXPLAIN_CONFIGURATION)
        CHECK(strcmp(kachel_text_data(text), "BM=8,BN=32") == 0);
      else
        CHECK(kachel_text_size(text) > 20);
      if (i == KACHEL_EXPLAIN_SUMMARY) CHECK(strstr(kachel_text_data(text), "BM=8,BN=32: as asked for") != NULL);
      kachel_text_release(text);
    }
  }

  MUST(kachel_engine_device_count(engine, &count));
  CHECK(count >= 1);
  memset(&device, 0, sizeof device);
  device.struct_size = sizeof device;
  MUST(kachel_engine_device_info(engine, count - 1, &device, &err));
  CHECK(device.device.type == KACHEL_CPU && device.multiprocessors == 2 && strlen(device.name) > 0);
  MUST(kachel_memory_alloc(engine, cpu, sizeof a, &memory, &err));
  MUST(kachel_memory_copy(engine, cpu, memory, a, sizeof a, NULL, &err));
  MUST(kachel_stream_create(engine, cpu, &stream, &err));
  MUST(kachel_memory_copy(engine, cpu, c, memory, sizeof a, stream, &err));
  MUST(kachel_stream_synchronize(engine, cpu, stream, &err));
  CHECK(memcmp(a, c, sizeof a) == 0);
  kachel_stream_release(engine, cpu, stream);
  CHECK(kachel_memory_free(engine, cpu, memory) == KACHEL_OK);

  memset(&info, 0, sizeof info);
  info.struct_size = sizeof info;
  CHECK(kachel_store_info_get(engine, &info) == KACHEL_OK && info.entries >= 9 && info.bytes > 0);
  CHECK(info.writable && strstr(info.path, store) != NULL);
  MUST(kachel_store_iterate(engine, count_entry, &entries, &err));
  CHECK(entries == 9); /* a plan and a sample for each of four configurations, and the decision */
  CHECK((progress > 0) == !second);
  CHECK(warnings == 0);

  memset(&stats, 0, sizeof stats);
  stats.struct_size = sizeof stats;
  CHECK(kachel_engine_stats(engine, &stats) == KACHEL_OK);
  if (second) {
    MUST(kachel_store_clear(engine, &err));
    CHECK(kachel_store_info_get(engine, &info) == KACHEL_OK && info.entries == 0);
  }
  kachel_tuning_release(tuning);
  kachel_engine_release(engine); /* the others keep it alive */
  memset(c, 0, sizeof c);
  CHECK(kachel_call_launch(call, pointers, &bits, NULL) == KACHEL_OK);
  check_values(4);
  kachel_module_release(module);
  kachel_kernel_release(kernel);
  kachel_call_release(call);
  return stats;
}

/* The policy background: served at once, tuned on copies of what is overwritten here meanwhile. */
static void later(void) {
  kachel_error *err = NULL;
  kachel_engine *engine = NULL;
  kachel_module *module = NULL;
  kachel_kernel *kernel = NULL;
  kachel_tuning *tuning = NULL;
  kachel_text *text = NULL;
  kachel_engine_options options;
  kachel_stats stats;
  kachel_const consts[2] = {{"offset", 3, 0}, {"factor", 0, 0.5}};
  int64_t shape[2] = {M, N}, row_shape[1] = {M};
  kachel_tensor ta = tensor(a, 2, shape), trow = tensor(row, 1, row_shape), tc = tensor(c, 2, shape);
  kachel_arg args[4];
  int i;
  memcpy(before, a, sizeof a);
  memset(args, 0, sizeof args);
  args[0].u.tensor = &ta;
  args[1].u.tensor = &trow;
  args[2].u.tensor = &tc;
  args[3].kind = KACHEL_ARG_FLOAT;
  args[3].u.f = 2;
  memset(&stats, 0, sizeof stats);
  stats.struct_size = sizeof stats;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.store_path = "";
  options.cpu_threads = 2;
  options.tune_budget_ns = 60000000000u;
  options.background_share = 0.5;
  MUST(kachel_engine_create(&options, &engine, &err));
  MUST(kachel_module_create(engine, kText, strlen(kText), "scale.tile", &module, &err));
  MUST(kachel_kernel_get(module, "scale_rows", consts, 2, &kernel, &err));
  MUST(kachel_kernel_set_policy(kernel, KACHEL_POLICY_BACKGROUND, &err));
  for (i = 0; i < 3; ++i) {
    memset(c, 0, sizeof c);
    MUST(kachel_launch(kernel, args, 4, NULL, NULL, &err));
    check_values(2);
  }
  memset(a, 0x7f, sizeof a);
  MUST(kachel_engine_wait(engine, -1, &err));
  CHECK(kachel_engine_stats(engine, &stats) == KACHEL_OK);
  CHECK(stats.background_tunings == 1 && stats.background_failures == 0 && stats.background_pending == 0);
  CHECK(stats.tunings == 1);
  memcpy(a, before, sizeof a);
  MUST(kachel_tuning_get(kernel, args, 4, &tuning, &err));
  CHECK(kachel_tuning_winner(tuning) >= 0);
  kachel_tuning_release(tuning);
  memset(c, 0, sizeof c);
  MUST(kachel_launch(kernel, args, 4, NULL, NULL, &err));
  check_values(2);
  MUST(kachel_engine_metrics(engine, &text, &err));
  CHECK(strstr(kachel_text_data(text), "\nkachel_launches_total 4\n") != NULL);
  CHECK(strstr(kachel_text_data(text), "# TYPE kachel_background_tunings_total counter\nkachel_background_tunings_total 1\n") != NULL);
  CHECK(strstr(kachel_text_data(text), "\nkachel_store_entries{kind=\"tuning\"} 1\n") != NULL);
  CHECK(kachel_text_data(text)[kachel_text_size(text) - 1] == '\n');
  kachel_text_release(text);
  /* Released in the middle of a tuning. */
  shape[0] = M - 1;
  row_shape[0] = M - 1;
  MUST(kachel_launch(kernel, args, 4, NULL, NULL, &err));
  kachel_kernel_release(kernel);
  MUST(kachel_engine_wait(engine, 0, &err));
  /* Frozen: a new key is served and not tuned. */
  MUST(kachel_kernel_get(module, NULL, consts, 2, &kernel, &err));
  MUST(kachel_engine_freeze(engine, &err));
  shape[0] = M - 2;
  row_shape[0] = M - 2;
  CHECK(kachel_engine_stats(engine, &stats) == KACHEL_OK);
  i = (int)stats.measurements;
  MUST(kachel_launch(kernel, args, 4, NULL, NULL, &err));
  CHECK(kachel_engine_stats(engine, &stats) == KACHEL_OK && (int)stats.measurements == i);
  kachel_kernel_release(kernel);
  kachel_module_release(module);
  kachel_engine_release(engine);
}

static void run(void) {
  char store[] = "/tmp/kachel-capi-XXXXXX", first_winner[64] = "", second_winner[64] = "", command[64];
  kachel_stats first, second;
  int i, j;
  extern char *mkdtemp(char *);
  CHECK(mkdtemp(store) != NULL);
  for (i = 0; i < M; ++i)
    for (j = 0; j < N; ++j) a[i][j] = (float)(i * 7 + j) / 8;
  for (i = 0; i < M; ++i) row[i] = (float)i;
  first = work(store, 0, first_winner);
  CHECK(first.compiles == 4 && first.tunings == 1 && first.measurements > 0 && first.llvm_opened == 1);
  CHECK(first.launches == 3);
  second = work(store, 1, second_winner);
  CHECK(second.compiles == 0 && second.tunings == 0 && second.measurements == 0 && second.lowerings == 0);
  CHECK(second.llvm_opened == 0 && second.nvrtc_opened == 0 && second.loads == 1 && second.last_load_ns > 0);
  CHECK(strcmp(first_winner, second_winner) == 0);
  printf("winner %s, disk hit to loaded kernel %.0f us\n", first_winner, second.last_load_ns / 1000);
  later();
  sprintf(command, "rm -rf %s", store);
  CHECK(system(command) == 0);
}

#else

static void run(void) {
  printf("SKIPPED: this build has no CPU compiler\n");
  CHECK(strlen(kText) > 0);
}

#endif

int main(void) {
  CHECK(kachel_abi_version() == KACHEL_ABI_VERSION && strcmp(kachel_version(), "0.1.0") == 0);
  run();
  printf("%d failures\n", failures);
  return failures != 0;
}
