#include "lowering/passes/early_loads.h"

#include <algorithm>
#include <set>

#include "ir/visit.h"
#include "lowering/loop_ir/loop_build.h"
#include "lowering/passes/input_loads.h"
#include "lowering/passes/simplify.h"
#include "lowering/planted.h"

namespace kachel::lowering {
namespace {

using ir::ExprKind;
using ir::ExprRef;
using ir::Op;

constexpr int64_t kMostRegisters = 48, kMostIterations = 64;

bool is_short(const LoopFor& loop) {
  return !loop.apart && unrolled_trips(loop) > 1 && unrolled_trips(loop) <= kMostIterations;
}

// Perfectly nested unrolled loops, and what the innermost one does.
struct Nest {
  std::vector<const LoopFor*> loops;
  int64_t iterations = 1;

  explicit Nest(const LoopFor& outermost) {
    for (const LoopFor* loop = &outermost; loop;) {
      loops.push_back(loop);
      iterations *= loop->end->int_value;
      const LoopBlock& body = loop->body;
      const bool only_names = std::all_of(body.begin(), body.end() - 1, [](const LoopStmt& stmt) {
        return std::holds_alternative<LoopLet>(stmt.node) || std::holds_alternative<LoopComment>(stmt.node);
      });
      const auto* inner = only_names ? std::get_if<LoopFor>(&body.back().node) : nullptr;
      loop = inner && is_short(*inner) ? inner : nullptr;
    }
  }
  const LoopBlock& body() const { return loops.back()->body; }
};

// What of a nest's body can be loaded first.
class Choice {
 public:
  Choice(const Nest& nest, const BufferCounts& uses) : nest_(nest) {
    for (const LoopFor* loop : nest.loops) note_names(loop->body);
    BufferCounts own;
    for (const LoopStmt& stmt : nest.body())
      for_each_statement(stmt, [&](const LoopStmt& inner) {
        look_at(inner);
        for_each_access(inner, [&](const ir::BufferRef& buffer, bool write) {
          ++own[buffer.get()];
          if (write) ++writes_[buffer.get()];
          stores_ |= write && buffer->scope == ir::Scope::kGlobal;
        });
      });
    if (!plain_ || !stores_) return;
    for (const LoopStmt& stmt : nest.body()) {
      if (const auto* let = std::get_if<LoopLet>(&stmt.node)) note_reads(let->value);
      const auto* copy = std::get_if<LoopIntrinsic>(&stmt.node);
      if (!copy || !copies_input(*copy)) continue;
      const LoopIntrinsic::Operand& to = copy->operands[0];
      const bool alone = writes_.at(to.buffer.get()) == 1 && own.at(to.buffer.get()) == uses.at(to.buffer.get());
      if (alone && names_.is_known(copy->operands[1].index) && (!copy->guard || names_.is_known(copy->guard)))
        items.push_back({nullptr, copy, to.elements});
    }
  }

  std::vector<InputLoad> items;
  int64_t words() const {
    int64_t words = 0;
    for (const InputLoad& item : items) words += item.words();
    return words;
  }
  // Of the innermost body, those that the items need.
  LoopBlock names() const {
    std::set<const ir::Var*> needed;
    const auto need = [&](const auto& self, const ExprRef& expr) -> void {
      ir::visit(expr, [&](const ExprRef& node) {
        const ExprRef* value = node->kind == ExprKind::kVar ? names_.value_of(node->var.get()) : nullptr;
        if (value && needed.insert(node->var.get()).second) self(self, *value);
      });
    };
    for (const InputLoad& item : items) {
      if (item.read)
        for (const ExprRef& arg : item.read->args) need(need, arg);
      if (!item.vector) continue;
      need(need, item.vector->operands[1].index);
      if (item.vector->guard) need(need, item.vector->guard);
    }
    LoopBlock lets;
    for (const LoopStmt& stmt : nest_.body())
      if (const auto* let = std::get_if<LoopLet>(&stmt.node); let && needed.count(let->var.get()))
        lets.push_back({*let});
    return lets;
  }

 private:
  void note_names(const LoopBlock& body) {
    for (const LoopStmt& stmt : body)
      if (const auto* let = std::get_if<LoopLet>(&stmt.node)) names_.add(*let);
  }
  void look_at(const LoopStmt& stmt) {
    const auto* intrinsic = std::get_if<LoopIntrinsic>(&stmt.node);
    plain_ &= std::holds_alternative<LoopLet>(stmt.node) || std::holds_alternative<LoopStore>(stmt.node) ||
              std::holds_alternative<LoopAtomic>(stmt.node) || std::holds_alternative<LoopIf>(stmt.node) ||
              std::holds_alternative<LoopFor>(stmt.node) || std::holds_alternative<LoopComment>(stmt.node) ||
              (intrinsic && is_own_work(*intrinsic));
  }
  void note_reads(const ExprRef& expr) {
    if (const ir::Expr* load = input_read(*expr)) {
      const bool known = std::all_of(expr->args.begin(), expr->args.end(), [&](const ExprRef& arg) {
        return names_.is_known(arg.get() == load ? load->args[0] : arg);
      });
      if (known) items.push_back({expr.get()});
      return;
    }
    for (size_t arg = 0; arg < (ir::is_lazy(*expr) ? 1 : expr->args.size()); ++arg) note_reads(expr->args[arg]);
  }
  const Nest& nest_;
  BufferCounts writes_;
  // As far as the stores go.
  EarlyNames names_{[this](const ir::Expr& leaf) {
    return leaf.kind != ExprKind::kLoad || is_input(leaf.buffer) || !writes_.count(leaf.buffer.get());
  }};
  bool plain_ = true, stores_ = false;
};

class Parter {
 public:
  explicit Parter(LoopKernel* kernel) : kernel_(*kernel), uses_(accesses_of(*kernel)) {}

