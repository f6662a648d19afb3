// NVRTC as this library sees it: own declarations, bound at run time on the first compilation, checked against nvrtc.h
// by nvrtc_api_check.cc. NVRTC 11.2 to 13 have all that is required.
#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "support/status.h"

namespace kachel::runtime::cuda {

using NvrtcProgram = struct NvrtcProgramTag*;

enum class NvrtcResult : int32_t {
  kSuccess = 0,
  kOutOfMemory = 1,
  kInvalidInput = 3,
  kInvalidOption = 5,
  kCompilation = 6,
  kBuiltinOperationFailure = 7,
  kCancelled = 16,
};

// X(member, exported symbol, result, parameters)
#define KACHEL_NVRTC_REQUIRED(X)                                                                                      \
  X(get_error_string, nvrtcGetErrorString, const char*, (NvrtcResult result))                                         \
  X(version, nvrtcVersion, NvrtcResult, (int* major, int* minor))                                                     \
  X(get_num_supported_archs, nvrtcGetNumSupportedArchs, NvrtcResult, (int* count))                                    \
  X(get_supported_archs, nvrtcGetSupportedArchs, NvrtcResult, (int* architectures))                                   \
  X(create_program, nvrtcCreateProgram, NvrtcResult,                                                                  \
    (NvrtcProgram * program, const char* text, const char* name, int header_count, const char* const* headers,        \
     const char* const* include_names))                                                                               \
  X(destroy_program, nvrtcDestroyProgram, NvrtcResult, (NvrtcProgram * program))                                      \
  X(compile_program, nvrtcCompileProgram, NvrtcResult, (NvrtcProgram program, int count, const char* const* options)) \
  X(get_ptx_size, nvrtcGetPTXSize, NvrtcResult, (NvrtcProgram program, size_t * bytes))                               \
  X(get_ptx, nvrtcGetPTX, NvrtcResult, (NvrtcProgram program, char* ptx))                                             \
  X(get_cubin_size, nvrtcGetCUBINSize, NvrtcResult, (NvrtcProgram program, size_t * bytes))                           \
  X(get_cubin, nvrtcGetCUBIN, NvrtcResult, (NvrtcProgram program, char* cubin))                                       \
  X(get_log_size, nvrtcGetProgramLogSize, NvrtcResult, (NvrtcProgram program, size_t * bytes))                        \
  X(get_log, nvrtcGetProgramLog, NvrtcResult, (NvrtcProgram program, char* log))

#define KACHEL_NVRTC_OPTIONAL(X)                          \
  X(set_flow_callback, nvrtcSetFlowCallback, NvrtcResult, \
    (NvrtcProgram program, int (*callback)(void*, void*), void* payload))

// Opened at most once per library, never unloaded; immutable but for the note about an option. Free for all threads.
struct NvrtcApi {
#define KACHEL_NVRTC_MEMBER(member, symbol, result, parameters) result(*member) parameters = nullptr;
  KACHEL_NVRTC_REQUIRED(KACHEL_NVRTC_MEMBER)
  KACHEL_NVRTC_OPTIONAL(KACHEL_NVRTC_MEMBER)
#undef KACHEL_NVRTC_MEMBER

  int major = 0, minor = 0;
  std::vector<int> architectures;  // ascending: 75, 80, ..., 121
  std::string path;                // the file that was opened
  // What older ones do not know: a cache beside the store, and parts of CUDA that no emitted text uses (a third of what
  // the front end, which works on one text at a time in a process, takes). Learned from the first refusal.
  struct Option {
    const char* text;
    mutable std::atomic<bool> known{true};
  };
  std::array<Option, 2> options = {{{"--no-cache"}, {"--minimal"}}};

  std::string name() const;  // "nvrtc 13.0"
};

// explicit_path: the library, a folder that has it, or "" for the default search; KACHEL_NVRTC overrides it. An
// explicit path that does not serve is an error, never a reason to search on. kNoDevice with a mend where there is
// none.
Result<const NvrtcApi*> open_nvrtc(const std::string& explicit_path);

}  // namespace kachel::runtime::cuda
