#include "lowering/tile_ir/exchanges.h"

#include <algorithm>
#include <bit>
#include <map>
#include <utility>
#include <vector>

#include "ir/parallel.h"
#include "ir/tunable_role.h"
#include "ir/visit.h"
#include "lowering/planted.h"
#include "lowering/tile_ir/exchange_loops.h"
#include "lowering/tile_ir/hoist_reductions.h"
#include "lowering/tile_ir/region_hoister.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

using ir::ExprKind;
using ir::ExprRef;
using ir::Op;

bool is_single_bit(int64_t value) {
  return value > 0 && std::has_single_bit(static_cast<uint64_t>(value));
}

// A place along an axis as another one of its own: always, or where a bit of its own place is set or is not.
struct Place {
  enum class When : uint8_t { kAlways, kSet, kNotSet } when = When::kAlways;
  int64_t bits = 0;
};

// Of `index` where the iteration's own place is `var`, on an axis of `extent` elements. Nothing: of another form.
std::optional<Place> place_of(const ExprRef& index, const ir::VarRef& var, int64_t extent) {
  if (index->kind != ExprKind::kApply || index->args.size() != 2 || !is_single_bit(extent)) return std::nullopt;
  const auto is_own = [&](const ExprRef& expr) { return expr->kind == ExprKind::kVar && expr->var == var; };
  const auto within = [&](int64_t bits) { return bits > 0 && bits < extent; };
  if (index->op == Op::kMod && ir::is_int(index->args[1], extent)) {  // (d + half) % all
    const ExprRef& sum = index->args[0];
    const bool half = sum->kind == ExprKind::kApply && sum->op == Op::kAdd && is_own(sum->args[0]) &&
                      ir::is_int(sum->args[1], extent / 2) && extent > 1;
    return half ? std::optional(Place{Place::When::kAlways, extent / 2}) : std::nullopt;
  }
  const bool first = index->args[0]->kind == ExprKind::kInt;
  const ExprRef &number = index->args[first ? 0 : 1], &own = index->args[first ? 1 : 0];
  if (number->kind != ExprKind::kInt || !is_own(own)) return std::nullopt;
  const int64_t value = number->int_value;
  if (index->op == Op::kBitXor && within(value)) return Place{Place::When::kAlways, value};
  if (index->op == Op::kSub && first && value == extent - 1 && within(value)) return Place{Place::When::kAlways, value};
  if (index->op == Op::kBitOr && within(value) && is_single_bit(value)) return Place{Place::When::kNotSet, value};
  const int64_t cleared = ~value & (extent - 1);
  if (index->op == Op::kBitAnd && within(cleared) && is_single_bit(cleared)) return Place{Place::When::kSet, cleared};
  return std::nullopt;
}

// A load of a tile by iterations that are its elements, all but one axis at their own place.
struct Found {
  std::vector<ir::IterVar> iters;  // in the order of the tile's axes
  size_t axis = 0;
  Place place;
};

std::optional<Found> find(const ir::Expr& load, const std::vector<ir::IterVar>& iters) {
  if (load.kind != ExprKind::kLoad || load.buffer->scope == ir::Scope::kGlobal) return std::nullopt;
  Found found;
  for (size_t axis = 0; axis < load.args.size(); ++axis) {
    const ExprRef& index = load.args[axis];
    const auto along = std::find_if(iters.begin(), iters.end(), [&](const ir::IterVar& iter) {
      return ir::same(iter.extent, load.buffer->shape[axis]) && ir::mentions(index, iter.var);
    });
    if (along == iters.end()) return std::nullopt;
    for (const ir::IterVar& before : found.iters)
      if (before.var == along->var) return std::nullopt;
    found.iters.push_back(*along);
    if (index->kind == ExprKind::kVar) continue;
    const std::optional<Place> place = place_of(index, along->var, along->extent->int_value);
    if (!place || found.place.bits) return std::nullopt;
    found.place = *place;
    found.axis = axis;
  }
  return found.place.bits ? std::optional(std::move(found)) : std::nullopt;
}

