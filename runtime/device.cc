#include "runtime/device.h"

namespace kachel::runtime {

RelaxedCapture::RelaxedCapture(Device& device) : device_(device), previous_(device.enter_relaxed_capture()) {}

RelaxedCapture::~RelaxedCapture() {
  device_.leave_relaxed_capture(previous_);
}

}  // namespace kachel::runtime
