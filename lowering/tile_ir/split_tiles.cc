#include "lowering/tile_ir/split_tiles.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "ir/instantiate.h"
#include "ir/visit.h"
#include "lowering/planted.h"
#include "lowering/tile_ir/part_access.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

using ir::AxisSpec;
using ir::BufferRef;
using ir::ExprKind;
using ir::ExprRef;

int64_t extent_of(const BufferRef& tile, size_t axis) {
  return tile->shape[axis]->int_value;
}

struct Split {
  size_t axis = 0;
  int64_t extent = 0;  // of a part
};

// The slice's axis that is the tile's `axis`; slice.axes.size() if it has fewer.
size_t kept_axis(const ir::TileRef& slice, size_t axis) {
  size_t at = 0;
  for (; at < slice.axes.size(); ++at)
    if (slice.axes[at].kind != AxisSpec::Kind::kIndex && axis-- == 0) break;
  return at;
}

// Which fragments can be split, and how.
class Splits {
 public:
  explicit Splits(const ir::Kernel& kernel) {
    block(kernel.body);
    for (const auto& [buffer, extents] : parts_)
      if (!refused_.count(buffer.get())) decide(buffer, extents);
    for (const ir::CopyStmt* copy : copies_)
      for (const auto& [tile, slice] : {std::pair(&copy->dst, &copy->src), std::pair(&copy->src, &copy->dst)})
        if (const Split* split = find(tile->buffer); split && !can_part(*slice, *tile, *split, slice == &copy->src))
          splits_.erase(tile->buffer.get());
  }
  const Split* find(const BufferRef& buffer) const {
    const auto found = splits_.find(buffer.get());
    return found == splits_.end() ? nullptr : &found->second;
  }
  bool empty() const { return splits_.empty(); }

 private:
  void block(const ir::Block& body) {
    for (const ir::Stmt& stmt : body) {
      if (const auto* region = std::get_if<ir::ParallelStmt>(&stmt.node)) {
        extents_.clear();
        for (const ir::IterVar& iter : region->iters) extents_[iter.var.get()] = iter.extent->int_value;
        this->region(region->body);
        continue;
      }
      const auto* copy = std::get_if<ir::CopyStmt>(&stmt.node);
      if (copy) copies_.push_back(copy);
      const bool is_fill = std::holds_alternative<ir::FillStmt>(stmt.node);
      ir::for_each_tile(stmt, [&](const ir::TileRef& tile, bool) {
        const bool is_side = copy && (&tile == &copy->dst || &tile == &copy->src);
        if (!(is_side || is_fill) || !has_whole_axes(tile)) refused_.insert(tile.buffer.get());
      });
      ir::for_each_expr(stmt, [&](const ExprRef& expr) { refuse_loads(expr); });
      if (const auto* loop = std::get_if<ir::ForStmt>(&stmt.node)) block(loop->body);
      if (const auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) block(branch->then_body), block(branch->else_body);
    }
  }
  void refuse_loads(const ExprRef& expr) {
    ir::visit(expr, [&](const ExprRef& node) {
      if (node->kind == ExprKind::kLoad) refused_.insert(node->buffer.get());
    });
  }

  void region(const ir::Block& body) {
    ir::for_each_stmt(body, [this](const ir::Stmt& stmt) {
      ir::for_each_expr(stmt, [this](const ExprRef& expr) {
        ir::visit(expr, [this](const ExprRef& node) {
          if (ir::is_reduction(*node))
            for (const ir::IterVar& iter : node->iters) extents_[iter.var.get()] = iter.extent->int_value;
        });
        ir::visit(expr, [this](const ExprRef& node) {
          if (node->kind == ExprKind::kLoad) access(node->buffer, node->args);
        });
      });
      if (const auto* assign = std::get_if<ir::AssignStmt>(&stmt.node)) access(assign->buffer, assign->indices);
    });
  }

