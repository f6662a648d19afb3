/* The C interface between the runtime and libkachel_llvm.so, the CPU compiler.
 *
 * The module holds nothing else of Kachel and is opened with dlopen on the first compilation. Both sides are built from
 * one tree; kachel_llvm_interface() catches a stray module of another version before anything is called through it.
 * Every function may be called from any thread at once. */
#ifndef KACHEL_RUNTIME_LLVM_MODULE_H_
#define KACHEL_RUNTIME_LLVM_MODULE_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KACHEL_LLVM_INTERFACE 1

enum {
  KACHEL_LLVM_OK = 0,
  KACHEL_LLVM_INVALID = 1,    /* the text, the entry or the target is wrong; `log` says where */
  KACHEL_LLVM_FAILED = 2,     /* LLVM could not generate code for a valid text */
  KACHEL_LLVM_TIME_LIMIT = 3, /* compilation ran past time_limit_ns */
  KACHEL_LLVM_NO_MEMORY = 4
};

typedef struct KachelLlvmRequest {
  const char* text; /* LLVM IR as text; need not end in a zero byte */
  size_t text_size;
  const char* entry;    /* symbol of the kernel: void (ptr params, i64 begin, i64 end, i64 blocks, ptr arena) */
  const char* cpu;      /* an LLVM CPU name, "x86-64-v4" */
  const char* features; /* "+avx2,+fma" on top of the CPU's own */
  /* Given to functions that do not state "prefer-vector-width" themselves; 0 leaves it to LLVM. */
  int32_t vector_bits;
  int32_t optimization_level; /* 0 to 3 */
  /* 0 for none. Checked between passes: past it, what may be skipped is, and the result is KACHEL_LLVM_TIME_LIMIT. */
  int64_t time_limit_ns;
} KachelLlvmRequest;

/* Filled by kachel_llvm_compile; both buffers belong to the module until kachel_llvm_release. */
typedef struct KachelLlvmResult {
  char* object; /* a relocatable ELF object, or null */
  size_t object_size;
  char* log; /* warnings and errors, zero-terminated, or null */
} KachelLlvmResult;

int32_t kachel_llvm_interface(void);
/* "19.1.7" */
const char* kachel_llvm_version(void);
int32_t kachel_llvm_compile(const KachelLlvmRequest* request, KachelLlvmResult* result);
void kachel_llvm_release(KachelLlvmResult* result);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* KACHEL_RUNTIME_LLVM_MODULE_H_ */
