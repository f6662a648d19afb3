#include "lowering/tile_ir/equal_parts.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "ir/instantiate.h"
#include "ir/visit.h"
#include "lowering/planted.h"
#include "lowering/tile_ir/hoist_reductions.h"
#include "lowering/tile_ir/hoist_scans.h"
#include "lowering/tile_ir/part_access.h"
#include "lowering/tile_ir/reduce_ops.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

using ir::BufferRef;
using ir::ExprKind;
using ir::ExprRef;

// By axis of a fragment: how much of it iterations run over. 0: an access of another form.
using Extents = std::map<std::pair<const ir::Buffer*, size_t>, std::set<int64_t>>;

// Calls access(buffer, indices) for all that a region reads and writes.
template <class Access>
void each_access(const ir::Block& body, const Access& access) {
  for_each_node(body, [&](const ExprRef& node) {
    if (node->kind == ExprKind::kLoad) access(node->buffer, node->args);
  });
  ir::for_each_stmt(body, [&](const ir::Stmt& stmt) {
    if (const auto* assign = std::get_if<ir::AssignStmt>(&stmt.node)) access(assign->buffer, assign->indices);
  });
}

class Collector {
 public:
  explicit Collector(const ir::Block& body) { block(body); }
  const Extents& extents() const { return extents_; }

 private:
  void block(const ir::Block& body) {
    for (const ir::Stmt& stmt : body) {
      if (const auto* region = std::get_if<ir::ParallelStmt>(&stmt.node)) {
        iters_.clear();
        note(region->iters);
        for_each_node(region->body, [this](const ExprRef& node) {
          if (node->kind == ExprKind::kReduce) note(node->iters);
        });
        each_access(region->body,
                    [this](const BufferRef& buffer, const std::vector<ExprRef>& indices) { access(buffer, indices); });
      }
      if (const auto* loop = std::get_if<ir::ForStmt>(&stmt.node)) block(loop->body);
      if (const auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) block(branch->then_body), block(branch->else_body);
    }
  }
  void note(const std::vector<ir::IterVar>& iters) {
    for (const ir::IterVar& iter : iters)
      iters_[iter.var.get()] = ir::is_const(iter.extent) ? iter.extent->int_value : 0;
  }
  void access(const BufferRef& buffer, const std::vector<ExprRef>& indices) {
    if (buffer->scope != ir::Scope::kFragment) return;
    for (size_t axis = 0; axis < indices.size(); ++axis) {
      const std::optional<Place> place = place_of(indices[axis]);
      const auto found = place ? iters_.find(place->var.get()) : iters_.end();
      const bool fits = found != iters_.end() && found->second > 0 && place->offset % found->second == 0;
      extents_[{buffer.get(), axis}].insert(fits ? found->second : 0);
    }
  }

  std::map<const ir::Var*, int64_t> iters_;
  Extents extents_;
};

class Parter {
 public:
  explicit Parter(const Extents& extents) : extents_(extents) {}

  ir::Block block(const ir::Block& body) {
    ir::Block out;
    for (const ir::Stmt& stmt : body) {
      ir::Stmt made = stmt;
      if (auto* region = std::get_if<ir::ParallelStmt>(&made.node)) {
        rewrite_region(&region->body, [this](const ExprRef& expr) { return reductions(expr); });
        if (parts(stmt.loc, *region, &out)) continue;
      } else {
        replace_blocks(&made, [this](const ir::Block& inner) { return block(inner); });
      }
      out.push_back(std::move(made));
    }
    return out;
  }

