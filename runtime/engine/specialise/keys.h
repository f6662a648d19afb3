// The split keys of the store. A binary is keyed by what the compiler sees; a measurement by that and by the machine
// and the key values it was made for, but not by the architecture alone. Names, comments, the `tune` list and the
// compiler's version are in neither; configurations, consts, types and dimensions are written by position, as
// canonical_body() does.
#pragma once
#include <optional>
#include <string_view>
#include <vector>

#include "cache/key.h"
#include "runtime/device.h"
#include "runtime/engine/bind/kernel_model.h"

namespace kachel::runtime {

// What selects a binary, beside the program and the configuration.
struct Point {
  uint64_t types = 0;  // as in BoundArguments
  uint64_t facts = 0;
  std::vector<int64_t> static_dims;  // in the order of KernelModel::static_dims
  // Of the program's `key`, in order, as HostProgram::run() gives them. Of a tuning they are part of the key; a binary
  // they select by the size of the grid alone, see target_of().
  std::vector<int64_t> key_values;
  bool operator==(const Point&) const = default;
};

// What the lowering is told of the device, the configuration and, of the key, whether the grid is one that the device
// takes at once; apart from the architecture.
lowering::Target target_of(const DeviceProperties& device, const KernelModel& model, const Point& point,
                           const TunableValues& values);

cache::Key plan_key(const KernelModel& model, const Point& point, const TunableValues& values,
                    const DeviceProperties& device, bool generic = false, bool compact = false,
                    bool reversed = false);
cache::Key tuning_key(const KernelModel& model, const Point& point, const DeviceProperties& device);
// The key values of a stored tuning key, if that is `own` but for them.
std::optional<std::vector<int64_t>> key_values_of_relative(const cache::ParsedKey& own, std::string_view stored);
cache::Key sample_key(const KernelModel& model, const Point& point, const TunableValues& values,
                      const DeviceProperties& device);

}  // namespace kachel::runtime
