#include "derive/free_tunables.h"

#include <map>

#include "derive/lets.h"
#include "ir/concrete.h"
#include "ir/poly.h"
#include "ir/tunable_role.h"
#include "ir/visit.h"

namespace kachel::derive {

using namespace ir;

namespace {

const Var* tunable_of(const ExprRef& expr) {
  return expr && expr->kind == ExprKind::kVar && expr->var->kind == VarKind::kTunable ? expr->var.get() : nullptr;
}

ExprRef extent_of_matrix(const TileRef& tile, int which) {
  for (size_t axis = 0; axis < tile.axes.size(); ++axis)
    if (is_tile_axis(tile.axes[axis]) && which-- == 0) return axis_extent(tile, axis);
  return nullptr;
}

// Every use that is not one of the allowed ones fixes the tunables, and those whose blocks or indices it names.
class Uses {
 public:
  explicit Uses(const Kernel& kernel) {
    lets_.define_all(kernel.body);
    for_each_stmt(kernel.body, [this](const Stmt& stmt) {
      for_each_tile(stmt, [this](const TileRef& tile, bool written) {
        if (written && tile.buffer->scope == Scope::kGlobal) written_.insert(tile.buffer.get());
      });
      const auto* assign = std::get_if<AssignStmt>(&stmt.node);
      if (assign && assign->buffer->scope == Scope::kGlobal) written_.insert(assign->buffer.get());
    });
    for (const IterVar& axis : kernel.grid) count(axis);
    for (const Param& param : kernel.params)
      if (param.tensor)
        for (const ExprRef& extent : param.tensor->shape) fix(extent);
    block(kernel.body);
  }

  bool complete() const { return lets_.complete(); }
  bool counted(const Var* tunable) const { return counts_.count(tunable) && !fixed_.count(tunable); }
  bool fixed(const Var* tunable) const { return fixed_.count(tunable) > 0; }

 private:
  struct Count {
    ExprRef first;  // element of a block, v*E
    ExprRef all;    // elements
  };

  void count(const IterVar& axis) {
    const Expr& extent = *axis.extent;
    const Var* tunable =
        extent.kind == ExprKind::kApply && extent.op == Op::kCeilDiv ? tunable_of(extent.args[1]) : nullptr;
    if (!tunable || counts_.count(tunable)) return fix(axis.extent);
    counts_[tunable] = {make_apply(Op::kMul, {make_var(axis.var), extent.args[1]}), extent.args[0]};
    fix(extent.args[0]);
    counted_[axis.var.get()] = tunable;
  }

  void fix(const Var* var) {
    if (var->kind == VarKind::kTunable) fixed_.insert(var);
    if (const auto found = counted_.find(var); found != counted_.end()) fixed_.insert(found->second);
  }
  void fix(const ExprRef& expr) {
    if (!expr) return;
    visit(lets_.expanded(expr), [&](const ExprRef& node) {
      if (node->kind == ExprKind::kVar) fix(node->var.get());
      // An element of a tile is another one where the tile is cut otherwise.
      if (node->kind == ExprKind::kLoad && node->buffer->scope != Scope::kGlobal)
        for (const ExprRef& extent : node->buffer->shape) fix(extent);
    });
  }

  // Extents of the axes of one tile, or of the indices of one region: a tunable may be one of them.
  void extents(const std::vector<ExprRef>& shape) {
    std::set<const Var*> seen;
    for (const ExprRef& extent : shape) {
      const Var* tunable = tunable_of(extent);
      if (!tunable || !seen.insert(tunable).second) fix(extent);
    }
  }

  void block(const Block& statements) {
    for (const Stmt& stmt : statements) {
      for_each_tile(stmt, [&](const TileRef& tile, bool written) { slice(tile, written); });
      if (const auto* decl = std::get_if<DeclStmt>(&stmt.node)) {
        extents(decl->buffer->shape);
        fix(decl->init);
      } else if (const auto* fill = std::get_if<FillStmt>(&stmt.node)) {
        fix(fill->value);
      } else if (const auto* gemm = std::get_if<GemmStmt>(&stmt.node)) {
        fix(extent_of_matrix(gemm->a, gemm->transpose_a ? 0 : 1));
        fix(extent_of_matrix(gemm->b, gemm->transpose_b ? 1 : 0));
      } else if (const auto* region = std::get_if<ParallelStmt>(&stmt.node)) {
        parallel(*region);
      } else if (const auto* loop = std::get_if<ForStmt>(&stmt.node)) {
        fix(loop->begin);
        fix(loop->end);
        if (!tunable_of(loop->stages)) fix(loop->stages);
        block(loop->body);
      } else if (const auto* branch = std::get_if<IfStmt>(&stmt.node)) {
        fix(branch->condition);
        block(branch->then_body);
        block(branch->else_body);
      }
    }
  }

  void slice(const TileRef& tile, bool written) {
    for (const ExprRef& each : {tile.within_first, tile.within_length, tile.pad}) fix(each);
    std::set<const Var*> own;
    for (size_t axis = 0; axis < tile.axes.size(); ++axis) {
      const AxisSpec& spec = tile.axes[axis];
      if (spec.kind == AxisSpec::Kind::kGather && written) fix(axis_extent(tile, axis));
      if (tile.buffer->scope != Scope::kGlobal && spec.kind != AxisSpec::Kind::kWhole) fix(tile.buffer->shape[axis]);
      const Var* tunable = spec.kind == AxisSpec::Kind::kRange ? tunable_of(spec.extent) : nullptr;
      const bool placed = tunable && tile.buffer->scope == Scope::kGlobal && starts_at(spec.start, tunable) &&
                          (!written || ends_at(*tile.buffer, axis, tunable));
      if (placed) own.insert(tunable);
      if (placed) continue;
      fix(spec.start);
      fix(spec.extent);
    }
    if (!written) read(*tile.buffer, own);
  }
  // Of a tensor that is written, too, blocks may read only what no other block writes, however they are cut.
  void read(const Buffer& tensor, const std::set<const Var*>& own) {
    if (!written_.count(&tensor)) return;
    for (const auto& [tunable, count] : counts_)
      if (!own.count(tunable)) fixed_.insert(tunable);
  }

