// The schedule of a kernel, read off its tile ops: which warps do what (roles), and which buffers are filled ahead of
// their use (pipelines). A value with a printer; later passes only follow it.
#pragma once
#include <map>
#include <set>
#include <string>
#include <vector>

#include "ir/kernel.h"
#include "lowering/lower.h"

namespace kachel::lowering {

// A set of warps that runs its own part of the body.
struct Role {
  std::string name;  // "all", "producer", "consumer"
  int first_thread = 0, threads = 0;
  int registers = 0;  // budget per thread; 0: the compiler's choice
};

// Buffers that a pipelined loop fills ahead of the iterations that read them. acquire, commit, wait and release are
// the realisation's: synchronise() emits them.
struct Pipeline {
  enum class Realisation : uint8_t {
    kInOrder,      // each iteration fills its buffers, then reads them
    kAsyncCopies,  // cp.async: the threads that read also start the copies, `depth` - 1 iterations ahead
    kBulkCopies    // the copy engine, on behalf of a warp of its own that runs `depth` iterations ahead
  } realisation = Realisation::kInOrder;
  const ir::ForStmt* loop = nullptr;
  std::vector<ir::BufferRef> buffers;
  // The copies that fill the buffers, alone or in branches (branch_copies.h), and the lets that they need.
  std::vector<const ir::Stmt*> producers;
  std::set<const ir::CopyStmt*> by_threads;  // of kBulkCopies: those that the producer's threads make, by cp.async
  bool stored = false;                       // or by way of their registers, where some rows are not aligned to 4 bytes
  std::vector<ir::BufferRef> alternating;    // see alternating.h
  int64_t depth = 1;
  int stages_of = -1;  // the pipeline, by number, whose stages it goes on with, see shared_stages.h; -1: it has its own
  std::string reason;  // for explain: why it is not deeper
};

// Most rows of tiles that are walked together. Of products, which need few: 4 to 16 make no difference.
inline constexpr int64_t kRowsTogether = 8, kShortRowsTogether = 64;

// Axes of the grid along which tiles read the same as a copy: on `near` ones they are side by side in the order of
// tiles.
struct Reread {
  const ir::CopyStmt* copy = nullptr;
  std::vector<size_t> near, far;
};

struct Schedule {
  std::vector<Role> roles;
  int teams = 1;    // of consumers, see teams.h
  int copiers = 0;  // threads of the producer that copy something themselves
  // Which blocks form a cluster, and the copies of which those that differ along these axes make a part each, for all
  // of them. See clusters.h.
  ClusterShape cluster;
  std::map<const ir::CopyStmt*, std::vector<size_t>> shared;
  std::vector<Reread> reread;       // of the pipelines' copies by the copy engine, see l2_priority.h
  std::vector<Pipeline> pipelines;  // one for each pipelined loop, outermost first, in program order
  // Grid axes along which loops run longer, which are walked from their end, since what takes longest should begin
  // first; and those along which they run shorter.
  std::set<size_t> backwards, forwards;
  bool is_uneven(size_t axis) const { return backwards.count(axis) || forwards.count(axis); }
  bool is_even() const { return backwards.empty() && forwards.empty(); }
  // The grid axes, the one that changes fastest last. Empty: as declared.
  std::vector<size_t> order;
  // Of the last two axes of the order: so many rows of tiles are walked together, column by column, so that blocks that
  // run at the same time share what they read. 1: row by row.
  int64_t raster = 1;
  // Bytes that a row of tiles reads: fewer than `raster` rows where those would not fit the L2. Of dimensions and
  // scalars, I64. Null: always `raster`.
  ir::ExprRef row_bytes;
  std::string print() const;
  // Null if the loop has none.
  const Pipeline* of(const ir::ForStmt& loop) const;
};

// Every pipelined loop in order at depth 1, whatever depth it asks for.
Schedule make_generic_schedule(const ir::Kernel& kernel, const Target& target);

// Pipelines of asynchronous copies where the dependences of a loop's body allow it. A copy runs ahead if it moves
// elements as they are from a tensor that the kernel only reads to a whole shared tile which nothing outside of the
// loop and nothing before the copy in its body touches, and if what it is addressed by is known without the body; so
// does a branch of such copies (branch_copies.h) whose condition is. Rows that are not aligned to 4 bytes are for a
// producer's threads, where there may be one. The depth is what the loop asks for; fit_pipelines() cuts it down.
Schedule make_async_schedule(const ir::Kernel& kernel, const Target& target, uint64_t fact_mask);

// Sets Schedule::order and, where it goes with the order, raster. Tiles that read the same in their pipelined loops
// follow each other: an axis on which no copy in such a loop depends becomes the fastest. Where loops are not
// equally long along it, as many rows of tiles as the L2 holds go together, so that what takes longest still begins
// first.
void order_grid(const ir::Kernel& kernel, Schedule* schedule);

// REQUIRES: some axis is uneven. Whether tiles that are near each other in the order are of like length: then
// blocks that walk them in rounds, back and forth, have as much to do as each other.
bool tiles_by_length(const Schedule& schedule);

// Whether memory says which tiles have any work: in `if m*BM < count`, where a table has the count, say.
bool tiles_by_chance(const ir::Kernel& kernel);

// The axes for Schedule::backwards and forwards: those along which some loop gets longer and none shorter, and the
// other way round.
void note_uneven_axes(const ir::Kernel& kernel, Schedule* schedule);

struct Placements;
// Lowers depths until shared memory suffices, and gives each tile its number of stages. Pipelines around others leave
// `reserved` bytes too, if nothing else has to.
void fit_pipelines(const ir::Kernel& kernel, Schedule* schedule, Placements* placements, const Target& target,
                   int64_t reserved);

// Bytes of shared memory at the statement that needs most, of the body's from `from` on.
int64_t peak_bytes(const ir::Kernel& kernel, const Schedule& schedule, const Placements& placements,
                   const Target& target, size_t from = 0);

// Leaves pipelines to the copy engine where the architecture has one, the facts allow its maps and the tiles lie in the
// slabs that it fills. What it cannot copy of a pipeline, the producer's threads do; where it can copy nothing, those
// that compute do. Says why in Pipeline::reason.
void choose_bulk_copies(const ir::Kernel& kernel, Schedule* schedule, Placements* placements, const Target& target,
                        uint64_t fact_mask);
bool has_bulk_copies(const Schedule& schedule);

// With bulk copies: a role "producer" beside `teams` teams of consumers, and the registers that each is given.
void part_roles(Schedule* schedule, const Placements& placements, int teams);

}  // namespace kachel::lowering
