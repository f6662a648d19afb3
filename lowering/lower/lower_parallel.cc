// Parallel regions. Reductions come first, into temporaries; then every iteration computes its values and stores them.
// Where an iteration may read what another one writes, values, places and guards go to temporaries of the iteration
// first, and a second walk does the stores: the synchronisation pass puts the barrier between. See tile_lowering.h.
#include <algorithm>
#include <numeric>

#include "ir/parallel.h"
#include "ir/print.h"
#include "ir/tunable_role.h"
#include "lowering/loop_ir/region_index.h"
#include "lowering/lower/tile_lowering.h"
#include "lowering/machine/operation_price.h"
#include "lowering/planted.h"
#include "lowering/tile_ir/hoist_reductions.h"
#include "lowering/tile_ir/hoist_scans.h"

namespace kachel::lowering {

using ir::DType;
using ir::ExprRef;
using ir::Op;

namespace {

constexpr double kLongIteration = 12;  // instructions
// Of a thread where nothing demands it: iterations that are written out, and instructions of those but for loads.
constexpr int64_t kLeastWrittenOut = 8, kMostWrittenOut = 64;
constexpr double kMostInstructions = 512;

std::string headline(const ir::ParallelStmt& region) {
  std::string text = "parallel";
  for (const ir::IterVar& iter : region.iters)
    text += (&iter == &region.iters.front() ? " " : ", ") + iter.var->name + " < " + ir::print(iter.extent);
  return text;
}

// Some iteration may read an element that another one writes, so all reads must be done before the first write: a
// buffer is both read and written, and not always at a place that the iteration itself writes, and no other. Where two
// assignments of different iterations meet what is left is undefined, so that one that is always made keeps all others
// from its element.
bool reads_what_others_write(const ir::ForwardedRegion& region, const RegionIndexes& indexes) {
  const auto is_alone = [&](const ir::AssignStmt& store) {
    return store.atomic == ir::AtomicOp::kNone &&
           std::all_of(region.iters.begin(), region.iters.end(), [&](const ir::IterVar& iter) {
             return ir::is_int(iter.extent, 1) ||
                    std::any_of(store.indices.begin(), store.indices.end(),
                                [&](const ExprRef& at) { return indexes.follows(at, iter.var); });
           });
  };
  bool found = false;
  for (const ir::LetStmt& let : region.lets)
    ir::visit(let.value, [&](const ExprRef& node) {
      if (node->kind != ir::ExprKind::kLoad) return;
      size_t stores = 0;
      bool own = false, own_always = false, atomic = false;
      for (const ir::GuardedStore& guarded : region.stores) {
        const ir::AssignStmt& store = guarded.store;
        if (store.buffer != node->buffer) continue;
        ++stores;
        atomic |= store.atomic != ir::AtomicOp::kNone;
        if (!std::equal(node->args.begin(), node->args.end(), store.indices.begin(), store.indices.end(), ir::same) ||
            !is_alone(store))
          continue;
        own = true;
        own_always |= !guarded.guard;
      }
      found |= stores > 0 && (atomic || !(stores == 1 ? own : own_always));
    });
  return found;
}

// `in_memory(buffer)`: threads share it.
template <class Fn>
bool reads_what_it_writes(const ir::ForwardedRegion& region, const Fn& in_memory) {
  bool found = false;
  for (const ir::GuardedStore& guarded : region.stores)
    for (const ir::LetStmt& let : region.lets)
      ir::visit(let.value, [&](const ExprRef& node) {
        found |= node->kind == ir::ExprKind::kLoad && node->buffer == guarded.store.buffer && in_memory(node->buffer);
      });
  return found;
}

std::vector<size_t> axes_of(const FragmentLayout& layout) {
  std::vector<size_t> axes(layout.shape().size());
  std::iota(axes.begin(), axes.end(), size_t{0});
  return axes;
}

}  // namespace

bool is_heavy(const ir::Expr& expr) {
  if (expr.kind != ir::ExprKind::kApply) return false;
  switch (expr.op) {
    case Op::kExp:
    case Op::kExp2:
    case Op::kLog:
    case Op::kLog2:
    case Op::kTanh:
    case Op::kErf:
    case Op::kRaisedTanh:
    case Op::kRaisedErf:
    case Op::kSin:
    case Op::kCos:
      return true;
    default:
      return false;
  }
}

void TileLowering::statement(const ir::ParallelStmt& stmt) {
  comment(headline(stmt));
  const auto chosen = placements_.regions.find(&stmt);
  const FragmentLayout* layout = chosen == placements_.regions.end() ? nullptr : &chosen->second;
  if (layout && reduction_of(stmt)) return reduction(stmt, *reduction_of(stmt), *layout);
  if (scan_of(stmt)) return scan(stmt, *scan_of(stmt), layout);
  if (const auto exchanged = layout ? exchange_of(stmt) : std::nullopt; exchanged && in_registers(exchanged->from))
    return exchange(stmt, *exchanged, *layout);
  if (const auto turned = layout ? std::nullopt : turn_of(stmt);
      turned && in_registers(turned->to) && in_registers(turned->from))
    return turn(*turned);
  if (const ir::BufferRef factors = mostly_ones(stmt))
    return emit({LoopIf{any_factor(factors), nested([&] { region(stmt, layout); }), {}}});
  region(stmt, layout);
}

void TileLowering::region(const ir::ParallelStmt& stmt, const FragmentLayout* layout) {
  ir::ForwardedRegion region = ir::forward_stores(stmt);
  std::vector<int64_t> shape;
  std::vector<std::string> names;
  for (const ir::IterVar& iter : region.iters) {
    shape.push_back(iter.extent->int_value);
    names.push_back(iter.var->name);
  }

  std::unordered_map<const ir::Var*, ExprRef> lets;  // with their own lets inlined, for reductions
  for (ir::LetStmt& let : region.lets) {
    let.value = extract_reductions(let.value, region.iters, lets);
    lets[let.var.get()] = ir::rewrite(let.value, [&](const ExprRef& node) {
      if (node->kind != ir::ExprKind::kVar) return node;
      auto it = lets.find(node->var.get());
      return it == lets.end() ? node : it->second;
    });
  }
  bool unroll = false;
  for (const ir::GuardedStore& guarded : region.stores) unroll |= in_registers(guarded.store.buffer);
  for (const ir::LetStmt& let : region.lets)
    ir::visit(let.value,
              [&](const ExprRef& node) { unroll |= node->kind == ir::ExprKind::kLoad && in_registers(node->buffer); });

  region_is_heavy_ = false;
  double instructions = 0;
  for (const ir::LetStmt& let : region.lets) {
    ir::visit(let.value, [&](const ExprRef& node) { region_is_heavy_ |= is_heavy(*node); });
    instructions += instructions_of(let.value);
  }
  region_is_long_ = instructions >= kLongIteration && !makes_operand(region);

  struct Pending {
    ir::BufferRef value, at, guard;
  };
  bool to_registers = false;
  for (const ir::GuardedStore& guarded : region.stores) to_registers |= in_registers(guarded.store.buffer);
  // Replicas compute what they keep in registers each for itself: all must have read before one of them writes.
  const auto in_memory = [this](const ir::BufferRef& buffer) { return !in_registers(buffer); };
  const bool replicated = !planted(Planted::kReplicasCompute) && layout && !layout->replicas().empty() &&
                          to_registers && reads_what_it_writes(region, in_memory);
  RegionIndexes indexes(region.iters);
  for (const ir::LetStmt& let : region.lets) indexes.name(let);
  const bool two_phases =
      (reads_what_others_write(region, indexes) || replicated) && !planted(Planted::kSnapshotBroken);
  std::vector<Pending> pending(region.stores.size());
  bool ragged = false;
  for (size_t axis = 0; layout && axis < shape.size(); ++axis) ragged |= layout->ragged(axis);
  if (layout && !unroll && !two_phases) {
    const auto most = static_cast<int64_t>(kMostInstructions / std::max(instructions, 1.0));
    region_written_out_ = std::clamp<int64_t>(most, kLeastWrittenOut, kMostWrittenOut);
    if (layout->registers() <= region_written_out_) region_written_out_ = 0;
  }
  const std::vector<RegionRead> reads =
      layout && !two_phases ? reads_of(region, indexes, *layout) : std::vector<RegionRead>{};
  std::vector<WideStore> wide(region.stores.size());
  if (layout && !two_phases) wide = wide_stores(region, indexes, *layout);
  Behind behind;
  for (const WideStore& store : wide) behind.width = std::max(behind.width, store.width);
  if (behind.width > 1)
    behind.body = [&](const Site& first, int64_t count) {
      for (size_t i = 0; i < wide.size(); ++i)
        if (wide[i].width > 1) store_neighbours(region.stores[i].store, wide[i], region.iters, first, count);
    };
  const auto packed = layout ? packed_store(region, reads, indexes, *layout) : std::nullopt;
  if (packed) {
    each_with_reads(reads, region.iters, *layout, names, nullptr, packed_body(*packed), Behind{packed->width, nullptr});
    packed_in_front_.clear();
    return;
  }
  auto walk = [&](bool unroll_rounds, const std::function<void(const Site&)>& body) {
    if (!layout) return each(shape, names, unroll_rounds, body);
    const auto by_owner = [&](const Site& site) {
      const bool all = planted(Planted::kWrongReplica) || planted(Planted::kReplicasCompute);
      if (!site.owner || to_registers || all) return body(site);
      // One thread of each set of replicas does it all.
      Site own = site;
      own.owner = nullptr;
      emit({LoopIf{site.owner, nested([&] { body(own); }), {}}});
    };
    each_with_reads(reads, region.iters, *layout, names, by_owner, {}, behind);
  };
  const int64_t rounds = layout     ? layout->registers()
                         : on_cpu() ? product(shape)
                                    : (product(shape) + out_.threads - 1) / out_.threads;
  // What is pending in a region of few threads is more than registers hold: arrays in local memory then, which loops go
  // along. Unrolled, 424 of them took ptxas 13.0 two minutes, and were spilled all the same.
  constexpr int64_t kMostPending = 64;  // values and places
  const bool unroll_pending =
      unroll || (!on_cpu() && 2 * rounds * static_cast<int64_t>(region.stores.size()) <= kMostPending);
  const ir::Scope scope = on_cpu() ? ir::Scope::kShared : ir::Scope::kRegister;
  auto slot_of = [&](const Site& site) {
    if (layout) return register_of(*layout, axes_of(*layout), site);
    if (!on_cpu()) return site.slot;
    ExprRef at = site.coords[0];
    for (size_t i = 1; i < site.coords.size(); ++i)
      at = ir::make_typed(Op::kAdd, {ir::make_typed(Op::kMul, {at, int64(shape[i])}), site.coords[i]});
    return at;
  };
  auto write = [&](const ir::AssignStmt& store, const ExprRef& at, const ExprRef& value, const ExprRef& guard) {
    const ir::BufferRef& to = storage(store.buffer);
    if (store.atomic == ir::AtomicOp::kNone || planted(Planted::kAtomicLost)) return this->store(to, at, value, guard);
    out_.float_atomics |= ir::is_float(to->type.dtype);
    LoopBlock body;
    body.push_back({LoopAtomic{to, at, store.atomic, value}});
    if (guard)
      emit({LoopIf{guard, std::move(body), {}}});
    else
      emit(std::move(body[0]));
  };

  // What is rounded when it is written, two at a time, need not be before.
  std::unordered_map<const ir::Var*, size_t> rounded_for;
  for (size_t i = 0; i < wide.size(); ++i)
    if (wide[i].width > 1 && rounds_in_pairs(region.stores[i].store.buffer->type.dtype))
      if (const ir::LetStmt* rounded = ir::rounding_of(region, region.stores[i].store))
        rounded_for[rounded->var.get()] = i;
  std::vector<ExprRef> unrounded(wide.size());

  if (!two_phases) fused_ = std::move(next_copy_);
  walk(two_phases ? unroll_pending : unroll, [&](const Site& at_site) {
    Site site = at_site;
    for (size_t i = 0; i < shape.size(); ++i) values_[region.iters[i].var.get()] = site.coords[i];
    for (const ir::LetStmt& let : region.lets) {
      ExprRef value = scalar(let.value, &site);
      if (!ir::is_float(value->type)) out_.ranges.set(let.var, out_.ranges.of(value));
      if (const auto store = rounded_for.find(let.var.get()); store != rounded_for.end())
        value = ir::make_cast(value->cast_type, unrounded[store->second] = this->let("exact", value->args[0]));
      emit({LoopLet{let.var, value}});
    }
    for (size_t i = 0; i < region.stores.size(); ++i) {
      const ir::AssignStmt& store = region.stores[i].store;
      if (wide[i].width > 1) {
        const ExprRef value = unrounded[i] ? unrounded[i] : scalar(store.value, &site);
        const ExprRef slot =
            planted(Planted::kWideStore) ? ir::make_typed(Op::kBitXor, {site.neighbour, int32(1)}) : site.neighbour;
        this->store(wide[i].made, slot, value, nullptr);
        continue;
      }
      const ExprRef& condition = region.stores[i].guard;
      std::vector<ExprRef> indices;
      for (const ExprRef& expr : store.indices) indices.push_back(index(expr, &site));
      ExprRef guard = in_bounds(store.buffer, indices, condition ? scalar(condition, &site) : nullptr);
      if (site.owner && !in_registers(store.buffer) && !planted(Planted::kWrongReplica))
        guard = both(guard, site.owner);
      ExprRef at = offset(store.buffer, indices, &site), value = scalar(store.value, &site);
      if (!two_phases) {
        write(store, at, value, guard);
        continue;
      }
      Pending& later = pending[i];
      if (!later.value) {
        later.value = temporary("pending", value->type, scope, rounds);
        if (!in_registers(store.buffer)) later.at = temporary("place", at->type, scope, rounds);
        // The rest of a ragged layout, which comes last, may need one where its whole passes do not.
        if (guard || ragged) later.guard = temporary("guard", DType::Bool, scope, rounds);
      }
      emit({LoopStore{later.value, slot_of(site), value}});
      if (later.at) emit({LoopStore{later.at, slot_of(site), at}});
      if (later.guard) emit({LoopStore{later.guard, slot_of(site), guard ? guard : ir::make_bool(true)}});
    }
  });
  region_is_heavy_ = false;
  region_written_out_ = 0;
  for (const ir::GuardedStore& guarded : region.stores) forwarded_.erase(guarded.store.buffer.get());
  if (!two_phases) return;
  walk(unroll_pending, [&](const Site& site) {
    for (size_t i = 0; i < region.stores.size(); ++i) {
      const Pending& later = pending[i];
      ExprRef slot = slot_of(site);
      ExprRef to = slot;
      if (layout && !later.at) {
        std::vector<ExprRef> indices;
        for (size_t axis = 0; axis < shape.size(); ++axis) values_[region.iters[axis].var.get()] = site.coords[axis];
        for (const ExprRef& expr : region.stores[i].store.indices) indices.push_back(index(expr, &site));
        to = offset(region.stores[i].store.buffer, indices, &site);
      }
      write(region.stores[i].store, later.at ? ir::make_load(later.at, {slot}) : to, ir::make_load(later.value, {slot}),
            later.guard ? ir::make_load(later.guard, {slot}) : nullptr);
    }
  });
}

}  // namespace kachel::lowering
