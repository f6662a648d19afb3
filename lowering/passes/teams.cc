#include "lowering/passes/teams.h"

#include <algorithm>
#include <set>

#include "lowering/loop_ir/loop_build.h"
#include "lowering/machine/machine.h"
#include "lowering/plan/gemm_choice.h"
#include "lowering/plan/pipeline_tiles.h"

namespace kachel::lowering {
namespace {

constexpr int kTeams = 2;
// Of 32 bits, that a thread of a team may need for fragments: what two teams and a producer can have, 240 and 24, less
// addresses, operands and counters.
constexpr int64_t kMostRegisters = 160;

// The producer comes to a team's tile in turn if it fills each pipeline once a tile.
bool once_a_tile(const ir::Kernel& kernel, const Schedule& schedule) {
  const auto direct = [&](const Pipeline& pipeline) {
    return pipeline.realisation == Pipeline::Realisation::kBulkCopies && !encloses_pipeline(pipeline.loop->body) &&
           std::any_of(kernel.body.begin(), kernel.body.end(),
                       [&](const ir::Stmt& stmt) { return std::get_if<ir::ForStmt>(&stmt.node) == pipeline.loop; });
  };
  return std::all_of(schedule.pipelines.begin(), schedule.pipelines.end(), direct);
}

}  // namespace

int choose_teams(const ir::Kernel& kernel, const Schedule& schedule, const Placements& placements,
                 const Target& target) {
  // Tiles of unequal length find their blocks otherwise.
  if (target.teams == 1 || target.one_tile || !has_bulk_copies(schedule) || !once_a_tile(kernel, schedule) ||
      !schedule.is_even())
    return 1;
  if (target.teams) return target.teams;
  if (target.threads || resident_by_shared(peak_bytes(kernel, schedule, placements, target), target.architecture) > 1)
    return 1;
  const int64_t registers = fragment_registers(placements);
  const int groups = placements.threads / kGroupThreads;
  const bool of_groups =
      groups * kGroupThreads == placements.threads && std::all_of(placements.gemms.begin(), placements.gemms.end(),
                                                                  [](const auto& entry) { return entry.second.group; });
  return of_groups && registers * groups <= kMostRegisters ? kTeams : 1;
}

bool keeps_to_teams(const LoopKernel& kernel) {
  std::set<const ir::Buffer*> shared;
  for (const LoopBuffer& buffer : kernel.buffers)
    if (buffer.buffer->scope == ir::Scope::kShared && !buffer.of_warps) shared.insert(buffer.buffer.get());
  for (const LoopPhases& phases : kernel.phases) shared.erase(phases.buffer.get());
  for_each_statement(kernel.producer, [&](const LoopStmt& stmt) {
    if (const auto* store = std::get_if<LoopStore>(&stmt.node)) shared.erase(store->buffer.get());
    const auto* copy = std::get_if<LoopIntrinsic>(&stmt.node);
    if (copy && (copy->kind == LoopIntrinsic::Kind::kBulkCopy || copy->kind == LoopIntrinsic::Kind::kCopyAsync))
      shared.erase(copy->operands[0].buffer.get());
  });
  bool meet = false;
  for_each_statement(kernel.body,
                     [&](const LoopStmt& stmt) { meet |= std::holds_alternative<LoopBarrier>(stmt.node); });
  return shared.empty() && !meet;
}

}  // namespace kachel::lowering
