/* kachel.h - run tile programs from any language. C99, self-contained. UNSTABLE until version 1.0 (see ABI.md).
 *
 * Model    An engine owns devices, one store and one tuner. A module is a parsed text; a kernel is one entry of it with
 *          its `const` parameters fixed. A launch specialises the kernel for (device, types, static dimensions, facts),
 *          takes the best known configuration from the store, else does what the tuning policy says.
 * Threads  Everything may be called from any thread at once; no result depends on thread-local state. After fork() only
 *          releases are legal in the child. Callbacks may come on any thread and must not call back into Kachel.
 * Memory   What a *_create, *_get, *_bind or an `err` parameter yields is the caller's and is released by its *_release
 *          (NULL is allowed), never by free(). Everything passed in is borrowed for the call. Strings that a getter
 *          returns live as long as the handle they came from. Handles keep what they need alive: an engine may be
 *          released before its modules.
 * Growth   Structs start with struct_size = sizeof(the struct); fields are only appended; zero means default; unknown
 *          non-zero bytes past the library's size are KACHEL_E_UNSUPPORTED. Enums are int32_t and open.
 * Errors   Every fallible call returns a status; (status & 0xff) is the category. `err`, where not NULL, receives an
 *          error object exactly when the status is not KACHEL_OK. */
#ifndef KACHEL_H_
#define KACHEL_H_

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define KACHEL_API __attribute__((visibility("default")))
#else
#define KACHEL_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define KACHEL_ABI_VERSION 0u

KACHEL_API uint32_t kachel_abi_version(void);
KACHEL_API const char *kachel_version(void); /* "0.1.0" */

/* ---- status and errors ---- */

typedef int32_t kachel_status; /* 0, or category | detail << 8 */
enum {
  KACHEL_OK = 0,
  KACHEL_E_INVALID = 1,     /* the text or the arguments are wrong; the message says how to mend them */
  KACHEL_E_UNSUPPORTED = 2, /* well-formed, but this library or device cannot do it */
  KACHEL_E_NO_DEVICE = 3,   /* no such device, or its driver or compiler is absent */
  KACHEL_E_NO_MEMORY = 4,
  KACHEL_E_COMPILE = 5, /* kachel_error_log has the compiler's words */
  KACHEL_E_LAUNCH = 6,
  KACHEL_E_STORE = 7,
  KACHEL_E_BUSY = 8,       /* would compile, allocate or synchronise while the stream is captured */
  KACHEL_E_NOT_CACHED = 9, /* policy CACHED_ONLY and nothing stored */
  KACHEL_E_CANCELLED = 10,
  KACHEL_E_DEVICE_LOST = 11, /* sticky device fault; nothing is stored after it */
  KACHEL_E_INTERNAL = 12     /* a defect of the library */
};
KACHEL_API const char *kachel_status_name(kachel_status status); /* "invalid"; static storage */

typedef struct kachel_error kachel_error;
KACHEL_API kachel_status kachel_error_status(const kachel_error *error);
KACHEL_API const char *kachel_error_message(const kachel_error *error); /* UTF-8; caret and mend for a program text */
KACHEL_API const char *kachel_error_log(const kachel_error *error);     /* compiler log or "" */
KACHEL_API void kachel_error_release(kachel_error *error);

/* A string that the caller owns. */
typedef struct kachel_text kachel_text;
KACHEL_API const char *kachel_text_data(const kachel_text *text);
KACHEL_API size_t kachel_text_size(const kachel_text *text);
KACHEL_API void kachel_text_release(kachel_text *text);

/* ---- tensors and arguments ---- */

typedef struct kachel_device { /* DLDevice: 1 CPU, 2 CUDA */
  int32_t type, id;
} kachel_device;
enum { KACHEL_CPU = 1, KACHEL_CUDA = 2 };

typedef struct kachel_dtype { /* DLDataType: code 0 int, 1 uint, 2 float, 4 bfloat, 6 bool, 10 f8e4m3, 12 f8e5m2 */
  uint8_t code, bits;
  uint16_t lanes; /* 1 */
} kachel_dtype;
/* "f32", "bf16", "u4", ... to a dtype. KACHEL_E_INVALID if unknown. */
KACHEL_API kachel_status kachel_dtype_parse(const char *name, kachel_dtype *out);
KACHEL_API const char *kachel_dtype_name(kachel_dtype dtype); /* "?" if unknown; static storage */

/* DLTensor's layout. strides are in elements; NULL means row-major contiguous. i4 and u4: logical shape, two elements a
 * byte along the last axis, low nibble first; or an 8-bit tensor with half the last dimension. */
typedef struct kachel_tensor {
  void *data;
  kachel_device device;
  int32_t ndim;
  kachel_dtype dtype;
  int64_t *shape;
  int64_t *strides;
  uint64_t byte_offset;
} kachel_tensor;

enum { KACHEL_ARG_TENSOR = 0, KACHEL_ARG_INT = 1, KACHEL_ARG_FLOAT = 2 };
typedef struct kachel_arg {
  int32_t kind, reserved;
  union {
    const kachel_tensor *tensor;
    int64_t i; /* integer and bool scalars */
    double f;  /* f32 scalars */
  } u;
} kachel_arg;

/* ---- engine ---- */

