// Nothing here runs: it is compiled where nvrtc.h is found and fails to compile if a declaration of ours is wrong.
#include <nvrtc.h>

#include "runtime/cuda/abi_check.h"
#include "runtime/cuda/nvrtc_api.h"

namespace kachel::runtime::cuda {
namespace {

#define KACHEL_SAME(ours, theirs) \
  static_assert(sizeof(ours) == sizeof(theirs) && static_cast<int>(ours) == static_cast<int>(theirs), #theirs)

KACHEL_SAME(NvrtcResult::kSuccess, NVRTC_SUCCESS);
KACHEL_SAME(NvrtcResult::kOutOfMemory, NVRTC_ERROR_OUT_OF_MEMORY);
KACHEL_SAME(NvrtcResult::kInvalidInput, NVRTC_ERROR_INVALID_INPUT);
KACHEL_SAME(NvrtcResult::kInvalidOption, NVRTC_ERROR_INVALID_OPTION);
KACHEL_SAME(NvrtcResult::kCompilation, NVRTC_ERROR_COMPILATION);
KACHEL_SAME(NvrtcResult::kBuiltinOperationFailure, NVRTC_ERROR_BUILTIN_OPERATION_FAILURE);

#define KACHEL_SAME_FUNCTION(member, symbol, result, parameters) \
  static_assert(SameAbi<decltype(NvrtcApi::member), decltype(&::symbol)>::value, #symbol);
KACHEL_NVRTC_REQUIRED(KACHEL_SAME_FUNCTION)
#ifdef KACHEL_NVRTC_HAS_FLOW_CALLBACK  // set by sources.cmake: nvrtc.h has no version macro
KACHEL_SAME(NvrtcResult::kCancelled, NVRTC_ERROR_CANCELLED);
KACHEL_NVRTC_OPTIONAL(KACHEL_SAME_FUNCTION)
#endif

}  // namespace
}  // namespace kachel::runtime::cuda
