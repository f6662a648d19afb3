#include "lowering/tile_ir/split_slices.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "ir/instantiate.h"
#include "ir/visit.h"
#include "lowering/planted.h"
#include "lowering/tile_ir/axis_classes.h"
#include "lowering/tile_ir/block_copy.h"
#include "lowering/tile_ir/tile_uses.h"
#include "lowering/tile_ir/unread_tiles.h"
#include "lowering/tile_ir/unroll_matrices.h"

namespace kachel::lowering {
namespace {

using ir::AxisSpec;
using ir::BufferRef;
using ir::ExprRef;

constexpr int64_t kMostRows = 8;  // of a fragment, each of which is one of its own

bool is_index(const AxisSpec& axis) {
  return axis.kind == AxisSpec::Kind::kIndex;
}

class Splitter {
 public:
  explicit Splitter(const ir::Kernel& kernel) : kernel_(kernel), classes_(kernel) {
    ir::for_each_stmt(kernel.body, [this](const ir::Stmt& stmt) {
      if (const auto* gemm = std::get_if<ir::GemmStmt>(&stmt.node))
        for (const ir::TileRef* tile : {&gemm->c, &gemm->a, &gemm->b}) want(*tile);
      if (const auto* region = std::get_if<ir::ParallelStmt>(&stmt.node))
        ir::for_each_stmt(region->body, [this](const ir::Stmt& inner) {
          each_element(inner, [this](const auto& tile, const auto& indices) { want(tile, indices); });
        });
    });
    if (wanted_.empty()) return;
    ir::for_each_stmt(kernel.body, [this](const ir::Stmt& stmt) { check(stmt); });
  }

  bool splits() const { return !wanted_.empty(); }

  ir::Kernel run() {
    ir::Kernel out = kernel_;
    out.body = block(kernel_.body);
    BufferSet made;
    for (const auto& [tile, matrices] : made_)
      for (const BufferRef& matrix : matrices) made.insert(matrix.get());
    return without_unread_tiles(out, std::move(made));
  }

 private:
  bool is_wanted(int number) const { return wanted_.count(number) != 0; }
  bool is_wanted(const ir::Var* var) { return is_wanted(classes_.of(var)); }
  // The axis along which a tile is split.
  std::optional<size_t> axis_of(const ir::Buffer& tile) {
    if (tile.scope == ir::Scope::kGlobal) return std::nullopt;
    for (size_t i = 0; i < tile.shape.size(); ++i)
      if (is_wanted(classes_.of(&tile, i))) return i;
    return std::nullopt;
  }
  void refuse(const ir::Buffer& tile) {
    for (size_t i = 0; i < tile.shape.size(); ++i) wanted_.erase(classes_.of(&tile, i));
  }

  void want(const ir::TileRef& tile) {
    for (size_t i = 0; i < tile.axes.size(); ++i) {
      const int number = classes_.of(tile.buffer.get(), i);
      if (is_index(tile.axes[i]) && classes_.may_grow(number) && tile.buffer->shape[i]->int_value <= kMostMatrices)
        wanted_.emplace(number, tile.buffer->shape[i]->int_value);
    }
  }

  // Rows of a fragment that regions name by numbers: whole, it would be in memory.
  void want(const ir::Buffer& tile, const std::vector<ExprRef>& indices) {
    for (size_t i = 0; tile.scope == ir::Scope::kFragment && i + 1 < indices.size(); ++i) {
      const int number = classes_.of(&tile, i);
      const int64_t extent = tile.shape[i]->int_value;
      if (is_number(indices[i]) && classes_.may_grow(number) && extent > 1 && extent <= kMostRows)
        wanted_.emplace(number, extent);
    }
  }

  static bool is_number(const ExprRef& index) { return index->kind == ir::ExprKind::kInt; }
  // Calls fn(tile, indices) for what the statement, but for those in it, reads and assigns.
  template <class Fn>
  static void each_element(const ir::Stmt& stmt, const Fn& fn) {
    ir::for_each_expr(stmt, [&](const ExprRef& expr) {
      ir::visit(expr, [&](const ExprRef& node) {
        if (node->kind == ir::ExprKind::kLoad) fn(*node->buffer, node->args);
      });
    });
    if (const auto* assign = std::get_if<ir::AssignStmt>(&stmt.node)) fn(*assign->buffer, assign->indices);
  }

