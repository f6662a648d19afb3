#include "lowering/tile_ir/open_windows.h"

#include <algorithm>
#include <utility>

#include "ir/tunable_role.h"
#include "ir/visit.h"
#include "lowering/loop_ir/region_index.h"
#include "lowering/planted.h"
#include "lowering/tile_ir/part_access.h"
#include "lowering/tile_ir/reduce_ops.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

using ir::ExprKind;
using ir::ExprRef;

// Elements of a window, and nodes of what stands for it: 3 x 3 x 3 of an element times a factor fit.
constexpr int64_t kMostElements = 27, kMostNodes = 640;

int64_t elements_of(const ir::Expr& reduce) {
  int64_t elements = 1;
  for (const ir::IterVar& iter : reduce.iters)
    elements *= ir::is_const(iter.extent) ? std::min(iter.extent->int_value, kMostElements + 1) : kMostElements + 1;
  return elements;
}

class Opening {
 public:
  Opening(const std::vector<ir::IterVar>& iters, const std::function<bool(const ir::Buffer&)>& of)
      : iters_(iters), indexes_(iters), of_(of) {}

  void block(ir::Block* body) {
    for (ir::Stmt& stmt : *body) {
      if (auto* let = std::get_if<ir::LetStmt>(&stmt.node)) {
        let->value = expr(let->value);
        indexes_.name(*let);
      }
      if (auto* assign = std::get_if<ir::AssignStmt>(&stmt.node)) assign->value = expr(assign->value);
      if (auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) block(&branch->then_body), block(&branch->else_body);
    }
  }

 private:
  ExprRef expr(const ExprRef& root) const {
    return ir::rewrite(root, [this](const ExprRef& node) {
      return node->kind == ExprKind::kReduce && is_window(*node) ? opened(*node) : node;
    });
  }
  bool is_window(const ir::Expr& reduce) const {
    const int64_t elements = elements_of(reduce);
    int64_t nodes = 0;
    bool window = false, others = false;
    ir::visit(reduce.args[0], [&](const ExprRef& node) {
      ++nodes;
      others |= ir::is_reduction(*node);
      if (node->kind != ExprKind::kLoad || !of_(*node->buffer)) return;
      bool beside = false;
      for (const ExprRef& index : node->args) beside |= is_beside(index, reduce.iters);
      (beside && is_dense(node->args.back(), reduce.iters) ? window : others) |= beside;
    });
    return window && !others && elements <= kMostElements && elements * nodes <= kMostNodes;
  }
  // Whether neighbours along the region's last axis read what can be loaded together.
  bool is_dense(const ExprRef& index, const std::vector<ir::IterVar>& window) const {
    ExprRef first = indexes_.inlined(index);
    for (const ir::IterVar& iter : window) first = substituted(first, iter.var, ir::make_int(0, ir::DType::I64));
    const std::optional<ScaledIndex> scaled = indexes_.scaled(first);
    return scaled && scaled->axis + 1 == iters_.size() && scaled->is_dense();
  }
  // Whether it follows both the region's iterations and those of the window.
  bool is_beside(const ExprRef& index, const std::vector<ir::IterVar>& window) const {
    return !indexes_.axes_of(index).empty() && std::any_of(window.begin(), window.end(), [&](const ir::IterVar& iter) {
      return ir::mentions(index, iter.var);
    });
  }

  // In the order in which a reduction goes: the last variable fastest.
  static ExprRef opened(const ir::Expr& reduce) {
    std::vector<ExprRef> elements{reduce.args[0]};
    for (const ir::IterVar& iter : reduce.iters) {
      std::vector<ExprRef> parts;
      for (const ExprRef& element : elements)
        for (int64_t i = 0; i < iter.extent->int_value; ++i)
          parts.push_back(substituted(element, iter.var, ir::make_int(i, ir::DType::I64)));
      elements = std::move(parts);
    }
    if (planted(Planted::kWindowEnd) && elements.size() > 1) elements.pop_back();
    ExprRef result;
    for (ExprRef& element : elements) {
      if (element->type != reduce.type) element = ir::make_cast({reduce.type, nullptr}, element);
      result = result ? combined(reduce.reduce, result, element) : element;
    }
    return result;
  }

  const std::vector<ir::IterVar>& iters_;
  RegionIndexes indexes_;
  const std::function<bool(const ir::Buffer&)>& of_;
};

}  // namespace

ir::Block open_windows(const ir::Block& block, const std::function<bool(const ir::Buffer&)>& of) {
  ir::Block out = block;
  for (ir::Stmt& stmt : out) {
    if (auto* region = std::get_if<ir::ParallelStmt>(&stmt.node)) {
      Opening opening(region->iters, of);
      opening.block(&region->body);
    }
    replace_blocks(&stmt, [&](const ir::Block& inner) { return open_windows(inner, of); });
  }
  return out;
}

}  // namespace kachel::lowering
