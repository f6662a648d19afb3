#include "derive/rows_along_k.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "derive/depth_axes.h"
#include "derive/lets.h"
#include "derive/parts.h"
#include "derive/uses.h"
#include "ir/visit.h"

namespace kachel::derive {

using namespace ir;

namespace {

// base + var.
bool goes_along(const ExprRef& expr, const Var* var) {
  if (expr->kind == ExprKind::kVar) return expr->var.get() == var;
  if (expr->kind != ExprKind::kApply) return false;
  if (expr->op == Op::kSub) return goes_along(expr->args[0], var) && !mentions(expr->args[1], var);
  if (expr->op != Op::kAdd) return false;
  const size_t with = mentions(expr->args[0], var) ? 0 : 1;
  return goes_along(expr->args[with], var) && !mentions(expr->args[1 - with], var);
}

// A multiple of vectors: tiles, counted.
bool is_aligned(const ExprRef& expr) {
  constexpr int64_t kVector = 8;
  if (expr->kind == ExprKind::kInt) return expr->int_value % kVector == 0;
  if (is_tunable(expr)) return true;
  if (expr->kind != ExprKind::kApply) return false;
  if (expr->op == Op::kMul) return is_aligned(expr->args[0]) || is_aligned(expr->args[1]);
  return (expr->op == Op::kAdd || expr->op == Op::kSub) && is_aligned(expr->args[0]) && is_aligned(expr->args[1]);
}
// base + var, where vectors of neighbours begin at multiples of vectors.
bool lies_in_vectors(const ExprRef& expr, const Var* var) {
  if (expr->kind == ExprKind::kVar) return expr->var.get() == var;
  if (expr->kind != ExprKind::kApply || expr->op != Op::kAdd) return false;
  const size_t with = mentions(expr->args[0], var) ? 0 : 1;
  return lies_in_vectors(expr->args[with], var) && is_aligned(expr->args[1 - with]);
}

class Reads {
 public:
  explicit Reads(const Kernel& kernel) : depth_(kernel.body), lets_(kernel, {}) {
    for_each_stmt(kernel.body, [this](const Stmt& stmt) { written_.merge(find_uses(stmt).written); });
    for (const Stmt& stmt : kernel.body)
      if (const auto* loop = std::get_if<ForStmt>(&stmt.node)) lets_.define_all(loop->body);
    note_operands(kernel.body);
    note_filled(kernel.body, false);
  }

  // fn(load, axis): of each read that goes across the rows of its tensor, or along them by whole vectors.
  template <class Fn>
  void for_each_crossing(const ParallelStmt& region, const Fn& fn) {
    const Var* along = depth_index(region, depth_);
    if (!along) return;
    lets_.define_all(region.body);
    for_each_stmt(region.body, [&](const Stmt& stmt) {
      for_each_expr(stmt, [&](const ExprRef& expr) {
        visit(expr, [&](const ExprRef& node) {
          const auto axis = crossed(node, along);
          if (!axis) return;
          const bool rows = *axis + 1 == node->args.size();
          if (rows ? lies_in_vectors(lets_.expanded(node->args.back()), along) : !has_vectors(node, region))
            fn(node, *axis);
        });
      });
    });
  }

  // fn(source, axis, read): of each copy of a column that is another one in each iteration of some loop, and of rows
  // in loops for tiles that products need and that are filled in several places, or under conditions.
  template <class Fn>
  void for_each_copy(Block* body, const Fn& fn, std::vector<const Var*> loops = {}) {
    for (Stmt& stmt : *body) {
      if (auto* loop = std::get_if<ForStmt>(&stmt.node)) {
        loops.push_back(loop->var.get());
        for_each_copy(&loop->body, fn, loops);
        loops.pop_back();
      } else if (auto* branch = std::get_if<IfStmt>(&stmt.node)) {
        for_each_copy(&branch->then_body, fn, loops);
        for_each_copy(&branch->else_body, fn, loops);
      } else if (auto* copy = std::get_if<CopyStmt>(&stmt.node); copy && copy->atomic == AtomicOp::kNone) {
        if (const auto axis = column(copy->src, loops))
          fn(&copy->src, *axis, CrossedTensor::Read::kColumns);
        else if (!loops.empty() && copies_rows(*copy))
          fn(&copy->src, copy->src.axes.size() - 1, CrossedTensor::Read::kRows);
      }
    }
  }