  // A region that becomes one for each matrix: what it reads of others by number, it must not write.
  void check(const ir::ParallelStmt& region) {
    std::set<const ir::Buffer*> written, numbered;
    for (const ir::IterVar& iter : region.iters) {
      if (!is_wanted(iter.var.get())) continue;
      ir::for_each_stmt(region.body, [&](const ir::Stmt& stmt) {
        if (const auto* assign = std::get_if<ir::AssignStmt>(&stmt.node)) written.insert(assign->buffer.get());
        each_element(stmt, [&](const ir::Buffer& tile, const std::vector<ExprRef>& indices) {
          const auto axis = axis_of(tile);
          if (axis && is_number(indices[*axis])) numbered.insert(&tile);
        });
      });
    }
    for (const ir::Buffer* tile : written)
      if (numbered.count(tile)) refuse(*tile);
  }

  // What a split cannot follow: reductions along the axis, tiles that have the axis twice, products with rows along it,
  // bounds of it.
  void check(const ir::Stmt& stmt) {
    ir::for_each_expr(stmt, [this](const ExprRef& expr) {
      ir::visit(expr, [this](const ExprRef& node) {
        for (const ir::IterVar& iter : node->iters) wanted_.erase(classes_.of(iter.var.get()));
      });
    });
    if (const auto* region = std::get_if<ir::ParallelStmt>(&stmt.node)) check(*region);
    if (const auto* decl = std::get_if<ir::DeclStmt>(&stmt.node)) {
      std::set<int> seen;
      for (size_t i = 0; i < decl->buffer->shape.size(); ++i)
        if (const int number = classes_.of(decl->buffer.get(), i); !seen.insert(number).second) wanted_.erase(number);
      int64_t axes = 0;
      for (const int number : seen) axes += is_wanted(number);
      if (axes > 1 || ir::bits(decl->buffer->type.dtype) < 8) refuse(*decl->buffer);
    }
    if (const auto* gemm = std::get_if<ir::GemmStmt>(&stmt.node))
      for (const ir::TileRef* tile : {&gemm->c, &gemm->a, &gemm->b})
        if (takes_all(*tile)) refuse(*tile->buffer);
    if (const auto* copy = std::get_if<ir::CopyStmt>(&stmt.node)) {
      const bool bounded =
          copy->dst.within_first || copy->src.within_first || copy->dst.buffer->packed || copy->src.buffer->packed;
      for (const auto& [tile, other] : {std::pair(&copy->dst, &copy->src), std::pair(&copy->src, &copy->dst)})
        if (bounded || is_along_rows(*tile, *other)) refuse(*tile->buffer);
    }
  }
  // Elements of one matrix would be apart in the tensor, and those beside each other in many copies.
  bool is_along_rows(const ir::TileRef& tile, const ir::TileRef& tensor) {
    const auto axis = axis_of(*tile.buffer);
    return axis && tensor.buffer->scope == ir::Scope::kGlobal && *axis > 0 && *axis + 1 == tile.axes.size() &&
           !is_index(tile.axes.back()) && !is_index(tensor.axes.back());
  }
  const std::vector<BufferRef>& matrices(const BufferRef& tile, size_t axis) {
    std::vector<BufferRef>& made = made_[tile.get()];
    const int64_t count = tile->shape[axis]->int_value;
    for (int64_t i = static_cast<int64_t>(made.size()); i < count; ++i) {
      auto one = std::make_shared<ir::Buffer>(*tile);
      one->name = fmt::format("{}_{}", tile->name, i);
      one->shape.erase(one->shape.begin() + static_cast<std::ptrdiff_t>(axis));
      if (one->shape.empty()) one->shape.push_back(ir::make_int(1, tile->shape[axis]->type));
      made.push_back(std::move(one));
    }
    return made;
  }

  void values(ir::TileRef* tile) {
    for (AxisSpec& axis : tile->axes) {
      axis.start = value(axis.start);
      if (!axis.gather) continue;
      axis.gather = std::make_shared<ir::TileRef>(*axis.gather);
      values(axis.gather.get());
    }
    tile->within_first = value(tile->within_first);
    tile->within_length = value(tile->within_length);
  }