enum {
  KACHEL_POLICY_DEFAULT = 0, /* the kernel's, else the engine's, else BLOCKING */
  KACHEL_POLICY_OFF = 1,     /* best known for this key, else for the nearest, else what the cost model expects most from
                                (on the CPU the first listed); never measures */
  KACHEL_POLICY_CACHED_ONLY = 2,
  /* As OFF now; the key is tuned later, on copies of the tensors that are made in the order of the launch's stream, and
   * launches after that are served by the winner. A bound call keeps what it was bound to: bind again after
   * kachel_engine_wait. A key that does not fit the options below is left at what serves it. */
  KACHEL_POLICY_BACKGROUND = 3,
  KACHEL_POLICY_BLOCKING = 4    /* the first call with a new key tunes, within a budget */
};

enum { KACHEL_LOG_DEBUG = 0, KACHEL_LOG_INFO, KACHEL_LOG_WARNING, KACHEL_LOG_ERROR };

/* What an event says has happened. In brackets its fields beside `configuration`, `reason` and `store`, which say which
 * configuration, why and which store where that is meant. Further ones may be appended; so may fields. */
enum {
  KACHEL_EVENT_MESSAGE = 0, /* what no other kind is for; the message says it */
  KACHEL_EVENT_LOST,        /* kachel_engine_events alone: [events] before this were not taken in time */
  KACHEL_EVENT_COMPILED,    /* a binary was made, in so long [generic, compiler, compile_ns, registers, shared_bytes,
                               spill_bytes, flaw, bytes; -1 where a compiler does not say] */
  KACHEL_EVENT_LOADED,      /* a stored binary was loaded [bytes] */
  KACHEL_EVENT_TUNED,       /* a key, in so long [median_ns, candidates, compiled, measured, remeasured, timed_runs,
                               budget_exhausted] */
  KACHEL_EVENT_UNTUNED,     /* a key that should be tuned is served as under OFF instead */
  KACHEL_EVENT_SERVED_UNDECIDED, /* a key for which there is no complete decision is served by [source:
                                    incomplete_decision, nearest_key, cost_model, compiled_soon, list; tuned_later] */
  KACHEL_EVENT_CANDIDATE_FAILED,    /* to compile, or to run [state] */
  KACHEL_EVENT_CANDIDATE_REJECTED,  /* it computes something else, or has a flaw [state] */
  KACHEL_EVENT_CANDIDATE_CRASHED,   /* took its worker down */
  KACHEL_EVENT_CANDIDATE_TIMED_OUT, /* [limit_ns] */
  KACHEL_EVENT_DEMOTED,         /* what served failed to launch, and the next best serves [replaced_by] */
  KACHEL_EVENT_DEVICE_LOST,
  KACHEL_EVENT_WORKER_UNUSABLE, /* configurations are tried in this process */
  KACHEL_EVENT_STORE_DEGRADED,  /* a store, or an entry, is not where it should be; once for each reason [access] */
  KACHEL_EVENT_STORE_DAMAGED,   /* an entry that counts as absent */
  KACHEL_EVENT_STORE_EVICTED,   /* [entries] */
  KACHEL_EVENT_STORE_REFUSED,   /* entries from elsewhere without a valid MAC; once for each reason */
  KACHEL_EVENT_REMOTE_FAILED,   /* at most one a minute [call, pause_s, errors] */
  /* Of checks of stored decisions (drift_check_ns), in so long [replaced_by, recorded_ns, measured_ns, best_ns,
   * timed_runs]: */
  KACHEL_EVENT_DRIFT_CHECKED,    /* as it was */
  KACHEL_EVENT_DRIFT_NOTICED,    /* it takes another time than when it was chosen, and is still the quickest */
  KACHEL_EVENT_DECISION_REPLACED /* another one is, and serves from now on */
};
enum { KACHEL_FIELD_INT = 0, KACHEL_FIELD_FLOAT = 1, KACHEL_FIELD_TEXT = 2 };
typedef struct kachel_event_field {
  const char *name; /* lower case with underscores, its unit at the end */
  int32_t kind, reserved;
  union {
    int64_t i;
    double f;
    const char *text;
  } u;
} kachel_event_field;
typedef struct kachel_event {
  size_t struct_size;
  int32_t kind, level;  /* KACHEL_EVENT_*, KACHEL_LOG_* */
  const char *name;     /* of the kind: "candidate_failed" */
  int64_t unix_us;      /* when it was said */
  int64_t duration_ns;  /* of what has happened; 0: no matter */
  const char *kernel;   /* or program; "": none */
  const char *key;      /* the digest of the entry in the store that it is about, as in kachel_store_entry; "": none */
  const char *message;  /* the sentence that `log` has of it */
  const char *json;     /* all of it as one line, without its end (docs/events.md) */
  const kachel_event_field *fields;
  size_t field_count;
} kachel_event;

enum { KACHEL_PHASE_COMPILING = 0, KACHEL_PHASE_CHECKING, KACHEL_PHASE_MEASURING, KACHEL_PHASE_DONE };
typedef struct kachel_progress {
  size_t struct_size;
  const char *kernel;
  const char *configuration; /* "BM=64,BN=128": the one just finished */
  int32_t phase;
  uint32_t done, total;
  double best_ns; /* 0 while none is measured */
} kachel_progress;

