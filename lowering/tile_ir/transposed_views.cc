#include "lowering/tile_ir/transposed_views.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "ir/visit.h"
#include "lowering/lower.h"
#include "lowering/planted.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

using ir::AxisSpec;
using ir::BufferRef;
using ir::ExprRef;

bool is_kept(const AxisSpec& axis) {
  return axis.kind == AxisSpec::Kind::kRange || axis.kind == AxisSpec::Kind::kWhole;
}

// Whether the slice has both of the last axes.
bool keeps_both(const ir::TileRef& tile) {
  const size_t rank = tile.axes.size();
  return rank >= 2 && is_kept(tile.axes[rank - 1]) && is_kept(tile.axes[rank - 2]);
}

bool names_rows(const ir::TileRef& tile) {
  return std::any_of(tile.axes.begin(), tile.axes.end(), [](const AxisSpec& axis) { return axis.gather != nullptr; });
}

// Which buffers can be exchanged. What is copied from one to another is exchanged on both sides or on neither.
class Exchanged {
 public:
  Exchanged(const ir::Kernel& kernel, const BufferSet& tensors) : wanted_(tensors) {
    ir::for_each_stmt(kernel.body, [this](const ir::Stmt& stmt) { note(stmt); });
    for (const auto& [from, to] : fills_)
      if (declared_.count(to)) wanted_.insert(to);
    for (bool changed = true; changed;) {
      changed = false;
      for (const auto& [from, to] : fills_) {
        if (contains(from) && !contains(to)) changed |= refused_.insert(from).second;
        if (contains(to) && !contains(from)) changed |= refused_.insert(to).second;
      }
    }
  }
  bool contains(const ir::Buffer* buffer) const { return wanted_.count(buffer) && !refused_.count(buffer); }

 private:
  void note(const ir::Stmt& stmt) {
    if (const auto* decl = std::get_if<ir::DeclStmt>(&stmt.node)) {
      if (decl->buffer->scope == ir::Scope::kShared && decl->buffer->shape.size() >= 2 && !decl->init)
        declared_.insert(decl->buffer.get());
      return;
    }
    const auto* copy = std::get_if<ir::CopyStmt>(&stmt.node);
    const auto* gemm = std::get_if<ir::GemmStmt>(&stmt.node);
    if (copy && fills(*copy)) {
      fills_.push_back({copy->src.buffer.get(), copy->dst.buffer.get()});
      return;
    }
    const bool is_fill = std::holds_alternative<ir::FillStmt>(stmt.node);
    ir::for_each_tile(stmt, [&](const ir::TileRef& tile, bool) {
      if (is_fill && !names_rows(tile)) return;
      if (copy && &tile == &copy->src && takes_rows(*copy)) return;
      if (gemm && (&tile == &gemm->a || &tile == &gemm->b) && keeps_both(tile) && !names_rows(tile)) return;
      refused_.insert(tile.buffer.get());
    });
  }
  // Of a tensor, what is a tile of the two last axes.
  static bool fills(const ir::CopyStmt& copy) {
    return copy.src.buffer->scope == ir::Scope::kGlobal && keeps_both(copy.src) && !names_rows(copy.src) &&
           !copy.src.within_first && copy.dst.buffer->scope == ir::Scope::kShared && has_whole_axes(copy.dst) &&
           copy.atomic == ir::AtomicOp::kNone;
  }
  // Of a tensor, what is a tile of one of them or of none: the tile stays as it is.
  static bool takes_rows(const ir::CopyStmt& copy) {
    return copy.src.buffer->scope == ir::Scope::kGlobal && !keeps_both(copy.src) && !names_rows(copy.src);
  }

  BufferSet wanted_, declared_, refused_;
  std::vector<std::pair<const ir::Buffer*, const ir::Buffer*>> fills_;
};

class Exchange {
 public:
  explicit Exchange(const Exchanged& exchanged) : exchanged_(exchanged) {}

  BufferRef buffer(const BufferRef& original) {
    if (!exchanged_.contains(original.get())) return original;
    BufferRef& made = made_[original.get()];
    if (!made) {
      ir::Buffer turned = *original;
      swap_last(turned.shape);
      turned.transposed = original->scope == ir::Scope::kGlobal;
      made = std::make_shared<const ir::Buffer>(std::move(turned));
    }
    return made;
  }

