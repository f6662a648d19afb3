#include "runtime/profile_range.h"

#ifdef KACHEL_NVTX
#include <nvtx3/nvToolsExt.h>

namespace kachel::runtime {
namespace {

// Null where no profiler listens. Never destroyed: ranges may end while the process exits.
nvtxDomainHandle_t domain() {
  static const nvtxDomainHandle_t handle = nvtxDomainCreateA("kachel");
  return handle;
}

}  // namespace

bool profiling() {
  return domain() != nullptr;
}

void ProfileRange::begin(const std::string& text) {
  nvtxEventAttributes_t attributes{};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = text.c_str();
  nvtxDomainRangePushEx(domain(), &attributes);
}

void ProfileRange::end() {
  nvtxDomainRangePop(domain());
}

}  // namespace kachel::runtime

#else

namespace kachel::runtime {

bool profiling() {
  return false;
}
void ProfileRange::begin(const std::string&) {}
void ProfileRange::end() {}

}  // namespace kachel::runtime

#endif
