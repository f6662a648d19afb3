#include "lowering/plan/alternating.h"

#include <algorithm>

#include "lowering/machine/machine.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

constexpr int64_t kLeastStages = 3;   // one is released an iteration late
constexpr int64_t kBlocksBeside = 2;  // on a multiprocessor: one makes operands while another one multiplies

// Uses of a tile by other statements than the loop's own.
void note_others(const ir::Block& body, const ir::ForStmt* loop, BufferSet* used) {
  for (const ir::Stmt& stmt : body) {
    const auto* inner = std::get_if<ir::ForStmt>(&stmt.node);
    if (inner == loop) continue;
    if (std::holds_alternative<ir::DeclStmt>(stmt.node)) {
      if (std::get<ir::DeclStmt>(stmt.node).init) used->insert(std::get<ir::DeclStmt>(stmt.node).buffer.get());
    } else if (inner) {
      note_others(inner->body, loop, used);
    } else if (const auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) {
      note_others(branch->then_body, loop, used);
      note_others(branch->else_body, loop, used);
    } else {
      note_uses(stmt, used);
    }
  }
}

// What the body makes for the products that end it; nothing where it is of another form.
std::vector<ir::BufferRef> made_operands(const ir::Kernel& kernel, const Pipeline& pipeline,
                                         const Placements& placements) {
  const ir::Block& body = pipeline.loop->body;
  size_t first = body.size();
  while (first > 0 && std::holds_alternative<ir::GemmStmt>(body[first - 1].node)) --first;
  BufferSet others, stages;
  note_others(kernel.body, pipeline.loop, &others);
  for (const ir::BufferRef& buffer : pipeline.buffers) stages.insert(buffer.get());
  std::vector<ir::BufferRef> made;
  for (size_t i = first; i < body.size(); ++i) {
    const auto& gemm = std::get<ir::GemmStmt>(body[i].node);
    const GemmChoice& choice = placements.gemms.at(&gemm);
    if (!choice.group || choice.a_in_registers || choice.in_runs) return {};
    for (const ir::BufferRef& operand : {gemm.a.buffer, gemm.b.buffer}) {
      if (stages.count(operand.get()) || std::count(made.begin(), made.end(), operand)) continue;
      if (operand->scope == ir::Scope::kGlobal || others.count(operand.get())) return {};
      made.push_back(operand);
    }
  }
  // Each is written as a whole, by one statement, and read by the products alone.
  for (const ir::BufferRef& tile : made) {
    int uses = 0;
    bool whole = false;
    for (size_t i = 0; i < first; ++i) {
      BufferSet used;
      note_uses(body[i], &used);
      if (!used.count(tile.get())) continue;
      ++uses;
      const auto* copy = std::get_if<ir::CopyStmt>(&body[i].node);
      whole = copy && copy->dst.buffer == tile && copy->src.buffer != tile && is_whole(copy->dst) &&
              copy->atomic == ir::AtomicOp::kNone;
    }
    if (uses != 1 || !whole || placements.at(tile.get()).scope != ir::Scope::kShared) return {};
  }
  return made;
}

}  // namespace

void choose_alternating(const ir::Kernel& kernel, Schedule* schedule, Placements* placements, const Target& target) {
  for (Pipeline& pipeline : schedule->pipelines) {
    if (pipeline.realisation != Pipeline::Realisation::kBulkCopies || pipeline.depth < kLeastStages) continue;
    const std::vector<ir::BufferRef> made = made_operands(kernel, pipeline, *placements);
    const int64_t before = peak_bytes(kernel, *schedule, *placements, target);
    for (const ir::BufferRef& tile : made) placements->tiles.at(tile.get()).stages = 2;
    const int64_t after = peak_bytes(kernel, *schedule, *placements, target);
    const auto resident = [&](int64_t bytes) {
      return std::min<int64_t>(resident_by_shared(bytes, target.architecture), kBlocksBeside);
    };
    if (after <= target.shared_limit && resident(after) == resident(before)) {
      pipeline.alternating = made;
    } else {
      for (const ir::BufferRef& tile : made) placements->tiles.at(tile.get()).stages = 1;
    }
  }
}

}  // namespace kachel::lowering
