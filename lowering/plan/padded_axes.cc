#include "lowering/plan/padded_axes.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "ir/visit.h"
#include "lowering/machine/machine.h"
#include "lowering/plan/cleared_depth.h"
#include "lowering/plan/gemm_choice.h"
#include "lowering/plan/shared_sums.h"
#include "lowering/planted.h"
#include "lowering/tile_ir/axis_classes.h"
#include "lowering/tile_ir/depth_bytes.h"
#include "lowering/tile_ir/reduce_ops.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

using ir::AxisSpec;
using ir::BufferRef;
using ir::ExprRef;

// Fewer rows are a vector's, whose product is bound by what it reads of the other operand.
constexpr int64_t kFewestGrown = 3;

class Padder {
 public:
  Padder(const ir::Kernel& kernel, const Target& target, const BufferSet& results, bool wide)
      : kernel_(kernel), results_(results), classes_(kernel, AxisClasses::Depth::kJoined, results) {
    ir::for_each_stmt(kernel.body, [&](const ir::Stmt& stmt) {
      if (const auto* gemm = std::get_if<ir::GemmStmt>(&stmt.node)) gemms_.push_back(gemm);
      if (const auto* copy = std::get_if<ir::CopyStmt>(&stmt.node)) copies_.push_back(copy);
    });
    const int64_t groups = groups_of_rows(gemms_, target);
    warps_ = warps_that_share(groups, target);
    for (const ir::GemmStmt* gemm : gemms_)
      if (may_take_mma(*gemm, target)) want(*gemm, groups, wide);
    for (const ir::CopyStmt* copy : copies_) check(*copy);
    // What stays may be what another one needed to be cleared for.
    for (bool changed = true; std::exchange(changed, false);) {
      cleared_.clear();
      for (const ir::GemmStmt* gemm : gemms_)
        for (const auto& [operand, axis] : sides_of(*gemm))
          if (grown(operand->buffer.get(), axis)) cleared_[operand->buffer.get()].insert(axis);
      ir::for_each_stmt(kernel.body, [&](const ir::Stmt& stmt) {
        for (const auto& [tile, axes] : cleared_)
          for (const size_t axis : axes)
            if (!may_be_cleared(stmt, *tile, axis) && !may_be_cut(stmt, *tile, axis))
              changed |= grown_.erase(classes_.of(tile, axis)) != 0;
      });
    }
  }

  ir::Kernel run() {
    if (grown_.empty()) return kernel_;
    ir::Kernel out = kernel_;
    for (const ir::Stmt& stmt : kernel_.body)
      if (const auto* decl = std::get_if<ir::DeclStmt>(&stmt.node)) make(decl->buffer);
    out.body = block(kernel_.body);
    for (const auto& [from, to] : made_)
      for (ir::Stmt& stmt : out.body) replace_uses(from, to, &stmt);
    return out;
  }

 private:
  // A class and what its axes grow to; none if they stay.
  std::optional<int64_t> grown(int number) const {
    const auto found = grown_.find(number);
    return found == grown_.end() ? std::nullopt : std::optional(found->second);
  }
  std::optional<int64_t> grown(const ir::Buffer* tile, size_t axis) { return grown(classes_.of(tile, axis)); }

  using Side = std::pair<const ir::TileRef*, size_t>;  // an operand and its axis along k
  static std::vector<Side> sides_of(const ir::GemmStmt& gemm) {
    return {{&gemm.a, gemm.transpose_a ? 0 : 1}, {&gemm.b, gemm.transpose_b ? 1 : 0}};
  }

