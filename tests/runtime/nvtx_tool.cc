// What a profiler injects: prints the domains and ranges of NVTX to standard error, a line each.
#include <nvtx3/nvToolsExt.h>

#include <atomic>
#include <cstdio>

namespace {

std::atomic<int> depth{0};

nvtxDomainHandle_t create(const char* name) {
  std::fprintf(stderr, "nvtx domain %s\n", name);
  static char domain;
  return reinterpret_cast<nvtxDomainHandle_t>(&domain);
}
int push(nvtxDomainHandle_t, const nvtxEventAttributes_t* attributes) {
  std::fprintf(stderr, "nvtx push %s\n", attributes->message.ascii);
  return depth++;
}
int pop(nvtxDomainHandle_t) {
  std::fprintf(stderr, "nvtx pop to %d\n", depth.load() - 1);
  return --depth;
}

}  // namespace

// The entry that NVTX looks for in the library of NVTX_INJECTION64_PATH.
extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t tables) {
  const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(tables(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable functions = nullptr;
  unsigned size = 0;
  if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &functions, &size)) return 0;
  *functions[NVTX_CBID_CORE2_DomainCreateA] = reinterpret_cast<NvtxFunctionPointer>(create);
  *functions[NVTX_CBID_CORE2_DomainRangePushEx] = reinterpret_cast<NvtxFunctionPointer>(push);
  *functions[NVTX_CBID_CORE2_DomainRangePop] = reinterpret_cast<NvtxFunctionPointer>(pop);
  return 1;
}
