// Layout inference: where each tile of a kernel lives. On a GPU a fragment stays in registers if every access to it
// goes element by element in one cyclic order, the order in which regions deal their iterations to threads; a fragment
// that something reads across (a reduction, a broadcast, a gemm operand, a slice) lives in shared memory. On the CPU
// every tile lives in the worker's arena.
#pragma once
#include <map>
#include <string>

#include "ir/kernel.h"
#include "lowering/layout.h"
#include "lowering/lower.h"
#include "lowering/schedule.h"

namespace kachel::lowering {

struct Placement {
  ir::Scope scope = ir::Scope::kShared;  // kShared or kRegister
  ir::DType storage = ir::DType::F32;    // element type in memory: 4-bit types are held one a byte
  Layout layout;
  std::string reason;  // for explain: what kept it out of registers; "" if nothing did
  // CPU, see cpu_gemm.h. A rank-2 tile in panels: element (n, k), n along panel_axis, is at
  // (n / panel_width * K + k) * panel_width + n % panel_width; the layout then only tells the shape.
  int64_t panel_width = 0;
  size_t panel_axis = 0;
  // CPU: axis along which two neighbours share an i32, the first in its low half; layout and panels are then those of
  // the pairs. -1: none.
  int pair_axis = -1;
  int64_t slack = 0;          // elements behind the last one that may be read and written
  int64_t elements() const;  // that memory is needed for; of the thread for kRegister
};

using Placements = std::map<const ir::Buffer*, Placement>;

Placements infer_placements(const ir::Kernel& kernel, const Target& target, const Schedule& schedule);

// Constant extents of a tile. REQUIRES: a tile of a concrete kernel.
std::vector<int64_t> tile_shape(const ir::BufferRef& tile);
// Whether `tile` names the whole of its buffer, in order.
bool is_whole(const ir::TileRef& tile);

}  // namespace kachel::lowering