  void block(LoopBlock* body) {
    LoopBlock out;
    for (LoopStmt& stmt : *body) {
      const auto* loop = std::get_if<LoopFor>(&stmt.node);
      if (loop && is_short(*loop) && part(*loop, &out)) continue;
      for_each_block(&stmt, [this](LoopBlock* inner) { block(inner); });
      out.push_back(std::move(stmt));
    }
    *body = std::move(out);
  }

 private:
  bool part(const LoopFor& loop, LoopBlock* out) {
    const Nest nest(loop);
    Choice choice(nest, uses_);
    if (choice.items.empty()) return false;
    const int64_t most = kMostRegisters / choice.words();
    if (nest.iterations > most) return nest.loops.size() == 1 && in_turns(loop, most, out);
    ExprRef number;  // of the iteration
    for (const LoopFor* one : nest.loops) {
      const ExprRef var = ir::make_cast({ir::DType::I32, nullptr}, ir::make_var(one->var));
      number = number ? plus(times(number, one->end->int_value), var) : var;
    }
    LoopBlock loads = choice.names();
    for (InputLoad& item : choice.items) {
      item.registers = add_registers(&kernel_, "early", item.type(), nest.iterations * item.width);
      loads.push_back(load_early(item, planted(Planted::kEarlyLoad) ? int32(0) : number));
    }
    const LoopBlock rest = without_reads(nest.body(), choice.items, number);
    out->push_back(around(nest, 0, loads));
    out->push_back(around(nest, 0, rest));
    return true;
  }

  // The loops of the nest around another body, with counters of their own.
  LoopStmt around(const Nest& nest, size_t depth, const LoopBlock& body) {
    const LoopFor& of = *nest.loops[depth];
    LoopFor loop = counted(of, of.end->int_value);
    LoopBlock inner;
    if (depth + 1 == nest.loops.size()) {
      inner = body;
    } else {
      for (const LoopStmt& stmt : of.body)
        if (std::holds_alternative<LoopLet>(stmt.node)) inner.push_back(stmt);
      inner.push_back(around(nest, depth + 1, body));
    }
    loop.body = substituted(inner, {{of.var.get(), ir::make_var(loop.var)}});
    return {std::move(loop)};
  }

  // A loop like the other one of so many iterations, with a counter of its own and no body.
  LoopFor counted(const LoopFor& like, int64_t iterations) {
    LoopFor loop = without_body(like);
    loop.var = std::make_shared<ir::Var>(*like.var);
    loop.end = ir::make_int(iterations, like.end->type);
    kernel_.ranges.set(loop.var, {0, iterations - 1});
    return loop;
  }

  // Several loops of at most so many iterations.
  bool in_turns(const LoopFor& loop, int64_t most, LoopBlock* out) {
    int64_t together = std::min(most, loop.end->int_value);
    while (together > 1 && loop.end->int_value % together) --together;
    if (together < 2) return false;
    LoopFor outer = counted(loop, loop.end->int_value / together), inner = counted(loop, together);
    const ExprRef number = plus(times(ir::make_var(outer.var), together), ir::make_var(inner.var));
    inner.body = substituted(loop.body, {{loop.var.get(), number}});
    if (!part(inner, &outer.body)) return false;
    out->push_back({std::move(outer)});
    return true;
  }

  // The body, which finds in registers what has been loaded.
  static LoopBlock without_reads(const LoopBlock& body, const std::vector<InputLoad>& items, const ExprRef& number) {
    LoopBlock out;
    for (size_t i = 0; i < body.size(); ++i) {
      const auto* copy = std::get_if<LoopIntrinsic>(&body[i].node);
      if (std::any_of(items.begin(), items.end(), [&](const InputLoad& item) { return copy && item.vector == copy; }))
        continue;
      LoopStmt stmt = body[i];
      if (auto* let = std::get_if<LoopLet>(&stmt.node)) let->value = with_reads(let->value, items, number);
      for_each_statement(stmt, [&](LoopStmt& inner) {
        for (const InputLoad& item : items)
          if (item.vector) use_vector(item, number, &inner);
      });
      out.push_back(std::move(stmt));
    }
    return out;
  }
  static ExprRef with_reads(const ExprRef& expr, const std::vector<InputLoad>& items, const ExprRef& number) {
    return replaced(expr, [&](const ExprRef& node) -> ExprRef {
      for (const InputLoad& item : items)
        if (item.read == node.get()) return loaded(item, number);
      return nullptr;
    });
  }

  LoopKernel& kernel_;
  const BufferCounts uses_;
};

}  // namespace

void early_loads(LoopKernel* kernel) {
  Parter(kernel).block(&kernel->body);
}

}  // namespace kachel::lowering