/* Configurations of one tuning, as the callbacks below are given them. All of it lives for the call. */
typedef struct kachel_configurations {
  size_t struct_size;
  const char *kernel; /* or the program */
  kachel_device device;
  uint32_t count;
  uint32_t tunable_count, dim_count, reserved;
  const char *const *texts;    /* count: "BM=64,BN=128", as launch options take them */
  const char *const *tunables; /* tunable_count names, in declared order */
  const int64_t *values;       /* count rows of tunable_count values */
  const char *const *dims;     /* dim_count names, in the order of kachel_kernel_dim_name */
  const int64_t *dim_values;   /* of the launch that is tuned */
} kachel_configurations;

/* A candidate that is compiled and whose output is right, for a host that times it by itself. Its outputs are private
 * copies: run it as often as needed, the caller's tensors are only read. All functions work on `stream`, which is the
 * tuning's own, and take `self` = this struct's. They are the only calls into the library that the callback may make. */
typedef struct kachel_trial {
  size_t struct_size;
  void *self;
  void *stream; /* a CUstream; on the CPU of no meaning, where a launch returns when it is done */
  /* Gives in-out tensors the caller's contents again. */
  kachel_status (*restore)(void *self);
  /* Evicts the operands from the caches, as before each timed run of the library's own. */
  kachel_status (*flush)(void *self);
  kachel_status (*launch)(void *self, uint32_t times); /* one after another; does not wait */
  kachel_status (*synchronize)(void *self);
} kachel_trial;

/* What a host may decide in tunings. Every member may be zero or NULL. The callbacks come on the thread that tunes: the
 * one that launches under BLOCKING, the engine's under BACKGROUND; of one tuning one at a time, of several keys at once
 * perhaps several. They must not call back into Kachel. They return 0 to go on; anything else ends the tuning: the call
 * fails with KACHEL_E_CANCELLED, and what was measured is kept. They are no part of a key: a stored decision serves
 * whatever the callbacks would say now. */
typedef struct kachel_tuning_options {
  size_t struct_size;
  void *user;
  /* Untimed runs of each candidate (0: 2), and the least and most timed ones (0: 10 and 192, of long runs 3 and 12). */
  uint32_t warmup_runs, min_runs, max_runs, reserved;
  /* Sets keep[i] (1 before the call) to 0 where configuration i is not worth trying. One must be left. */
  int32_t (*prune)(void *user, const kachel_configurations *all, uint8_t *keep);
  /* Sets ns[i] (NaN before the call) to what configuration i is expected to take; replaces the cost model. With
   * tune_trials those that are expected to be fastest are measured; NaN comes last. */
  int32_t (*predict)(void *user, const kachel_configurations *all, double *ns);
  /* Takes the samples of a candidate in place of the library: at most `capacity` of them, each > 0, in nanoseconds of
   * one launch. `one` holds one configuration. */
  int32_t (*benchmark)(void *user, const kachel_configurations *one, const kachel_trial *trial, double *ns,
                       uint32_t capacity, uint32_t *count);
  /* Around each timed run, warm-up included, outside of what is timed. What they enqueue on `stream` is ordered with the
   * run. */
  int32_t (*before_run)(void *user, const kachel_configurations *one, void *stream);
  int32_t (*after_run)(void *user, const kachel_configurations *one, void *stream);
} kachel_tuning_options;