  // Matrix `number` of a slice of all, or the one that it names.
  void take(ir::TileRef* tile, int64_t number) {
    values(tile);
    const auto axis = axis_of(*tile->buffer);
    if (!axis) return;
    const AxisSpec& spec = tile->axes[*axis];
    const int64_t own = is_index(spec) ? spec.start->int_value : number;
    tile->buffer = matrices(tile->buffer, *axis)[static_cast<size_t>(own)];
    const bool all = !is_index(spec);
    tile->axes.erase(tile->axes.begin() + static_cast<std::ptrdiff_t>(*axis));
    if (tile->axes.empty())
      tile->axes.emplace_back();
    else if (all && kept_axes(*tile).empty())
      tile->axes.back() = {AxisSpec::Kind::kRange, tile->axes.back().start, ir::make_int(1, ir::DType::I64), nullptr};
  }
  bool takes_all(const ir::TileRef& tile) {
    const auto axis = axis_of(*tile.buffer);
    return axis && !is_index(tile.axes[*axis]);
  }

  ExprRef value(const ExprRef& expr) {
    return !expr ? expr : ir::rewrite(expr, [this](const ExprRef& node) -> ExprRef {
      if (node->kind != ir::ExprKind::kLoad) return node;
      BufferRef buffer = node->buffer;
      std::vector<ExprRef> indices = node->args;
      element(&buffer, &indices);
      return buffer == node->buffer ? node : ir::make_load(buffer, indices, node->loc);
    });
  }
  void element(BufferRef* buffer, std::vector<ExprRef>* indices) {
    const auto axis = axis_of(**buffer);
    if (!axis) return;
    const auto own = static_cast<size_t>((*indices)[*axis]->int_value);
    *buffer = matrices(*buffer, *axis)[own];
    indices->erase(indices->begin() + static_cast<std::ptrdiff_t>(*axis));
    if (indices->empty()) indices->push_back(only_ ? ir::make_var(only_) : ir::make_int(0, ir::DType::I64));
  }

  ir::Block block(const ir::Block& body) {
    ir::Block out;
    for (const ir::Stmt& stmt : body) {
      loc_ = stmt.loc;
      std::visit([&](const auto& node) { statement(node, &out); }, stmt.node);
    }
    return out;
  }
  void push(ir::Block* out, decltype(ir::Stmt::node) node) { out->push_back({loc_, std::move(node)}); }

