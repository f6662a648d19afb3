#include "lowering/plan/shared_stages.h"

#include <algorithm>

#include "lowering/plan/pipeline_tiles.h"
#include "lowering/tile_ir/branch_copies.h"

namespace kachel::lowering {
namespace {

bool is_alike(const ir::Buffer* a, const ir::Buffer* b, const Placements& placements) {
  const Placement &one = placements.at(a), &other = placements.at(b);
  return one.scope == ir::Scope::kShared && other.scope == one.scope && one.storage == other.storage &&
         one.layout == other.layout && one.alignment == other.alignment && a->type.dtype == b->type.dtype;
}

bool in_one_block(const ir::Block& body, const ir::ForStmt* first, const ir::ForStmt* second) {
  int found = 0;
  for (const ir::Stmt& stmt : body) {
    const auto* loop = std::get_if<ir::ForStmt>(&stmt.node);
    found += loop && (loop == first || loop == second);
    if (loop && in_one_block(loop->body, first, second)) return true;
    const auto* branch = std::get_if<ir::IfStmt>(&stmt.node);
    if (branch && (in_one_block(branch->then_body, first, second) || in_one_block(branch->else_body, first, second)))
      return true;
  }
  return found == 2;
}

bool copies_without_conditions(const Pipeline& pipeline) {
  return std::all_of(pipeline.producers.begin(), pipeline.producers.end(), [](const ir::Stmt* producer) {
    return std::holds_alternative<ir::CopyStmt>(producer->node) || std::holds_alternative<ir::LetStmt>(producer->node);
  });
}

bool may_share(const Pipeline& first, const Pipeline& second, const Placements& placements) {
  constexpr auto kAsync = Pipeline::Realisation::kAsyncCopies;
  if (first.realisation != kAsync || second.realisation != kAsync || first.depth != second.depth) return false;
  if (encloses_pipeline(first.loop->body) || encloses_pipeline(second.loop->body)) return false;
  return copies_without_conditions(first) && copies_without_conditions(second) &&
         std::equal(first.buffers.begin(), first.buffers.end(), second.buffers.begin(), second.buffers.end(),
                    [&](const auto& a, const auto& b) { return is_alike(a.get(), b.get(), placements); });
}

// Of each of the pipeline's tiles: whether it is late, whether threads copy it, and for which blocks of a cluster.
struct Filled {
  bool late, by_threads;
  std::vector<size_t> shared;
  bool operator==(const Filled&) const = default;
};
std::vector<Filled> filled(const Pipeline& pipeline, const Schedule& schedule, const Placements& placements) {
  const BufferSet late = late_tiles(pipeline, placements);
  std::vector<Filled> all;
  for (const ir::BufferRef& tile : pipeline.buffers) {
    all.push_back({late.count(tile.get()) != 0, false, {}});
    for (const ir::CopyStmt* copy : pipeline.by_threads) all.back().by_threads |= copy->dst.buffer == tile;
    for (const auto& [copy, axes] : schedule.shared)
      if (copy->dst.buffer == tile) all.back().shared = axes;
  }
  return all;
}

}  // namespace

void share_stages(const ir::Kernel& kernel, Schedule* schedule, const Placements& placements) {
  std::vector<Pipeline>& all = schedule->pipelines;
  for (size_t i = 1; i < all.size(); ++i)
    for (size_t first = 0; first < i && all[i].stages_of < 0; ++first)
      if (all[first].stages_of < 0 && in_one_block(kernel.body, all[first].loop, all[i].loop) &&
          may_share(all[first], all[i], placements))
        all[i].stages_of = static_cast<int>(first);
}

bool stages_agree(const Schedule& schedule, const Placements& placements) {
  constexpr auto kBulk = Pipeline::Realisation::kBulkCopies;
  return std::all_of(schedule.pipelines.begin(), schedule.pipelines.end(), [&](const Pipeline& pipeline) {
    if (pipeline.stages_of < 0) return true;
    const Pipeline& first = schedule.pipelines[static_cast<size_t>(pipeline.stages_of)];
    return first.realisation == kBulk && pipeline.realisation == kBulk && first.depth == pipeline.depth &&
           first.stored == pipeline.stored && first.alternating.empty() && pipeline.alternating.empty() &&
           filled(first, schedule, placements) == filled(pipeline, schedule, placements);
  });
}

std::map<const ir::Buffer*, const ir::Buffer*> tiles_in_stages_of(const Schedule& schedule) {
  std::map<const ir::Buffer*, const ir::Buffer*> tiles;
  for (const Pipeline& pipeline : schedule.pipelines) {
    if (pipeline.stages_of < 0) continue;
    const Pipeline& first = schedule.pipelines[static_cast<size_t>(pipeline.stages_of)];
    for (size_t i = 0; i < pipeline.buffers.size(); ++i) tiles[pipeline.buffers[i].get()] = first.buffers[i].get();
  }
  return tiles;
}

BufferSet late_tiles(const Pipeline& pipeline, const Placements& placements) {
  BufferSet early, late;
  for (const ir::Stmt& stmt : pipeline.loop->body) {
    const auto* gemm = std::get_if<ir::GemmStmt>(&stmt.node);
    if (!gemm) continue;
    const GemmChoice& choice = placements.gemms.at(gemm);
    (choice.group && choice.a_in_registers ? late : early).insert(gemm->b.buffer.get());
    early.insert(gemm->a.buffer.get());
  }
  std::erase_if(late, [&](const ir::Buffer* tile) { return early.count(tile) != 0; });
  return late;
}

}  // namespace kachel::lowering
