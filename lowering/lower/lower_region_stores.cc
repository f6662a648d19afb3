// What neighbours along a region's last axis write to a tensor beside each other, as one access. Each iteration leaves
// its value in registers, and behind the last one of a group all are written: the bounds of the first one are those of
// all, since rows end and groups begin at multiples of the access. See tile_lowering.h.
#include <algorithm>

#include "ir/parallel.h"
#include "ir/tunable_role.h"
#include "lowering/loop_ir/index_groups.h"
#include "lowering/lower/tile_lowering.h"
#include "lowering/machine/machine.h"
#include "lowering/planted.h"

namespace kachel::lowering {

using ir::DType;
using ir::ExprKind;
using ir::ExprRef;
using Kind = LoopIntrinsic::Kind;

// The expressions with a name for each iteration variable of the region, and that of the last one; nothing where a load
// among them follows that.
std::optional<TileLowering::NamedNeighbours> TileLowering::named_neighbours(const std::vector<ExprRef>& exprs,
                                                                            const std::vector<ir::IterVar>& iters,
                                                                            const std::vector<int64_t>& shape) {
  for (size_t axis = 0; axis < iters.size(); ++axis) {
    const ir::VarRef stand_in = make_local(iters[axis].var->name, DType::I64, ir::VarKind::kThread);
    out_.ranges.set(stand_in, {0, shape[axis] - 1});
    values_[iters[axis].var.get()] = ir::make_var(stand_in);
  }
  NamedNeighbours named{{}, values_.at(iters.back().var.get())->var};
  bool known = true;
  for (const ExprRef& expr : exprs) {
    const ExprRef without_loads = ir::rewrite(expr, [&](const ExprRef& node) {
      if (node->kind != ExprKind::kLoad) return node;
      known &= !ir::mentions(node, iters.back().var);
      return ir::make_var(make_local("loaded", node->type, ir::VarKind::kThread));
    });
    named.exprs.push_back(scalar(without_loads, nullptr));
  }
  for (const ir::IterVar& iter : iters) values_.erase(iter.var.get());
  return known ? std::optional(std::move(named)) : std::nullopt;
}

bool TileLowering::rise_together(const std::vector<ExprRef>& indices, const std::vector<ir::IterVar>& iters,
                                 const std::vector<int64_t>& shape, int64_t width) {
  const auto named = named_neighbours(indices, iters, shape);
  return named && are_neighbours(named->exprs, named->last, width, out_.ranges);
}

// 8-bit floats in registers that lie as the region's iterations do: two are rounded by one conversion.
bool TileLowering::fills_words(const ir::ForwardedRegion& region, size_t number, const FragmentLayout& layout) const {
  const ir::AssignStmt& store = region.stores[number].store;
  const Placement* held = in_registers(store.buffer) ? &placements_.at(store.buffer.get()) : nullptr;
  if (!held || !held->fragment || *held->fragment != layout || !ir::is_float8(store.buffer->type.dtype) ||
      store.atomic != ir::AtomicOp::kNone || region.stores[number].guard || layout.vector() % 2)
    return false;
  for (size_t axis = 0; axis < region.iters.size(); ++axis)
    if (!ir::same(store.indices[axis], ir::make_var(region.iters[axis].var))) return false;
  return true;
}

std::vector<WideStore> TileLowering::wide_stores(const ir::ForwardedRegion& region, const RegionIndexes& indexes,
                                                 const FragmentLayout& layout) {
  std::vector<WideStore> wide(region.stores.size());
  if (on_cpu() || target_.generic || layout.vector() == 1 || !layout.whole_vectors()) return wide;
  const ir::VarRef last = region.iters.back().var;
  const auto is_written = [&](const ir::BufferRef& buffer) {
    return std::any_of(region.stores.begin(), region.stores.end(),
                       [&](const ir::GuardedStore& guarded) { return guarded.store.buffer == buffer; });
  };
  // It is evaluated behind the iterations of a group once more.
  const auto is_settled = [&](const ExprRef& expr) {
    bool settled = true;
    ir::visit(expr, [&](const ExprRef& node) {
      settled &= !ir::is_reduction(*node) && (node->kind != ExprKind::kLoad || !is_written(node->buffer));
    });
    return settled && indexes.is_written_out(expr);
  };
  for (size_t i = 0; i < wide.size(); ++i) {
    const ir::AssignStmt& store = region.stores[i].store;
    const DType type = store.buffer->type.dtype;
    WideStore& one = wide[i];
    if (fills_words(region, i, layout)) one.width = 2;
    if (store.buffer->scope != ir::Scope::kGlobal || ir::bits(type) < 8 || type == DType::Bool) continue;
    for (const ExprRef& at : store.indices) one.indices.push_back(indexes.inlined(at));
    if (region.stores[i].guard)
      one.guard = beyond_bounds(indexes.inlined(region.stores[i].guard), *store.buffer, one.indices);
    if (one.guard && (ir::mentions(one.guard, last) || !is_settled(one.guard))) continue;
    if (!std::all_of(one.indices.begin(), one.indices.end(), is_settled)) continue;
    int64_t width = std::min<int64_t>(vector_bytes(kernel_, fact_mask_, store.buffer) * 8 / ir::bits(type),
                                      most_stored(store.atomic, type, target_.architecture));
    while (width > 1 && (layout.vector() % width || !rise_together(one.indices, region.iters, layout.shape(), width)))
      width /= 2;
    one.width = width;
  }
  // In order, where one may write what another one does.
  for (size_t i = 0; i < wide.size(); ++i)
    for (size_t j = 0; j < wide.size(); ++j)
      if (region.stores[i].store.buffer == region.stores[j].store.buffer && wide[i].width == 1) wide[j].width = 1;
  for (size_t i = 0; i < wide.size(); ++i) {
    if (wide[i].width == 1) continue;
    const DType type = region.stores[i].store.buffer->type.dtype;
    wide[i].made = temporary("made", rounds_in_pairs(type) ? DType::F32 : type, ir::Scope::kRegister, layout.vector());
  }
  return wide;
}

// Behind `count` neighbours from the site's on.
void TileLowering::store_neighbours(const ir::AssignStmt& store, const WideStore& wide,
                                    const std::vector<ir::IterVar>& iters, const Site& first, int64_t count) {
  const ir::BufferRef& to = storage(store.buffer);
  const DType type = store.buffer->type.dtype;
  ir::BufferRef made = wide.made;
  const auto round = [&](const ir::BufferRef& rounded, const ExprRef& from) {
    for (int64_t at = 0; at < count; at += 2) {
      LoopIntrinsic pair{Kind::kConvertPair, {}, nullptr};
      pair.type = type;
      pair.operands = {{rounded, plus(from, int32(at)), 2, true}, {wide.made, int32(at), 2, false}};
      emit({std::move(pair)});
    }
  };
  if (in_registers(store.buffer)) {
    std::vector<ExprRef> indices;
    for (size_t axis = 0; axis < iters.size(); ++axis) {
      values_[iters[axis].var.get()] = first.coords[axis];
      indices.push_back(index(store.indices[axis], &first));
    }
    return round(to, offset(store.buffer, indices, &first));
  }
  if (rounds_in_pairs(type)) {
    made = temporary("rounded", type, ir::Scope::kRegister, count);
    round(made, int32(0));
  }
  for (int64_t at = 0; at < count; at += wide.width) {
    Site site = first;
    if (at) site.coords.back() = let("at", plus(first.coords.back(), int64(at)));
    for (size_t axis = 0; axis < iters.size(); ++axis) values_[iters[axis].var.get()] = site.coords[axis];
    std::vector<ExprRef> indices;
    for (const ExprRef& expr : wide.indices) indices.push_back(index(expr, &site));
    const ExprRef guard = both(in_bounds(store.buffer, indices, wide.guard ? scalar(wide.guard, &site) : nullptr),
                               planted(Planted::kWrongReplica) ? nullptr : site.owner);
    const Kind kind =
        store.atomic == ir::AtomicOp::kNone || planted(Planted::kAtomicLost) ? Kind::kCopyVector : Kind::kAddVector;
    const ExprRef place = offset(store.buffer, indices, &site);
    const auto write = [&] { move(kind, to, place, made, int32(at), wide.width, nullptr); };
    if (kind == Kind::kAddVector) out_.float_atomics = true;
    if (guard)
      emit({LoopIf{guard, nested(write), {}}});
    else
      write();
  }
}

}  // namespace kachel::lowering
