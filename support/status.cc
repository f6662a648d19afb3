#include "support/status.h"

namespace kachel {

const std::string& Status::none() {
  static const std::string empty;
  return empty;
}

std::string_view code_name(Code code) {
  switch (code) {
    case Code::kOk:
      return "ok";
    case Code::kInvalid:
      return "invalid";
    case Code::kUnsupported:
      return "unsupported";
    case Code::kNoDevice:
      return "no device";
    case Code::kNoMemory:
      return "no memory";
    case Code::kCompile:
      return "compile";
    case Code::kLaunch:
      return "launch";
    case Code::kStore:
      return "store";
    case Code::kBusy:
      return "busy";
    case Code::kNotCached:
      return "not cached";
    case Code::kCancelled:
      return "cancelled";
    case Code::kDeviceLost:
      return "device lost";
    case Code::kInternal:
      return "internal";
  }
  return "unknown";
}

}  // namespace kachel
