#include "lowering/tile_ir/one_axis_views.h"

#include <map>

#include "ir/instantiate.h"
#include "ir/one_axis.h"
#include "lowering/lower.h"
#include "lowering/planted.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

using ir::DType;
using ir::ExprRef;
using ir::Op;

class Viewer {
 public:
  Viewer(const ir::OneAxis& places, const std::map<const ir::Buffer*, ir::BufferRef>& views)
      : places_(places), views_(views) {}

  ir::Block block(ir::Block body) const {
    for (ir::Stmt& stmt : body) {
      replace_blocks(&stmt, [this](const ir::Block& inner) { return block(inner); });
      auto* region = std::get_if<ir::ParallelStmt>(&stmt.node);
      if (!region) continue;
      rewrite_region(&region->body, [this](const ExprRef& expr) { return value(expr); });
      elements(&region->body);
    }
    return body;
  }

 private:
  void elements(ir::Block* body) const {
    for (ir::Stmt& stmt : *body) {
      if (auto* branch = std::get_if<ir::IfStmt>(&stmt.node))
        elements(&branch->then_body), elements(&branch->else_body);
      auto* assign = std::get_if<ir::AssignStmt>(&stmt.node);
      if (assign) element(&assign->buffer, &assign->indices);
    }
  }
  ExprRef value(const ExprRef& expr) const {
    return ir::rewrite(expr, [this](const ExprRef& node) -> ExprRef {
      if (node->kind != ir::ExprKind::kLoad || !views_.count(node->buffer.get())) return node;
      ir::BufferRef buffer = node->buffer;
      std::vector<ExprRef> indices = node->args;
      element(&buffer, &indices);
      return ir::make_load(buffer, std::move(indices), node->loc);
    });
  }
  void element(ir::BufferRef* buffer, std::vector<ExprRef>* indices) const {
    const auto view = views_.find(buffer->get());
    if (view == views_.end()) return;
    const ir::OneAxis::Place place = *places_.place(**buffer, *indices);
    *buffer = view->second;
    const size_t rank = indices->size();
    ExprRef at = ir::make_cast({DType::I64, nullptr}, place.number);
    if (place.modulo_both && !planted(Planted::kOneAxisOfAll))
      at = ir::make_typed(Op::kMod, {at, view->second->shape[rank - 1]});
    (*indices)[rank - 2] = ir::make_int(0, DType::I64);
    (*indices)[rank - 1] = std::move(at);
  }

  const ir::OneAxis& places_;
  const std::map<const ir::Buffer*, ir::BufferRef>& views_;
};

ir::BufferRef view_of(const ir::Buffer& tensor) {
  const size_t rank = tensor.shape.size();
  const auto wide = [](const ExprRef& extent) { return ir::make_cast({DType::I64, nullptr}, extent); };
  ir::Buffer view = tensor;
  view.shape[rank - 1] =
      ir::fold(ir::make_typed(Op::kMul, {wide(tensor.shape[rank - 2]), wide(tensor.shape[rank - 1])}));
  view.shape[rank - 2] = ir::make_int(1, DType::I64);
  view.as_one = true;
  return std::make_shared<const ir::Buffer>(std::move(view));
}

}  // namespace

ir::Kernel one_axis_views(const ir::Kernel& kernel, uint64_t* fact_mask) {
  const std::vector<Fact> facts = facts_of(kernel);
  const ir::OneAxis places(kernel);
  std::map<int, bool> in_vectors;  // of parameters that have such a view
  for (size_t i = 0; i < facts.size(); ++i) {
    if (facts[i].kind != Fact::Kind::kOneAxis || !(*fact_mask >> i & 1)) continue;
    const ir::Buffer& tensor = *kernel.params[static_cast<size_t>(facts[i].param)].tensor;
    if (ir::bits(tensor.type.dtype) < 8 || !places.counts(tensor)) continue;
    in_vectors[facts[i].param] |= facts[i].bytes > 1;
  }
  if (in_vectors.empty()) return kernel;
  ir::Kernel out = kernel;
  std::map<const ir::Buffer*, ir::BufferRef> views;
  for (const auto& [param, vectors] : in_vectors) {
    ir::BufferRef& tensor = out.params[static_cast<size_t>(param)].tensor;
    tensor = views[tensor.get()] = view_of(*tensor);
  }
  out.body = Viewer(places, views).block(kernel.body);
  for (size_t i = 0; i < facts.size(); ++i) {
    const auto found = in_vectors.find(facts[i].param);
    if (found == in_vectors.end()) continue;
    const uint64_t bit = uint64_t{1} << i;
    if (facts[i].kind == Fact::Kind::kUnitStride || (facts[i].kind == Fact::Kind::kVector && found->second))
      *fact_mask |= bit;
    if (facts[i].kind == Fact::Kind::kTransposed) *fact_mask &= ~bit;
  }
  return out;
}

}  // namespace kachel::lowering
