// Into how many parts a kernel's sums of products are worth dealing out on a device. Private to programs/.
#pragma once
#include <cstdint>

#include "derive/fixed_extents.h"
#include "derive/sum_loop.h"
#include "runtime/engine/bind/argument_binder.h"

namespace kachel::runtime {

struct PartsOfSums {
  int64_t parts = 1;
  int64_t steps = 0;                     // of the loop, as it is
  int64_t bytes = 0;                     // of the sums of all parts
  int64_t extent = derive::kMostExtent;  // of tiles of sums, the most that the shape has use for
};
// Of a tile, as far as the launch's types say.
ir::DType tile_type(const KernelModel& model, const ir::Buffer& tile, const BoundArguments& arguments);
// Dimensions, constants and, of each tunable, one value.
ir::HostEnv host_values(const KernelModel& model, const ir::Kernel& kernel, const BoundArguments& arguments);

// As many as let tiles of 128 x 128 take every multiprocessor, while each still has some iterations. What decides are
// dimensions, constants and the device alone, so that every process comes to the same number. One where the grid or the
// loop follows from anything else.
// `kernel`: whose loop it is, with the dimensions of the model's.
PartsOfSums parts_of_sums(const KernelModel& model, const ir::Kernel& kernel, const derive::SumLoop& loop,
                          const BoundArguments& arguments, int multiprocessors);

}  // namespace kachel::runtime
