#include "lowering/plan/row_access.h"

#include <algorithm>
#include <set>

#include "ir/tunable_role.h"
#include "ir/visit.h"
#include "lowering/loop_ir/region_index.h"
#include "lowering/tile_ir/hoist_reductions.h"
#include "lowering/tile_ir/hoist_scans.h"

namespace kachel::lowering {
namespace {

using ir::ExprKind;
using ir::ExprRef;

constexpr int64_t kBankRow = 128;  // bytes

class Accesses {
 public:
  explicit Accesses(const Placements& placements) : placements_(placements) {}

  void block(const ir::Block& body) {
    for (const ir::Stmt& stmt : body) statement(stmt);
  }
  BufferSet across() && { return std::move(across_); }

 private:
  void statement(const ir::Stmt& stmt) {
    if (const auto* region = std::get_if<ir::ParallelStmt>(&stmt.node)) return this->region(*region);
    if (const auto* loop = std::get_if<ir::ForStmt>(&stmt.node)) block(loop->body);
    if (const auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) block(branch->then_body), block(branch->else_body);
    const bool product = std::holds_alternative<ir::GemmStmt>(stmt.node);
    ir::for_each_tile(stmt, [&](const ir::TileRef& tile, bool) {
      const bool rows = !tile.axes.empty() && tile.axes.back().kind == ir::AxisSpec::Kind::kWhole;
      if (product || !rows) across_.insert(tile.buffer.get());
    });
    if (const auto* copy = std::get_if<ir::CopyStmt>(&stmt.node)) {
      by_layout(copy->dst.buffer, copy->src.buffer);
      by_layout(copy->src.buffer, copy->dst.buffer);
    }
    ir::for_each_expr(stmt, [&](const ExprRef& expr) { note_loads(expr, &across_); });
  }

  // A tile that is copied from or to a fragment.
  void by_layout(const ir::BufferRef& tile, const ir::BufferRef& fragment) {
    const auto placement = placements_.tiles.find(fragment.get());
    if (placement == placements_.tiles.end() || !placement->second.fragment) return;
    const FragmentLayout& layout = *placement->second.fragment;
    if (!goes_along(layout, layout.axes().size() - 1, *tile)) across_.insert(tile.get());
  }

  // Whether neighbouring lanes have neighbours along the axis, or parts of as many registers, for a row of banks.
  static bool goes_along(const FragmentLayout& layout, size_t axis, const ir::Buffer& tile) {
    int64_t before = 1;
    for (const FragmentLayout::Digit& digit : layout.axes()[axis]) {
      if (digit.in_thread) return digit.stride == 1 && before * digit.radix * bytes_of(tile) >= kBankRow;
      before *= digit.radix;
    }
    return false;
  }
  static int64_t bytes_of(const ir::Buffer& tile) { return std::max(1, ir::bits(tile.type.dtype) / 8); }

  void region(const ir::ParallelStmt& region) {
    std::vector<ir::IterVar> iters = region.iters;
    const ir::Expr* reduction = reduction_of(region);
    if (reduction) iters.insert(iters.end(), reduction->iters.begin(), reduction->iters.end());
    const auto chosen = placements_.regions.find(&region);
    const FragmentLayout* layout = chosen == placements_.regions.end() ? nullptr : &chosen->second;
    RegionIndexes indexes(iters);
    const bool known = !scan_of(region) && (!reduction || layout);
    const auto along = [&](const ir::Buffer& tile, const std::vector<ExprRef>& places) {
      const std::optional<RegionIndex> last = indexes.split(indexes.inlined(places.back()));
      if (!known || !last || last->axis == RegionIndex::kNone) return false;
      for (size_t i = 0; i + 1 < places.size(); ++i)
        if (indexes.follows(places[i], iters[last->axis].var)) return false;
      if (layout) return goes_along(*layout, last->axis, tile);
      return last->axis + 1 == iters.size() && iters.back().extent->int_value * bytes_of(tile) >= kBankRow;
    };
    body(region.body, reduction, along, &indexes);
  }

  template <class Along>
  void body(const ir::Block& block, const ir::Expr* reduction, const Along& along, RegionIndexes* indexes) {
    const auto look = [&](auto&& self, const ExprRef& expr) -> void {
      if (ir::is_reduction(*expr) && expr.get() != reduction) return note_loads(expr, &across_);
      if (expr->kind == ExprKind::kLoad && !along(*expr->buffer, expr->args)) across_.insert(expr->buffer.get());
      for (const ExprRef& arg : expr->args) self(self, arg);
    };
    for (const ir::Stmt& stmt : block) {
      ir::for_each_expr(stmt, [&](const ExprRef& expr) { look(look, expr); });
      if (const auto* let = std::get_if<ir::LetStmt>(&stmt.node)) indexes->name(*let);
      const auto* assign = std::get_if<ir::AssignStmt>(&stmt.node);
      // The results of a reduction are written by the threads that share them.
      if (assign && (reduction || !along(*assign->buffer, assign->indices))) across_.insert(assign->buffer.get());
      if (const auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) {
        body(branch->then_body, reduction, along, indexes);
        body(branch->else_body, reduction, along, indexes);
      }
    }
  }

  const Placements& placements_;
  BufferSet across_;
};

}  // namespace

BufferSet accessed_across(const ir::Kernel& kernel, const Placements& placements) {
  Accesses accesses(placements);
  accesses.block(kernel.body);
  return std::move(accesses).across();
}

BufferSet accessed_by_bits(const ir::Kernel& kernel) {
  BufferSet found;
  ir::for_each_stmt(kernel.body, [&found](const ir::Stmt& stmt) {
    const auto* region = std::get_if<ir::ParallelStmt>(&stmt.node);
    if (!region) return;
    std::set<const ir::Var*> names;  // of values that bits are taken of or joined for
    const auto of_bits = [&names](const ExprRef& expr) {
      bool bits = false;
      ir::visit(expr, [&](const ExprRef& node) {
        bits |= node->kind == ExprKind::kVar && names.count(node->var.get());
        bits |= node->kind == ExprKind::kApply && (node->op == ir::Op::kBitAnd || node->op == ir::Op::kBitOr ||
                                                   node->op == ir::Op::kShl || node->op == ir::Op::kShr);
      });
      return bits;
    };
    const auto note = [&](const ir::BufferRef& buffer, const std::vector<ExprRef>& places) {
      if (std::any_of(places.begin(), places.end(), of_bits)) found.insert(buffer.get());
    };
    ir::for_each_stmt(region->body, [&](const ir::Stmt& inner) {
      ir::for_each_expr(inner, [&](const ExprRef& expr) {
        ir::visit(expr, [&](const ExprRef& node) {
          if (node->kind == ExprKind::kLoad) note(node->buffer, node->args);
        });
      });
      if (const auto* let = std::get_if<ir::LetStmt>(&inner.node); let && of_bits(let->value))
        names.insert(let->var.get());
      if (const auto* assign = std::get_if<ir::AssignStmt>(&inner.node)) note(assign->buffer, assign->indices);
    });
  });
  return found;
}

}  // namespace kachel::lowering
