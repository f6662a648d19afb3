#pragma once
#include <cstdint>

namespace kachel::lowering {

// Part of every binary's key: raise it whenever the emitted code of any program may change.
inline constexpr uint32_t kLoweringVersion = 96;

}  // namespace kachel::lowering
