// Which reads of a region are loaded how, see lower_reads.cc: what each index follows, how many iterations an access
// serves, and what is loaded in front of the region. See tile_lowering.h.
#include <algorithm>
#include <bit>
#include <numeric>

#include "ir/parallel.h"
#include "ir/tunable_role.h"
#include "lowering/loop_ir/index_groups.h"
#include "lowering/lower/nibble_table.h"
#include "lowering/lower/tile_lowering.h"
#include "lowering/plan/gemm_choice.h"
#include "lowering/planted.h"

namespace kachel::lowering {

using ir::ExprKind;
using ir::ExprRef;
using ir::Op;

namespace {

// Registers that the parts which are loaded in front of a region may take, each: with few fragments, and where these
// take more registers than `kFewRegisters`.
constexpr int64_t kMostHeld = 64, kMostHeldBesideMany = 16;

// Calls fn(load, guard) on each load that is evaluated where some condition holds; null: the condition is not put
// together.
template <class Fn>
void for_each_guarded_load(const ExprRef& expr, const Fn& fn, bool guarded = false, const ExprRef& guard = nullptr) {
  if (expr->kind == ExprKind::kReduce) return;
  if (expr->kind == ExprKind::kLoad && guarded) fn(expr, guard);
  for (size_t i = 0; i < expr->args.size(); ++i) {
    const bool lazy = i > 0 && ir::is_lazy(*expr);
    ExprRef inner = guard;
    if (lazy) {
      const bool known = expr->op == Op::kSelect && (!guarded || guard);
      const ExprRef& chooses = expr->args[0];
      inner = known ? both(guard, i == 1 ? chooses : ir::make_typed(Op::kNot, {chooses})) : nullptr;
    }
    for_each_guarded_load(expr->args[i], fn, guarded || lazy, inner);
  }
}

// Whether it is the same wherever it is evaluated.
bool reads_unwritten(const ExprRef& expr) {
  bool all = true;
  ir::visit(expr, [&](const ExprRef& node) {
    all &= node->kind != ExprKind::kReduce && (node->kind != ExprKind::kLoad || is_unwritten(*node->buffer));
  });
  return all;
}

// (x + j) / y and nothing else of the iteration, so that all of it may be about groups.
bool is_quotient(const ExprRef& index, const RegionIndexes& indexes) {
  ExprRef expr = index;
  while (expr->kind == ExprKind::kCast && ir::bits(expr->type) >= 32) expr = expr->args[0];
  if (expr->kind != ExprKind::kApply || expr->op != ir::Op::kDiv) return false;
  const std::optional<RegionIndex> by = indexes.split(expr->args[1]);
  return indexes.split(expr->args[0]) && by && by->axis == RegionIndex::kNone;
}

// Whether each iteration reads its own element.
bool as_it_lies(const RegionIndexes& indexes, const ir::Expr& load, size_t rank) {
  bool same = load.args.size() == rank;
  for (size_t axis = 0; same && axis < rank; ++axis) {
    const std::optional<RegionIndex> index = indexes.split(indexes.inlined(load.args[axis]));
    same = index && index->axis == axis && !index->base;
  }
  return same;
}

}  // namespace

bool TileLowering::makes_operand(const ir::ForwardedRegion& region) const {
  return std::any_of(region.stores.begin(), region.stores.end(), [&](const ir::GuardedStore& guarded) {
    return std::any_of(placements_.gemms.begin(), placements_.gemms.end(), [&](const auto& entry) {
      return entry.first->a.buffer == guarded.store.buffer || entry.first->b.buffer == guarded.store.buffer;
    });
  });
}

int64_t TileLowering::most_held() const {
  return fragment_registers(placements_) > kFewRegisters ? kMostHeldBesideMany : kMostHeld;
}

std::vector<RegionRead> TileLowering::reads_of(const ir::ForwardedRegion& region, const RegionIndexes& indexes,
                                               const FragmentLayout& layout) {
  ReadsOfRegion found{region.iters, indexes, layout, makes_operand(region), {}, {}, {}};
  const auto is_written = [&region](const ir::BufferRef& buffer) {
    return std::any_of(region.stores.begin(), region.stores.end(),
                       [&](const ir::GuardedStore& guarded) { return guarded.store.buffer == buffer; });
  };
  for (const ir::LetStmt* needed : lets_beside_tables(region, indexes)) {
    const ir::LetStmt& let = *needed;
    note_unpacked(let.value, is_written, &found);
    ir::visit(let.value, [&](const ExprRef& node) {
      if (const ExprRef load = padded_load(*node)) found.padded.insert(load.get());
    });
    for_each_certain_load(let.value, [&](const ExprRef& load) {
      if (found.unpacked.count(load.get())) return;
      const ir::BufferRef& tensor = load->buffer;
      const bool written = is_written(tensor);
      // Functions are evaluated a few elements at a time where each is loaded for itself: with all in registers the
      // compiler does all of one step first (exact silu in front of wgmma, an H200: 1.2 times as slow).
      if (!written && !region_is_heavy_ && as_it_lies(indexes, *load, region.iters.size()) &&
          suits_matrices(tensor, layout)) {
        RegionRead whole{load.get(), {}, {}};
        whole.matrices = true;
        found.reads.push_back(std::move(whole));
        return;
      }
      const bool shared = tensor->scope == ir::Scope::kShared && !in_registers(tensor);
      const bool row = shared && found.operand && !written && tensor->shape.size() == 1;
      const bool tile = row || (shared && !found.operand && layout.quad_rows());
      // Of a tensor that the region writes an iteration reads what it writes itself: neighbours may be loaded before.
      const bool global = tensor->scope == ir::Scope::kGlobal;
      if ((tile || global) && tensor->type.dtype != ir::DType::Bool && !note_read(load, true, &found))
        note_read(load, false, &found);
    });
    // What follows fewer axes is loaded whether the condition holds or not: in front of all iterations it is few.
    for_each_guarded_load(let.value, [&](const ExprRef& load, const ExprRef& guard) {
      if (is_unwritten(*load->buffer) && load->buffer->type.dtype != ir::DType::Bool && !found.padded.count(load.get()))
        note_read(load, false, &found, Guarded{guard ? indexes.inlined(guard) : nullptr});
    });
  }
  merge_windows(&found.reads);
  for (RegionRead& read : found.reads) read.written = is_written(read.load->buffer);
  return std::move(found.reads);
}

// Adds an index and the axes that it follows. False: the load has to be evaluated where it stands.
bool TileLowering::note_index(const ExprRef& index, bool in_groups, const ReadsOfRegion& region, RegionRead* read) {
  if (!region.indexes.is_written_out(index)) return false;
  int64_t group = 1;
  ExprRef at = in_groups ? settled(index, region.iters, region.indexes, region.layout, &group) : index;
  if (!region.indexes.split(at) && !(group > 1 && is_quotient(at, region.indexes))) {
    if (group > 1 || !reads_unwritten(at)) return false;
    // What registers hold for an iteration stands for loads of the region's, not for this one.
    at = ir::rewrite(at, [](const ExprRef& node) {
      return node->kind == ExprKind::kLoad ? ir::make_load(node->buffer, node->args) : node;
    });
  }
  for (const size_t axis : region.indexes.axes_of(at)) {
    const auto place = std::lower_bound(read->axes.begin(), read->axes.end(), axis);
    const auto of_group = read->groups.begin() + (place - read->axes.begin());
    if (place == read->axes.end() || *place != axis) {
      read->groups.insert(of_group, group);
      read->axes.insert(place, axis);
    } else if (group > 1 || *of_group > 1) {
      return false;
    }
  }
  read->indices.push_back(std::move(at));
  return true;
}

// How many iterations, neighbours along the region's last axis, an access serves. What lies between their elements, or
// between two accesses, is loaded too, and may be what other loads want (`window`).
void TileLowering::widen(const ReadsOfRegion& region, bool tile, RegionRead* read) {
  const ir::BufferRef& tensor = read->load->buffer;
  const size_t last = region.iters.size() - 1;
  const int64_t bytes = ir::bits(tensor->type.dtype) / 8;
  if (!bytes || read->axes.back() != last || read->groups.back() != 1 || !region.layout.whole_vectors()) return;
  for (size_t i = 0; i + 1 < read->indices.size(); ++i)
    if (ir::mentions(read->indices[i], region.iters[last].var)) return widen_groups(region, tile, read);
  std::optional<ScaledIndex> row = region.indexes.scaled(read->indices.back());
  const bool rebuilt = row.has_value();  // else the index stays as it is
  if (const auto simple = row ? std::nullopt : region.indexes.split(read->indices.back()); simple)
    row = ScaledIndex{simple->axis, 1, 0, simple->base};
  if (!row) return widen_groups(region, tile, read);
  if (row->axis != last || !row->is_dense()) return;
  const FragmentLayout part = part_of(*read, region.layout);
  const bool windows = rebuilt && !tile && part.registers() == region.layout.registers();
  if (!windows || std::abs(row->constant) > kFarthestRead) {
    if (row->scale != 1) return;
    if (row->constant) row->base = plus(row->base, int64(std::exchange(row->constant, 0)));
  }
  const int64_t neighbours = std::gcd(region.layout.vector(), part.vector());
  const int64_t multiple = row->base ? out_.ranges.multiple_of(scalar(row->base, nullptr)) : 0;
  const int64_t widest = std::min(kWidestAccess / bytes, tile ? row_vector(placements_.at(tensor.get()).layout, bytes)
                                                              : vector_bytes(kernel_, fact_mask_, tensor) / bytes);
  int64_t width = std::min(neighbours, widest / row->scale);
  const auto is_access = [&](int64_t count) {
    const int64_t elements = count * row->scale;
    return neighbours % count == 0 && multiple % elements == 0 && std::has_single_bit(static_cast<uint64_t>(elements));
  };
  while (width && !is_access(width)) --width;
  if (width * row->scale <= 1) return;
  read->width = width;
  read->stride = row->scale;
  read->row = row;
  if (row->scale == 1 && row->constant % width == 0) return;
  read->window = {{read->load, planted(Planted::kStridedPart) ? 0 : row->constant}};
  read->indices.back() = plus(row->base, times(ir::make_var(region.iters[last].var), row->scale));
}

// The same for places that are calculated, of which neighbours lie beside each other for a while.
void TileLowering::widen_groups(const ReadsOfRegion& region, bool tile, RegionRead* read) {
  if (tile || read->axes.size() != region.iters.size()) return;
  for (const ExprRef& index : read->indices) {
    bool plain = true;
    ir::visit(index, [&](const ExprRef& node) { plain &= node->kind != ExprKind::kLoad && !ir::is_reduction(*node); });
    if (!plain) return;
  }
  const ir::BufferRef& tensor = read->load->buffer;
  const int64_t widest = vector_bytes(kernel_, fact_mask_, tensor) / (ir::bits(tensor->type.dtype) / 8);
  int64_t width = widest;  // a power of two
  while (width > 1 &&
         (region.layout.vector() % width || !rise_together(read->indices, region.iters, region.layout.shape(), width)))
    width /= 2;
  if (planted(Planted::kWideGroup)) width = std::min(region.layout.vector(), widest);
  read->width = width;
}

// What of a condition the neighbours that an access serves agree in, and is known where the access is; null: nothing.
// The rest, which may load nothing, is left to each of them: what is loaded for nothing does no harm.
ExprRef TileLowering::guard_of_access(const ExprRef& guard, const RegionRead& read, const ReadsOfRegion& region) {
  if (read.width == 1 || !read.window.empty() || !region.indexes.is_written_out(guard)) return nullptr;
  bool plain = true;
  ir::visit(guard, [&](const ExprRef& node) { plain &= node->kind != ExprKind::kLoad && !ir::is_reduction(*node); });
  if (!plain) return nullptr;
  if (guard->kind == ExprKind::kApply && guard->op == Op::kAnd)
    return both(guard_of_access(guard->args[0], read, region), guard_of_access(guard->args[1], read, region));
  const std::vector<size_t> axes = region.indexes.axes_of(guard);
  if (!std::all_of(axes.begin(), axes.end(),
                   [&](size_t axis) { return std::find(read.axes.begin(), read.axes.end(), axis) != read.axes.end(); }))
    return nullptr;
  if (axes.empty() || axes.back() + 1 != region.iters.size()) return guard;
  const auto named = named_neighbours({guard}, region.iters, region.layout.shape());
  const bool agree = named && in_group(named->exprs[0], named->last, read.width, out_.ranges) == InGroup::kAlike;
  return agree || planted(Planted::kFirstDecides) ? guard : nullptr;
}

// With `in_groups` neighbours that read the same share it, if it is loaded in front of the region. `guarded`: it is
// loaded there, or together with its neighbours under their condition, or not at all. False: it cannot be so.
bool TileLowering::note_read(const ExprRef& load, bool in_groups, ReadsOfRegion* region,
                             const std::optional<Guarded>& guarded) {
  const ir::BufferRef& tensor = load->buffer;
  const bool tile = tensor->scope == ir::Scope::kShared;
  RegionRead read{load.get(), {}, {}};
  for (const ExprRef& arg : load->args)
    if (!note_index(region->indexes.inlined(arg), in_groups, *region, &read)) return false;
  const bool alike = read.axes.empty();  // for all iterations of the region
  if (alike && (!ahead_.pipeline || tile)) return true;
  if (!alike) widen(*region, tile, &read);
  const ExprRef guard = guarded && guarded->guard ? guard_of_access(guarded->guard, read, *region) : nullptr;
  const auto equal = std::find_if(region->reads.begin(), region->reads.end(), [&](const RegionRead& one) {
    return (!one.guard || (guard && ir::same(one.guard, guard))) && !one.value && !one.matrices &&
           one.load->buffer == tensor && one.axes == read.axes && one.groups == read.groups &&
           one.window.empty() == read.window.empty() && (read.window.empty() || one.is_near(read.window[0].second)) &&
           std::equal(one.indices.begin(), one.indices.end(), read.indices.begin(), ir::same);
  });
  read.padded = region->padded.count(load.get()) != 0;
  if (equal != region->reads.end()) {
    equal->padded |= read.padded;
    if (read.window.empty())
      read_as_[load.get()] = equal->load;
    else
      equal->window.push_back(read.window[0]);
    return true;
  }
  bool follows_loop = false, own_names = false;
  const bool in_pipeline = ahead_.pipeline && ahead_.depth == loop_depth_;
  for (const ExprRef& index : read.indices) {
    ir::visit(index, [&](const ExprRef& node) {
      own_names |= node->kind == ExprKind::kVar && ahead_.names.count(node->var.get());
      own_names |= node->kind == ExprKind::kLoad;
    });
    follows_loop |= in_pipeline && ir::mentions(index, ahead_.pipeline->var);
  }
  const int64_t all = region->layout.registers(), held = part_of(read, region->layout).registers();
  const bool bytes_only = ir::bits(tensor->type.dtype) < 8, row = tile && region->operand;
  read.once = (row || !tile) && held < all && held <= most_held() && is_unwritten(*tensor) && !region_written_out_;
  read.ahead = read.once && follows_loop && !own_names && !tile;
  read.unchanging = read.once && in_pipeline && !follows_loop && !own_names && !tile;
  if (guarded && !read.once && !guard) return true;
  if (!read.once) read.guard = guard;
  if (alike && (!(read.ahead || read.unchanging) || bytes_only)) return true;
  const bool grouped = std::any_of(read.groups.begin(), read.groups.end(), [](int64_t size) { return size > 1; });
  if (grouped && !read.once) return false;
  if (bytes_only && !read.ahead) return true;
  if (read.once || read.width > 1 || read.stride > 1 || held < all) region->reads.push_back(std::move(read));
  return true;
}

}  // namespace kachel::lowering
