/* NVRTC between Kachel and the real one (REAL_NVRTC, a file): a kernel whose text has FAULT_IN in it writes to address 8
   or, where HANG is set, runs for minutes. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void* program;

static void* real(const char* name) {
  static void* library;
  const char* path = getenv("REAL_NVRTC");
  if (!library && path) library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  void* function = library ? dlsym(library, name) : NULL;
  if (!function) {
    fprintf(stderr, "REAL_NVRTC: %s\n", dlerror());
    abort();
  }
  return function;
}

#define FORWARD(name, params, args) \
  int name params { return ((int(*) params)real(#name))args; }

const char* nvrtcGetErrorString(int result) {
  return ((const char* (*)(int))real("nvrtcGetErrorString"))(result);
}
FORWARD(nvrtcVersion, (int* major, int* minor), (major, minor))
FORWARD(nvrtcGetNumSupportedArchs, (int* count), (count))
FORWARD(nvrtcGetSupportedArchs, (int* architectures), (architectures))
FORWARD(nvrtcDestroyProgram, (program * p), (p))
FORWARD(nvrtcCompileProgram, (program p, int count, const char* const* options), (p, count, options))
FORWARD(nvrtcGetPTXSize, (program p, size_t* bytes), (p, bytes))
FORWARD(nvrtcGetPTX, (program p, char* ptx), (p, ptx))
FORWARD(nvrtcGetCUBINSize, (program p, size_t* bytes), (p, bytes))
FORWARD(nvrtcGetCUBIN, (program p, char* cubin), (p, cubin))
FORWARD(nvrtcGetProgramLogSize, (program p, size_t* bytes), (p, bytes))
FORWARD(nvrtcGetProgramLog, (program p, char* log), (p, log))

int nvrtcCreateProgram(program* p, const char* text, const char* name, int count, const char* const* headers,
                       const char* const* names) {
  int (*const create)(program*, const char*, const char*, int, const char* const*, const char* const*) =
      (int (*)(program*, const char*, const char*, int, const char* const*, const char* const*))real(
          "nvrtcCreateProgram");
  static const char kFault[] = " *(volatile int*)8 = 1;";
  static const char kHang[] =
      " for (long long begin = clock64(); clock64() - begin < 300000000000ll;) asm volatile(\"nanosleep.u32 1000;\");";
  const char* mark = getenv("FAULT_IN");
  const char* kernel = strstr(text, "__launch_bounds__");
  const char* body = kernel ? strstr(kernel, ") {") : NULL;
  if (!mark || !body || !strstr(kernel, mark)) return create(p, text, name, count, headers, names);
  const char* harm = getenv("HANG") ? kHang : kFault;
  const size_t before = (size_t)(body - text) + strlen(") {");
  char* edited = malloc(strlen(text) + strlen(harm) + 1);
  memcpy(edited, text, before);
  strcpy(edited + before, harm);
  strcat(edited, text + before);
  const int result = create(p, edited, name, count, headers, names);
  free(edited);
  return result;
}
