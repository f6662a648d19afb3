// The driver is given a pointer to a binary and no size: it believes the offsets inside. What comes from a store or
// from another machine is therefore checked to stay within its bounds before the driver sees it.
#pragma once
#include <string_view>

#include "support/status.h"

namespace kachel::runtime::cuda {

// OK for a cubin whose headers, sections and segments lie within `binary`, and for PTX text; kInvalid otherwise.
Status check_cubin(std::string_view binary);

}  // namespace kachel::runtime::cuda