class Exchanges : public RegionHoister {
  bool hoists(const ExprRef& expr, const Iters& iters, const Lets& lets) const override {
    return expr->kind == ExprKind::kLoad && expr->buffer->scope != ir::Scope::kGlobal &&
           find(*inline_lets(expr, lets), iters).has_value();
  }
  bool stays(const ir::ParallelStmt& region) const override {
    const auto computed = [](const ir::Expr& expr) {
      return expr.kind == ExprKind::kLoad && expr.buffer->scope != ir::Scope::kGlobal &&
             std::any_of(expr.args.begin(), expr.args.end(), [](const ExprRef& index) {
               return index->kind == ExprKind::kApply ||
                      (index->kind == ExprKind::kVar && index->var->kind == ir::VarKind::kLet);
             });
    };
    if (exchange_of(region) || !holds(region, computed)) return true;
    const ir::ForwardedRegion forwarded = ir::forward_stores(region);
    Lets lets;
    bool found = false;
    for (const ir::LetStmt& let : forwarded.lets) {
      ir::visit(let.value, [&](const ExprRef& node) { found |= hoists(node, region.iters, lets); });
      lets[let.var.get()] = inline_lets(let.value, lets);
    }
    return !found;
  }

  ExprRef hoisted(const ExprRef& load, const Iters& iters) override {
    for (const auto& [before, tile] : made_)
      if (ir::same(before, load)) return tile;
    const Found found = *find(*load, iters);
    const std::vector<ExprRef> own = places(found.iters);
    std::vector<ExprRef> other = own;
    ExprRef& along = other[found.axis];
    const ExprRef bits = ir::make_int(found.place.bits, along->type);
    const ExprRef set =
        ir::make_typed(Op::kNe, {ir::make_typed(Op::kBitAnd, {along, bits}), ir::make_int(0, along->type)});
    along = ir::make_typed(Op::kBitXor, {along, bits});
    const ir::BufferRef tile = tile_for(load->buffer, found.iters);
    push_region(tile, ir::make_load(load->buffer, other), found.iters);
    ExprRef result = ir::make_load(tile, own);
    if (found.place.when != Place::When::kAlways && !planted(Planted::kExchangeAlways)) {
      const ExprRef here = ir::make_load(load->buffer, own);
      const bool if_set = found.place.when == Place::When::kSet;
      result = ir::make_typed(Op::kSelect, {set, if_set ? result : here, if_set ? here : result});
    }
    made_.emplace_back(load, result);
    return result;
  }
  void passed(const ir::Stmt&) override {
    made_.clear();
    taken_.clear();
  }
  // Regions that follow each other use the same tiles for what they exchange of one.
  ir::BufferRef tile_for(const ir::BufferRef& from, const Iters& iters) {
    std::vector<ir::BufferRef>& tiles = tiles_[from.get()];
    const size_t number = taken_[from.get()]++;
    if (number == tiles.size()) tiles.push_back(make_tile("exchanged", ir::Scope::kFragment, from->type.dtype, iters));
    return tiles[number];
  }

  std::vector<std::pair<ExprRef, ExprRef>> made_;  // for the region at hand: loads, and what took their places
  std::map<const ir::Buffer*, std::vector<ir::BufferRef>> tiles_;
  std::map<const ir::Buffer*, size_t> taken_;  // of those, by the region at hand
};

// Shared tiles that are used by exchanges and in their own order alone.
class Promotion {
 public:
  explicit Promotion(const ir::Kernel& kernel) {
    ir::for_each_stmt(kernel.body, [this](const ir::Stmt& stmt) {
      const auto* region = std::get_if<ir::ParallelStmt>(&stmt.node);
      const auto exchange = region ? exchange_of(*region) : std::nullopt;
      if (exchange && exchange->from->scope == ir::Scope::kShared) to_[exchange->from.get()] = exchange->from;
    });
    block(kernel.body, false);
  }

  ir::Kernel run(const ir::Kernel& kernel) {
    ir::Kernel out = kernel;
    for (const auto& [tile, ref] : to_) {
      auto fragment = std::make_shared<ir::Buffer>(*ref);
      fragment->scope = ir::Scope::kFragment;
      for (ir::Stmt& stmt : out.body) {
        auto* decl = std::get_if<ir::DeclStmt>(&stmt.node);
        if (decl && decl->buffer == ref)
          decl->buffer = fragment;
        else
          replace_uses(ref, fragment, &stmt);
      }
    }
    return out;
  }

 private:
  void drop(const ExprRef& expr) {
    ir::visit(expr, [this](const ExprRef& node) {
      if (node->kind == ExprKind::kLoad) to_.erase(node->buffer.get());
    });
  }
  void drop(const ir::TileRef& tile) { to_.erase(tile.buffer.get()); }

