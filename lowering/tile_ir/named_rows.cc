#include "lowering/tile_ir/named_rows.h"

#include <map>
#include <optional>
#include <utility>

#include "ir/expansion.h"
#include "ir/tunable_role.h"
#include "lowering/planted.h"
#include "lowering/tile_ir/region_value.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

using ir::ExprKind;
using ir::ExprRef;

constexpr uint64_t kMostInlined = 64;  // nodes, which are worked out for each row that is copied

// What a tile's elements are: `index`, of what the slice of a tensor holds or, without one, of the element's place.
struct Numbers {
  std::optional<ir::TileRef> slice;
  ir::VarRef element;
  ExprRef index;
};

ExprRef converted(const ExprRef& value, const ir::Buffer& tile) {
  const ir::DType type = tile.type.dtype;
  return ir::compute_type(type) == type && value->type == type ? value : ir::make_cast({type, nullptr}, value);
}

bool is_integer(const ir::Buffer& tile) {
  return !ir::is_float(tile.type.dtype) && tile.type.dtype != ir::DType::Bool && ir::bits(tile.type.dtype) >= 8;
}

class Rewriter {
 public:
  explicit Rewriter(const ir::Block& body) { count_writes(body); }

  ir::Block block(const ir::Block& body, bool pipelined) {
    const auto outer = known_;
    ir::Block out;
    for (ir::Stmt stmt : body) {
      if (auto* copy = std::get_if<ir::CopyStmt>(&stmt.node)) {
        note(*copy);
        if (pipelined && copy->src.buffer->scope == ir::Scope::kGlobal) name_rows(&copy->src);
      }
      if (const auto* region = std::get_if<ir::ParallelStmt>(&stmt.node)) note(*region);
      const auto* loop = std::get_if<ir::ForStmt>(&stmt.node);
      const bool inner = pipelined || (loop && loop->pipelined);
      replace_blocks(&stmt, [&](const ir::Block& nested) { return block(nested, inner); });
      out.push_back(std::move(stmt));
    }
    known_ = outer;
    return out;
  }

 private:
  void count_writes(const ir::Block& body) {
    for (const ir::Stmt& stmt : body) {
      if (const auto* loop = std::get_if<ir::ForStmt>(&stmt.node)) {
        count_writes(loop->body);
      } else if (const auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) {
        count_writes(branch->then_body), count_writes(branch->else_body);
      } else {
        BufferSet written;
        note_writes(stmt, &written);
        const auto* decl = std::get_if<ir::DeclStmt>(&stmt.node);
        if (decl && !decl->init) continue;
        for (const ir::Buffer* tile : written) ++writes_[tile];
      }
    }
  }
  // Nothing else ever writes it.
  bool is_settled(const ir::Buffer& tile) const {
    const auto found = writes_.find(&tile);
    return tile.scope != ir::Scope::kGlobal && tile.shape.size() == 1 && is_integer(tile) && found != writes_.end() &&
           found->second == 1;
  }

  void note(const ir::CopyStmt& copy) {
    const ir::TileRef& src = copy.src;
    const ir::Buffer& tile = *copy.dst.buffer;
    if (!is_settled(tile) || !has_whole_axes(copy.dst)) return;
    if (src.buffer->scope != ir::Scope::kGlobal || !is_unwritten(*src.buffer) || !is_integer(*src.buffer)) return;
    bool plain = !src.within_first;
    for (const ir::AxisSpec& axis : src.axes) {
      plain &= !axis.gather && is_unchanging(axis.start);
    }
    if (!plain || kept_axes(src).size() != 1) return;
    auto element = std::make_shared<ir::Var>(ir::Var{ir::VarKind::kLet, tile.name, {}, {}});
    element->type = {ir::compute_type(src.buffer->type.dtype), nullptr};
    known_[&tile] = {src, element, converted(ir::make_var(element), tile)};
  }

  void note(const ir::ParallelStmt& region) {
    const auto* assign = region.body.empty() ? nullptr : std::get_if<ir::AssignStmt>(&region.body.back().node);
    if (!assign || region.iters.size() != 1 || assign->op != ir::AssignOp::kSet) return;
    const ir::Buffer& tile = *assign->buffer;
    const ir::IterVar& iter = region.iters[0];
    if (!is_settled(tile) || !ir::same(iter.extent, tile.shape[0]) || assign->indices[0]->kind != ExprKind::kVar ||
        assign->indices[0]->var != iter.var)
      return;
    const ExprRef value = region_value(region, kMostInlined);
    if (!value) return;
    if (is_unchanging(value) && ir::Expansion().size(value) <= kMostInlined) {
      const auto place = std::make_shared<ir::Var>(*iter.var);
      const ExprRef index = ir::rewrite(value, [&](const ExprRef& node) {
        return node->kind == ExprKind::kVar && node->var == iter.var ? ir::make_var(place) : node;
      });
      known_[&tile] = {std::nullopt, place, converted(index, tile)};
      return;
    }
    // Of its own element of one tile, and of what all elements share.
    const Numbers* from = nullptr;
    bool fits = true;
    const ExprRef index = ir::rewrite(value, [&](const ExprRef& node) {
      fits &= !ir::is_reduction(*node);
      if (node->kind != ExprKind::kLoad) return node;
      const auto found = known_.find(node->buffer.get());
      if (found == known_.end() || !is_own_element(node, region.iters) || (from && from != &found->second)) {
        fits = false;
        return node;
      }
      from = &found->second;
      return found->second.index;
    });
    if (!fits || !from || !from->slice || ir::mentions(index, iter.var) || ir::Expansion().size(index) > kMostInlined)
      return;
    const Numbers made{from->slice, from->element, converted(index, tile)};
    known_[&tile] = made;
  }

  void name_rows(ir::TileRef* slice) const {
    for (ir::AxisSpec& axis : slice->axes) {
      if (!axis.gather || axis.gather->pad || !has_whole_axes(*axis.gather)) continue;
      const auto found = known_.find(axis.gather->buffer.get());
      if (found == known_.end()) continue;
      const Numbers& numbers = found->second;
      axis.extent = numbers.slice ? nullptr : axis.gather->buffer->shape[0];
      axis.gather = numbers.slice ? std::make_shared<ir::TileRef>(*numbers.slice) : nullptr;
      axis.element = numbers.element;
      axis.index = planted(Planted::kNumberItself) ? ir::make_var(numbers.element) : numbers.index;
    }
  }

  std::map<const ir::Buffer*, int64_t> writes_;  // statements
  std::map<const ir::Buffer*, Numbers> known_;   // of tiles that are written by here
};

}  // namespace

ir::Kernel named_rows(const ir::Kernel& kernel) {
  ir::Kernel out = kernel;
  out.body = Rewriter(kernel.body).block(kernel.body, false);
  return out;
}

}  // namespace kachel::lowering
