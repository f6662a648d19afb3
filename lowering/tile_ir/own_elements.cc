#include "lowering/tile_ir/own_elements.h"

#include <map>
#include <optional>

#include "ir/poly.h"
#include "lowering/planted.h"

namespace kachel::lowering {
namespace {

using ir::ExprRef;
using ir::Poly;

// So small that no index wraps.
constexpr int64_t kLargest = int64_t{1} << 20;

// factor * t + base + [low, high], where all iterations have the same base.
struct Window {
  int64_t factor = 0, low = 0, high = 0;
  Poly base;
};
// One an axis; nothing where it is of another form.
using Place = std::vector<std::optional<Window>>;

class Accesses {
 public:
  explicit Accesses(const ir::ForStmt& loop) : var_(loop.var.get()) {
    bound_.insert(loop.var.get());
    block(loop.body);
  }

  BufferSet apart() const {
    BufferSet apart;
    for (const ir::Buffer* buffer : written_) {
      const std::vector<Place>& places = places_.at(buffer);
      for (size_t axis = 0; axis < places[0].size(); ++axis)
        if (ir::bits(buffer->type.dtype) >= 8 && follows(places, axis)) apart.insert(buffer);
    }
    return apart;
  }

 private:
  static bool follows(const std::vector<Place>& places, size_t axis) {
    if (!places[0][axis]) return false;
    Window all = *places[0][axis];
    for (const Place& place : places) {
      const std::optional<Window>& one = place[axis];
      if (!one || one->factor != all.factor || !(one->base == all.base)) return false;
      all.low = std::min(all.low, one->low);
      all.high = std::max(all.high, one->high);
    }
    return all.high - all.low < std::abs(all.factor) || planted(Planted::kOthersElements);
  }

  void block(const ir::Block& body) {
    for (const ir::Stmt& stmt : body) {
      ir::for_each_expr(stmt, [this](const ExprRef& expr) {
        ir::visit(expr, [this](const ExprRef& node) {
          for (const ir::IterVar& iter : node->iters) bind(iter);
          if (node->kind == ir::ExprKind::kLoad) element(node->buffer, node->args, false);
        });
      });
      ir::for_each_tile(stmt, [this](const ir::TileRef& tile, bool written) { slice(tile, written); });
      if (const auto* let = std::get_if<ir::LetStmt>(&stmt.node)) {
        bound_.insert(let->var.get());
        if (!ir::is_float(let->value->type)) polys_.define(let->var, let->value);
      }
      if (const auto* assign = std::get_if<ir::AssignStmt>(&stmt.node)) element(assign->buffer, assign->indices, true);
      if (const auto* region = std::get_if<ir::ParallelStmt>(&stmt.node)) {
        for (const ir::IterVar& iter : region->iters) bind(iter);
        block(region->body);
      }
      if (const auto* loop = std::get_if<ir::ForStmt>(&stmt.node)) {
        bound_.insert(loop->var.get());
        if (ir::is_int(loop->begin, 0) && ir::is_const(loop->end)) extents_[loop->var.get()] = loop->end->int_value;
        block(loop->body);
      }
      if (const auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) {
        block(branch->then_body);
        block(branch->else_body);
      }
    }
  }

  void bind(const ir::IterVar& iter) {
    bound_.insert(iter.var.get());
    extents_[iter.var.get()] = iter.extent->int_value;
  }
  void element(const ir::BufferRef& buffer, const std::vector<ExprRef>& indices, bool written) {
    Place place;
    for (const ExprRef& index : indices) place.push_back(window(index, 1));
    note(buffer, std::move(place), written);
  }
  void slice(const ir::TileRef& tile, bool written) {
    Place place;
    for (const ir::AxisSpec& axis : tile.axes) {
      std::optional<Window> along;
      if (axis.kind == ir::AxisSpec::Kind::kIndex) along = window(axis.start, 1);
      if (axis.kind == ir::AxisSpec::Kind::kRange) along = window(axis.start, axis.extent->int_value);
      place.push_back(std::move(along));
    }
    note(tile.buffer, std::move(place), written);
  }
  void note(const ir::BufferRef& buffer, Place place, bool written) {
    places_[buffer.get()].push_back(std::move(place));
    if (written) written_.insert(buffer.get());
  }

  // Of so many indices from the first one on.
  std::optional<Window> window(const ExprRef& first, int64_t length) {
    Poly factor, rest;
    if (!polys_.linear(polys_.of(first), var_, factor, rest) || !factor.is_constant()) return std::nullopt;
    Window window{factor.constant_term(), 0, length - 1, {}};
    if (window.factor == 0 || std::abs(window.factor) > kLargest) return std::nullopt;
    for (const auto& [product, coefficient] : rest.terms) {
      if (std::abs(coefficient) > kLargest) return std::nullopt;
      if (product.empty()) {
        window.low += coefficient, window.high += coefficient;
        continue;
      }
      bool shared = true;
      for (int atom : product) {
        const ir::Var* var = polys_.variable(atom);
        shared &= var && !bound_.count(var);
      }
      const auto extent = product.size() == 1 ? extents_.find(polys_.variable(product[0])) : extents_.end();
      if (shared) {
        window.base.terms[product] = coefficient;
      } else if (extent != extents_.end() && extent->second > 0 && extent->second <= kLargest) {
        (coefficient > 0 ? window.high : window.low) += coefficient * (extent->second - 1);
      } else {
        return std::nullopt;
      }
    }
    return window;
  }

  const ir::Var* var_;
  ir::PolyContext polys_;
  std::set<const ir::Var*> bound_;  // in the body
  std::map<const ir::Var*, int64_t> extents_;
  std::map<const ir::Buffer*, std::vector<Place>> places_;
  BufferSet written_;
};

}  // namespace

BufferSet own_elements(const ir::ForStmt& loop) {
  return Accesses(loop).apart();
}

}  // namespace kachel::lowering