  void want(const ir::GemmStmt& gemm, int64_t groups, bool wide) {
    std::vector<std::pair<int, int64_t>> wanted;
    const auto wants = [&](const ir::Buffer& tile, size_t axis, int64_t to) {
      const int64_t extent = tile.shape[axis]->int_value;
      if (extent == to) return true;
      const int number = classes_.of(&tile, axis);
      wanted.emplace_back(number, to);
      return extent >= kFewestGrown && classes_.may_grow(number);
    };
    const auto [a, depth] = sides_of(gemm)[0];
    const ir::Buffer& c = *gemm.c.buffer;
    const int64_t k = a->buffer->shape[depth]->int_value;
    const SumShape least = {rounded_up(c.shape[0]->int_value, kMmaRows),
                            rounded_up(c.shape[1]->int_value, kMmaColumns)};
    const SumShape sums = wide ? shared_by_groups(least, gemm, groups) : least_shared(least, warps_);
    if (!wants(*a->buffer, depth, rounded_up(k, depth_unit(a->buffer->type.dtype)))) return;
    const size_t of_depth = wanted.size();
    if (!wants(c, 0, sums.rows) || !wants(c, 1, sums.columns)) {
      wanted.resize(of_depth);
      if (!wants(c, 0, least.rows) || !wants(c, 1, least.columns)) return;
    }
    for (const auto& [number, extent] : wanted) grown_[number] = std::max(grown_[number], extent);
  }

  // What a tile's element at these places is, or zero behind the last one along k.
  ExprRef cleared(const ir::Buffer& tile, const std::vector<ExprRef>& places, ExprRef value) const {
    const auto found = cleared_.find(&tile);
    if (found == cleared_.end() || planted(Planted::kGrownDepth)) return value;
    const ExprRef zero = ir::is_float(value->type) ? ir::make_float(0) : ir::make_int(0, value->type);
    for (const size_t axis : found->second)
      value =
          ir::make_typed(ir::Op::kSelect, {ir::make_typed(ir::Op::kLt, {places[axis], tile.shape[axis]}), value, zero});
    return value;
  }

  // Stores have to be bounded, of packed elements nothing more is read, and no tile grows beyond the results that it
  // gets.
  void check(const ir::CopyStmt& copy) {
    const ir::Buffer &dst = *copy.dst.buffer, &src = *copy.src.buffer;
    for (size_t axis = 0; results_.count(&src) && axis < dst.shape.size(); ++axis)
      if (grown(&dst, axis) && grown(&dst, axis) != grown(&src, axis)) grown_.erase(classes_.of(&dst, axis));
    each_pair(copy, [&](const ir::TileRef& tile, size_t axis, const ir::TileRef& tensor, size_t other) {
      if (!grown(tile.buffer.get(), axis)) return;
      const bool stores = &tile == &copy.src;
      const bool bounded = bound(tensor, other, *tile.buffer->shape[axis]) || may_store_elements(copy);
      if (tensor.buffer->packed || (stores && !bounded)) grown_.erase(classes_.of(tile.buffer.get(), axis));
    });
  }
  // Calls fn(tile, its axis, tensor, its axis) for the axes of a tile and a tensor that are copied one to another.
  template <class Fn>
  static void each_pair(const ir::CopyStmt& copy, const Fn& fn) {
    const bool stores = copy.dst.buffer->scope == ir::Scope::kGlobal;
    const ir::TileRef &tensor = stores ? copy.dst : copy.src, &tile = stores ? copy.src : copy.dst;
    if (tensor.buffer->scope != ir::Scope::kGlobal || tile.buffer->scope == ir::Scope::kGlobal) return;
    const std::vector<size_t> own = kept_axes(tile), others = kept_axes(tensor);
    for (size_t i = 0; i < own.size() && i < others.size(); ++i) fn(tile, own[i], tensor, others[i]);
  }
  enum class Bound { kByTensor, kWithin };
  // What keeps elements behind the last one from being stored; none if nothing does.
  static std::optional<Bound> bound(const ir::TileRef& tensor, size_t axis, const ir::Expr& extent) {
    const AxisSpec& spec = tensor.axes[axis];
    if (ends_with_tensor(tensor, axis, extent.int_value)) return Bound::kByTensor;
    if (spec.kind != AxisSpec::Kind::kRange || kept_axes(tensor)[0] != axis || tensor.within_first) return std::nullopt;
    return Bound::kWithin;
  }

