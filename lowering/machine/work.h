// How much a lowered kernel does, without compiling it: what the cost model (tuner/cost_model.h) estimates times from.
//
// A profile is the loop IR with everything but its control flow summed up. Trips of loops and conditions may depend on
// dimensions, scalars and the number of the tile, so counts come out of a profile for given values of those: work_of().
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "ir/kernel.h"
#include "lowering/lower.h"
#include "lowering/slots.h"

namespace kachel::lowering {

struct LoopKernel;

// Products by tensor cores, by instruction and by what one costs: multiply-adds a clock differ between these.
enum class ProductKind : uint8_t {
  kGroup16,  // wgmma of 16-bit floats
  kGroup8,   // of 8-bit floats and integers
  kGroup32,  // of tf32
  kWarp16,   // mma.sync, as above
  kWarp8,
  kWarp32,
  kWarpWidened,  // of 8-bit floats by way of f16
};
inline constexpr size_t kProductKinds = 7;

// What is done for one tile, by one block or by those that compute it together. Counts are exact where loops and
// conditions are; accesses that a guard may leave out are counted as if they were made.
struct Work {
  std::array<double, kProductKinds> multiply_adds{};
  double scalar_operations = 0;   // of warps: arithmetic on data, conversions, accesses to memory
  double special_operations = 0;  // of warps, by the special function units
  double thread_operations = 0;   // the same of the thread that has most
  double thread_specials = 0;
  double shared_bytes = 0;   // read and written by threads; a warp's access takes a whole row of banks at least
  double operand_bytes = 0;  // read from shared memory by wgmma
  double filled_bytes = 0;   // written to shared memory by copies that run ahead
  // Through the port to the L2: by all accesses, and by copies that run ahead. Shorter rows of a box than a line of the
  // cache take as long as one.
  double port_bytes = 0, filled_port_bytes = 0;
  double fills = 0;            // stages that those fill
  double barriers = 0;         // of the block or between its roles
  double product_batches = 0;  // times that wgmma is waited for
  // Times that memory is waited for. A stage that is filled while `n` others are still to be used counts as 1 / n.
  double rounds = 0;
  std::vector<double> read_bytes, written_bytes;  // of global memory, by tensor of the profile
  // What is to be added to filled_port_bytes for a tensor whose rows begin between lines of the cache: of r bytes in a
  // line's multiple of 16, 1 + (r - 16) / 128 lines are touched in the mean.
  std::vector<double> straddle_bytes;

  void add(const Work& other, double times = 1);
  // Of one of so many blocks that do it together.
  void part(int blocks);
};

// The same, split by how it overlaps.
struct BlockWork {
  Work loops;  // of loops over stages that are filled ahead
  Work rest;
  // Of integers that memory holds and that bound a loop: 4096, or the longest axis of the tensors if that is less. 0:
  // there are none.
  int64_t assumed = 0;
};

inline constexpr int64_t kLineBytes = 128;  // of a GPU's caches

struct WorkNode;
using WorkNodes = std::vector<WorkNode>;

struct WorkProfile {
  struct Input {
    Slot slot;  // kDim, kScalar, kStride, kGrid or kBlocks
    ir::VarRef var;
  };
  struct Tensor {
    int param = 0;
    ir::DType type = ir::DType::F32;
    std::vector<ir::ExprRef> shape;
  };
  std::vector<Input> inputs;
  std::vector<Tensor> tensors;
  ir::VarRef tile, rank;  // rank: null where there are no clusters
  ClusterShape cluster;
  std::shared_ptr<const WorkNodes> nodes;  // null: nothing is known (the CPU)
  int threads = 1, producer_threads = 0;   // of a team; LoopKernel::teams
  int teams = 1;                           // each with a tile of its own
  int tile_blocks = 1;                     // that compute a tile together
  int64_t shared_bytes = 0;                // a block
  int64_t fragment_registers = 0;          // of 32 bits a thread, for what is declared to live in registers
  int64_t most_live_registers = 0;         // of those, at the same place of an iteration
  int consumer_registers = 0;              // that a thread which computes may have; 0: as many as the compiler likes
  int blocks = 0;                          // LoopKernel::blocks
  bool resident = false;                   // Lowered::resident
  // A stage is released an iteration after it was used: products of one iteration run beside the work of another.
  bool releases_later = false;
};

// Values by position; the tile's own is added.
struct WorkInputs {
  std::span<const int64_t> dims;     // of the kernel whose slots the profile has
  std::span<const int64_t> scalars;  // integers; what is not there is unknown
  std::span<const int64_t> grid;
  int64_t tiles = 0;
};

// REQUIRES: `kernel` is what lower() emits. `concrete`: the kernel it came from.
WorkProfile profile_of(const LoopKernel& kernel, const ir::Kernel& concrete);

// What the block does for tile `tile`. Nothing where a trip count is neither known nor a length in memory.
std::optional<BlockWork> work_of(const WorkProfile& profile, const WorkInputs& inputs, int64_t tile);

// Bytes of a tensor of the profile; 0 if its shape is unknown.
double tensor_bytes(const WorkProfile& profile, size_t tensor, const WorkInputs& inputs);
// Whether rows of a contiguous tensor of that shape begin between lines of the cache. False if its shape is unknown.
bool rows_straddle(const WorkProfile& profile, size_t tensor, const WorkInputs& inputs);

}  // namespace kachel::lowering
