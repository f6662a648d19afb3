// Which pipelines the copy engine (TMA) can fill. See schedule.h. Limits: CUDA driver API, cuTensorMapEncodeTiled.
#include <fmt/format.h>

#include <algorithm>

#include "lowering/loop_ir/range.h"
#include "lowering/machine/machine.h"
#include "lowering/plan/box_rules.h"
#include "lowering/plan/gemm_choice.h"
#include "lowering/plan/pipeline_tiles.h"
#include "lowering/plan/placement.h"
#include "lowering/plan/schedule.h"
#include "lowering/tile_ir/branch_copies.h"

namespace kachel::lowering {
namespace {

constexpr int64_t kMostBoxRows = 256;
constexpr int kMostThreads = 1024;
constexpr int kMostCopiers = 2 * kGroupThreads;
constexpr int kBesideFragments = 56;  // registers of a thread that computes: operands, addresses, counters

// Registers are dealt out to warps alike when a block starts: where that is too few for the fragments, a whole warp
// group produces and hands most of its own on. The pairs fit the 64 Ki registers of a multiprocessor; a producer that
// walks tiles in groups needs some 40, a `busy` one, which copies by way of its registers or holds places of rows in
// them, as many as it can get.
void share_registers(const Placements& placements, bool busy, Role* consumer, Role* producer) {
  constexpr int kLeastBeside = 16;  // where products take most of a group's time
  struct Share {
    int threads, alike, consumer, producer;
    bool busy;
  };
  constexpr Share kShares[] = {{256, 168, 232, 40, false}, {256, 168, 240, 24, false}, {384, 128, 152, 40, false},
                               {384, 128, 160, 32, false}, {256, 168, 200, 104, true}, {384, 128, 136, 104, true}};
  const int64_t fragments = fragment_registers(placements);
  for (const Share& share : kShares) {
    if (share.threads != consumer->threads || share.busy != busy || fragments + kBesideFragments <= share.alike)
      continue;
    if (producer->threads > kGroupThreads) return;
    consumer->registers = share.consumer;
    producer->registers = share.producer;
    producer->threads = kGroupThreads;
    if (fragments + kLeastBeside <= share.consumer) return;
  }
}

// "" if the copy engine can do it.
std::string refuses(const ir::Kernel& kernel, const ir::CopyStmt& copy, const Placements& placements,
                    const Ranges& multiples, uint64_t fact_mask) {
  const ir::BufferRef& to = copy.dst.buffer;
  const Placement& placement = placements.at(to.get());
  if (placement.alignment < 1024) return fmt::format("{} does not lie in slabs", to->name);
  if (tile_shape(to)[0] > kMostBoxRows) return fmt::format("{} has more than {} rows", to->name, kMostBoxRows);
  return refuses_boxes(kernel, copy.src, multiples, fact_mask);
}

// Whether `within` bounds the row itself, and not the rows.
bool cut_within(const ir::TileRef& from) {
  return from.within_first && std::all_of(from.axes.begin(), from.axes.end() - 1, [](const ir::AxisSpec& axis) {
           return axis.kind == ir::AxisSpec::Kind::kIndex;
         });
}

// Whether cp.async can do it, where the rules of make_async_schedule() hold.
bool suits_async(const ir::Kernel& kernel, const ir::CopyStmt& copy, const Ranges& multiples, uint64_t fact_mask) {
  const ir::TileRef& from = copy.src;
  const ir::ExprRef& column = from.axes.back().start;
  if ((cut_within(from) && ir::bits(from.buffer->type.dtype) / 8 < kLeastAsyncBytes) ||
      vector_bytes(kernel, fact_mask, from.buffer) < kLeastAsyncBytes)
    return false;
  return !column || multiples.multiple_of(column) * ir::bits(from.buffer->type.dtype) / 8 % kLeastAsyncBytes == 0;
}

// Whether rows can be copied 16 bytes at a time from any address.
bool encloses(const ir::Block& body, const ir::ForStmt* inner) {
  return std::any_of(body.begin(), body.end(), [&](const ir::Stmt& stmt) {
    if (const auto* loop = std::get_if<ir::ForStmt>(&stmt.node)) return loop == inner || encloses(loop->body, inner);
    const auto* branch = std::get_if<ir::IfStmt>(&stmt.node);
    return branch && (encloses(branch->then_body, inner) || encloses(branch->else_body, inner));
  });
}

// Whether the copy engine fills the pipeline and one in it. Around a loop that has no producer none is worth its while.
bool producer_within(const Schedule& schedule, const Pipeline& outer) {
  constexpr auto kBulk = Pipeline::Realisation::kBulkCopies;
  return outer.realisation == kBulk &&
         std::any_of(schedule.pipelines.begin(), schedule.pipelines.end(), [&](const Pipeline& inner) {
           return inner.realisation == kBulk && encloses(outer.loop->body, inner.loop);
         });
}

void run_in_order(Pipeline* pipeline, Placements* placements) {
  for (const ir::BufferRef& buffer : pipeline->buffers) placements->tiles.at(buffer.get()).stages = 1;
  pipeline->realisation = Pipeline::Realisation::kInOrder;
  pipeline->depth = 1;
  pipeline->buffers.clear();
  pipeline->producers.clear();
  pipeline->by_threads.clear();
  pipeline->stored = false;
}

// Whether the producer's threads work out where rows lie.
bool copies_placed_rows(const Pipeline& pipeline) {
  return std::any_of(pipeline.by_threads.begin(), pipeline.by_threads.end(), [](const ir::CopyStmt* copy) {
    return std::any_of(copy->src.axes.begin(), copy->src.axes.end(),
                       [](const ir::AxisSpec& axis) { return axis.index != nullptr; });
  });
}

// None, a warp, or warp groups where that is much: a second one where all threads then have the registers that they
// need.
int copiers_of(const Schedule& schedule, const Placements& placements) {
  constexpr int64_t kMostOfWarp = 4096;  // bytes of a stage: eight copies of 16 bytes a thread
  constexpr int64_t kMostStoredOfGroup = 16384;
  int64_t bytes = 0, stored = 0;
  for (const Pipeline& pipeline : schedule.pipelines) {
    int64_t together = 0;
    for (const ir::CopyStmt* copy : pipeline.by_threads) {
      const ir::BufferRef& tile = copy->dst.buffer;
      const int64_t of_tile = product(tile_shape(tile)) * ir::bits(tile->type.dtype) / 8;
      bytes = std::max(bytes, of_tile);
      together += of_tile;
    }
    if (pipeline.stored) stored = std::max(stored, together);
  }
  const int64_t alike = machine_of(90).registers_per_sm / (schedule.roles[0].threads + kMostCopiers);
  if (stored > kMostStoredOfGroup && fragment_registers(placements) + kBesideFragments <= alike) return kMostCopiers;
  return bytes == 0 ? 0 : std::max(bytes, stored) <= kMostOfWarp ? 32 : kGroupThreads;
}

}  // namespace

void choose_bulk_copies(const ir::Kernel& kernel, Schedule* schedule, Placements* placements, const Target& target,
                        uint64_t fact_mask) {
  if (!has_group_mma(target.architecture)) return;
  Ranges multiples;
  note_multiples(kernel, &multiples);
  for (Pipeline& pipeline : schedule->pipelines) {
    if (pipeline.realisation != Pipeline::Realisation::kAsyncCopies) continue;
    const bool room = placements->threads + kMostCopiers <= kMostThreads;
    std::string why = room ? "" : "there is no room for a producer";
    size_t boxes = 0;
    bool by_async = true, by_registers = true;  // what is left, all of it
    for (const ir::Stmt* producer : pipeline.producers) {
      const std::vector<const ir::CopyStmt*> copies = copies_of(*producer);
      if (copies.empty() || !room) continue;
      // Where a condition decides whether a tile is filled, all of its copies go one way.
      const bool alike = guard_of({producer}) != nullptr;
      std::vector<const ir::CopyStmt*> refused;
      for (const ir::CopyStmt* copy : copies) {
        const std::string refusal = refuses(kernel, *copy, *placements, multiples, fact_mask);
        if (!refusal.empty()) refused.push_back(copy);
        if (why.empty()) why = refusal;
      }
      if (alike && !refused.empty()) refused = copies;
      boxes += refused.size() < copies.size();
      if (refused.empty()) continue;
      pipeline.by_threads.insert(refused.begin(), refused.end());
      for (const ir::CopyStmt* copy : refused) by_async &= suits_async(kernel, *copy, multiples, fact_mask);
      by_registers &= std::holds_alternative<ir::CopyStmt>(producer->node) && !cut_within(copies[0]->src) &&
                      suits_registers(kernel, fact_mask, copies[0]->src.buffer, copies[0]->dst.buffer);
    }
    pipeline.stored = !by_async && by_registers;
    if (!pipeline.stored && !(boxes && by_async)) {
      if (pipeline.reason.empty()) pipeline.reason = "without the copy engine: " + why;
      pipeline.by_threads.clear();
      continue;
    }
    if (!why.empty() && pipeline.reason.empty())
      pipeline.reason = fmt::format("{} by the producer's threads{}: {}", boxes ? "in part" : "all",
                                    pipeline.stored ? ", by way of registers" : "", why);
    pipeline.realisation = Pipeline::Realisation::kBulkCopies;
    // Boxes take longest: they begin first.
    std::stable_partition(pipeline.producers.begin(), pipeline.producers.end(), [&](const ir::Stmt* producer) {
      const std::vector<const ir::CopyStmt*> copies = copies_of(*producer);
      return std::none_of(copies.begin(), copies.end(),
                          [&](const ir::CopyStmt* copy) { return pipeline.by_threads.count(copy); });
    });
  }
  for (Pipeline& pipeline : schedule->pipelines)
    if (encloses_pipeline(pipeline.loop->body) && !producer_within(*schedule, pipeline))
      run_in_order(&pipeline, placements);
  // Both operands of a product are read again by the tiles beside it.
  if (has_bulk_copies(*schedule) && kernel.grid.size() >= 2 && schedule->is_even() && schedule->order.empty())
    schedule->raster = kRowsTogether;
}

bool has_bulk_copies(const Schedule& schedule) {
  return std::any_of(schedule.pipelines.begin(), schedule.pipelines.end(), [](const Pipeline& pipeline) {
    return pipeline.realisation == Pipeline::Realisation::kBulkCopies;
  });
}

void part_roles(Schedule* schedule, const Placements& placements, int teams) {
  if (!has_bulk_copies(*schedule)) return;
  schedule->teams = teams;
  schedule->roles[0].name = "consumer";
  schedule->roles[0].threads = teams * placements.threads;
  schedule->copiers = copiers_of(*schedule, placements);
  schedule->roles.push_back({"producer", schedule->roles[0].threads, std::max(32, schedule->copiers), 0});
  const bool busy = std::any_of(schedule->pipelines.begin(), schedule->pipelines.end(), [](const Pipeline& pipeline) {
    return pipeline.stored || copies_placed_rows(pipeline);
  });
  share_registers(placements, busy, &schedule->roles[0], &schedule->roles[1]);
}

}  // namespace kachel::lowering