  // Whether a region can store what the copy stores of a tile; two elements a byte are a copy's.
  static bool may_store_elements(const ir::CopyStmt& copy) {
    const ir::TileRef& to = copy.dst;
    return copy.atomic == ir::AtomicOp::kNone && ir::bits(to.buffer->type.dtype) >= 8 && !to.within_first &&
           has_whole_axes(copy.src) && kept_axes(to).size() == copy.src.axes.size() &&
           std::none_of(to.axes.begin(), to.axes.end(),
                        [](const AxisSpec& axis) { return axis.kind == AxisSpec::Kind::kGather; });
  }
  // Whether a copy of some rows of a tensor can be told where they end.
  static bool may_be_cut(const ir::Stmt& stmt, const ir::Buffer& tile, size_t axis) {
    const auto* copy = std::get_if<ir::CopyStmt>(&stmt.node);
    if (!copy || copy->dst.buffer.get() != &tile) return false;
    const ir::TileRef& from = copy->src;
    const std::vector<size_t> own = kept_axes(copy->dst), others = kept_axes(from);
    return from.buffer->scope == ir::Scope::kGlobal && has_whole_axes(copy->dst) && !from.within_first && !from.pad &&
           !own.empty() && own[0] == axis && others.size() == own.size() &&
           from.axes[others[0]].kind == AxisSpec::Kind::kRange;
  }

  void make(const BufferRef& tile) {
    auto made = std::make_shared<ir::Buffer>(*tile);
    bool changed = false;
    for (size_t i = 0; i < tile->shape.size(); ++i)
      if (const auto extent = grown(tile.get(), i)) {
        made->shape[i] = ir::make_int(*extent, tile->shape[i]->type);
        changed = true;
      }
    if (changed) made_[tile] = made;
  }

  ir::IterVar iteration(const ir::IterVar& iter) {
    const auto extent = grown(classes_.of(iter.var.get()));
    return extent ? ir::IterVar{iter.var, ir::make_int(*extent, iter.extent->type)} : iter;
  }
  // Reductions over a grown axis leave out what has been added.
  ExprRef value(const ExprRef& expr) {
    return ir::rewrite(expr, [this](const ExprRef& node) -> ExprRef {
      if (node->kind != ir::ExprKind::kReduce) return node;
      auto made = std::make_shared<ir::Expr>(*node);
      for (ir::IterVar& iter : made->iters) {
        const ir::IterVar before = std::exchange(iter, iteration(iter));
        if (iter.extent == before.extent || planted(Planted::kGrownReduced)) continue;
        const ExprRef there = ir::make_typed(ir::Op::kLt, {ir::make_var(iter.var), before.extent});
        made->args[0] =
            ir::make_typed(ir::Op::kSelect, {there, made->args[0], neutral_element(node->reduce, made->args[0]->type)});
      }
      return made;
    });
  }

