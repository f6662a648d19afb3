/* A host that leaves while its keys are tuned in the background and its entries are given to a remote store, releasing
 * nothing: its exit status must arrive, and no call of its store may come later. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "kachel.h"

static const char *kText =
    "tile 1\n"
    "kernel product(A: f32[M, K], B: f32[N, K], C: out f32[M, N])\n"
    "key M, N\n"
    "tune BM = 8 | 16 | 32, BN = 16 | 32 | 64, BK = 16 | 32\n"
    "grid i < ceildiv(M, BM), j < ceildiv(N, BN)\n"
    "{\n"
    "  shared a: f32[BM, BK], b: f32[BN, BK]\n"
    "  fragment c: f32[BM, BN] = 0\n"
    "  for k < ceildiv(K, BK) {\n"
    "    a = A[i*BM +: BM, k*BK +: BK]\n"
    "    b = B[j*BN +: BN, k*BK +: BK]\n"
    "    c += a @ b^T\n"
    "  }\n"
    "  C[i*BM +: BM, j*BN +: BN] = c\n"
    "}\n";

static void pause_ms(int milliseconds) {
  struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
  nanosleep(&time, NULL);
}

static int gone = 0;
static void go(void) { gone = 1; }

static int32_t put(void *user, const char *key, size_t key_size, const void *value, size_t size, char *why,
                   size_t why_size) {
  (void)user, (void)key, (void)key_size, (void)value, (void)size, (void)why, (void)why_size;
  pause_ms(3);
  if (gone) _exit(43);
  return KACHEL_REMOTE_DONE;
}

static int leave(int milliseconds, int late) {
  static float a[96][64], b[80][64], c[96][80];
  int64_t shapes[3][2] = {{96, 64}, {80, 64}, {96, 80}};
  void *data[3] = {a, b, c};
  kachel_tensor tensors[3];
  kachel_arg args[3];
  kachel_engine_options options;
  kachel_engine *engine = NULL;
  kachel_module *module = NULL;
  kachel_kernel *kernel = NULL;
  kachel_error *err = NULL;
  int i;
  memset(&options, 0, sizeof options);
  memset(tensors, 0, sizeof tensors);
  memset(args, 0, sizeof args);
  options.struct_size = sizeof options;
  options.store_path = "";
  options.policy = KACHEL_POLICY_BACKGROUND;
  options.remote_put = put;
  atexit(go); /* as a destructor of the host's would: ours runs before it */
  for (i = 0; i < 3; ++i) {
    tensors[i].data = data[i];
    tensors[i].device.type = KACHEL_CPU;
    tensors[i].ndim = 2;
    tensors[i].shape = shapes[i];
    kachel_dtype_parse("f32", &tensors[i].dtype);
    args[i].u.tensor = &tensors[i];
  }
  if (kachel_engine_create(&options, &engine, &err) ||
      kachel_module_create(engine, kText, strlen(kText), "product.tile", &module, &err) ||
      kachel_kernel_get(module, NULL, NULL, 0, &kernel, &err) || kachel_launch(kernel, args, 3, NULL, NULL, &err)) {
    printf("%s\n", kachel_error_message(err));
    return 1;
  }
  pause_ms(milliseconds);
  if (late) kachel_kernel_release(kernel);
  return 42;
}

int main(int argc, char **argv) {
  static const int kDelays[] = {0, 2, 10, 50, 200, 400};
  size_t i;
  int failures = 0;
  (void)argc;
  for (i = 0; i < sizeof kDelays / sizeof *kDelays; ++i) {
    int status = 0;
    pid_t child = fork();
    if (child == 0) exit(leave(kDelays[i], i % 2));
    waitpid(child, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 42) {
      printf("%s: after %d ms: status %d, signal %d\n", argv[0], kDelays[i], WEXITSTATUS(status), WTERMSIG(status));
      ++failures;
    }
  }
  printf("%d failures\n", failures);
  return failures != 0;
}