  void block(const ir::Block& body, bool pipelined) {
    for (const ir::Stmt& stmt : body) {
      if (const auto* region = std::get_if<ir::ParallelStmt>(&stmt.node)) {
        this->region(*region);
        continue;
      }
      ir::for_each_expr(stmt, [this](const ExprRef& expr) { drop(expr); });
      const auto* copy = std::get_if<ir::CopyStmt>(&stmt.node);
      ir::for_each_tile(stmt, [&](const ir::TileRef& tile, bool written) {
        if (!copy || (written && pipelined) || !has_whole_axes(tile) || tile.axes.size() != kept_axes(tile).size())
          drop(tile);
      });
      if (const auto* loop = std::get_if<ir::ForStmt>(&stmt.node)) block(loop->body, pipelined || loop->pipelined);
      if (const auto* branch = std::get_if<ir::IfStmt>(&stmt.node))
        block(branch->then_body, pipelined), block(branch->else_body, pipelined);
    }
  }
  void region(const ir::ParallelStmt& region) {
    if (exchange_of(region)) return;
    const auto own = [&](const ir::BufferRef& buffer, const std::vector<ExprRef>& indices) {
      std::vector<ir::VarRef> seen;
      for (size_t axis = 0; axis < indices.size(); ++axis) {
        const auto along = std::find_if(region.iters.begin(), region.iters.end(), [&](const ir::IterVar& iter) {
          return indices[axis]->kind == ExprKind::kVar && indices[axis]->var == iter.var;
        });
        if (along == region.iters.end() || !ir::same(along->extent, buffer->shape[axis]) ||
            std::count(seen.begin(), seen.end(), along->var))
          return false;
        seen.push_back(along->var);
      }
      return true;
    };
    for_each_node(region.body, [&](const ExprRef& node) {
      if (node->kind == ExprKind::kLoad && !own(node->buffer, node->args)) to_.erase(node->buffer.get());
    });
    ir::for_each_stmt(region.body, [&](const ir::Stmt& stmt) {
      const auto* assign = std::get_if<ir::AssignStmt>(&stmt.node);
      if (assign && (assign->atomic != ir::AtomicOp::kNone || !own(assign->buffer, assign->indices)))
        to_.erase(assign->buffer.get());
    });
  }

  std::map<const ir::Buffer*, ir::BufferRef> to_;
};

}  // namespace

std::optional<Exchange> exchange_of(const ir::ParallelStmt& region) {
  RegionStep step = step_of(region);
  const auto* assign = region.body.size() == 1 ? std::get_if<ir::AssignStmt>(&region.body[0].node) : nullptr;
  if (assign && assign->op == ir::AssignOp::kSet && assign->atomic == ir::AtomicOp::kNone)
    step = {assign, assign->value};
  if (!step.store || step.value->kind != ExprKind::kLoad) return std::nullopt;
  const ir::BufferRef &to = step.store->buffer, &from = step.value->buffer;
  if (to->scope != ir::Scope::kFragment || to->type != from->type ||
      !is_own_element(ir::make_load(to, step.store->indices), region.iters))
    return std::nullopt;
  const std::optional<Found> found = find(*step.value, region.iters);
  if (!found || found->place.when != Place::When::kAlways || found->iters.size() != region.iters.size())
    return std::nullopt;
  for (size_t axis = 0; axis < region.iters.size(); ++axis)
    if (found->iters[axis].var != region.iters[axis].var) return std::nullopt;
  return Exchange{to, from, found->axis, found->place.bits};
}

int64_t exchanged_elements(const ir::Kernel& kernel) {
  int64_t all = 0;
  ir::for_each_stmt(kernel.body, [&](const ir::Stmt& stmt) {
    const auto* region = std::get_if<ir::ParallelStmt>(&stmt.node);
    const auto exchange = region ? exchange_of(*region) : std::nullopt;
    if (exchange) all += elements_of(*exchange->to);
  });
  return all;
}

ir::Kernel hoist_exchanges(const ir::Kernel& kernel, int threads) {
  constexpr int64_t kMostThreads = 1024;
  const ir::Kernel hoisted = Exchanges().run(write_out_exchanges(kernel));
  if (exchanged_elements(hoisted) > kMostExchanged * (threads ? threads : kMostThreads)) return kernel;
  return Promotion(hoisted).run(hoisted);
}

}  // namespace kachel::lowering