typedef struct kachel_engine kachel_engine;
typedef struct kachel_engine_options {
  size_t struct_size;
  const char *store_path; /* NULL: $KACHEL_CACHE, else the user's cache folder; "": memory only */
  uint64_t store_max_bytes;
  uint64_t tune_budget_ns; /* per key; 0: 10 s */
  int32_t policy;
  int32_t compile_threads; /* 0: all cores */
  int32_t cpu_threads;     /* workers of the CPU device; 0: all cores */
  int32_t reserved;
  /* The messages of events; `event`, below, has the whole of them. */
  void (*log)(void *user, int32_t level, const char *message, size_t length);
  void *log_user;
  /* Device scratch, stream-ordered: for kernels and programs that need it, and for operands that are made ahead where that is
   * faster (a kernel serves without where there is none). NULL: the library's own. */
  void *(*scratch_alloc)(void *user, kachel_device device, size_t size, size_t align, void *stream);
  void (*scratch_free)(void *user, kachel_device device, void *pointer, void *stream);
  void *scratch_user;
  /* Return 0 to go on, anything else to cancel the tuning (KACHEL_E_CANCELLED). */
  int32_t (*progress)(void *user, const kachel_progress *progress);
  void *progress_user;
  const char *nvrtc_path;        /* libnvrtc or its folder; NULL: $KACHEL_NVRTC, else searched */
  const char *cpu_compiler_path; /* libkachel_llvm.so or its folder; NULL: $KACHEL_LLVM, else beside this library */
  /* Of tunings in the background, on one thread of the engine's, from which scratch_alloc, scratch_free and progress are
   * called as well. How much of the device's time their timed runs may take (0: 0.25), and of its memory the copies of
   * tensors that wait or are in use at once (0: a sixteenth of it). */
  double background_share;
  uint64_t background_max_bytes;
  /* Stores that are read where the engine's own has nothing, with colons between them, the first before the next: what
   * a deployment ships (kachel_store_export makes one). Nothing is written to them. NULL: $KACHEL_SYSTEM_CACHE; "":
   * none. */
  const char *system_stores;
  /* "sm_80", "sm_90a", ...: the engine's one CUDA device is of this architecture and need not be there. Kernels are
   * explained and compiled for it (kachel_compile); its memory is addresses without bytes, and whatever would run or
   * copy is KACHEL_E_UNSUPPORTED. NULL, "": the machine's own devices. */
  const char *target;
  /* Tuning in a process of its own: a kernel's configurations are compiled, checked and measured by a worker, which is
   * started when the first key is tuned. One that crashes or exceeds a limit costs the worker, is stored as
   * KACHEL_CANDIDATE_CRASHED or _TIMED_OUT and never tried again; this process runs the winner alone. The worker has
   * copies of integer and bool tensors; floats, of which it has none, are random between -1 and 1 there.
   * The program: its path, or, without a slash, the name of one beside this library or in the bin folder next to that,
   * which is "kachel-tune-worker". NULL: $KACHEL_WORKER, else none; "": none, everything happens in this process. */
  const char *worker_path;
  /* Of one tuning's tensors there and one copy of the outputs. 0: a quarter of the device's memory. What needs more is
   * served as under OFF. */
  uint64_t worker_max_bytes;
  uint64_t compile_limit_ns; /* of one compilation, in this process or a worker; 0: 60 s */
  uint64_t run_limit_ns;     /* of one run of a configuration in a worker, beyond which it counts as hanging; 0: 30 s */
  int32_t worker_required;   /* 0: without a usable worker this process tries configurations itself, after a line in the
                                log; else nothing is tried, and keys are served as under OFF */
  int32_t worker_restarts;   /* workers after the first that one tuning may use up; then the rest is left untried. 0: 8 */
  /* A key-value store that machines share, beneath all others. What neither the engine's own store nor a system store has
   * is asked of it before anything is compiled or tuned, and then kept in the engine's own; what the engine stores is
   * given to it later. A key is "kachel:1:" and 32 hex digits, terminated by a zero as well; a value is a record of
   * cache/FORMAT.md, of up to 256 MiB. Either callback may be NULL. They come from one thread of the engine's, one at a
   * time, on which no handlers of signals run, and must end: whoever waits for a value goes on without it after
   * remote_wait_ns (0: 1 s), but the last handle's release waits for a call that runs, and up to 10 s for puts that are
   * left. Both return one of KACHEL_REMOTE_*, any other value being FAILED too, and may say why in `why`, which has room
   * for why_size bytes and holds "". Failures make misses, never errors: they are counted, logged at most once a minute,
   * and nothing is asked for the next 1 s, after further ones for up to 30 s. A get of more than 200 ms counts as one, too.
   * remote_get hands the value to give(sink, ...), in one or several pieces; where that is not 0, the rest is of no use. */
  int32_t (*remote_get)(void *user, const char *key, size_t key_size,
                        int32_t (*give)(void *sink, const void *bytes, size_t size), void *sink, char *why,
                        size_t why_size);
  int32_t (*remote_put)(void *user, const char *key, size_t key_size, const void *value, size_t size, char *why,
                        size_t why_size);
  void *remote_user;
  uint64_t remote_wait_ns;
  /* A secret of 16 to 4096 bytes, best 32 random ones; copied. With it, all that the engine stores, exports and gives to the
   * remote carries a MAC, and what system stores, imports and the remote have is refused without one: a miss, counted.
   * accepted_store_key is accepted too, but does not sign, so that keys can be exchanged. store_key NULL: the files that
   * $KACHEL_STORE_KEY_FILE names, with colons between them, the first of which signs; not NULL, of size 0: none.
   * docs/sharing.md says what a MAC is good for. */
  const void *store_key, *accepted_store_key;
  size_t store_key_size, accepted_store_key_size;
  /* How many configurations a tuning measures: those from which the cost model, or `predict`, expects most. 0: all that
   * a program lists, 16 where `tune auto` has their values derived; 65535 or more: all. A decision is complete for that
   * number: a call that asks for more measures those that are missing. */
  uint32_t tune_trials;
  uint32_t reserved_2;
  const kachel_tuning_options *tuning; /* read by the call; what the callbacks use must live as long as the engine */
  /* What happens: tunings, failures, what befalls the store. Warm launches say nothing. `log` and this one come on
   * whichever thread it happens on, one call at a time, until the engine's last handle has been released; what a
   * kachel_event points to lives for the call. They must be quick and must not call back into Kachel. */
  void (*event)(void *user, const kachel_event *event);
  void *event_user;
  /* So many of the latest events wait for kachel_engine_events, for hosts that cannot be called on a foreign thread; at
   * most 65536. 0: none. */
  uint32_t events_kept;
  /* 0: on sm_90 and newer a short launch, and the later ones of a program, may begin before what precedes it on its stream
   * has ended (programmatic dependent launch, CUDA 12.3): its blocks take their places and wait for all of that before they
   * touch a tensor, which saves about a microsecond. Graphs that capture such launches have programmatic edges, of which
   * the form of cuGraphGetEdges without edge data knows nothing. Not 0, or $KACHEL_LAUNCHES_APART=1: it begins when that
   * has ended. */
  uint32_t launches_apart;
  /* So much time after a decision that came from the store has begun to serve a kernel's key, and again after each check,
   * the configurations that it ranks are measured anew, as a tuning under BACKGROUND is: on copies that the next launch
   * makes, in the engine's thread, within background_share, background_max_bytes and the budget. Where another one wins
   * by more than the noise, it is stored and serves; bound calls keep what they were bound to. Launches under OFF and
   * CACHED_ONLY, and frozen engines, begin no check; programs' own choices are not checked. 0: none. */
  uint64_t drift_check_ns;
} kachel_engine_options;
enum { KACHEL_REMOTE_DONE = 0, KACHEL_REMOTE_ABSENT = 1, KACHEL_REMOTE_FAILED = 2 };
KACHEL_API kachel_status kachel_engine_create(const kachel_engine_options *options, kachel_engine **out,
                                              kachel_error **err);
