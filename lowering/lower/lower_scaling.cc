// Running maxima make tiles be scaled again and again, most times by 1: `acc[i, d] *= alpha[i]`. A warp all of whose
// factors are 1 leaves its part alone. x * 1 is x for every x, so this changes no result.
#include "lowering/lower/tile_lowering.h"
#include "lowering/tile_ir/hoist_reductions.h"

namespace kachel::lowering {

using ir::DType;
using ir::ExprKind;
using ir::ExprRef;
using ir::Op;

namespace {

constexpr int64_t kLeastElements = 8;  // of the tile for each factor, for a vote to pay

bool same_indices(const std::vector<ExprRef>& a, const std::vector<ExprRef>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i]->kind != ExprKind::kVar || b[i]->kind != ExprKind::kVar || a[i]->var != b[i]->var) return false;
  return true;
}

}  // namespace

// The factors, if the region does nothing but scale a fragment by those of another fragment; else null.
ir::BufferRef TileLowering::mostly_ones(const ir::ParallelStmt& stmt) const {
  const auto& [assign, value] = step_of(stmt);
  if (on_cpu() || !assign || value->kind != ExprKind::kApply || value->op != Op::kMul || value->type != DType::F32)
    return nullptr;
  ExprRef factor;
  for (size_t i = 0; i < 2; ++i) {
    const ExprRef& self = value->args[i];
    if (self->kind == ExprKind::kLoad && self->buffer == assign->buffer && same_indices(self->args, assign->indices))
      factor = value->args[1 - i];
  }
  if (!factor || factor->kind != ExprKind::kLoad || factor->buffer == assign->buffer || factor->type != DType::F32)
    return nullptr;
  auto held = [&](const ir::BufferRef& tile) {
    const auto placement = placements_.tiles.find(tile.get());
    return placement != placements_.tiles.end() && placement->second.fragment ? placement->second.elements()
                                                                              : int64_t{0};
  };
  const int64_t factors = held(factor->buffer);
  return factors && held(assign->buffer) >= factors * kLeastElements ? factor->buffer : nullptr;
}

ExprRef TileLowering::any_factor(const ir::BufferRef& factors) {
  ExprRef any;
  for (int64_t i = 0; i < placements_.at(factors.get()).elements(); ++i) {
    const ExprRef other = ir::make_typed(Op::kNe, {ir::make_load(storage(factors), {int32(i)}), ir::make_float(1)});
    any = any ? ir::make_typed(Op::kOr, {any, other}) : other;
  }
  const ir::VarRef vote = make_local("scales", DType::Bool, ir::VarKind::kLet);
  emit({LoopShuffle{vote, any, kAnyLane}});
  return ir::make_var(vote);
}

}  // namespace kachel::lowering
