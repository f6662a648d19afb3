#include "runtime/device.h"

namespace kachel::runtime {

RelaxedCapture::RelaxedCapture(Device& device) : device_(device), previous_(device.enter_relaxed_capture()) {}

RelaxedCapture::~RelaxedCapture() {
  device_.leave_relaxed_capture(previous_);
}

Result<int32_t> DeviceFunction::resident_clusters(uint32_t, uint32_t, uint32_t) const {
  return unsupported("the device launches no clusters of blocks");
}

Status Device::encode_map(const TensorMapRequest&, uint64_t*) const {
  return unsupported("the device has no engine that copies boxes of tensors");
}
Status Device::move_map(uint64_t*, const void*) const {
  return unsupported("the device has no engine that copies boxes of tensors");
}

}  // namespace kachel::runtime