/* Launches must have finished before the last handle of an engine goes. CUDA code that was launched stays loaded even
 * then, so that captured graphs keep working. Releasing a kernel ends its tuning in the background, behind the candidate
 * that is being compiled. */
KACHEL_API void kachel_engine_release(kachel_engine *engine);

/* What a worker does, which is a program of this one call (bindings/worker): serves the engine at the other end of
 * `descriptor`, a connected stream socket that it takes over. An engine gives its worker the descriptor's number as the
 * only argument. Does not return: the process ends when the engine's does, or the engine has no use for it. But
 * KACHEL_E_INVALID where no engine is there, KACHEL_E_UNSUPPORTED where it is of another build. */
KACHEL_API kachel_status kachel_worker_serve(int32_t descriptor, kachel_error **err);

/* Until nothing is left to be tuned in the background, nor to be given to the remote store; KACHEL_E_BUSY after timeout_ns
 * (< 0: never). */
KACHEL_API kachel_status kachel_engine_wait(kachel_engine *engine, int64_t timeout_ns, kachel_error **err);
/* From then on nothing is tuned, and nothing that serves is replaced but what fails: unknown keys are served as under
 * OFF. Ends the tuning that runs in the background. There is no way back. */
KACHEL_API kachel_status kachel_engine_freeze(kachel_engine *engine, kachel_error **err);

/* The events since the last call that were kept (events_kept), oldest first, each a line of JSON; "" where there are
 * none. Where more came than are kept, the first line says how many are missing. KACHEL_E_INVALID where none are kept. */
KACHEL_API kachel_status kachel_engine_events(kachel_engine *engine, kachel_text **out, kachel_error **err);

/* ---- devices, memory, streams: enough for a tool to need nothing else ---- */

typedef struct kachel_device_info {
  size_t struct_size;
  kachel_device device;
  char name[128];
  char architecture[512];
  char driver[64];
  char compiler[64]; /* "" while it has not been opened */
  int32_t multiprocessors, compute_major, compute_minor, reserved;
  int64_t memory_bytes, shared_bytes_per_block, l2_bytes;
} kachel_device_info;
/* Devices in order: CUDA devices, then the CPU. */
KACHEL_API kachel_status kachel_engine_device_count(kachel_engine *engine, int32_t *out);
KACHEL_API kachel_status kachel_engine_device_info(kachel_engine *engine, int32_t index, kachel_device_info *out,
                                                   kachel_error **err);
KACHEL_API kachel_status kachel_memory_alloc(kachel_engine *engine, kachel_device device, size_t size, void **out,
                                             kachel_error **err);
KACHEL_API kachel_status kachel_memory_free(kachel_engine *engine, kachel_device device, void *pointer);
/* `device` is the device that `stream` belongs to; either pointer may be host memory. Synchronous when stream is NULL. */
KACHEL_API kachel_status kachel_memory_copy(kachel_engine *engine, kachel_device device, void *to, const void *from,
                                            size_t size, void *stream, kachel_error **err);
KACHEL_API kachel_status kachel_stream_create(kachel_engine *engine, kachel_device device, void **out,
                                              kachel_error **err);
KACHEL_API kachel_status kachel_stream_synchronize(kachel_engine *engine, kachel_device device, void *stream,
                                                   kachel_error **err);
KACHEL_API void kachel_stream_release(kachel_engine *engine, kachel_device device, void *stream);

/* ---- modules and kernels ---- */

typedef struct kachel_module kachel_module;
/* Parses and verifies; compiles nothing. `name` (may be NULL) is what diagnostics call the text. */
KACHEL_API kachel_status kachel_module_create(kachel_engine *engine, const char *text, size_t length, const char *name,
                                              kachel_module **out, kachel_error **err);
KACHEL_API void kachel_module_release(kachel_module *module);
/* Programs count as kernels, behind them. */
KACHEL_API int32_t kachel_module_kernel_count(const kachel_module *module);
KACHEL_API const char *kachel_module_kernel_name(const kachel_module *module, int32_t index);

typedef struct kachel_const { /* the value of a `const` parameter */
  const char *name;
  int64_t i; /* integers and bools */
  double f;  /* f32 */
} kachel_const;

typedef struct kachel_kernel kachel_kernel;
/* A program of the text counts as a kernel, behind the kernels: it is launched, tuned and bound like one, and has temporary
 * tensors from the scratch of the launch, or of the bound call. name NULL: the only program, or the only kernel of a module
 * without programs. Every `const` parameter must be given, and no other. */
KACHEL_API kachel_status kachel_kernel_get(kachel_module *module, const char *name, const kachel_const *consts,
                                           size_t const_count, kachel_kernel **out, kachel_error **err);
