// Walks the region once, in program order, with the guard of the enclosing `if`s. `written_` remembers for every
// assigned (buffer, index text) the values assigned so far with their guards; a read of that text is replaced by a
// chain of selections built when it is met, so that a value nobody reads back costs nothing, and in particular no load
// of the old one. Names are bound wherever an expression holds a load or is used twice: evaluation order is then the
// order of `lets`, and stores move freely to the end.
#include "ir/parallel.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/instantiate.h"
#include "ir/query.h"

namespace kachel::ir {
namespace {

bool is_atom(const ExprRef& expr) {
  return is_const(expr) || expr->kind == ExprKind::kVar;
}

bool same_indices(const std::vector<ExprRef>& a, const std::vector<ExprRef>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) { return same(x, y); });
}

struct Assigned {
  ExprRef guard, value;
};

struct Element {
  BufferRef buffer;
  std::vector<ExprRef> indices;  // as written in the program
  std::vector<Assigned> values;  // since the last one without a guard
};

class Forwarder {
 public:
  ForwardedRegion run(const ParallelStmt& region) {
    out_.iters = region.iters;
    walk(region.body, nullptr);
    return std::move(out_);
  }

 private:
  void walk(const Block& body, const ExprRef& guard);
  void assign(const AssignStmt& stmt, const ExprRef& guard, Loc loc);
  ExprRef forward(const ExprRef& expr);
  ExprRef forward_load(const ExprRef& original, const ExprRef& rebuilt);
  ExprRef bind(const ExprRef& value, const std::string& hint);
  void drop_overwritten(const GuardedStore& store);
  void record(Element* element, GuardedStore store);
  void join_branches(size_t begin, const ExprRef& condition, const ExprRef& guard, const ExprRef& then_guard,
                     const ExprRef& else_guard);
  bool has_atomics(const BufferRef& buffer) const;
  Element* find(const BufferRef& buffer, const std::vector<ExprRef>& indices);

  ForwardedRegion out_;
  std::vector<Element> written_;
};

Element* Forwarder::find(const BufferRef& buffer, const std::vector<ExprRef>& indices) {
  for (Element& element : written_)
    if (element.buffer == buffer && same_indices(element.indices, indices)) return &element;
  return nullptr;
}

ExprRef Forwarder::bind(const ExprRef& value, const std::string& hint) {
  if (is_atom(value)) return value;
  auto var = std::make_shared<const Var>(Var{VarKind::kLet, hint, {value->type, nullptr}, value->loc});
  out_.lets.push_back({var, value});
  return make_var(var, value->loc);
}

// `original` is the read as written, by which it is recognised; `rebuilt` has its own indices forwarded.
ExprRef Forwarder::forward_load(const ExprRef& original, const ExprRef& rebuilt) {
  Element* element = find(original->buffer, original->args);
  if (!element) return rebuilt;
  ExprRef visible = rebuilt;
  for (const Assigned& assigned : element->values)
    visible = assigned.guard ? make_typed(Op::kSelect, {assigned.guard, assigned.value, visible}) : assigned.value;
  return visible;
}

ExprRef Forwarder::forward(const ExprRef& expr) {
  if (written_.empty()) return expr;
  bool changed = false;
  std::vector<ExprRef> args;
  for (const ExprRef& arg : expr->args) {
    args.push_back(forward(arg));
    changed |= args.back() != arg;
  }
  ExprRef rebuilt = expr;
  if (changed) {
    auto copy = std::make_shared<Expr>(*expr);
    copy->args = std::move(args);
    rebuilt = copy;
  }
  return expr->kind == ExprKind::kLoad ? forward_load(expr, rebuilt) : rebuilt;
}

void Forwarder::drop_overwritten(const GuardedStore& store) {
  std::erase_if(out_.stores, [&](const GuardedStore& earlier) {
    return earlier.store.buffer == store.store.buffer && earlier.store.atomic == AtomicOp::kNone &&
           same_indices(earlier.store.indices, store.store.indices);
  });
}

bool Forwarder::has_atomics(const BufferRef& buffer) const {
  return std::any_of(out_.stores.begin(), out_.stores.end(), [&](const GuardedStore& earlier) {
    return earlier.store.buffer == buffer && earlier.store.atomic != AtomicOp::kNone;
  });
}

// Atomics to the same buffer keep their place among the stores.
void Forwarder::record(Element* element, GuardedStore store) {
  if (!store.guard) {
    element->values.clear();
    if (!has_atomics(store.store.buffer)) drop_overwritten(store);
  }
  element->values.push_back({store.guard, store.store.value});
  out_.stores.push_back(std::move(store));
}