  void access(const BufferRef& buffer, const std::vector<ExprRef>& indices) {
    if (buffer->scope != ir::Scope::kFragment) return;
    std::vector<int64_t>& parts = parts_.try_emplace(buffer, indices.size()).first->second;
    for (size_t axis = 0; axis < indices.size(); ++axis) {
      const std::optional<Place> place = place_of(indices[axis]);
      const auto found = place ? extents_.find(place->var.get()) : extents_.end();
      const int64_t extent = found == extents_.end() ? 0 : found->second;
      const int64_t whole = extent_of(buffer, axis);
      const bool fits = extent > 0 && whole % extent == 0 && place->offset >= 0 && place->offset % extent == 0 &&
                        place->offset + extent <= whole;
      if (!fits || (parts[axis] && parts[axis] != extent)) refused_.insert(buffer.get());
      parts[axis] = extent;
    }
  }

  void decide(const BufferRef& buffer, const std::vector<int64_t>& extents) {
    std::optional<Split> split;
    for (size_t axis = 0; axis < extents.size(); ++axis) {
      const int64_t whole = extent_of(buffer, axis);
      if (extents[axis] == whole) continue;
      if (split || whole / extents[axis] > kMostParts) return;
      split = Split{axis, extents[axis]};
    }
    if (split) splits_[buffer.get()] = *split;
  }

  bool can_part(const ir::TileRef& slice, const ir::TileRef& tile, const Split& split, bool is_source) const {
    const ir::Scope scope = slice.buffer->scope;
    if (scope == ir::Scope::kFragment && (!is_source || find(slice.buffer) || split.axis + 1 != tile.axes.size()))
      return false;
    if (scope == ir::Scope::kShared || ir::bits(slice.buffer->type.dtype) < 8) return false;
    const size_t axis = kept_axis(slice, split.axis);
    if (axis == slice.axes.size() || kept_axis(slice, tile.axes.size()) != slice.axes.size()) return false;
    const bool bounded = slice.within_first && split.axis == 0;
    return !bounded && slice.axes[axis].kind != AxisSpec::Kind::kGather;
  }

  std::map<const ir::Var*, int64_t> extents_;        // of the region's variables
  std::map<BufferRef, std::vector<int64_t>> parts_;  // by axis: what is accessed at once
  std::set<const ir::Buffer*> refused_;
  std::vector<const ir::CopyStmt*> copies_;
  std::map<const ir::Buffer*, Split> splits_;
};

class Splitter {
 public:
  explicit Splitter(const Splits& splits) : splits_(splits) {}

  ir::Block block(const ir::Block& body) {
    ir::Block out;
    for (const ir::Stmt& stmt : body) statement(stmt, &out);
    return out;
  }

 private:
  int64_t count(const BufferRef& tile) const {
    const Split& split = *splits_.find(tile);
    return extent_of(tile, split.axis) / split.extent;
  }
  const BufferRef& part(const BufferRef& tile, int64_t number) {
    std::vector<BufferRef>& made = made_[tile.get()];
    const Split& split = *splits_.find(tile);
    while (static_cast<int64_t>(made.size()) < count(tile)) {
      ir::Buffer part = *tile;
      part.shape[split.axis] = ir::make_int(split.extent, part.shape[split.axis]->type);
      made.push_back(std::make_shared<const ir::Buffer>(std::move(part)));
    }
    return made[static_cast<size_t>(number)];
  }

  // Which part an access is of, and its index there.
  const BufferRef& renamed(const BufferRef& tile, std::vector<ExprRef>* indices) {
    const Split& split = *splits_.find(tile);
    const Place place = *place_of((*indices)[split.axis]);
    (*indices)[split.axis] = ir::make_var(place.var);
    return part(tile, place.offset / split.extent);
  }
  ExprRef expr(const ExprRef& value) {
    if (!value) return value;
    return ir::rewrite(value, [this](const ExprRef& node) {
      if (node->kind != ExprKind::kLoad || !splits_.find(node->buffer)) return node;
      std::vector<ExprRef> indices = node->args;
      const BufferRef& made = renamed(node->buffer, &indices);
      return ir::make_load(made, std::move(indices));
    });
  }

