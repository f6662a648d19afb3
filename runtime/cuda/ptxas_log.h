// What ptxas says of a kernel in its verbose log; the format has been the same from NVRTC 12.1 to 13.0.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "runtime/device.h"

namespace kachel::runtime::cuda {

struct PtxasReport {
  ResourceUsage usage;  // of the entry; spill_bytes adds stores and loads and those of functions it calls
  // The lines that announce a silent, large loss, whole: C7508 (setmaxnreg ignored), C7510 (wgmma serialised) and
  // their kin. A candidate with one is not worth measuring.
  std::vector<std::string> losses;
};

// Fields stay -1 where the log says nothing of `entry`.
PtxasReport parse_ptxas_log(std::string_view log, std::string_view entry);

}  // namespace kachel::runtime::cuda
