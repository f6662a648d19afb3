// A GPU of a given architecture that need not be there: what is compiled for it is what a real one takes, and nothing
// runs. Its memory is addresses without bytes behind them, aligned and apart from each other as a device's are, so that
// arguments bind and their facts hold.
#pragma once
#include <memory>
#include <string>

#include "runtime/device.h"

namespace kachel::runtime {

// `architecture`: "sm_80", "sm_90a", ...; kInvalid with a mend for what is none, kUnsupported for older than sm_80.
Result<std::unique_ptr<Device>> open_target_device(const std::string& architecture, const DeviceOptions& options);

}  // namespace kachel::runtime
