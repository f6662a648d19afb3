#include "lowering/tile_ir/woven_stores.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "ir/visit.h"
#include "lowering/planted.h"
#include "lowering/tile_ir/tile_uses.h"
#include "lowering/tile_ir/woven_value.h"

namespace kachel::lowering {
namespace {

using ir::ExprKind;
using ir::ExprRef;
using ir::Op;

constexpr size_t kMostStores = 32;  // as many as a word of 32 bits has elements

bool is_op(const ir::Expr& expr, Op op) {
  return expr.kind == ExprKind::kApply && expr.op == op;
}

class Weaver {
 public:
  explicit Weaver(const ir::Kernel& kernel) {
    for (const ir::VarRef& dim : kernel.dims) ranges_.set(dim, {0, kMaxDim});
    note_dimensions(kernel, &ranges_);
    for (const ir::IterVar& axis : kernel.grid)
      ranges_.set(axis.var, {0, axis.extent->kind == ExprKind::kInt ? axis.extent->int_value : kMaxDim});
    ir::for_each_stmt(kernel.body, [this](const ir::Stmt& stmt) {
      if (const auto* gemm = std::get_if<ir::GemmStmt>(&stmt.node))
        operands_.insert({gemm->a.buffer.get(), gemm->b.buffer.get()});
    });
  }

  ir::Block block(ir::Block body) {
    for (ir::Stmt& stmt : body) {
      if (const auto* let = std::get_if<ir::LetStmt>(&stmt.node)) ranges_.set_value(let->var, let->value);
      if (const auto* loop = std::get_if<ir::ForStmt>(&stmt.node))
        if (ranges_.proves_nonnegative(loop->begin)) ranges_.set(loop->var, {0, kMaxDim});
      if (auto* region = std::get_if<ir::ParallelStmt>(&stmt.node)) weave(region);
      replace_blocks(&stmt, [this](const ir::Block& inner) { return block(inner); });
    }
    return body;
  }

 private:
  void weave(ir::ParallelStmt* region) {
    std::vector<const ir::AssignStmt*> parts;
    RegionIndexes indexes(region->iters);
    BufferSet read;
    bool plain = true, takes_bits = false;
    for (const ir::Stmt& stmt : region->body) {
      const auto* let = std::get_if<ir::LetStmt>(&stmt.node);
      const auto* assign = std::get_if<ir::AssignStmt>(&stmt.node);
      if (let) indexes.name(*let);
      if (assign) parts.push_back(assign);
      plain &= let || (assign && assign->op == ir::AssignOp::kSet && assign->atomic == ir::AtomicOp::kNone);
      ir::for_each_expr(stmt, [&](const ExprRef& expr) {
        note_loads(expr, &read);
        ir::visit(expr, [&](const ExprRef& node) {
          takes_bits |= (is_op(*node, Op::kBitAnd) || is_op(*node, Op::kShr)) && loads(node->args[0], indexes);
          plain &= node->kind != ExprKind::kReduce && node->kind != ExprKind::kScan;
        });
      });
    }
    if (!plain || !takes_bits || parts.size() < 2 || parts.size() > kMostStores) return;
    const ir::BufferRef tile = parts[0]->buffer;
    const bool one_tile =
        std::all_of(parts.begin(), parts.end(), [&](const auto* part) { return part->buffer == tile; });
    if (!one_tile || !operands_.count(tile.get()) || read.count(tile.get())) return;
    const std::optional<Weave> weave = weave_of(*region, parts, indexes);
    if (!weave) return;
    std::vector<ExprRef> values;
    for (const ir::AssignStmt* part : weave->parts) {
      values.push_back(indexes.inlined(part->value));
      if (!indexes.is_written_out(values.back())) return;
    }
    const ExprRef value = woven_value(*weave, indexes, ranges_, values);
    if (!value) return;
    ir::AssignStmt all = *weave->parts[0];
    all.indices[weave->axis] = weave->index();
    all.value = value;
    region->iters[weave->iteration] = {weave->to, tile->shape[weave->axis]};
    const ir::Loc loc = region->body.front().loc;
    region->body.clear();
    region->body.push_back({loc, std::move(all)});
  }

  static bool loads(const ExprRef& expr, const RegionIndexes& indexes) {
    bool found = false;
    ir::visit(indexes.inlined(expr), [&](const ExprRef& node) { found |= node->kind == ExprKind::kLoad; });
    return found;
  }

  static std::optional<Weave> weave_of(const ir::ParallelStmt& region, const std::vector<const ir::AssignStmt*>& parts,
                                       const RegionIndexes& indexes) {
    const size_t rank = region.iters.size();
    if (parts[0]->indices.size() != rank) return std::nullopt;
    Weave weave;
    std::vector<bool> used(rank);
    size_t differing = 0;
    for (size_t axis = 0; axis < rank; ++axis) {
      const ExprRef& first = parts[0]->indices[axis];
      const bool alike = std::all_of(parts.begin(), parts.end(),
                                     [&](const ir::AssignStmt* part) { return ir::same(part->indices[axis], first); });
      const std::optional<ScaledIndex> index = indexes.scaled(indexes.inlined(first));
      if (!index || used[index->axis]) return std::nullopt;
      used[index->axis] = true;
      if (!alike) weave.axis = axis, weave.iteration = index->axis, ++differing;
      const bool whole = index->scale == 1 && !index->constant && !index->base &&
                         ir::same(region.iters[index->axis].extent, parts[0]->buffer->shape[axis]);
      if (alike && !whole) return std::nullopt;
    }
    if (differing != 1) return std::nullopt;
    weave.from = region.iters[weave.iteration];
    const auto count = static_cast<int64_t>(parts.size());
    if (count * weave.extent() != parts[0]->buffer->shape[weave.axis]->int_value) return std::nullopt;
    weave.parts.assign(parts.size(), nullptr);
    for (const ir::AssignStmt* part : parts) {
      const std::optional<ScaledIndex> index = indexes.scaled(indexes.inlined(part->indices[weave.axis]));
      if (!index || index->axis != weave.iteration || index->base) return std::nullopt;
      const bool neighbours = index->scale == count;
      if (part == parts[0]) weave.neighbours = neighbours;
      const int64_t step = neighbours ? 1 : weave.extent(), at = index->constant / step;
      if (neighbours != weave.neighbours || (!neighbours && index->scale != 1) || index->constant % step || at < 0 ||
          at >= count || weave.parts[static_cast<size_t>(at)])
        return std::nullopt;
      weave.parts[static_cast<size_t>(at)] = part;
    }
    if (planted(Planted::kNibbleOrder)) std::reverse(weave.parts.begin(), weave.parts.end());
    weave.to = std::make_shared<ir::Var>(*weave.from.var);
    return weave;
  }

  Ranges ranges_;
  BufferSet operands_;
};

}  // namespace

ir::Kernel woven_stores(const ir::Kernel& kernel) {
  ir::Kernel out = kernel;
  out.body = Weaver(kernel).block(kernel.body);
  return out;
}

}  // namespace kachel::lowering
