/* C = max(A B^T, 0) in bf16 on the first device there is. Usage: matmul_relu matmul_relu.tile */
#include <kachel.h>
#include <stdio.h>
#include <stdlib.h>

static uint16_t host[512 * 512];
static int64_t shape[2] = {512, 512};
static kachel_error *error;
static void check(kachel_status status) {
  if (status == KACHEL_OK) return;
  exit(fprintf(stderr, "%s\n", error ? kachel_error_message(error) : kachel_status_name(status)) != 0);
}

static kachel_tensor filled(kachel_engine *engine, kachel_device device, uint16_t bf16) {
  kachel_tensor tensor = {NULL, device, 2, {4, 16, 1}, shape, NULL, 0};
  for (int i = 0; i < 512 * 512; i++) host[i] = bf16;
  check(kachel_memory_alloc(engine, device, sizeof host, &tensor.data, &error));
  check(kachel_memory_copy(engine, device, tensor.data, host, sizeof host, NULL, &error));
  return tensor;
}
int main(int argc, char **argv) {
  char text[4096];
  FILE *file = argc == 2 ? fopen(argv[1], "rb") : NULL;
  size_t length = file ? fread(text, 1, sizeof text, file) : 0;
  kachel_engine_options options = {.struct_size = sizeof options}; /* zero is the default of everything else */
  kachel_device_info info = {.struct_size = sizeof info};
  kachel_engine *engine; kachel_module *module; kachel_kernel *kernel;
  check(kachel_engine_create(&options, &engine, &error));
  check(kachel_engine_device_info(engine, 0, &info, &error));
  check(kachel_module_create(engine, text, length, "matmul_relu.tile", &module, &error));
  check(kachel_kernel_get(module, NULL, NULL, 0, &kernel, &error));
  kachel_tensor a = filled(engine, info.device, 0x3f80 /* 1 */), b = filled(engine, info.device, 0x4000 /* 2 */);
  kachel_tensor c = filled(engine, info.device, 0);
  kachel_arg args[3] = {{.u.tensor = &a}, {.u.tensor = &b}, {.u.tensor = &c}};
  check(kachel_launch(kernel, args, 3, NULL, NULL, &error)); /* the first ever tunes; NULL: the default stream */
  check(kachel_memory_copy(engine, info.device, host, c.data, sizeof host, NULL, &error)); /* waits */
  printf("%s: C[0, 0] = 0x%04x, 1024 is 0x4480\n", info.name, host[0]);
  for (int i = 0; i < 3; i++) kachel_memory_free(engine, info.device, args[i].u.tensor->data);
  kachel_kernel_release(kernel); kachel_module_release(module); kachel_engine_release(engine);
}
