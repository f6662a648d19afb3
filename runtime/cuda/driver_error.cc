#include "runtime/cuda/driver_error.h"

#include <fmt/format.h>

namespace kachel::runtime::cuda {
namespace {

std::string_view mend(DriverResult result) {
  switch (result) {
    case DriverResult::kOutOfMemory:
      return "free device memory, or give the engine a smaller budget";
    case DriverResult::kNotInitialized:
      return "CUDA does not survive fork(): create the engine in the process that uses it";
    case DriverResult::kDeinitialized:
      return "the process is exiting: destroy the engine before";
    case DriverResult::kStubLibrary:
      return "the toolkit's stub library was found instead of the driver's: install the NVIDIA driver and take "
             "stubs/ off LD_LIBRARY_PATH";
    case DriverResult::kNoDevice:
      return "nvidia-smi should list a GPU; is CUDA_VISIBLE_DEVICES empty?";
    case DriverResult::kInvalidDevice:
      return "nvidia-smi -L lists the GPUs that there are";
    case DriverResult::kSystemNotReady:
      return "start the NVIDIA fabric manager or wait until it is up";
    case DriverResult::kSystemDriverMismatch:
      return "the driver's library and its kernel module differ in version: restart the machine, or in a container "
             "remove its own libcuda";
    case DriverResult::kInvalidImage:
    case DriverResult::kInvalidSource:
    case DriverResult::kInvalidPtx:
      return "the binary is damaged or not a cubin";
    case DriverResult::kNoBinaryForGpu:
      return "the binary was made for another architecture";
    case DriverResult::kUnsupportedPtxVersion:
      return "the compiler is newer than the driver: update the driver or set KACHEL_NVRTC to an older NVRTC";
    case DriverResult::kLaunchOutOfResources:
      return "the kernel needs more registers or shared memory than a block may have";
    default:
      break;
  }
  switch (driver_error_code(result)) {
    case Code::kDeviceLost:
      return "the device's context is lost, nothing more can run on it in this process";
    case Code::kBusy:
      return "a stream capture forbids it: prepare the kernel before the capture begins";
    default:
      return {};
  }
}

}  // namespace

Code driver_error_code(DriverResult result) {
  const auto value = static_cast<int32_t>(result);
  if (value >= static_cast<int32_t>(DriverResult::kCaptureUnsupported) &&
      value <= static_cast<int32_t>(DriverResult::kCaptureWrongThread))
    return Code::kBusy;
  switch (result) {
    case DriverResult::kSuccess:
      return Code::kOk;
    case DriverResult::kOutOfMemory:
      return Code::kNoMemory;
    case DriverResult::kStubLibrary:
    case DriverResult::kNoDevice:
    case DriverResult::kInvalidDevice:
    case DriverResult::kDeviceUnavailable:
    case DriverResult::kSystemNotReady:
    case DriverResult::kSystemDriverMismatch:
      return Code::kNoDevice;
    case DriverResult::kNotInitialized:
    case DriverResult::kDeinitialized:
    case DriverResult::kEccUncorrectable:
    case DriverResult::kNvlinkUncorrectable:
    case DriverResult::kContained:
    case DriverResult::kIllegalAddress:
    case DriverResult::kLaunchTimeout:
    case DriverResult::kContextIsDestroyed:
    case DriverResult::kAssert:
    case DriverResult::kHardwareStackError:
    case DriverResult::kIllegalInstruction:
    case DriverResult::kMisalignedAddress:
    case DriverResult::kInvalidAddressSpace:
    case DriverResult::kInvalidPc:
    case DriverResult::kLaunchFailed:
    case DriverResult::kUnknown:
      return Code::kDeviceLost;
    case DriverResult::kInvalidImage:
    case DriverResult::kInvalidSource:
    case DriverResult::kInvalidPtx:
    case DriverResult::kNoBinaryForGpu:
    case DriverResult::kNotFound:
      return Code::kInvalid;
    case DriverResult::kNotSupported:
    case DriverResult::kUnsupportedPtxVersion:
      return Code::kUnsupported;
    default:
      return Code::kLaunch;
  }
}

Status driver_status(const DriverApi& api, DriverResult result, std::string_view what) {
  if (result == DriverResult::kSuccess) return {};
  const char* name = nullptr;
  const char* text = nullptr;
  if (api.get_error_name(result, &name) != DriverResult::kSuccess || !name) name = "CUDA_ERROR";
  if (api.get_error_string(result, &text) != DriverResult::kSuccess || !text) text = "unknown to this driver";
  std::string message = fmt::format("{}: {} ({}): {}", what, name, static_cast<int32_t>(result), text);
  if (std::string_view hint = mend(result); !hint.empty()) message.append("; ").append(hint);
  return {driver_error_code(result), std::move(message)};
}

}  // namespace kachel::runtime::cuda