KACHEL_API void kachel_kernel_release(kachel_kernel *kernel);
KACHEL_API const char *kachel_kernel_name(const kachel_kernel *kernel);
/* The policy of calls that name none; DEFAULT: the engine's. Not while another thread uses the kernel. */
KACHEL_API kachel_status kachel_kernel_set_policy(kachel_kernel *kernel, int32_t policy, kachel_error **err);

enum { KACHEL_IN = 0, KACHEL_OUT = 1, KACHEL_INOUT = 2, KACHEL_SCALAR = 3 };
typedef struct kachel_param_info {
  size_t struct_size;
  const char *name;
  const char *type;  /* "f16", or the name of a type symbol */
  const char *shape; /* "M, K"; "" for scalars */
  int32_t kind;      /* KACHEL_IN, ... */
  int32_t rank;      /* 0 for scalars */
} kachel_param_info;
KACHEL_API int32_t kachel_kernel_param_count(const kachel_kernel *kernel);
KACHEL_API kachel_status kachel_kernel_param(const kachel_kernel *kernel, int32_t index, kachel_param_info *out);
KACHEL_API int32_t kachel_kernel_dim_count(const kachel_kernel *kernel);
KACHEL_API const char *kachel_kernel_dim_name(const kachel_kernel *kernel, int32_t index);
/* 1 if binaries are specialised by this dimension's value. */
KACHEL_API int32_t kachel_kernel_dim_is_static(const kachel_kernel *kernel, int32_t index);
KACHEL_API int32_t kachel_kernel_type_count(const kachel_kernel *kernel);
KACHEL_API const char *kachel_kernel_type_name(const kachel_kernel *kernel, int32_t index);
KACHEL_API int32_t kachel_kernel_type_option_count(const kachel_kernel *kernel, int32_t index);
KACHEL_API const char *kachel_kernel_type_option(const kachel_kernel *kernel, int32_t index, int32_t option);
/* Reflection of a module's kernel before its consts are known. "bool", "i32", "f32", ... */
KACHEL_API int32_t kachel_module_const_count(const kachel_module *module, int32_t kernel_index);
KACHEL_API const char *kachel_module_const_name(const kachel_module *module, int32_t kernel_index, int32_t index);
KACHEL_API const char *kachel_module_const_type(const kachel_module *module, int32_t kernel_index, int32_t index);
/* Evaluates parameter `index`'s shape from values of the dimensions (in the order of kachel_kernel_dim_name); an extent
 * that a tunable decides, for its first listed value, or for 1 where values are derived. Axes beyond the rank are 0. */
KACHEL_API kachel_status kachel_kernel_param_shape(const kachel_kernel *kernel, int32_t index, const int64_t *dims,
                                                   size_t dim_count, int64_t shape_out[5], kachel_error **err);

/* ---- launch ---- */

typedef struct kachel_launch_options {
  size_t struct_size;
  int32_t policy, reserved;
  uint64_t tune_budget_ns;
  const char *configuration; /* "BM=64,BN=128": use exactly this one, outside of any policy; NULL: the policy's choice */
  uint32_t tune_trials;      /* as in engine options; 0: what those say */
  uint32_t reserved_2;
  /* In place of the engine's. Read by the call; what the callbacks use must live until it returns, under BACKGROUND
   * until the kernel has been released. */
  const kachel_tuning_options *tuning;
} kachel_launch_options;
/* args: one an argument of the kernel, in declared order. options may be NULL. stream: a CUstream, or NULL for the
 * default stream; ignored on the CPU, where the call returns when the work is done. */
KACHEL_API kachel_status kachel_launch(kachel_kernel *kernel, const kachel_arg *args, size_t count,
                                       const kachel_launch_options *options, void *stream, kachel_error **err);
/* Everything that a launch with these arguments would do before its last step; tensors' contents are read by tuning
 * under BLOCKING, never changed. */
KACHEL_API kachel_status kachel_prepare(kachel_kernel *kernel, const kachel_arg *args, size_t count,
                                        const kachel_launch_options *options, void *stream, kachel_error **err);

typedef struct kachel_compiled {
  size_t struct_size;
  uint32_t compiled, present; /* now; that the store had already */
  uint32_t refused, reserved; /* configurations that cannot be built, too much shared memory for one */
} kachel_compiled;
/* Puts binaries that a launch with these arguments may run into the engine's store and loads nothing: of the
 * configuration that `options` names, else of the `most` that the cost model expects to be the quickest (0: all), of
 * each kernel if it is a program. Only addresses of tensors are looked at, as to their alignment. What it makes serves
 * every machine with that architecture as a system store, or once imported. Fails if nothing can be built. out may be
 * NULL. */
KACHEL_API kachel_status kachel_compile(kachel_kernel *kernel, const kachel_arg *args, size_t count,
                                        const kachel_launch_options *options, uint32_t most, kachel_compiled *out,
                                        kachel_error **err);

/* Fixes device, types, shapes, strides, facts and key values, and reserves scratch. Later launches give the pointers of
 * the tensor parameters (byte_offset added) and the scalar parameters, each in declared order; f32 scalars as the bits of
 * a float in the low half. Pointers must be at least as aligned as those it was bound with, and outputs must not overlap
 * anything. Scalars may change the grid and are checked against `where`; one that the kernel divides by has to remain a
 * multiple of 16, 32, 64 or 128 if it was one. A call object that needs scratch must not be launched from two threads at
 * once. Its launches must have finished before it is released. */