 private:
  // What products read, and what regions make that of.
  void note_operands(const Block& body) {
    for_each_stmt(body, [this](const Stmt& stmt) {
      const auto* gemm = std::get_if<GemmStmt>(&stmt.node);
      if (gemm) operands_.insert({gemm->a.buffer.get(), gemm->b.buffer.get()});
    });
    std::set<const Buffer*> fed;
    for_each_stmt(body, [&](const Stmt& stmt) {
      if (!std::holds_alternative<ParallelStmt>(stmt.node)) return;
      Uses uses = find_uses(stmt);
      if (std::any_of(uses.written.begin(), uses.written.end(),
                      [&](const Buffer* tile) { return operands_.count(tile) != 0; }))
        fed.merge(uses.read);
    });
    operands_.merge(fed);
  }
  void note_filled(const Block& body, bool conditional) {
    for (const Stmt& stmt : body) {
      if (const auto* loop = std::get_if<ForStmt>(&stmt.node)) note_filled(loop->body, conditional);
      if (const auto* branch = std::get_if<IfStmt>(&stmt.node)) {
        note_filled(branch->then_body, true);
        note_filled(branch->else_body, true);
      }
      if (const auto* copy = std::get_if<CopyStmt>(&stmt.node)) filled_[copy->dst.buffer.get()] += conditional ? 2 : 1;
    }
  }
  bool copies_rows(const CopyStmt& copy) const {
    const TileRef& from = copy.src;
    const auto places = filled_.find(copy.dst.buffer.get());
    return from.buffer->scope == Scope::kGlobal && !written_.count(from.buffer.get()) && bits(from.buffer->type) >= 8 &&
           !from.pad && from.axes.back().kind == AxisSpec::Kind::kRange && places->second > 1 &&
           operands_.count(copy.dst.buffer.get());
  }
  std::optional<size_t> column(const TileRef& source, const std::vector<const Var*>& loops) {
    if (source.buffer->scope != Scope::kGlobal || written_.count(source.buffer.get()) ||
        bits(source.buffer->type) < 8 || source.axes.back().kind != AxisSpec::Kind::kIndex)
      return std::nullopt;
    std::optional<size_t> axis;
    for (size_t i = 0; i < source.axes.size(); ++i) {
      if (source.axes[i].kind == AxisSpec::Kind::kIndex) continue;
      if (axis || source.axes[i].kind != AxisSpec::Kind::kRange) return std::nullopt;
      axis = i;
    }
    const ExprRef at = lets_.expanded(source.axes.back().start);
    const bool moves = std::any_of(loops.begin(), loops.end(), [&](const Var* var) { return mentions(at, var); });
    return moves && lets_.complete() ? axis : std::nullopt;
  }
  std::optional<size_t> crossed(const ExprRef& load, const Var* along) {
    if (load->kind != ExprKind::kLoad || load->buffer->scope != Scope::kGlobal || written_.count(load->buffer.get()) ||
        bits(load->buffer->type) < 8)
      return std::nullopt;
    std::optional<size_t> axis;
    for (size_t i = 0; i < load->args.size(); ++i) {
      const ExprRef index = lets_.expanded(load->args[i]);
      if (!mentions(index, along)) continue;
      if (axis || !goes_along(index, along)) return std::nullopt;
      axis = i;
    }
    return lets_.complete() ? axis : std::nullopt;
  }
  // Rows as they are can be read, too.
  bool has_vectors(const ExprRef& load, const ParallelStmt& region) {
    const ExprRef last = lets_.expanded(load->args.back());
    return std::any_of(region.iters.begin(), region.iters.end(),
                       [&](const IterVar& iter) { return lies_in_vectors(last, iter.var.get()); });
  }
  static int bits(const TypeRef& type) {
    if (!type.symbol) return ir::bits(type.dtype);
    int least = 64;
    for (DType option : type.symbol->options) least = std::min(least, ir::bits(option));
    return least;
  }