  bool starts_at(const ExprRef& start, const Var* tunable) {
    const auto found = counts_.find(tunable);
    return found != counts_.end() && polys_.equal(lets_.expanded(start), found->second.first);
  }
  bool ends_at(const Buffer& tensor, size_t axis, const Var* tunable) {
    return polys_.equal(tensor.shape[axis], counts_.at(tunable).all);
  }

  void parallel(const ParallelStmt& region) {
    std::vector<ExprRef> shape;
    iters_.clear();
    for (const IterVar& iter : region.iters) {
      shape.push_back(iter.extent);
      if (const Var* tunable = tunable_of(iter.extent)) iters_[iter.var.get()] = {iter.var, tunable};
    }
    extents(shape);
    assignments(region.body);
  }

  void assignments(const Block& statements) {
    for (const Stmt& stmt : statements) {
      if (const auto* branch = std::get_if<IfStmt>(&stmt.node)) {
        value(lets_.expanded(branch->condition));
        assignments(branch->then_body);
        assignments(branch->else_body);
      } else if (const auto* assign = std::get_if<AssignStmt>(&stmt.node)) {
        value(lets_.expanded(assign->value));
        std::set<const Var*> set;
        element(*assign->buffer, assign->indices, true, &set);
        for (const auto& [iter, of] : iters_)
          if (!set.count(iter)) fixed_.insert(of.tunable);
      }
    }
  }

  // `along`: where to say which indices select it.
  void element(const Buffer& buffer, const std::vector<ExprRef>& indices, bool written, std::set<const Var*>* along) {
    std::set<const Var*> own;
    for (size_t axis = 0; axis < indices.size(); ++axis) {
      const ExprRef index = lets_.expanded(indices[axis]);
      const bool global = buffer.scope == Scope::kGlobal;
      const Var* iter = global ? coordinate(index) : index->kind == ExprKind::kVar ? index->var.get() : nullptr;
      const auto found = iter ? iters_.find(iter) : iters_.end();
      const Var* of = found == iters_.end() ? nullptr : found->second.tunable;
      if (of && (global ? !written || ends_at(buffer, axis, of) : tunable_of(buffer.shape[axis]) == of)) {
        if (along) along->insert(iter);
        own.insert(of);
        continue;
      }
      if (!global || written) fix(buffer.shape[axis]);
      if (of) fixed_.insert(of);
      value(index);
      const Var* high = written && global ? last_digit(index, buffer.shape[axis]) : nullptr;
      if (!high) continue;
      if (along) along->insert(high);
      own.insert(iters_.at(high).tunable);
    }
    if (!written) read(buffer, own);
  }

  // The index i of `v*E + i`; else null.
  const Var* coordinate(const ExprRef& node) {
    if (node->kind != ExprKind::kApply || (node->op != Op::kAdd && node->op != Op::kSub)) return nullptr;
    for (const auto& [iter, of] : iters_)
      if (const auto counted = counts_.find(of.tunable);
          counted != counts_.end() &&
          polys_.equal(node, make_apply(Op::kAdd, {counted->second.first, make_var(of.iter)})))
        return iter;
    return nullptr;
  }

  // The index i of (v*E + i) / Q where there are P * Q elements along it and P is the extent: what lies behind the last
  // one is outside. Null: it is another expression.
  const Var* last_digit(const ExprRef& index, const ExprRef& extent) {
    if (index->kind != ExprKind::kApply || index->op != Op::kDiv) return nullptr;
    const Var* iter = coordinate(index->args[0]);
    if (!iter) return nullptr;
    const ExprRef all = make_apply(Op::kMul, {extent, index->args[1]});
    return polys_.equal(lets_.expanded(all), counts_.at(iters_.at(iter).tunable).all) ? iter : nullptr;
  }

  // REQUIRES: lets are written out.
  void value(const ExprRef& node) {
    if (coordinate(node)) return;
    if (node->kind == ExprKind::kLoad) return element(*node->buffer, node->args, false, nullptr);
    if (node->kind == ExprKind::kVar) {
      fix(node->var.get());
      if (const auto found = iters_.find(node->var.get()); found != iters_.end()) fixed_.insert(found->second.tunable);
    }
    for (const IterVar& iter : node->iters) fix(iter.extent);
    for (const ExprRef& arg : node->args) value(arg);
  }

  struct Index {
    VarRef iter;
    const Var* tunable;  // its extent
  };

  Lets lets_;
  PolyContext polys_;
  std::map<const Var*, Count> counts_;        // by tunable
  std::map<const Var*, const Var*> counted_;  // the tunable whose blocks a variable of the grid counts
  std::map<const Var*, Index> iters_;         // of the region that is looked at
  std::set<const Buffer*> written_;           // tensors
  std::set<const Var*> fixed_;
};

}  // namespace

std::set<const Var*> free_tunables(const Kernel& kernel) {
  const Uses uses(kernel);
  const std::vector<TunableRole> roles = roles_of(kernel);
  std::set<const Var*> free;
  for (size_t i = 0; i < roles.size() && uses.complete(); ++i) {
    const Var* tunable = kernel.tunables[i].var.get();
    const bool depth = roles[i] == TunableRole::kStages && !uses.fixed(tunable);
    if (depth || uses.counted(tunable)) free.insert(tunable);
  }
  return free;
}

}  // namespace kachel::derive
