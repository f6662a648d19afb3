// Reductions on the CPU along a long innermost axis: several partial results, one a lane of several vectors, are kept
// beside each other and combined at the end. The loop over lanes has a constant count and no dependence between its
// iterations, which is what LLVM makes vectors of: a running minimum or maximum that prefers numbers to NaN it would
// leave as it is, and the sum of f32 it may not reorder by itself. See tile_lowering.h.
#include <limits>

#include "lowering/lower/tile_lowering.h"
#include "lowering/machine/cpu_machine.h"
#include "lowering/planted.h"

namespace kachel::lowering {

using ir::DType;
using ir::ExprRef;
using ir::Op;

// Null: too short, or of integers, whose order LLVM is free to change.
ExprRef TileLowering::reduce_in_lanes(const ir::Expr& reduce, const Site* site, const ExprRef& neutral) {
  constexpr int64_t kVectors = 4;  // hides the latency of an addition
  const int64_t lanes = kVectors * cpu_machine(target_).lanes, inner = reduce.iters.back().extent->int_value;
  if (!on_cpu() || !ir::is_float(reduce.type) || inner < lanes) return nullptr;
  bool nested_reduction = false, heavy = false;
  ir::visit(reduce.args[0], [&](const ExprRef& node) {
    nested_reduction |= node->kind == ir::ExprKind::kReduce;
    heavy |= is_heavy(*node);
  });
  if (nested_reduction) return nullptr;

  std::vector<AheadPart> ahead;
  if (site && reduce.iters.size() == 1)
    ahead = take_ahead(site->coords.size() + 1, inner, heavy ? inner - inner / 4 : inner / 8);
  ir::BufferRef partial = temporary("partial", reduce.type, ir::Scope::kRegister, lanes);
  auto combine = [&](ExprRef kept, ExprRef value, bool skips) {
    if (!skips) return combined(reduce.reduce, kept, value);
    kept = let("kept", kept), value = let("value", value);
    const Op beyond = reduce.reduce == ir::ReduceOp::kMax ? Op::kGt : Op::kLt;
    return ir::make_typed(Op::kSelect, {ir::make_typed(beyond, {value, kept}), value, kept});
  };
  auto reduced = [&](const ExprRef& first_value, bool skips) {
    serial("lane", int64(lanes), false, [&](ExprRef lane) { store(partial, lane, first_value, nullptr); });
    // One element of each of the first `count` lanes, from `first` on along the innermost axis.
    auto step = [&](const ExprRef& first, int64_t count) {
      serial("lane", int64(count), false, [&](ExprRef lane) {
        values_[reduce.iters.back().var.get()] = let("k", ir::make_typed(Op::kAdd, {first, lane}));
        store(partial, lane, combine(ir::make_load(partial, {lane}), scalar(reduce.args[0], site), skips), nullptr);
      });
    };
    std::function<void(size_t)> nest = [&](size_t axis) {
      const ir::IterVar& iter = reduce.iters[axis];
      if (axis + 1 < reduce.iters.size()) {
        serial(iter.var->name, iter.extent, false, [&](ExprRef coord) {
          if (planted(Planted::kReduceSkipsFirst) && iter.extent->int_value > 1 && axis == 0)
            coord = let("skipped", ir::make_typed(Op::kMax, {coord, int64(1)}));
          values_[iter.var.get()] = coord;
          nest(axis + 1);
        });
        return;
      }
      serial("chunk", int64(inner / lanes), false, [&](ExprRef chunk) {
        if (!ahead.empty()) ask_ahead(ahead, site->coords, chunk, inner / lanes);
        step(let("first", ir::make_typed(Op::kMul, {chunk, int64(lanes)})), lanes);
      });
      if (inner % lanes && !planted(Planted::kLanesTail)) step(int64(inner / lanes * lanes), inner % lanes);
    };
    nest(0);
    // Vectors by halves; then the lanes of one, which vectors would only be taken apart for.
    for (int64_t half = lanes / 2; half >= lanes / kVectors; half /= 2)
      serial("lane", int64(half), false, [&](ExprRef lane) {
        const ExprRef other = ir::make_load(partial, {ir::make_typed(Op::kAdd, {lane, int64(half)})});
        store(partial, lane, combine(ir::make_load(partial, {lane}), other, skips), nullptr);
      });
    std::vector<ExprRef> left;
    for (int64_t lane = 0; lane < lanes / kVectors; ++lane)
      left.push_back(let("last", ir::make_load(partial, {int64(lane)})));
    for (; left.size() > 1; left.resize(left.size() / 2))
      for (size_t i = 0; i < left.size() / 2; ++i)
        left[i] = let("last", combine(left[i], left[i + left.size() / 2], skips));
    return left[0];
  };
  if (!ir::is_extreme(reduce.reduce)) return reduced(neutral, false);
  // A comparison alone skips NaN, in one instruction. Whether there was a number at all is in doubt only where nothing
  // beyond the infinity was found.
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  ExprRef end = ir::make_float(reduce.reduce == ir::ReduceOp::kMax ? -kInfinity : kInfinity);
  if (planted(Planted::kReduceInit)) end = neutral;
  const ir::BufferRef result = temporary("extreme", reduce.type, ir::Scope::kRegister, 1);
  const ExprRef zero = int64(0);
  const ExprRef skipping = reduced(end, true);
  ahead.clear();
  store(result, zero, skipping, nullptr);
  LoopBlock again = nested([&] { store(result, zero, reduced(neutral, false), nullptr); });
  emit({LoopIf{ir::make_typed(Op::kEq, {skipping, end}), std::move(again), {}}});
  return let("reduced", ir::make_load(result, {zero}));
}

}  // namespace kachel::lowering