  ir::Block block(const ir::Block& body) {
    ir::Block out;
    for (ir::Stmt stmt : body) {
      if (auto* decl = std::get_if<ir::DeclStmt>(&stmt.node))
        if (const auto made = made_.find(decl->buffer); made != made_.end()) decl->buffer = made->second;
      if (auto* let = std::get_if<ir::LetStmt>(&stmt.node)) let->value = value(let->value);
      if (auto* loop = std::get_if<ir::ForStmt>(&stmt.node)) loop->body = block(loop->body);
      if (auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) {
        branch->condition = value(branch->condition);
        branch->then_body = block(branch->then_body);
        branch->else_body = block(branch->else_body);
      }
      if (auto* region = std::get_if<ir::ParallelStmt>(&stmt.node)) {
        for (ir::IterVar& iter : region->iters) iter = iteration(iter);
        rewrite_region(&region->body, [this](const ExprRef& expr) { return value(expr); });
        for (ir::Stmt& inner : region->body)
          if (auto* assign = std::get_if<ir::AssignStmt>(&inner.node))
            assign->value = cleared(*assign->buffer, assign->indices, assign->value);
      }
      if (const auto* copy = std::get_if<ir::CopyStmt>(&stmt.node);
          copy && cleared_.count(copy->dst.buffer.get()) && copy->src.buffer->scope != ir::Scope::kGlobal) {
        out.push_back({stmt.loc, cleared_copy(*copy)});
        continue;
      }
      if (const auto* copy = std::get_if<ir::CopyStmt>(&stmt.node);
          copy && results_.count(copy->src.buffer.get()) && is_grown(*copy->src.buffer)) {
        out.push_back({stmt.loc, bounded_copy(*copy)});
        continue;
      }
      if (const auto* copy = std::get_if<ir::CopyStmt>(&stmt.node); copy && stores_elements(*copy)) {
        out.push_back({stmt.loc, store(*copy)});
        continue;
      }
      if (auto* copy = std::get_if<ir::CopyStmt>(&stmt.node)) {
        const ir::CopyStmt before = *copy;
        each_pair(before, [&](const ir::TileRef& tile, size_t axis, const ir::TileRef&, size_t other) {
          if (grown(tile.buffer.get(), axis)) grow(*tile.buffer, axis, other, &tile == &before.src, copy);
        });
        for (ir::TileRef* tile : {&copy->dst, &copy->src}) whole(tile);
      }
      if (auto* fill = std::get_if<ir::FillStmt>(&stmt.node)) whole(&fill->dst);
      if (auto* gemm = std::get_if<ir::GemmStmt>(&stmt.node))
        for (ir::TileRef* tile : {&gemm->c, &gemm->a, &gemm->b}) whole(tile);
      out.push_back(std::move(stmt));
    }
    return out;
  }
  bool is_grown(const ir::Buffer& tile) {
    for (size_t axis = 0; axis < tile.shape.size(); ++axis)
      if (grown(&tile, axis)) return true;
    return false;
  }
  // A region over all elements of a tile as it is now, and their places.
  ir::ParallelStmt over(const ir::Buffer& tile, std::vector<ExprRef>* places) {
    std::vector<ExprRef> shape = tile.shape;
    for (size_t axis = 0; axis < shape.size(); ++axis)
      if (const auto extent = grown(&tile, axis)) shape[axis] = ir::make_int(*extent, ir::DType::I64);
    return region_over(shape, places);
  }
  // Of one tile to another, both whole.
  ir::ParallelStmt cleared_copy(const ir::CopyStmt& copy) {
    std::vector<ExprRef> places;
    ir::ParallelStmt region = over(*copy.dst.buffer, &places);
    ir::AssignStmt assign{copy.dst.buffer, places};
    assign.value = cleared(*copy.dst.buffer, places, ir::make_load(copy.src.buffer, places));
    region.body.push_back({copy.dst.loc, std::move(assign)});
    return region;
  }
  // The same to a tile that has not grown as far.
  ir::ParallelStmt bounded_copy(const ir::CopyStmt& copy) {
    const ir::Buffer &from = *copy.src.buffer, &to = *copy.dst.buffer;
    std::vector<ExprRef> places;
    ir::ParallelStmt region = over(from, &places);
    ir::IfStmt inside;
    for (size_t axis = 0; axis < places.size(); ++axis) {
      const int64_t there = grown(&to, axis).value_or(to.shape[axis]->int_value);
      if (there >= region.iters[axis].extent->int_value || planted(Planted::kGrownStored)) continue;
      const ExprRef below = ir::make_typed(ir::Op::kLt, {places[axis], ir::make_int(there, ir::DType::I64)});
      inside.condition = inside.condition ? ir::make_typed(ir::Op::kAnd, {inside.condition, below}) : below;
    }
    ir::AssignStmt assign{copy.dst.buffer, places};
    assign.value = ir::make_load(copy.src.buffer, places);
    ir::Block& body = inside.condition ? inside.then_body : region.body;
    body.push_back({copy.dst.loc, std::move(assign)});
    if (inside.condition) region.body.push_back({copy.dst.loc, std::move(inside)});
    return region;
  }
  // Of a tile to a part of a tensor that goes on where the tile's own elements end.
  bool stores_elements(const ir::CopyStmt& copy) {
    bool unbounded = false;
    each_pair(copy, [&](const ir::TileRef& tile, size_t axis, const ir::TileRef& tensor, size_t other) {
      unbounded |=
          &tile == &copy.src && grown(tile.buffer.get(), axis) && !bound(tensor, other, *tile.buffer->shape[axis]);
    });
    return unbounded;
  }
  ir::ParallelStmt store(const ir::CopyStmt& copy) {
    const ir::Buffer& from = *copy.src.buffer;
    std::vector<ExprRef> places;
    ir::ParallelStmt region = planted(Planted::kGrownStored) ? over(from, &places) : region_over(from.shape, &places);
    ir::AssignStmt assign{copy.dst.buffer, {}};
    size_t next = 0;
    for (const AxisSpec& axis : copy.dst.axes) {
      const bool is_index = axis.kind == AxisSpec::Kind::kIndex;
      const ExprRef start = axis.start ? ir::make_cast({ir::DType::I64, nullptr}, axis.start) : nullptr;
      const ExprRef place = is_index ? nullptr : places[next++];
      assign.indices.push_back(is_index ? start : start ? ir::make_typed(ir::Op::kAdd, {start, place}) : place);
    }
    assign.value = ir::make_load(copy.src.buffer, places);
    region.body.push_back({copy.dst.loc, std::move(assign)});
    return region;
  }
  // Of an axis that grows there is all or an element.
  void whole(ir::TileRef* tile) {
    if (!made_.count(tile->buffer)) return;
    for (size_t i = 0; i < tile->axes.size(); ++i)
      if (tile->axes[i].kind == AxisSpec::Kind::kRange && grown(tile->buffer.get(), i)) tile->axes[i] = {};
  }
  void grow(const ir::Buffer& tile, size_t axis, size_t other, bool stores, ir::CopyStmt* copy) {
    ir::TileRef& tensor = stores ? copy->dst : copy->src;
    AxisSpec& spec = tensor.axes[other];
    if (stores && bound(tensor, other, *tile.shape[axis]) == Bound::kWithin && !planted(Planted::kGrownStored)) {
      tensor.within_first = spec.start;
      tensor.within_length = tile.shape[axis];
    }
    const auto cleared = cleared_.find(&tile);
    const bool is_cut = !stores && cleared != cleared_.end() && cleared->second.count(axis) &&
                        !ends_with_tensor(tensor, other, tile.shape[axis]->int_value);
    if (is_cut && !planted(Planted::kGrownDepth)) {
      tensor.within_first = spec.start;
      tensor.within_length = tile.shape[axis];
    }
    const ExprRef start = spec.kind == AxisSpec::Kind::kWhole ? ir::make_int(0, ir::DType::I64) : spec.start;
    spec = {AxisSpec::Kind::kRange, start, ir::make_int(*grown(&tile, axis), ir::DType::I64), nullptr};
  }

  int64_t warps_ = 0;  // that share sums
  const ir::Kernel& kernel_;
  const BufferSet& results_;
  AxisClasses classes_;
  std::map<int, int64_t> grown_;
  std::vector<const ir::CopyStmt*> copies_;
  std::vector<const ir::GemmStmt*> gemms_;
  std::map<const ir::Buffer*, std::set<size_t>> cleared_;  // operands of which k grows, and their axes along it
  std::map<BufferRef, BufferRef> made_;
};

}  // namespace

ir::Kernel padded_axes(const ir::Kernel& kernel, const Target& target, const BufferSet& results, bool wide) {
  return Padder(kernel, target, results, wide).run();
}

}  // namespace kachel::lowering
