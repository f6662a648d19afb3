#include "lowering/tile_ir/padded_reads.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "ir/instantiate.h"
#include "ir/tunable_role.h"
#include "lowering/loop_ir/range.h"
#include "lowering/planted.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

using ir::AxisSpec;
using ir::ExprKind;
using ir::ExprRef;
using ir::Op;

// Loads of the tile by a region, each with the variables of the reductions around it.
template <class Fn>
void for_each_read(const ExprRef& expr, const ir::Buffer* tile, std::vector<ir::IterVar>* around, const Fn& fn) {
  if (!expr) return;
  if (expr->kind == ExprKind::kLoad && expr->buffer.get() == tile) fn(*expr, *around);
  around->insert(around->end(), expr->iters.begin(), expr->iters.end());
  for (const ExprRef& arg : expr->args) for_each_read(arg, tile, around, fn);
  around->resize(around->size() - expr->iters.size());
}

// Whether all that the region has to do with the tile are reads of its elements, in reductions each by one iteration:
// what several read there is better padded once.
bool only_reads(const ir::ParallelStmt& region, const ir::Buffer* tile, const Ranges& ranges) {
  bool fits = true;
  const auto read = [&](const ir::Expr& load, const std::vector<ir::IterVar>& around) {
    const auto is = [](const ExprRef& at, const ir::IterVar& iter) {
      return at->kind == ExprKind::kVar && at->var == iter.var;
    };
    for (const ir::IterVar& iter : around)
      fits &= around.size() == region.iters.size() ||
              std::any_of(load.args.begin(), load.args.end(), [&](const ExprRef& at) { return is(at, iter); });
    // Outside of the tile there is zero.
    for (size_t i = 0; i < load.args.size(); ++i) {
      const int64_t extent = tile->shape[i]->int_value;
      const auto iter =
          std::find_if(around.begin(), around.end(), [&](const auto& one) { return is(load.args[i], one); });
      const Interval at = iter == around.end() ? ranges.of(load.args[i]) : Interval{0, iter->extent->int_value - 1};
      fits &= at.lo >= 0 && at.hi < extent;
    }
  };
  ir::for_each_stmt(region.body, [&](const ir::Stmt& stmt) {
    BufferSet written;
    note_writes(stmt, &written);
    fits &= !written.count(tile);
    ir::for_each_expr(stmt, [&](const ExprRef& expr) {
      std::vector<ir::IterVar> around = region.iters;
      for_each_read(expr, tile, &around, read);
    });
  });
  return fits;
}

class Rewriter {
 public:
  explicit Rewriter(const ir::Kernel& kernel) : kernel_(kernel) {
    for (const ir::VarRef& dim : kernel.dims) ranges_.set(dim, {0, kMaxDim});
    for (const ir::IterVar& axis : kernel.grid) {
      ranges_.set(axis.var, {0, kMaxDim - 1});
      ranges_.set_limit(axis.var, axis.extent);
    }
  }

  ir::Block block(const ir::Block& body, bool pipelined) {
    ir::Block out = body;
    for (size_t i = 0; i < out.size(); ++i) {
      ir::Stmt& stmt = out[i];
      if (const auto* let = std::get_if<ir::LetStmt>(&stmt.node); let && !ir::is_float(let->value->type))
        ranges_.set(let->var, ranges_.of(let->value));
      if (const auto* loop = std::get_if<ir::ForStmt>(&stmt.node)) note_range(*loop);
      if (auto* copy = std::get_if<ir::CopyStmt>(&stmt.node); copy && copy->src.pad) {
        if (ir::is_zero_constant(copy->src.pad))
          copy->src.pad = nullptr;
        else if (pipelined && is_padded_by_reads(*copy, out, i))
          pad_reads(copy, &out, i + 1);
      }
      const auto* loop = std::get_if<ir::ForStmt>(&stmt.node);
      const bool inner = pipelined || (loop && loop->pipelined);
      replace_blocks(&stmt, [&](const ir::Block& nested) { return block(nested, inner); });
    }
    return out;
  }

 private:
  void note_range(const ir::ForStmt& loop) {
    const Interval begin = ranges_.of(loop.begin);
    ranges_.set(loop.var, {begin.lo, std::max(ranges_.of(loop.end).hi, begin.lo + 1) - 1});
  }