 private:
  // The part of an axis that iterations over all of it are to run over, if accesses at `iter` are to a fragment of
  // which other regions access such parts; 0: they are not.
  int64_t part_of(const ir::IterVar& iter, const std::vector<ExprRef>& indices, const ir::Buffer* buffer) const {
    for (size_t axis = 0; axis < indices.size(); ++axis) {
      if (indices[axis]->kind != ExprKind::kVar || indices[axis]->var != iter.var) continue;
      const auto found = extents_.find({buffer, axis});
      if (found == extents_.end() || found->second.size() != 2) continue;
      const int64_t part = *found->second.begin(), whole = *found->second.rbegin();
      const bool is_whole =
          ir::is_const(iter.extent) && iter.extent->int_value == whole && buffer->shape[axis]->int_value == whole;
      if (is_whole && part > 0 && whole % part == 0 && whole / part <= kMostParts) return part;
    }
    return 0;
  }
  // The smallest for all that `each` shows; 0 where there is none.
  template <class Each>
  int64_t smallest(const ir::IterVar& iter, const Each& each) const {
    int64_t part = 0;
    each([&](const BufferRef& buffer, const std::vector<ExprRef>& indices) {
      const int64_t its = part_of(iter, indices, buffer.get());
      if (its && (!part || its < part)) part = its;
    });
    return part;
  }
  static ExprRef moved(const ir::VarRef& var, int64_t offset) {
    const ExprRef value = ir::make_var(var);
    if (offset == 0 || planted(Planted::kEqualParts)) return value;
    return ir::make_typed(ir::Op::kAdd, {value, ir::make_int(offset, var->type.dtype)});
  }

  ExprRef reductions(const ExprRef& value) const {
    return ir::rewrite(value, [this](const ExprRef& node) {
      if (node->kind != ExprKind::kReduce || node->iters.size() != 1) return node;
      const ir::IterVar& iter = node->iters[0];
      const int64_t part = smallest(iter, [&](const auto& access) {
        ir::visit(node->args[0], [&](const ExprRef& inner) {
          if (inner->kind == ExprKind::kLoad) access(inner->buffer, inner->args);
        });
      });
      return part ? folded(*node, part) : node;
    });
  }
  static ExprRef folded(const ir::Expr& reduction, int64_t part) {
    const ir::IterVar& iter = reduction.iters[0];
    ExprRef body;
    for (int64_t first = 0; first < iter.extent->int_value; first += part) {
      const ExprRef one = ir::fold(substituted(reduction.args[0], iter.var, moved(iter.var, first)));
      body = body ? combined(reduction.reduce, body, one) : one;
    }
    return ir::make_reduce(reduction.reduce, {{iter.var, ir::make_int(part, iter.extent->type)}}, body);
  }

  // A region for each part of the axis, one after the other: which they may be where an iteration reads of what the
  // region writes nothing but what it writes itself.
  bool parts(ir::Loc loc, const ir::ParallelStmt& region, ir::Block* out) {
    if (reduction_of(region) || scan_of(region)) return false;  // one of a part would be of another form
    for (size_t axis = 0; axis < region.iters.size(); ++axis) {
      const ir::IterVar iter = region.iters[axis];
      const int64_t part = smallest(iter, [&](const auto& access) { each_access(region.body, access); });
      if (!part || !keeps_to_its_own(region)) continue;
      for (int64_t first = 0; first < iter.extent->int_value; first += part) {
        ir::ParallelStmt one{region.iters, substituted(region.body, iter.var, moved(iter.var, first))};
        one.iters[axis].extent = ir::make_int(part, iter.extent->type);
        out->push_back({loc, std::move(one)});
      }
      return true;
    }
    return false;
  }
  static bool keeps_to_its_own(const ir::ParallelStmt& region) {
    std::map<const ir::Buffer*, std::vector<ExprRef>> written;
    bool own = true;
    const auto is_same = [&](const std::vector<ExprRef>& a, const std::vector<ExprRef>& b) {
      return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                        [](const auto& x, const auto& y) { return ir::same(x, y); });
    };
    ir::for_each_stmt(region.body, [&](const ir::Stmt& stmt) {
      if (const auto* assign = std::get_if<ir::AssignStmt>(&stmt.node)) {
        const auto [known, first] = written.try_emplace(assign->buffer.get(), assign->indices);
        own &= first || is_same(known->second, assign->indices);
      }
    });
    for_each_node(region.body, [&](const ExprRef& node) {
      if (node->kind != ExprKind::kLoad) return;
      const auto found = written.find(node->buffer.get());
      own &= found == written.end() || is_same(found->second, node->args);
    });
    return own;
  }

  const Extents& extents_;
};

}  // namespace

ir::Kernel equal_parts(const ir::Kernel& kernel) {
  const Collector collected(kernel.body);
  ir::Kernel out = kernel;
  out.body = Parter(collected.extents()).block(kernel.body);
  return out;
}

}  // namespace kachel::lowering