typedef struct kachel_call kachel_call;
KACHEL_API kachel_status kachel_bind(kachel_kernel *kernel, const kachel_arg *args, size_t count,
                                     const kachel_launch_options *options, kachel_call **out, kachel_error **err);
KACHEL_API kachel_status kachel_call_launch(kachel_call *call, void *const *pointers, const int64_t *scalars,
                                            void *stream);
KACHEL_API void kachel_call_release(kachel_call *call);

/* ---- results, explanation, reference ---- */

enum {
  KACHEL_CANDIDATE_UNTRIED = 0,
  KACHEL_CANDIDATE_COMPILE_FAILED,
  KACHEL_CANDIDATE_REJECTED_WRONG,
  KACHEL_CANDIDATE_LAUNCH_FAILED,
  KACHEL_CANDIDATE_PRUNED,
  KACHEL_CANDIDATE_MEASURED,
  KACHEL_CANDIDATE_REJECTED_FLAW, /* its compiler reports spills or the like, and there are candidates without */
  KACHEL_CANDIDATE_CRASHED,       /* took its worker down; never tried again */
  KACHEL_CANDIDATE_TIMED_OUT      /* exceeded a limit, and its worker was killed; never tried again */
};
typedef struct kachel_tuning kachel_tuning;
typedef struct kachel_candidate {
  size_t struct_size;
  const char *configuration;
  const char *message; /* why it failed; "" otherwise */
  int32_t state;
  uint32_t samples;
  double median_ns, low_ns, high_ns; /* confidence interval of the median */
  double compile_ns;                 /* 0 if it was compiled before */
  int32_t registers, reserved;
  int64_t shared_bytes, spill_bytes; /* -1 unknown */
  double predicted_ns;               /* by the cost model; 0 if it cannot tell */
} kachel_candidate;
/* The tuning that decided for these arguments' key: from this process or from the store. KACHEL_E_NOT_CACHED if none.
 * A sole configuration wins without one, untried. */
KACHEL_API kachel_status kachel_tuning_get(kachel_kernel *kernel, const kachel_arg *args, size_t count,
                                           kachel_tuning **out, kachel_error **err);
KACHEL_API void kachel_tuning_release(kachel_tuning *tuning);
KACHEL_API int32_t kachel_tuning_winner(const kachel_tuning *tuning); /* index of a candidate, or -1 */
KACHEL_API int32_t kachel_tuning_count(const kachel_tuning *tuning);
KACHEL_API kachel_status kachel_tuning_candidate(const kachel_tuning *tuning, int32_t index, kachel_candidate *out);
KACHEL_API double kachel_tuning_total_ns(const kachel_tuning *tuning);
KACHEL_API int32_t kachel_tuning_from_store(const kachel_tuning *tuning);

enum {
  KACHEL_EXPLAIN_SUMMARY = 0,
  KACHEL_EXPLAIN_SOURCE = 1,
  KACHEL_EXPLAIN_TILE_IR = 2,
  KACHEL_EXPLAIN_LOOP_IR = 3,
  KACHEL_EXPLAIN_CONFIGURATION = 4 /* as in launch options; "" where there is nothing to choose */
};
/* What a launch with these arguments runs, short of tuning, and why: configuration, facts, layouts and the instruction
 * of each op; or the emitted text; or the program after a stage of lowering; or the configuration alone. `device` matters
 * where the arguments have no tensor. Needs no compiler. */
KACHEL_API kachel_status kachel_explain(kachel_kernel *kernel, const kachel_arg *args, size_t count,
                                        const kachel_launch_options *options, int32_t what, kachel_text **out,
                                        kachel_error **err);

typedef struct kachel_check_result {
  size_t struct_size;
  uint64_t elements, mismatches, undecided;
  double median_bound_ulps; /* how wide the error bounds were, in ulp of the output type */
  char first[256];          /* the first mismatch in words; "" if none */
} kachel_check_result;
/* Runs the reference interpreter on `before` (host tensors) and compares with `after` (host tensors that a launch on
 * the same inputs left). One entry an argument; scalars equal in both. Slow: meant for checks. configuration: as in
 * launch options; NULL: the first listed. KACHEL_E_UNSUPPORTED for a program, whatever the
 * arguments: check its kernels one by one. */
KACHEL_API kachel_status kachel_check(kachel_kernel *kernel, const kachel_arg *before, const kachel_arg *after,
                                      size_t count, const char *configuration, kachel_check_result *out,
                                      kachel_error **err);

/* ---- statistics and the store ---- */

