#include "runtime/engine/specialise/grid_size.h"

#include <algorithm>
#include <vector>

namespace kachel::runtime {

std::optional<uint64_t> most_tiles(const KernelModel& model, const Point& point, const TunableValues& values) {
  const auto slots = static_cast<size_t>(model.dim_slots);
  std::vector<int64_t> dims(slots, 0);
  std::vector<bool> known(slots, false);
  const auto note = [&](size_t dim, int64_t value) {
    if (!known[dim] || value < dims[dim]) dims[dim] = value;
    known[dim] = true;
  };
  for (size_t i = 0; i < std::min(model.static_dims.size(), point.static_dims.size()); ++i)
    note(static_cast<size_t>(model.static_dims[i]), point.static_dims[i]);
  for (size_t i = 0; i < std::min(model.keys.size(), point.key_values.size()); ++i) {
    const HostForm form = model.keys[i].form();
    if (form.kind == HostForm::Kind::kDim || form.kind == HostForm::Kind::kBucket)
      note(form.position, point.key_values[i]);
  }
  uint64_t tiles = 1;
  for (const HostProgram& extent : model.grid) {
    bool tells = !extent.mentions_scalars();
    extent.for_each_dim([&](size_t dim) { tells = tells && known[dim]; });
    if (!tells) return std::nullopt;
    const int64_t length = extent.run({.dims = dims.data(), .tunables = values.data()});
    if (__builtin_mul_overflow(tiles, static_cast<uint64_t>(std::max<int64_t>(length, 0)), &tiles)) return std::nullopt;
  }
  return tiles;
}

}  // namespace kachel::runtime