  const DepthAxes depth_;
  Lets lets_;
  std::set<const Buffer*> written_, operands_;
  std::map<const Buffer*, int> filled_;  // tile: in how many places; twice as many under conditions
};

}  // namespace

std::vector<CrossedTensor> crossed_tensors(const Kernel& kernel) {
  Reads reads(kernel);
  std::vector<CrossedTensor> found;
  for_each_stmt(kernel.body, [&](const Stmt& stmt) {
    const auto* region = std::get_if<ParallelStmt>(&stmt.node);
    if (!region) return;
    reads.for_each_crossing(*region, [&](const ExprRef& load, size_t axis) {
      const auto known = std::find_if(found.begin(), found.end(),
                                      [&](const CrossedTensor& one) { return one.tensor == load->buffer; });
      if (known == found.end()) found.push_back({load->buffer, axis});
    });
  });
  Block body = kernel.body;
  reads.for_each_copy(&body, [&](const TileRef* source, size_t axis, CrossedTensor::Read read) {
    const bool known =
        std::any_of(found.begin(), found.end(), [&](const CrossedTensor& one) { return one.tensor == source->buffer; });
    if (!known) found.push_back({source->buffer, axis, read});
  });
  return found;
}

std::vector<ExprRef> shape_of_rows(const CrossedTensor& crossed) {
  std::vector<ExprRef> shape = with_last(crossed.tensor->shape, crossed.axis);
  for (ExprRef& extent : shape) extent = at_least_zero(extent);
  shape.back() = times(ceil_div(shape.back(), make_int(kRowMultiple)), make_int(kRowMultiple));
  return shape;
}

Kernel with_rows(const Kernel& kernel, const std::vector<CrossedTensor>& crossed, const std::vector<BufferRef>& rows) {
  Reads reads(kernel);
  const auto block = [&](const Block& body, const auto& self) -> Block {
    Block out = body;
    for (Stmt& stmt : out) {
      if (auto* loop = std::get_if<ForStmt>(&stmt.node)) loop->body = self(loop->body, self);
      if (auto* branch = std::get_if<IfStmt>(&stmt.node)) {
        branch->then_body = self(branch->then_body, self);
        branch->else_body = self(branch->else_body, self);
      }
      auto* region = std::get_if<ParallelStmt>(&stmt.node);
      if (!region) continue;
      std::map<const Expr*, ExprRef> replaced;
      reads.for_each_crossing(*region, [&](const ExprRef& load, size_t axis) {
        for (size_t i = 0; i < crossed.size(); ++i)
          if (crossed[i].tensor == load->buffer && crossed[i].axis == axis)
            replaced[load.get()] = make_load(rows[i], with_last(load->args, axis));
      });
      const auto in_place = [&](const ExprRef& expr) {
        return rewrite(expr, [&](const ExprRef& node) {
          const auto found = replaced.find(node.get());
          return found == replaced.end() ? node : found->second;
        });
      };
      for (Stmt& inner : region->body) {
        if (auto* let = std::get_if<LetStmt>(&inner.node)) let->value = in_place(let->value);
        if (auto* assign = std::get_if<AssignStmt>(&inner.node)) assign->value = in_place(assign->value);
      }
    }
    return out;
  };
  Kernel out = kernel;
  out.body = block(kernel.body, block);
  reads.for_each_copy(&out.body, [&](TileRef* source, size_t axis, CrossedTensor::Read read) {
    for (size_t i = 0; i < crossed.size(); ++i) {
      if (crossed[i].read != read || crossed[i].tensor != source->buffer || crossed[i].axis != axis) continue;
      source->buffer = rows[i];
      source->axes = with_last(source->axes, axis);
      return;
    }
  });
  return out;
}

}  // namespace kachel::derive