  void statement(const ir::DeclStmt& decl, ir::Block* out) {
    const auto axis = axis_of(*decl.buffer);
    if (!axis) return push(out, decl);
    for (const BufferRef& one : matrices(decl.buffer, *axis)) push(out, ir::DeclStmt{one, decl.init});
  }
  void statement(const ir::LetStmt& let, ir::Block* out) { push(out, ir::LetStmt{let.var, value(let.value)}); }
  void statement(const ir::FillStmt& fill, ir::Block* out) {
    const auto axis = axis_of(*fill.dst.buffer);
    const int64_t count = takes_all(fill.dst) ? fill.dst.buffer->shape[*axis]->int_value : 1;
    for (int64_t i = 0; i < count; ++i) {
      ir::FillStmt one = fill;
      one.value = value(fill.value);
      take(&one.dst, i);
      push(out, std::move(one));
    }
  }
  void statement(const ir::GemmStmt& gemm, ir::Block* out) {
    ir::GemmStmt one = gemm;
    for (ir::TileRef* tile : {&one.c, &one.a, &one.b}) take(tile, 0);
    push(out, std::move(one));
  }
  void statement(const ir::CopyStmt& copy, ir::Block* out) {
    const ir::TileRef* all = takes_all(copy.dst) ? &copy.dst : takes_all(copy.src) ? &copy.src : nullptr;
    const int64_t count = all ? all->buffer->shape[*axis_of(*all->buffer)]->int_value : 1;
    for (int64_t i = 0; i < count; ++i) {
      ir::CopyStmt one = copy;
      const int64_t number = planted(Planted::kFirstMatrix) ? 0 : i;
      if (all) place(*all, all == &copy.dst ? &one.src : &one.dst, number);
      take(&one.dst, i), take(&one.src, i);
      push(out, std::move(one));
    }
  }
  // Of a tensor that is copied from or to all of a tile, the part of matrix `number`.
  void place(const ir::TileRef& tile, ir::TileRef* tensor, int64_t number) {
    if (tensor->buffer->scope != ir::Scope::kGlobal) return;
    const size_t axis = *axis_of(*tile.buffer);
    const std::vector<size_t> own = kept_axes(tile);
    AxisSpec& spec = tensor->axes[kept_axes(*tensor)[std::find(own.begin(), own.end(), axis) - own.begin()]];
    const ExprRef at = ir::make_int(number, ir::DType::I64);
    const ExprRef start =
        spec.kind == AxisSpec::Kind::kWhole
            ? at
            : ir::fold(ir::make_typed(ir::Op::kAdd, {ir::make_cast({ir::DType::I64, nullptr}, spec.start), at}));
    // A slice has a shape, if it is of one element.
    const bool sole = kept_axes(*tensor).size() == 1;
    spec = {sole ? AxisSpec::Kind::kRange : AxisSpec::Kind::kIndex, start,
            sole ? ir::make_int(1, ir::DType::I64) : nullptr, nullptr};
  }
  void statement(const ir::ParallelStmt& region, ir::Block* out) {
    const auto split = std::find_if(region.iters.begin(), region.iters.end(),
                                    [this](const ir::IterVar& iter) { return is_wanted(iter.var.get()); });
    const int64_t count = split == region.iters.end() ? 1 : split->extent->int_value;
    for (int64_t i = 0; i < count; ++i) {
      ir::ParallelStmt one = region;
      Substitutions values;
      if (split != region.iters.end()) {
        values[split->var.get()] = ir::make_int(i, ir::DType::I64);
        one.iters.erase(one.iters.begin() + (split - region.iters.begin()));
        if (one.iters.empty())
          one.iters.push_back({std::make_shared<ir::Var>(*split->var), ir::make_int(1, ir::DType::I64)});
      }
      ir::Block made = copy_of({{loc_, std::move(one)}}, std::move(values));
      auto& made_region = std::get<ir::ParallelStmt>(made[0].node);
      const bool sole = split != region.iters.end() && region.iters.size() == 1;
      only_ = sole ? made_region.iters[0].var : nullptr;
      made_region.body = body(made_region.body);
      only_ = nullptr;
      out->push_back(std::move(made[0]));
    }
  }
  ir::Block body(const ir::Block& in) {
    ir::Block out;
    for (ir::Stmt stmt : in) {
      if (auto* let = std::get_if<ir::LetStmt>(&stmt.node)) let->value = value(let->value);
      if (auto* assign = std::get_if<ir::AssignStmt>(&stmt.node)) {
        for (ExprRef& index : assign->indices) index = value(index);
        assign->value = value(assign->value);
        element(&assign->buffer, &assign->indices);
      }
      if (auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) {
        branch->condition = value(branch->condition);
        branch->then_body = body(branch->then_body);
        branch->else_body = body(branch->else_body);
      }
      out.push_back(std::move(stmt));
    }
    return out;
  }
  void statement(const ir::AssignStmt& assign, ir::Block* out) { push(out, assign); }
  void statement(const ir::ForStmt& loop, ir::Block* out) {
    ir::ForStmt one = loop;
    one.begin = value(loop.begin), one.end = value(loop.end);
    const ir::Loc loc = loc_;
    one.body = block(loop.body);
    loc_ = loc;
    push(out, std::move(one));
  }
  void statement(const ir::IfStmt& branch, ir::Block* out) {
    const ir::Loc loc = loc_;
    ir::IfStmt one{value(branch.condition), block(branch.then_body), block(branch.else_body)};
    loc_ = loc;
    push(out, std::move(one));
  }

  const ir::Kernel& kernel_;
  AxisClasses classes_;
  std::map<int, int64_t> wanted_;  // classes of axes that are split, and their extents
  std::map<const ir::Buffer*, std::vector<BufferRef>> made_;
  ir::VarRef only_;  // of a region that had no other axis than the one that is split
  ir::Loc loc_;
};

}  // namespace

ir::Kernel split_slices(const ir::Kernel& kernel) {
  const ir::Kernel unrolled = unroll_matrices(kernel);
  Splitter splitter(unrolled);
  return splitter.splits() ? splitter.run() : kernel;
}

}  // namespace kachel::lowering
