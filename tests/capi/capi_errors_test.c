/* Bad calls, each with the status and the words it must give. Needs no device: every call fails before one is opened. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "kachel.h"

static int failures = 0, calls = 0;

/* The call must give `want`, an error object of that status, and a message with `words` in it. */
static void expect(int line, kachel_status got, kachel_error **err, kachel_status want, const char *words) {
  const char *message = *err ? kachel_error_message(*err) : "";
  ++calls;
  if (got != want || !*err || kachel_error_status(*err) != want || !strstr(message, words)) {
    printf("line %d: status %d (wanted %d), message '%s' (wanted '%s')\n", line, (int)got, (int)want, message, words);
    ++failures;
  }
  kachel_error_release(*err);
  *err = NULL;
}
/* A call without an error object. */
static void expect_status(int line, kachel_status got, kachel_status want) {
  ++calls;
  if (got != want) {
    printf("line %d: status %d (wanted %d)\n", line, (int)got, (int)want);
    ++failures;
  }
}
#define EXPECT(call, want, words) expect(__LINE__, (call), &err, (want), (words))
#define EXPECT_STATUS(call, want) expect_status(__LINE__, (call), (want))
#define CHECK(condition)                                        \
  do {                                                          \
    if (!(condition)) {                                         \
      printf("line %d: %s does not hold\n", __LINE__, #condition); \
      ++failures;                                               \
    }                                                           \
  } while (0)

static const char *kText =
    "tile 1\n"
    "kernel axpy<T: f32 | f16, const twice: bool>(X: T[N], Y: inout T[N], a: f32, n: i32)\n"
    "where n >= 0\n"
    "key bucket(N)\n"
    "tune B = 64 | 128\n"
    "grid b < ceildiv(N, B)\n"
    "{\n"
    "  fragment x: T[B], y: T[B]\n"
    "  x = X[b*B +: B]\n"
    "  y = Y[b*B +: B]\n"
    "  parallel i < B { y[i] = y[i] + x[i] * a * (twice ? 2 : 1) }\n"
    "  Y[b*B +: B] = y\n"
    "}\n";

int main(void) {
  kachel_error *err = NULL;
  kachel_engine *engine = NULL;
  kachel_module *module = NULL;
  kachel_kernel *kernel = NULL;
  kachel_call *call = NULL;
  kachel_text *text = NULL;
  kachel_tuning *tuning = NULL;
  kachel_engine_options options;
  kachel_launch_options launch;
  kachel_const twice = {"twice", 1, 0};
  kachel_const unknown[2] = {{"twice", 1, 0}, {"thrice", 1, 0}};
  kachel_const wrong = {"twice", 2, 0};
  kachel_const unnamed = {NULL, 1, 0};
  float x[64], y[64];
  int64_t shape[1] = {64}, bad_shape[1] = {-1}, other_shape[1] = {63}, out_shape[5];
  kachel_tensor tx, ty, bad;
  kachel_arg args[4], broken[4];
  kachel_device cpu = {KACHEL_CPU, 0}, nowhere = {77, 3};
  kachel_dtype dtype;
  kachel_stats stats;
  kachel_param_info param;
  kachel_check_result check;
  kachel_device_info info;
  void *memory = NULL;
  struct {
    kachel_engine_options known;
    uint64_t later[2];
  } newer;
  memset(x, 0, sizeof x);
  memset(y, 0, sizeof y);

  /* Engines. */
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.store_path = "";
  EXPECT(kachel_engine_create(&options, NULL, &err), KACHEL_E_INVALID, "`out` is NULL");
  options.struct_size = 0;
  EXPECT(kachel_engine_create(&options, &engine, &err), KACHEL_E_INVALID, "struct_size 0");
  options.struct_size = (size_t)-1;
  EXPECT(kachel_engine_create(&options, &engine, &err), KACHEL_E_INVALID, "sizeof");
  options.struct_size = sizeof options;
  options.policy = 9;
  EXPECT(kachel_engine_create(&options, &engine, &err), KACHEL_E_INVALID, "9 is not a policy");
  options.policy = KACHEL_POLICY_OFF;
  options.background_share = 1.5;
  EXPECT(kachel_engine_create(&options, &engine, &err), KACHEL_E_INVALID, "between 0 and 1");
  options.background_share = 0;
  options.cpu_threads = -1;
  EXPECT(kachel_engine_create(&options, &engine, &err), KACHEL_E_INVALID, "cpu_threads");
  options.cpu_threads = 1;
  options.worker_restarts = -1;
  EXPECT(kachel_engine_create(&options, &engine, &err), KACHEL_E_INVALID, "worker_restarts");
  options.worker_restarts = 0;
  EXPECT(kachel_worker_serve(-1, &err), KACHEL_E_INVALID, "not open");
  EXPECT(kachel_worker_serve(open("/dev/null", O_RDWR), &err), KACHEL_E_INVALID, "is no engine");
  memset(&newer, 0, sizeof newer);
  newer.known = options;
  newer.known.struct_size = sizeof newer;
  newer.later[1] = 1;
  EXPECT(kachel_engine_create(&newer.known, &engine, &err), KACHEL_E_UNSUPPORTED, "newer library");
  CHECK(engine == NULL);
  newer.later[1] = 0;
  EXPECT_STATUS(kachel_engine_create(&newer.known, &engine, &err), KACHEL_OK);
  CHECK(engine != NULL && err == NULL);

  /* Modules and kernels. */
  EXPECT(kachel_module_create(NULL, kText, strlen(kText), NULL, &module, &err), KACHEL_E_INVALID, "`engine`");
  EXPECT(kachel_module_create(engine, NULL, 0, NULL, &module, &err), KACHEL_E_INVALID, "`text`");
  EXPECT(kachel_module_create(engine, kText, strlen(kText), NULL, NULL, &err), KACHEL_E_INVALID, "`out`");
  EXPECT(kachel_module_create(engine, "", 0, "empty.tile", &module, &err), KACHEL_E_INVALID, "empty.tile");
  EXPECT(kachel_module_create(engine, "tile 1\nkernel k(", 16, "half.tile", &module, &err), KACHEL_E_INVALID, "half.tile:2");
  EXPECT_STATUS(kachel_module_create(engine, kText, strlen(kText), NULL, &module, &err), KACHEL_OK);
  CHECK(err == NULL);
  EXPECT(kachel_kernel_get(NULL, NULL, &twice, 1, &kernel, &err), KACHEL_E_INVALID, "`module`");
  EXPECT(kachel_kernel_get(module, NULL, NULL, 1, &kernel, &err), KACHEL_E_INVALID, "`consts`");
  EXPECT(kachel_kernel_get(module, "gemm", &twice, 1, &kernel, &err), KACHEL_E_INVALID, "no kernel `gemm`; it has `axpy`");
  EXPECT(kachel_kernel_get(module, NULL, NULL, 0, &kernel, &err), KACHEL_E_INVALID, "`twice` has no value");
  EXPECT(kachel_kernel_get(module, NULL, unknown, 2, &kernel, &err), KACHEL_E_INVALID, "no const `thrice`");
  EXPECT(kachel_kernel_get(module, NULL, &wrong, 1, &kernel, &err), KACHEL_E_INVALID, "2 is not a value of const `twice`");
  EXPECT(kachel_kernel_get(module, NULL, &unnamed, 1, &kernel, &err), KACHEL_E_INVALID, "name of a const");
  EXPECT_STATUS(kachel_kernel_get(module, NULL, &twice, 1, &kernel, &err), KACHEL_OK);
  CHECK(kernel != NULL);

  /* Reflection out of range. */
  CHECK(kachel_module_kernel_name(module, 1) == NULL && kachel_module_kernel_name(NULL, 0) == NULL);
  CHECK(kachel_module_const_name(module, 0, 1) == NULL && kachel_module_const_type(module, -1, 0) == NULL);
  CHECK(kachel_kernel_dim_name(kernel, 1) == NULL && kachel_kernel_type_option(kernel, 0, 2) == NULL);
  memset(&param, 0, sizeof param);
  EXPECT_STATUS(kachel_kernel_param(kernel, 0, &param), KACHEL_E_INVALID); /* struct_size not set */
  param.struct_size = sizeof param;
  EXPECT_STATUS(kachel_kernel_param(kernel, 4, &param), KACHEL_E_INVALID);
  EXPECT_STATUS(kachel_kernel_param(kernel, 0, NULL), KACHEL_E_INVALID);
  EXPECT(kachel_kernel_param_shape(kernel, 7, shape, 1, out_shape, &err), KACHEL_E_INVALID, "no parameter 7");
  EXPECT(kachel_kernel_param_shape(kernel, 0, shape, 2, out_shape, &err), KACHEL_E_INVALID, "1 dimensions, 2 values");

  /* Launches. */
  memset(&tx, 0, sizeof tx);
  tx.data = x;
  tx.device = cpu;
  tx.ndim = 1;
  EXPECT_STATUS(kachel_dtype_parse("f32", &tx.dtype), KACHEL_OK);
  tx.shape = shape;
  ty = tx;
  ty.data = y;
  memset(args, 0, sizeof args);
  args[0].kind = KACHEL_ARG_TENSOR;
  args[0].u.tensor = &tx;
  args[1].kind = KACHEL_ARG_TENSOR;
  args[1].u.tensor = &ty;
  args[2].kind = KACHEL_ARG_FLOAT;
  args[2].u.f = 2;
  args[3].kind = KACHEL_ARG_INT;
  args[3].u.i = 1;
#define LAUNCH(a, n, o) kachel_launch(kernel, (a), (n), (o), NULL, &err)
  EXPECT(kachel_launch(NULL, args, 4, NULL, NULL, &err), KACHEL_E_INVALID, "`kernel`");
  EXPECT(LAUNCH(NULL, 4, NULL), KACHEL_E_INVALID, "`args`");
  EXPECT(LAUNCH(args, 3, NULL), KACHEL_E_INVALID, "takes 4 arguments, 3");
  memset(&launch, 0, sizeof launch);
  EXPECT(LAUNCH(args, 4, &launch), KACHEL_E_INVALID, "`options` has struct_size 0");
  launch.struct_size = sizeof launch;
  launch.policy = -1;
  EXPECT(LAUNCH(args, 4, &launch), KACHEL_E_INVALID, "-1 is not a policy");
  EXPECT(kachel_kernel_set_policy(NULL, KACHEL_POLICY_OFF, &err), KACHEL_E_INVALID, "`kernel`");
  EXPECT(kachel_kernel_set_policy(kernel, 7, &err), KACHEL_E_INVALID, "7 is not a policy");
  EXPECT(kachel_engine_wait(NULL, 0, &err), KACHEL_E_INVALID, "`engine`");
  EXPECT(kachel_engine_freeze(NULL, &err), KACHEL_E_INVALID, "`engine`");
  EXPECT(kachel_engine_metrics(NULL, NULL, &err), KACHEL_E_INVALID, "`engine`");
  EXPECT(kachel_engine_metrics(engine, NULL, &err), KACHEL_E_INVALID, "`out`");
  EXPECT(kachel_store_shrink(NULL, 0, NULL, &err), KACHEL_E_INVALID, "`engine`");
  EXPECT(kachel_store_verify(NULL, NULL, NULL, &err), KACHEL_E_INVALID, "`engine`");
  EXPECT(kachel_store_export(engine, "", NULL, &err), KACHEL_E_INVALID, "`path`");
  EXPECT(kachel_store_import(engine, NULL, NULL, &err), KACHEL_E_INVALID, "`path`");
  EXPECT(kachel_store_import(engine, "/proc/nowhere", NULL, &err), KACHEL_E_STORE, "no store can be read");
#define BROKEN(change, status, words)    \
  do {                                   \
    memcpy(broken, args, sizeof broken); \
    bad = tx;                            \
    change;                              \
    EXPECT(LAUNCH(broken, 4, NULL), status, words); \
  } while (0)
  BROKEN(broken[0].kind = 9, KACHEL_E_INVALID, "KACHEL_ARG_TENSOR");
  BROKEN(broken[0].u.tensor = NULL, KACHEL_E_INVALID, "it is a tensor");
  BROKEN(broken[2].kind = KACHEL_ARG_INT, KACHEL_E_INVALID, "KACHEL_ARG_FLOAT");
  BROKEN(broken[3].kind = KACHEL_ARG_FLOAT, KACHEL_E_INVALID, "KACHEL_ARG_INT");
  BROKEN(broken[3].u.i = (int64_t)1 << 40, KACHEL_E_INVALID, "not a value of i32");
  BROKEN(broken[3].u.i = -1, KACHEL_E_INVALID, "needs `n >= 0`");
  BROKEN((bad.ndim = 2, broken[0].u.tensor = &bad), KACHEL_E_INVALID, "2 dimensions");
  BROKEN((bad.shape = bad_shape, broken[0].u.tensor = &bad), KACHEL_E_INVALID, "extents are >= 0");
  BROKEN((bad.shape = other_shape, broken[0].u.tensor = &bad), KACHEL_E_INVALID, "axis 0 must be 63, which is `N`");
  BROKEN((bad.data = NULL, broken[0].u.tensor = &bad), KACHEL_E_INVALID, "data is NULL");
  BROKEN((bad.byte_offset = 2, broken[0].u.tensor = &bad), KACHEL_E_INVALID, "not aligned");
  BROKEN((bad.dtype.bits = 64, broken[0].u.tensor = &bad), KACHEL_E_INVALID, "f32 or f16");
  BROKEN((bad.dtype.bits = 16, broken[0].u.tensor = &bad), KACHEL_E_INVALID, "`T` is f16");
  BROKEN((bad.device = nowhere, broken[0].u.tensor = &bad), KACHEL_E_INVALID, "one device");
  BROKEN((bad.data = y, broken[0].u.tensor = &bad), KACHEL_E_INVALID, "`Y` overlaps `X`");
  memcpy(broken, args, sizeof broken);
  tx.device = nowhere;
  ty.device = nowhere;
  EXPECT(LAUNCH(args, 4, NULL), KACHEL_E_NO_DEVICE, "type 77");
  tx.device = cpu;
  ty.device = cpu;
  EXPECT(kachel_prepare(kernel, args, 1, NULL, NULL, &err), KACHEL_E_INVALID, "takes 4");
  EXPECT(kachel_bind(kernel, args, 4, NULL, NULL, &err), KACHEL_E_INVALID, "`out`");
  EXPECT(kachel_bind(kernel, args, 2, NULL, &call, &err), KACHEL_E_INVALID, "takes 4");
  EXPECT_STATUS(kachel_call_launch(NULL, NULL, NULL, NULL), KACHEL_E_INVALID);
  EXPECT(kachel_explain(kernel, args, 4, NULL, KACHEL_EXPLAIN_SOURCE, NULL, &err), KACHEL_E_INVALID, "`out`");
  EXPECT(kachel_explain(kernel, args, 0, NULL, KACHEL_EXPLAIN_SOURCE, &text, &err), KACHEL_E_INVALID, "takes 4");
  EXPECT(kachel_tuning_get(kernel, args, 4, &tuning, &err), KACHEL_E_NOT_CACHED, "not been tuned");
  memset(&check, 0, sizeof check);
  EXPECT(kachel_check(kernel, args, NULL, 4, NULL, &check, &err), KACHEL_E_INVALID, "`after`");
  EXPECT(kachel_check(kernel, args, args, 4, "C=1", &check, &err), KACHEL_E_INVALID, "no tunable `C`");
  EXPECT(kachel_check(kernel, args, args, 4, NULL, &check, &err), KACHEL_E_INVALID, "struct_size 0");

  /* Tools. */
  memset(&info, 0, sizeof info);
  info.struct_size = sizeof info;
  EXPECT(kachel_engine_device_info(engine, 99, &info, &err), KACHEL_E_INVALID, "device 99");
  EXPECT(kachel_memory_alloc(engine, nowhere, 1, &memory, &err), KACHEL_E_NO_DEVICE, "type 77");
  EXPECT(kachel_memory_alloc(engine, cpu, 1, NULL, &err), KACHEL_E_INVALID, "`out`");
  EXPECT(kachel_memory_copy(engine, cpu, NULL, x, 4, NULL, &err), KACHEL_E_INVALID, "`to`");
  EXPECT(kachel_stream_create(NULL, cpu, &memory, &err), KACHEL_E_INVALID, "`engine`");
  EXPECT(kachel_store_iterate(engine, NULL, NULL, &err), KACHEL_E_INVALID, "`entry`");
  EXPECT_STATUS(kachel_dtype_parse("f33", &dtype), KACHEL_E_INVALID);
  EXPECT_STATUS(kachel_dtype_parse(NULL, &dtype), KACHEL_E_INVALID);
  memset(&stats, 0, sizeof stats);
  EXPECT_STATUS(kachel_engine_stats(engine, &stats), KACHEL_E_INVALID);
  EXPECT_STATUS(kachel_engine_stats(engine, NULL), KACHEL_E_INVALID);
  CHECK(strcmp(kachel_status_name(KACHEL_E_NOT_CACHED | 7 << 8), "not cached") == 0);
  CHECK(strcmp(kachel_status_name(200), "unknown") == 0);

  /* Everything may be released in any order, and NULL as well. */
  kachel_engine_release(engine);
  kachel_module_release(module);
  CHECK(strcmp(kachel_kernel_name(kernel), "axpy") == 0);
  kachel_kernel_release(kernel);
  kachel_engine_release(NULL);
  kachel_module_release(NULL);
  kachel_kernel_release(NULL);
  kachel_call_release(NULL);
  kachel_tuning_release(NULL);
  kachel_text_release(NULL);
  kachel_error_release(NULL);
  CHECK(x[0] == 0 && y[0] == 0);
  printf("%d bad calls, %d failures\n", calls, failures);
  return failures != 0 || calls < 60;
}