// What both branches of an `if` assign to one element is one assignment of one of two values, where it is all that they
// assign to that buffer.
void Forwarder::join_branches(size_t begin, const ExprRef& condition, const ExprRef& guard, const ExprRef& then_guard,
                              const ExprRef& else_guard) {
  for (size_t i = begin; i < out_.stores.size(); ++i) {
    const GuardedStore first = out_.stores[i];
    const auto to_buffer = [&](const GuardedStore& one) { return one.store.buffer == first.store.buffer; };
    const auto from = out_.stores.begin() + static_cast<std::ptrdiff_t>(begin);
    if (first.store.atomic != AtomicOp::kNone || std::count_if(from, out_.stores.end(), to_buffer) != 2) continue;
    const auto second =
        std::find_if(out_.stores.begin() + static_cast<std::ptrdiff_t>(i) + 1, out_.stores.end(), to_buffer);
    if (second == out_.stores.end() || second->store.atomic != AtomicOp::kNone ||
        !same_indices(first.store.indices, second->store.indices) || !same(first.guard, then_guard) ||
        !same(second->guard, else_guard))
      continue;
    const auto element = std::find_if(written_.begin(), written_.end(), [&](const Element& one) {
      const size_t count = one.values.size();
      return one.buffer == first.store.buffer && count >= 2 && one.values[count - 2].value == first.store.value &&
             one.values[count - 1].value == second->store.value;
    });
    if (element == written_.end()) continue;
    GuardedStore joined{guard, second->store, first.loc};
    joined.store.value = bind(fold(make_typed(Op::kSelect, {condition, first.store.value, second->store.value})),
                              first.store.buffer->name + "_new");
    out_.stores.erase(second);
    out_.stores.erase(out_.stores.begin() + static_cast<std::ptrdiff_t>(i));
    element->values.resize(element->values.size() - 2);
    const size_t before = out_.stores.size();
    record(&*element, std::move(joined));
    begin -= before + 1 - out_.stores.size();  // what was dropped lies in front of the branches
    i = begin - 1;                             // from the first one again: places have moved
  }
}

void Forwarder::assign(const AssignStmt& stmt, const ExprRef& guard, Loc loc) {
  const std::string& name = stmt.buffer->name;
  GuardedStore result{guard, stmt, loc};
  for (ExprRef& index : result.store.indices) {
    index = fold(forward(index));
    if (loads(index)) index = bind(index, name + "_at");
  }
  ExprRef value = fold(make_cast(stmt.buffer->type, forward(stmt.value), loc));
  result.store.value = bind(value, name + "_new");
  if (stmt.atomic != AtomicOp::kNone) return out_.stores.push_back(std::move(result));
  Element* element = find(stmt.buffer, stmt.indices);
  if (!element) element = &written_.emplace_back(Element{stmt.buffer, stmt.indices, {}});
  record(element, std::move(result));
}

void Forwarder::walk(const Block& body, const ExprRef& guard) {
  for (const Stmt& stmt : body) {
    if (const auto* let = std::get_if<LetStmt>(&stmt.node)) {
      out_.lets.push_back({let->var, fold(forward(let->value))});
    } else if (const auto* store = std::get_if<AssignStmt>(&stmt.node)) {
      assign(*store, guard, stmt.loc);
    } else if (const auto* choice = std::get_if<IfStmt>(&stmt.node)) {
      ExprRef condition = bind(fold(forward(choice->condition)), "when");
      if (condition->kind == ExprKind::kBool) {
        walk(condition->int_value != 0 ? choice->then_body : choice->else_body, guard);
        continue;
      }
      const auto within = [&](const ExprRef& inner) {
        return guard ? bind(fold(make_typed(Op::kAnd, {guard, inner})), "when") : inner;
      };
      const size_t begin = out_.stores.size();
      const ExprRef then_guard = within(condition);
      walk(choice->then_body, then_guard);
      if (choice->else_body.empty()) continue;
      const ExprRef else_guard = within(fold(make_typed(Op::kNot, {condition})));
      walk(choice->else_body, else_guard);
      join_branches(begin, condition, guard, then_guard, else_guard);
    }
  }
}

}  // namespace

ForwardedRegion forward_stores(const ParallelStmt& region) {
  return Forwarder().run(region);
}

const LetStmt* rounding_of(const ForwardedRegion& region, const AssignStmt& store) {
  const LetStmt* rounding = nullptr;
  for (ExprRef value = store.value; value->kind == ExprKind::kVar;) {
    const auto let =
        std::find_if(region.lets.begin(), region.lets.end(), [&](const LetStmt& one) { return one.var == value->var; });
    if (let == region.lets.end() || let->value->kind != ExprKind::kCast ||
        let->value->cast_type.dtype != store.buffer->type.dtype || let->value->args[0]->type != DType::F32)
      break;
    rounding = &*let;
    value = let->value->args[0];
  }
  return rounding;
}

bool sets_all(const ParallelStmt& region, const AssignStmt& assign) {
  if (assign.op != AssignOp::kSet || assign.atomic != AtomicOp::kNone) return false;
  if (assign.indices.size() != 2 || region.iters.size() != 2) return false;
  for (size_t i = 0; i < 2; ++i)
    if (assign.indices[i]->kind != ExprKind::kVar || assign.indices[i]->var != region.iters[i].var ||
        region.iters[i].extent->int_value != assign.buffer->shape[i]->int_value)
      return false;
  return true;
}

}  // namespace kachel::ir
