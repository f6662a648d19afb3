// How large a launch is, as far as the values that it is keyed by tell.
#pragma once
#include <cstdint>
#include <optional>

#include "runtime/engine/specialise/keys.h"

namespace kachel::runtime {

// The tiles of the largest grid that is keyed so: dimensions are known that are static, or that `key` names by
// themselves or as `bucket(dimension)`. Nothing where the grid has need of another one, or of a scalar.
std::optional<uint64_t> most_tiles(const KernelModel& model, const Point& point, const TunableValues& values);

}  // namespace kachel::runtime
