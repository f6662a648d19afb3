// Layout inference: where each tile of a kernel lives, which instruction a gemm becomes, and how the elements of
// fragments and the iterations of regions are dealt out to threads. The result is a value that later passes follow.
//
// A fragment lives in registers where each thread that needs an element holds it; one that is read in another order
// (as an index, across a slice) lives in shared memory. On the CPU every tile lives in the worker's arena.
#pragma once
#include <map>
#include <optional>
#include <string>

#include "ir/kernel.h"
#include "lowering/lower.h"
#include "lowering/machine/machine.h"
#include "lowering/plan/fragment_layout.h"
#include "lowering/plan/layout.h"
#include "lowering/plan/schedule.h"

namespace kachel::lowering {

struct LoopKernel;

struct Placement {
  ir::Scope scope = ir::Scope::kShared;    // kShared or kRegister
  ir::DType storage = ir::DType::F32;      // element type in memory: 4-bit types are held one a byte
  Layout layout;                           // of memory; of registers in the generic lowering, cyclic
  std::optional<FragmentLayout> fragment;  // of registers otherwise
  int64_t stages = 1;                      // copies of it in memory, for a pipeline
  int64_t alignment = 128;                 // of each of them, in bytes
  bool turned = false;  // its registers become another fragment's (turned_sums.h), and count as that one's alone
  std::string reason;   // for explain: what kept it out of registers; "" if nothing did
  // CPU, see cpu_gemm.h. A rank-2 tile in panels: element (n, k), n along panel_axis, is at
  // (n / panel_width * K + k) * panel_width + n % panel_width; the layout then only tells the shape.
  int64_t panel_width = 0;
  size_t panel_axis = 0;
  // CPU: axis along which two neighbours share an i32, the first in its low half; layout and panels are then those of
  // the pairs. -1: none.
  int pair_axis = -1;
  int64_t slack = 0;  // elements behind the last one that may be read and written

  int64_t elements() const;        // that memory is needed for; of the thread for kRegister
  int64_t stage_elements() const;  // from one stage to the next
};

// What a gemm is made of. Without `mma` it is plain loads and fma, or dp4a.
struct GemmChoice {
  const MmaShape* mma = nullptr;
  bool group = false;  // wgmma by warp groups, else mma by warps
  bool a_in_registers = false, b_in_registers = false;
  // Of 32-bit operands that wgmma cannot read, since they are in registers or have k down their rows. In pairs: lane t
  // of four takes k = 2 t and 2 t + 1 of eight, as accumulators hold columns, in place of t and t + 4.
  bool by_words = false, in_pairs = false;
  // Of short sums. In runs: wgmma makes sums of a part of k, which are added to C in f32. Widened: operands become f16
  // in registers, which is exact, and their sums are f32. Neither: the sums are what the instruction makes of them.
  bool in_runs = false, widened = false;
  int64_t warps_m = 1, warps_n = 1;  // of mma: how the block's warps, or warp groups, share C
  int64_t copies = 1;                // of such warps, each with all of C
  int64_t warps_k = 1;  // or k, all of them having all of C, to which each adds its part; see parted_sums.h
  // Without mma: four products of 8-bit integers at once, and the rows and columns of C that a thread has; 0: C is in
  // memory.
  bool dot4 = false;
  int64_t block_rows = 0, block_columns = 0;
  bool crowded_out = false;  // tensor cores know the types, but this tile does not go with them
  std::string reason;        // for explain: the fact that was missing for the next better choice
};

// A fragment to a tensor by way of shared memory and the copy engine, in boxes of 16 rows a warp.
struct BoxStore {
  int64_t columns = 0;  // of a box; 0: not chosen
  int64_t buffers = 0;  // boxes that a warp has room for
  std::string reason;   // for explain: why it was not chosen
};

struct Placements {
  int threads = 1;
  std::map<const ir::Buffer*, Placement> tiles;
  std::map<const ir::GemmStmt*, GemmChoice> gemms;
  // Regions whose iterations are dealt out by a layout; reductions with the axes of the reduction last. The others are
  // dealt out in cyclic order.
  std::map<const ir::ParallelStmt*, FragmentLayout> regions;
  std::map<const ir::CopyStmt*, BoxStore> boxes;  // of stores of accumulators

  const Placement& at(const ir::Buffer* tile) const { return tiles.at(tile); }
};

// REQUIRES: `kernel` comes from hoist_reductions() unless the target is the CPU or generic, and outlives the result.
Placements infer_placements(const ir::Kernel& kernel, const Target& target, const Schedule& schedule,
                            uint64_t fact_mask);

// The parts. Plain: memory everywhere, or registers in cyclic order. Layouts: see infer_layouts.cc.
Placements plain_placements(const ir::Kernel& kernel, const Target& target);
Placements infer_layouts(const ir::Kernel& kernel, const Target& target, const Schedule& schedule, uint64_t fact_mask);

// Constant extents of a tile. REQUIRES: a tile of a concrete kernel.
std::vector<int64_t> tile_shape(const ir::BufferRef& tile);
// Whether `tile` names the whole of its buffer, in order.
bool is_whole(const ir::TileRef& tile);
// Where `tile` begins, if it names a part of its buffer's last axis, one of equal ones, and all of the others.
std::optional<int64_t> start_of_part(const ir::TileRef& tile);
// 4-bit elements are held one a byte.
ir::DType storage_type(ir::DType type);
// The widest access, in bytes, that the facts allow to a tensor parameter; the size of an element if they say nothing.
int vector_bytes(const ir::Kernel& kernel, uint64_t fact_mask, const ir::BufferRef& tensor);
// The same for each tensor as the loop kernel knows it.
std::map<const ir::Buffer*, int64_t> vector_bytes(const ir::Kernel& kernel, uint64_t fact_mask,
                                                  const LoopKernel& loops);
// Whether the fact is known of the tensor; null: of all of the kernel's together.
bool has_fact(const ir::Kernel& kernel, uint64_t fact_mask, const ir::BufferRef& tensor, Fact::Kind kind);
// Whether rows of the tensor that begin anywhere can fill the tile by way of registers (LoopIntrinsic::kLoadShifted).
bool suits_registers(const ir::Kernel& kernel, uint64_t fact_mask, const ir::BufferRef& tensor,
                     const ir::BufferRef& tile);

}  // namespace kachel::lowering
