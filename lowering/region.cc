#include "lowering/region.h"

namespace kachel::lowering {
namespace {

using ir::ExprKind;
using ir::ExprRef;
using ir::Op;

bool same_indices(const std::vector<ExprRef>& a, const std::vector<ExprRef>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (!ir::same(a[i], b[i])) return false;
  return true;
}

class Normaliser {
 public:
  Region run(const ir::ParallelStmt& region) {
    out_.iters = region.iters;
    block(region.body, nullptr);
    return std::move(out_);
  }

 private:
  struct Assigned {
    ir::BufferRef buffer;
    std::vector<ExprRef> indices;
    ExprRef value;
  };

  void block(const ir::Block& body, const ExprRef& guard) {
    for (const ir::Stmt& stmt : body) {
      if (const auto* let = std::get_if<ir::LetStmt>(&stmt.node)) {
        out_.lets.push_back({let->var, forward(let->value)});
      } else if (const auto* assign = std::get_if<ir::AssignStmt>(&stmt.node)) {
        this->assign(*assign, guard);
      } else if (const auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) {
        ExprRef condition = name("condition", forward(branch->condition));
        block(branch->then_body, guard ? ir::make_typed(Op::kAnd, {guard, condition}) : condition);
        ExprRef otherwise = ir::make_typed(Op::kNot, {condition});
        block(branch->else_body, guard ? ir::make_typed(Op::kAnd, {guard, otherwise}) : otherwise);
      }
    }
  }

  void assign(const ir::AssignStmt& assign, const ExprRef& guard) {
    RegionStore store{assign.buffer, {}, assign.atomic, forward(assign.value), guard};
    for (const ExprRef& index : assign.indices) store.indices.push_back(forward(index));
    const ir::DType type = assign.buffer->type.dtype;
    if (store.value->type != ir::compute_type(type)) store.value = ir::make_cast({type, nullptr}, store.value);
    store.value = name("value", store.value);
    if (assign.atomic == ir::AtomicOp::kNone) remember(store, guard);
    out_.stores.push_back(std::move(store));
  }

  void remember(const RegionStore& store, const ExprRef& guard) {
    const ir::TypeRef& type = store.buffer->type;
    ExprRef value = ir::make_cast(type, store.value);
    if (guard) {
      ExprRef before = forward(ir::make_load(store.buffer, store.indices));
      value = ir::make_typed(Op::kSelect, {guard, value, before});
    }
    value = name("assigned", value);
    for (Assigned& assigned : assigned_)
      if (assigned.buffer == store.buffer && same_indices(assigned.indices, store.indices)) {
        assigned.value = value;
        return;
      }
    assigned_.push_back({store.buffer, store.indices, value});
  }

  // Children first, so that an index that itself reads an assigned element is compared in its forwarded form.
  ExprRef forward(const ExprRef& expr) const {
    return ir::rewrite(expr, [this](const ExprRef& node) {
      if (node->kind != ExprKind::kLoad) return node;
      for (const Assigned& assigned : assigned_)
        if (assigned.buffer == node->buffer && same_indices(assigned.indices, node->args)) return assigned.value;
      return node;
    });
  }

  ExprRef name(const char* label, ExprRef value) {
    if (ir::is_const(value) || value->kind == ExprKind::kVar) return value;
    auto var = std::make_shared<ir::Var>(ir::Var{ir::VarKind::kLet, label, {value->type, nullptr}, {}});
    out_.lets.push_back({var, value});
    return ir::make_var(var);
  }

  Region out_;
  std::vector<Assigned> assigned_;
};

}  // namespace

Region normalise(const ir::ParallelStmt& region) {
  return Normaliser().run(region);
}

bool reads_what_others_write(const Region& region) {
  bool found = false;
  for (const RegionStore& store : region.stores) {
    auto check = [&](const ExprRef& expr) {
      ir::visit(expr, [&](const ExprRef& node) {
        if (node->kind != ExprKind::kLoad || node->buffer != store.buffer) return;
        found |= store.atomic != ir::AtomicOp::kNone || !same_indices(node->args, store.indices);
      });
    };
    for (const ir::LetStmt& let : region.lets) check(let.value);
    for (const RegionStore& other : region.stores) {
      check(other.value);
      check(other.guard);
      for (const ExprRef& index : other.indices) check(index);
    }
  }
  return found;
}

}  // namespace kachel::lowering
