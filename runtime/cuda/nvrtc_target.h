// From the architecture that a device has to one that an NVRTC knows, and to the one whose instructions are used.
#pragma once
#include <string>
#include <vector>

#include "support/status.h"

namespace kachel::runtime::cuda {

// sm_90a for 9.0: from Hopper on, the instructions that matter exist only under the architecture-specific name.
std::string device_architecture(int compute_major, int compute_minor);

// The architecture whose instructions are used on a device of `architecture` (10 * major + minor): an older one where
// `wanted`, the text of KACHEL_INSTRUCTIONS, says so; null or empty: the device's own. kInvalid for anything but 80 or
// more.
Result<int> chosen_instructions(int architecture, const char* wanted);

struct NvrtcTarget {
  std::string option;  // "-arch=sm_90a"
  bool ptx = false;    // the result is PTX, which the driver translates, instead of a cubin
  std::string note;    // why it is not what was asked for; "" if it is
};

// `known` ascending, as NVRTC lists it. A newer device is served by the nearest older architecture: of its own
// generation as a cubin, without the suffix, since cubins run on later members of their generation but sm_90a ones
// nowhere else; of an older generation as PTX. A text that needs the newer instructions then fails to compile, and the
// note in its log says why. kInvalid for what is no sm_ name, kUnsupported for devices older than all of `known`.
Result<NvrtcTarget> choose_target(const std::string& architecture, const std::vector<int>& known,
                                  const std::string& compiler_name);

}  // namespace kachel::runtime::cuda