  // Whether nothing but regions of this block, behind the copy, uses the tile.
  bool is_padded_by_reads(const ir::CopyStmt& copy, const ir::Block& body, size_t at) {
    const ir::BufferRef &tile = copy.dst.buffer, &tensor = copy.src.buffer;
    if (tile->scope != ir::Scope::kShared || !has_whole_axes(copy.dst) || copy.atomic != ir::AtomicOp::kNone)
      return false;
    if (tensor->scope != ir::Scope::kGlobal || !is_unwritten(*tensor) || tensor->type.dtype != tile->type.dtype ||
        ir::bits(tensor->type.dtype) < 8 || copy.src.within_first)
      return false;
    // Where the copy begins is asked once more behind it.
    for (const AxisSpec& axis : copy.src.axes)
      if (axis.gather || (axis.start && !is_unchanging(axis.start))) return false;
    int64_t regions = 0;
    bool fits = true;
    const ir::Block behind(body.begin() + static_cast<std::ptrdiff_t>(at) + 1, body.end());
    ir::for_each_stmt(behind, [&](const ir::Stmt& stmt) {
      if (const auto* loop = std::get_if<ir::ForStmt>(&stmt.node)) note_range(*loop);
      const auto* region = std::get_if<ir::ParallelStmt>(&stmt.node);
      BufferSet used;
      note_uses(stmt, &used);
      if (!region || !used.count(tile.get())) return;
      fits &= only_reads(*region, tile.get(), ranges_);
      ++regions;
    });
    if (!fits) return false;
    return uses_of(tile.get(), kernel_.body) == regions + 1;
  }

  void pad_reads(ir::CopyStmt* copy, ir::Block* body, size_t from) {
    const ir::CopyStmt padded = *copy;
    copy->src.pad = nullptr;
    if (planted(Planted::kPaddingIgnored)) return;
    for (size_t i = from; i < body->size(); ++i) pad_reads(padded, &(*body)[i]);
  }

  void pad_reads(const ir::CopyStmt& copy, ir::Stmt* stmt) const {
    if (auto* region = std::get_if<ir::ParallelStmt>(&stmt->node))
      rewrite_region(&region->body, [&](const ExprRef& expr) {
        return ir::rewrite(expr, [&](const ExprRef& node) {
          if (node->kind != ExprKind::kLoad || node->buffer != copy.dst.buffer) return node;
          const ExprRef inside = is_inside(copy.src, node->args);
          if (!inside) return node;
          const ExprRef pad = ir::make_cast({copy.src.buffer->type.dtype, nullptr}, copy.src.pad);
          return ir::make_typed(Op::kSelect, {inside, node, pad});
        });
      });
    replace_blocks(stmt, [&](ir::Block nested) {
      for (ir::Stmt& inner : nested) pad_reads(copy, &inner);
      return nested;
    });
  }

  // Whether the element at these places of the tile is one of the tensor's; null: it always is.
  ExprRef is_inside(const ir::TileRef& src, const std::vector<ExprRef>& places) const {
    ExprRef inside;
    const auto also = [&](const ExprRef& condition) {
      inside = inside ? ir::make_typed(Op::kAnd, {inside, condition}) : condition;
    };
    size_t next = 0;
    for (size_t i = 0; i < src.axes.size(); ++i) {
      const AxisSpec& axis = src.axes[i];
      const bool index = axis.kind == AxisSpec::Kind::kIndex;
      if (axis.kind == AxisSpec::Kind::kWhole) {
        ++next;
        continue;
      }
      const ExprRef at = index                       ? axis.start
                         : ir::is_int(axis.start, 0) ? places[next]
                                                     : ir::make_typed(Op::kAdd, {axis.start, places[next]});
      next += !index;
      if (!ranges_.proves_nonnegative(axis.start)) also(ir::make_typed(Op::kGe, {at, ir::make_int(0, at->type)}));
      const ExprRef& extent = src.buffer->shape[i];
      if (!(index && ranges_.proves_less(at, extent))) also(ir::make_typed(Op::kLt, {at, extent}));
    }
    return inside;
  }

  const ir::Kernel& kernel_;
  Ranges ranges_;
};

}  // namespace

ir::Kernel padded_reads(const ir::Kernel& kernel) {
  ir::Kernel out = kernel;
  out.body = Rewriter(kernel).block(kernel.body, false);
  return out;
}

}  // namespace kachel::lowering