typedef struct kachel_stats {
  size_t struct_size;
  uint64_t launches;        /* general and bound */
  uint64_t compiles;        /* binaries made by a compiler */
  uint64_t loads;           /* binaries loaded onto a device */
  uint64_t measurements;    /* timed launches of candidates */
  uint64_t tunings;         /* keys tuned */
  uint64_t specialisations; /* kept in memory */
  uint64_t store_hits, store_misses, store_damaged, store_puts;
  uint64_t nvrtc_opened, llvm_opened; /* 0 or 1 */
  uint64_t lowerings;                 /* lowering pipelines run */
  double last_load_ns;                /* store hit to loaded kernel, of the latest one */
  /* Keys: waiting or being tuned now, tuned in the background, and given up. */
  uint64_t background_pending, background_tunings, background_failures;
  uint64_t store_layer_hits;   /* those of store_hits that a system store served */
  uint64_t workers;            /* worker processes that took up a tuning */
  uint64_t workers_lost;       /* those that a configuration ended */
  uint64_t store_refused_macs; /* entries from elsewhere without a valid MAC */
  /* Of the remote store: those of store_hits that it served; what it did not have, or not of use; what was given to it;
   * calls that failed or took too long; and calls that were not made since others had failed shortly before. */
  uint64_t remote_hits, remote_misses, remote_puts, remote_errors, remote_skipped;
  uint64_t drift_checks, drift_replacements; /* stored decisions measured anew; those of them that were replaced */
} kachel_stats;
KACHEL_API kachel_status kachel_engine_stats(kachel_engine *engine, kachel_stats *out);
/* The same and more, as text for Prometheus to read: append it to what the host says of itself. */
KACHEL_API kachel_status kachel_engine_metrics(kachel_engine *engine, kachel_text **out, kachel_error **err);

typedef struct kachel_store_info {
  size_t struct_size;
  const char *path;        /* "" in memory; lives as long as the engine */
  int32_t writable, reserved;
  uint64_t entries, bytes;
} kachel_store_info;
KACHEL_API kachel_status kachel_store_info_get(kachel_engine *engine, kachel_store_info *out);
typedef struct kachel_store_entry {
  size_t struct_size;
  const char *kind;        /* "plan", "tuning", ...; these strings live for the call */
  const char *kernel;      /* the name it was stored under, for people */
  const char *description; /* configuration, architecture or model */
  const char *digest;      /* 32 hex digits */
  uint64_t bytes;
  int64_t created_unix_s;
} kachel_store_entry;
/* Return 0 to go on. The callback must not call back into the engine. */
KACHEL_API kachel_status kachel_store_iterate(kachel_engine *engine,
                                              int32_t (*entry)(void *user, const kachel_store_entry *entry), void *user,
                                              kachel_error **err);
typedef struct kachel_store_change {
  size_t struct_size;
  int64_t unix_us;
  int64_t pid;               /* of the process that made it, on its host; these strings live for the call */
  const char *host;
  const char *version;       /* of its library, as kachel_version says it */
  const char *what;          /* "stored", "fetched" (from the remote), "imported"; "demoted", "barred" (the sample of a
                                configuration that failed later, or did harm); "replaced" (a decision, by a drift check);
                                "evicted", "removed", "damaged" (and removed), "cleared" (everything), "set_aside" (the
                                data file); further ones may be appended */
  const char *kind, *kernel; /* of the entry, as in kachel_store_entry; "" where it is not about one, or not known */
  const char *description;   /* of "set_aside": why, and where it lies */
  const char *digest;
  uint64_t bytes;            /* of its record */
} kachel_store_change;
/* What has become of the store on disk, by all processes that share it, oldest first: the latest few thousand changes
 * (cache/FORMAT.md). A process that ends in the midst of a change, or a disk without room, may leave it out. The callback
 * returns 0 to go on and must not call back into the engine. damaged: lines that could not be read; may be NULL. */
KACHEL_API kachel_status kachel_store_log(kachel_engine *engine,
                                          int32_t (*change)(void *user, const kachel_store_change *change), void *user,
                                          uint64_t *damaged, kachel_error **err);
KACHEL_API kachel_status kachel_store_clear(kachel_engine *engine, kachel_error **err);
/* Removes entries that were used longest ago, in batches, until the data take at most max_bytes. What an engine has
 * loaded goes on. removed may be NULL. */
KACHEL_API kachel_status kachel_store_shrink(kachel_engine *engine, uint64_t max_bytes, uint64_t *removed,
                                             kachel_error **err);
/* Reads every entry; a damaged one is removed. Both numbers may be NULL. */
KACHEL_API kachel_status kachel_store_verify(kachel_engine *engine, uint64_t *entries, uint64_t *damaged,
                                             kachel_error **err);
/* Copies every entry, those of system stores included, to the store at `path`, which is made if it is missing; and the
 * other way round, replacing what is there under the same key. Binaries serve every machine of their architecture,
 * tunings those of their GPU's model and driver. An import is found by kernels that have not looked yet, and is given to
 * the remote store as well. With a store_key, what is copied to carries MACs; an import of entries without valid ones leaves
 * those out and is KACHEL_E_STORE. */
KACHEL_API kachel_status kachel_store_export(kachel_engine *engine, const char *path, uint64_t *copied,
                                             kachel_error **err);
KACHEL_API kachel_status kachel_store_import(kachel_engine *engine, const char *path, uint64_t *copied,
                                             kachel_error **err);

/* Decisions and samples of tunings, without binaries, as JSON that says in words what it holds: for other programs to
 * read, and for other machines with such a GPU and driver, or other ranks of one job, to take in. */
KACHEL_API kachel_status kachel_tunings_export(kachel_engine *engine, kachel_text **out, kachel_error **err);
/* Takes in such a text, all of it or, if something in it is wrong, nothing (KACHEL_E_INVALID), replacing what is there
 * under the same keys. Kernels that have looked already keep what they found. imported may be NULL. */
KACHEL_API kachel_status kachel_tunings_import(kachel_engine *engine, const char *text, size_t size, uint64_t *imported,
                                               kachel_error **err);

#ifdef __cplusplus
}
#endif
#endif /* KACHEL_H_ */
