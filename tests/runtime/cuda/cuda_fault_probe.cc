// Runs a kernel that writes to address 8 and succeeds if the device reports itself lost, now and ever after.
#include <cstdio>

#include "runtime/device.h"

int main() {
  using namespace kachel;
  using namespace kachel::runtime;
  auto device = open_cuda_device(0, {});
  if (!device.ok()) return 2;
  const char* text =
      "struct P { int* at; }; extern \"C\" __global__ void fault(const __grid_constant__ P p) { *p.at = 1; }";
  auto compiled = (*device)->compiler().compile({text, "fault", (*device)->properties().architecture, 0});
  if (!compiled.ok()) return 3;
  auto module = (*device)->load(compiled->binary);
  if (!module.ok()) return 4;
  auto function = (*module)->function("fault", 0);
  auto stream = (*device)->create_stream();
  if (!function.ok() || !stream.ok()) return 5;
  const void* params = reinterpret_cast<void*>(8);
  if (!(*function)->launch({1, 1, 0}, &params, sizeof(params), *stream).ok()) return 6;
  const Status first = (*device)->synchronize(*stream);
  std::printf("%s\n", first.message().c_str());
  if (first.code() != Code::kDeviceLost) return 7;
  if ((*device)->allocate(16).status().code() != Code::kDeviceLost) return 8;
  if ((*function)->launch({1, 1, 0}, &params, sizeof(params), *stream).code() != Code::kDeviceLost) return 9;
  return 0;
}