  ir::Block block(ir::Block body) {
    for (ir::Stmt& stmt : body) std::visit([this](auto& node) { statement(node); }, stmt.node);
    return body;
  }

 private:
  template <class T>
  static void swap_last(std::vector<T>& axes) {
    std::swap(axes[axes.size() - 1], axes[axes.size() - 2]);
  }

  void expr(ExprRef& value) {
    if (!value) return;
    value = ir::rewrite(value, [this](const ExprRef& node) {
      if (node->kind != ir::ExprKind::kLoad || !exchanged_.contains(node->buffer.get())) return node;
      std::vector<ExprRef> indices = node->args;
      if (!planted(Planted::kTransposedIndex)) swap_last(indices);
      return ir::make_load(buffer(node->buffer), std::move(indices));
    });
  }
  void tile(ir::TileRef& tile) {
    if (exchanged_.contains(tile.buffer.get())) swap_last(tile.axes);
    tile.buffer = buffer(tile.buffer);
    for (AxisSpec& axis : tile.axes) {
      expr(axis.start), expr(axis.index);
      if (!axis.gather) continue;
      ir::TileRef rows = *axis.gather;
      this->tile(rows);
      axis.gather = std::make_shared<ir::TileRef>(std::move(rows));
    }
    expr(tile.within_first), expr(tile.within_length);
  }

  void statement(ir::DeclStmt& decl) { decl.buffer = buffer(decl.buffer), expr(decl.init); }
  void statement(ir::LetStmt& let) { expr(let.value); }
  void statement(ir::CopyStmt& copy) { tile(copy.dst), tile(copy.src); }
  void statement(ir::FillStmt& fill) { tile(fill.dst), expr(fill.value); }
  void statement(ir::GemmStmt& gemm) {
    gemm.transpose_a ^= exchanged_.contains(gemm.a.buffer.get());
    gemm.transpose_b ^= exchanged_.contains(gemm.b.buffer.get());
    tile(gemm.c), tile(gemm.a), tile(gemm.b);
  }
  void statement(ir::ParallelStmt& region) { region.body = block(std::move(region.body)); }
  void statement(ir::AssignStmt& assign) {
    for (ExprRef& index : assign.indices) expr(index);
    if (exchanged_.contains(assign.buffer.get())) swap_last(assign.indices);
    assign.buffer = buffer(assign.buffer);
    expr(assign.value);
  }
  void statement(ir::ForStmt& loop) {
    expr(loop.begin), expr(loop.end);
    loop.body = block(std::move(loop.body));
  }
  void statement(ir::IfStmt& branch) {
    expr(branch.condition);
    branch.then_body = block(std::move(branch.then_body));
    branch.else_body = block(std::move(branch.else_body));
  }

  const Exchanged& exchanged_;
  std::map<const ir::Buffer*, BufferRef> made_;
};

}  // namespace

ir::Kernel transposed_views(const ir::Kernel& kernel, uint64_t* fact_mask) {
  const std::vector<Fact> facts = facts_of(kernel);
  BufferSet tensors, plain;
  for (size_t i = 0; i < facts.size(); ++i) {
    if (facts[i].param < 0 || !(*fact_mask >> i & 1)) continue;
    const BufferRef& tensor = kernel.params[static_cast<size_t>(facts[i].param)].tensor;
    if (!tensor) continue;
    if (facts[i].kind == Fact::Kind::kUnitStride) plain.insert(tensor.get());  // comes first
    if (facts[i].kind == Fact::Kind::kTransposed && !plain.count(tensor.get()) && ir::bits(tensor->type.dtype) >= 8)
      tensors.insert(tensor.get());
  }
  if (tensors.empty()) return kernel;
  const Exchanged exchanged(kernel, tensors);
  Exchange exchange(exchanged);
  ir::Kernel out = kernel;
  for (ir::Param& param : out.params)
    if (param.tensor) param.tensor = exchange.buffer(param.tensor);
  out.body = exchange.block(kernel.body);
  for (size_t i = 0; i < facts.size(); ++i) {
    if (facts[i].param < 0 || facts[i].kind == Fact::Kind::kRows) continue;
    const BufferRef& tensor = out.params[static_cast<size_t>(facts[i].param)].tensor;
    if (tensor && tensor->transposed) *fact_mask |= uint64_t{1} << i;
  }
  return out;
}

}  // namespace kachel::lowering