  void parts(const ir::CopyStmt& copy, ir::Loc loc, bool to_tile, ir::Block* out) {
    const BufferRef& tile = (to_tile ? copy.dst : copy.src).buffer;
    const Split& split = *splits_.find(tile);
    for (int64_t number = 0; number < count(tile); ++number) {
      ir::CopyStmt one = copy;
      (to_tile ? one.dst : one.src).buffer = part(tile, number);
      ir::TileRef& slice = to_tile ? one.src : one.dst;
      AxisSpec& axis = slice.axes[kept_axis(slice, split.axis)];
      const ir::DType type = axis.start ? axis.start->type : ir::DType::I64;
      const ExprRef first = ir::make_int(planted(Planted::kSplitPart) ? 0 : number * split.extent, type);
      axis.start = axis.start ? ir::fold(ir::make_typed(ir::Op::kAdd, {axis.start, first})) : first;
      axis.extent = ir::make_int(split.extent, axis.extent ? axis.extent->type : ir::DType::I64);
      axis.kind = AxisSpec::Kind::kRange;
      out->push_back({loc, std::move(one)});
    }
  }

  void statement(const ir::Stmt& stmt, ir::Block* out) {
    ir::Stmt copy = stmt;
    if (auto* decl = std::get_if<ir::DeclStmt>(&copy.node); decl && splits_.find(decl->buffer)) {
      for (int64_t number = 0; number < count(decl->buffer); ++number)
        out->push_back({stmt.loc, ir::DeclStmt{part(decl->buffer, number), decl->init}});
      return;
    }
    if (auto* fill = std::get_if<ir::FillStmt>(&copy.node); fill && splits_.find(fill->dst.buffer)) {
      for (int64_t number = 0; number < count(fill->dst.buffer); ++number) {
        ir::FillStmt one = *fill;
        one.dst.buffer = part(fill->dst.buffer, number);
        out->push_back({stmt.loc, std::move(one)});
      }
      return;
    }
    if (const auto* moved = std::get_if<ir::CopyStmt>(&copy.node)) {
      for (const bool to_tile : {true, false})
        if (splits_.find((to_tile ? moved->dst : moved->src).buffer)) return parts(*moved, stmt.loc, to_tile, out);
    }
    if (auto* region = std::get_if<ir::ParallelStmt>(&copy.node)) {
      region->body = block(region->body);
    } else if (auto* loop = std::get_if<ir::ForStmt>(&copy.node)) {
      loop->body = block(loop->body);
    } else if (auto* branch = std::get_if<ir::IfStmt>(&copy.node)) {
      branch->condition = expr(branch->condition);
      branch->then_body = block(branch->then_body);
      branch->else_body = block(branch->else_body);
    } else if (auto* let = std::get_if<ir::LetStmt>(&copy.node)) {
      let->value = expr(let->value);
    } else if (auto* assign = std::get_if<ir::AssignStmt>(&copy.node)) {
      for (ExprRef& index : assign->indices) index = expr(index);
      assign->value = expr(assign->value);
      if (splits_.find(assign->buffer)) {
        const BufferRef tile = assign->buffer;
        assign->buffer = renamed(tile, &assign->indices);
      }
    }
    out->push_back(std::move(copy));
  }

  const Splits& splits_;
  std::map<const ir::Buffer*, std::vector<BufferRef>> made_;
};

}  // namespace

ir::Kernel split_tiles(const ir::Kernel& kernel) {
  const Splits splits(kernel);
  if (splits.empty()) return kernel;
  ir::Kernel out = kernel;
  out.body = Splitter(splits).block(kernel.body);
  return out;
}

}  // namespace kachel::lowering
