// What the rest of the engine sees of lowering: a concrete kernel in, source text and what a launch needs out.
// lowering/pipeline.cc holds the order of the passes.
#pragma once
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "ir/kernel.h"
#include "lowering/cluster_shape.h"
#include "lowering/slots.h"
#include "support/status.h"

namespace kachel::lowering {

struct Target {
  enum class Kind : uint8_t { kCpu, kCuda } kind = Kind::kCuda;
  int architecture = 90;       // CUDA: 10 * major + minor
  int threads = 0;             // threads a block; 0: the lowering's choice; ignored on the CPU
  bool generic = false;        // plain loads and fma only: what other lowerings are compared with
  bool reversed = false;       // generic: sums from their ends on, which rounds them otherwise, tf32 of tf32
  bool group_products = true;  // wgmma may be used where the architecture has it
  bool bulk_copies = true;     // so may the copy engine
  bool bulk_stores = true;     // and for stores
  // Blocks that may copy for each other, where they can: a power of two, see clusters.h; of these, so many along the
  // axis of the grid that changes fastest. 0: the lowering's choice.
  int cluster = 1, cluster_columns = 0;
  int tile_blocks = 0;  // of a cluster, that compute each tile together, see tile_blocks.h; 0: the lowering's choice
  bool ptx = true;      // kernels of sm_90 have a body of PTX, as far as there is code for them
  // Loops are not parted where masks begin and end: up to a third less to compile, and masks in every iteration.
  bool compact = false;
  bool bounded_waits = false;  // to find a fault: see emit_cuda()
  int teams = 0;               // that compute tiles in turn, see teams.h; 0: the lowering's choice
  // Where there is a producer, a block computes one tile and ends: for grids that the device takes at once. Right for
  // any grid.
  bool one_tile = false;
  // Registers before residency: the compiler saves none for a second block, which it may do at the price of spills.
  bool roomy = false;
  int64_t shared_limit = 48 * 1024;  // bytes of shared memory a block may use; CPU: of the worker's arena
  int vector_bits = 128;             // CPU: width of its vectors
  bool streaming_stores = true;      // CPU: large results go past the caches; else their lines are asked for ahead
  // CPU: sums of products of pairs of i16: none, by multiplication and addition (SSE2 on), fused (VNNI).
  enum class Dot16 : uint8_t { kNone, kMultiplyAdd, kFused } dot16 = Dot16::kNone;
};

// Properties of a launch's arguments that some pass asks for. A binary is keyed by the mask of those that hold; one
// compiled for fewer may serve a call with more.
struct Fact {
  enum class Kind : uint8_t {
    kIndex32,     // every dimension, every product of extents of one tensor and every in-bounds offset are below 2^30
    kExtent32,    // every dimension and every extent of a tensor are, and every in-bounds offset is below 2^36; what
                  // kIndex32 implies
    kUnitStride,  // the last axis of parameter `param` has stride 1
    kVector,      // and its address, its other strides and its last extent are multiples of `bytes`
    kTransposed,  // its last axis but one has stride 1, not the last; address, other strides and the extent of that
                  // axis are multiples of `bytes`
    kRows,        // its last axis, of kMostJoinedBytes at most, and the one before lie as one row, whose length is a
                  // multiple of `bytes` where that axis's is not; so are the address and the other strides
    kOneAxis,     // instead of kRows, where the kernel counts its last two axes as one: they lie as one, whose rows,
                  // address and other strides are multiples of `bytes`; of 1 as well as of 16
    kMultiple,    // the integer scalar `param`, by which something is divided, is a positive multiple of `bytes`
  } kind;
  int param = -1;
  int bytes = 0;
};
inline constexpr int64_t kMostJoinedBytes = 64;
// Of kMultiple: rows of quantised weights that have a scale are as many.
inline constexpr int kLeastMultiple = 16, kMostMultiple = 128;
// Whether kMultiple holds. No larger than what 32 bits hold, so that quotients by it need no more.
constexpr bool is_multiple(int64_t scalar, int of) {
  return scalar > 0 && scalar % of == 0 && scalar <= std::numeric_limits<int32_t>::max();
}
// Fixed per program, at most 64; bit i of a mask is fact i. Looks at the parameters only.
std::vector<Fact> facts_of(const ir::Kernel& kernel);

// How the copy engine walks a tensor: boxes of these extents, one an axis of parameter `param`, in the order of its
// axes; rows of `swizzle` bytes with their 16-byte chunks exchanged as in Layout::slabs(). What lies outside of the
// tensor is read as zero. The kernel takes maps behind the slots, from the next multiple of 128 bytes on, 128 bytes
// each. Source: CUDA driver API, cuTensorMapEncodeTiled.
struct TensorMap {
  int param = 0;
  std::vector<int32_t> box;
  int32_t swizzle = 128;
  bool transposed = false;  // the tensor and the box have the parameter's last two axes in the other order
  bool as_one = false;  // those two lie as one, which is the tensor's last axis, and its last but one has one element
};

inline constexpr int kMostCluster = 8;  // what every GPU with clusters can launch

struct WorkProfile;

struct Lowered {
  std::string text;   // CUDA C++, whose body may be PTX, or LLVM IR
  std::string entry;  // its symbol: the same for every kernel, so that names change nothing
  std::vector<Slot> slots;
  std::vector<TensorMap> maps;
  std::string
      flaw;  // what the configuration costs that another might not: "acc is not in registers"; "" if nothing does
  int threads = 1;              // a block, those that only copy included
  ClusterShape cluster;         // tiles are numbered cluster by cluster, with each axis of the grid filled up
  int tile_blocks = 1;          // a cluster of so many blocks computes each tile
  int64_t shared_bytes = 0;     // dynamic shared memory a block; CPU: arena a worker
  int64_t workspace_bytes = 0;  // device scratch per launched block, 256-byte aligned slices; 0: none
  bool resident = false;        // no more blocks than run at once, which go on to further tiles; else a block a tile
  bool one_tile = false;        // a block computes the tile of its own number only: never fewer blocks than tiles
  int blocks = 0;               // on a multiprocessor, as the compiler has been told; LoopKernel::blocks
  bool deterministic = true;    // false: float atomics, the bits may differ between runs
  std::shared_ptr<const WorkProfile> work;  // what it does, for the cost model; null on the CPU
  // For `explain`: the stages as text.
  std::string tile_ir, loop_ir, notes;
};

struct LowerOptions {
  bool keep_stages = false;  // fill tile_ir, loop_ir and notes
};

// `concrete` comes from ir::instantiate(). kUnsupported with a reason where the target cannot run it.
Result<Lowered> lower(const ir::Kernel& concrete, const Target& target, uint64_t fact_mask,
                      const LowerOptions& options = {});

}  // namespace kachel::lowering
