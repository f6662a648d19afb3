#include "lowering/passes/hoist_invariants.h"

#include <algorithm>
#include <set>

#include "ir/visit.h"
#include "lowering/loop_ir/loop_build.h"
#include "lowering/passes/simplify.h"
#include "lowering/passes/small_addends.h"
#include "lowering/planted.h"

namespace kachel::lowering {
namespace {

using ir::ExprKind;
using ir::ExprRef;

bool in_memory(const ir::BufferRef& buffer) {
  return buffer->scope != ir::Scope::kRegister;
}

// Waits for nothing but other lanes, and changes registers alone.
bool is_of_registers(const LoopIntrinsic& intrinsic) {
  using Kind = LoopIntrinsic::Kind;
  const Kind kind = intrinsic.kind;
  return kind == Kind::kConvertPair || kind == Kind::kUnpack || kind == Kind::kPackedMath || kind == Kind::kQuadJoin ||
         (kind == Kind::kCopyVector && !in_memory(intrinsic.operands[0].buffer));
}

// What a loop's body changes.
struct Changes {
  std::set<const ir::Var*> names;  // those that `let` gives left out at the top of the body
  std::set<const ir::Buffer*> buffers;
  bool waits = false;  // for other threads

  explicit Changes(const LoopFor& loop) {
    names.insert(loop.var.get());
    for (const LoopStmt& stmt : loop.body)
      if (!std::holds_alternative<LoopLet>(stmt.node)) note(stmt);
  }

 private:
  void note(const LoopStmt& stmt) {
    if (const auto* let = std::get_if<LoopLet>(&stmt.node)) names.insert(let->var.get());
    if (const auto* store = std::get_if<LoopStore>(&stmt.node)) buffers.insert(store->buffer.get());
    if (const auto* atomic = std::get_if<LoopAtomic>(&stmt.node)) buffers.insert(atomic->buffer.get());
    if (const auto* shuffle = std::get_if<LoopShuffle>(&stmt.node)) names.insert(shuffle->var.get());
    if (const auto* intrinsic = std::get_if<LoopIntrinsic>(&stmt.node); intrinsic && is_of_registers(*intrinsic)) {
      buffers.insert(intrinsic->operands[0].buffer.get());
      return;
    }
    auto nested = [this](const LoopBlock& body) {
      for (const LoopStmt& inner : body) note(inner);
    };
    if (const auto* loop = std::get_if<LoopFor>(&stmt.node)) {
      names.insert(loop->var.get());
      nested(loop->body);
    } else if (const auto* branch = std::get_if<LoopIf>(&stmt.node)) {
      nested(branch->then_body);
      nested(branch->else_body);
    } else if (!std::holds_alternative<LoopLet>(stmt.node) && !std::holds_alternative<LoopStore>(stmt.node) &&
               !std::holds_alternative<LoopComment>(stmt.node) && !std::holds_alternative<LoopShuffle>(stmt.node) &&
               !std::holds_alternative<LoopAtomic>(stmt.node)) {
      waits = true;  // or, as intrinsics, is not looked into
    }
  }
};

class Hoister {
 public:
  explicit Hoister(Ranges& ranges) : ranges_(ranges) {}

  void block(LoopBlock* body) {
    LoopBlock out;
    for (LoopStmt& stmt : *body) {
      for_each_expr(&stmt, [this](ExprRef* expr) {
        *expr = ir::rewrite(*expr, [this](const ExprRef& node) { return without_small_addend(node, ranges_, sums_); });
      });
      if (const auto* let = std::get_if<LoopLet>(&stmt.node)) {
        if (let->value->kind == ExprKind::kApply && let->value->op == ir::Op::kAdd)
          sums_[let->var.get()] = let->value;
        else
          sums_.erase(let->var.get());
      }
      if (auto* loop = std::get_if<LoopFor>(&stmt.node)) {
        block(&loop->body);
        hoist(loop, &out);
      } else {
        for_each_block(&stmt, [this](LoopBlock* inner) { block(inner); });
      }
      out.push_back(std::move(stmt));
    }
    *body = std::move(out);
  }

 private:
  // The expressions of the statement itself.
  template <class Fn>
  static void for_each_expr(LoopStmt* stmt, const Fn& fn) {
    if (auto* let = std::get_if<LoopLet>(&stmt->node)) fn(&let->value);
    if (auto* store = std::get_if<LoopStore>(&stmt->node)) fn(&store->index), fn(&store->value);
  }

  void hoist(LoopFor* loop, LoopBlock* out) {
    const bool runs =
        ir::is_const(loop->begin) && ir::is_const(loop->end) && loop->begin->int_value < loop->end->int_value;
    if (!loop->unroll || !runs) return;
    const Changes changes(*loop);
    if (changes.waits) return;
    std::set<const ir::Var*> changing = changes.names;  // and names of what changes
    for (const LoopStmt& stmt : loop->body)
      if (const auto* let = std::get_if<LoopLet>(&stmt.node); let && !fixed(let->value, changing, changes.buffers))
        changing.insert(let->var.get());
    // From the first load on: the names that it needs stand before it.
    std::vector<std::pair<ExprRef, ExprRef>> loaded;
    std::set<const ir::Var*> needed;
    LoopBlock before;
    const auto lift = [&](auto&& self, const ExprRef& expr) -> ExprRef {
      if (loads_memory(expr) && fixed(expr, changing, changes.buffers)) {
        for (const auto& [known, name] : loaded)
          if (ir::same(known, expr)) return name;
        need(expr, &needed);
        loaded.push_back({expr, named("loaded", expr, &before)});
        return loaded.back().second;
      }
      // What the first operand guards is not loaded where the guard is not known.
      const bool guards = ir::is_lazy(*expr) && !planted(Planted::kGuardLeftBehind);
      bool changed = false;
      std::vector<ExprRef> args;
      for (const ExprRef& arg : expr->args) {
        args.push_back(guards && !args.empty() ? arg : self(self, arg));
        changed |= args.back() != arg;
      }
      if (!changed) return expr;
      auto copy = std::make_shared<ir::Expr>(*expr);
      copy->args = std::move(args);
      return copy;
    };
    for (LoopStmt& stmt : loop->body) {
      const auto* let = std::get_if<LoopLet>(&stmt.node);
      if (let && !changing.count(let->var.get())) continue;  // moves as a whole, if it moves
      for_each_expr(&stmt, [&](ExprRef* expr) { *expr = lift(lift, *expr); });
    }
    // Fixed names that loads move: those needed, and all that they are made of; loads under a name of their own too.
    LoopBlock kept, names;
    std::vector<bool> moves(loop->body.size());
    for (size_t i = loop->body.size(); i-- > 0;) {
      if (loads_fixed_vector(loop->body, i, changing, changes.buffers)) {
        moves[i] = true;
        const auto& vector = std::get<LoopIntrinsic>(loop->body[i].node);
        for (const ExprRef& expr : {vector.operands[1].index, vector.guard})
          if (expr) need(expr, &needed);
        continue;
      }
      const auto* let = std::get_if<LoopLet>(&loop->body[i].node);
      if (!let || changing.count(let->var.get()) || !(needed.count(let->var.get()) || loads_memory(let->value)))
        continue;
      moves[i] = true;
      need(let->value, &needed);
    }
    for (size_t i = 0; i < loop->body.size(); ++i) (moves[i] ? names : kept).push_back(std::move(loop->body[i]));
    for (LoopStmt& stmt : before) names.push_back(std::move(stmt));
    if (names.empty()) {
      loop->body = std::move(kept);
      return;
    }
    // Under new names, since another loop of the block may declare the old ones.
    std::unordered_map<const ir::Var*, ExprRef> renamed;
    for (LoopStmt& stmt : names) {
      if (std::holds_alternative<LoopIntrinsic>(stmt.node)) {
        for (LoopStmt& vector : substituted({stmt}, renamed)) out->push_back(std::move(vector));
        continue;
      }
      auto& let = std::get<LoopLet>(stmt.node);
      const ir::VarRef fresh = std::make_shared<ir::Var>(*let.var);
      ranges_.set(fresh, ranges_.of(ir::make_var(let.var)));
      ranges_.set_multiple(fresh, ranges_.multiple_of(ir::make_var(let.var)));
      out->push_back({LoopLet{fresh, with(let.value, renamed)}});
      renamed[let.var.get()] = ir::make_var(fresh);
    }
    loop->body = substituted(kept, std::move(renamed));
  }

  static void need(const ExprRef& expr, std::set<const ir::Var*>* needed) {
    ir::visit(expr, [&](const ExprRef& node) {
      if (node->kind == ExprKind::kVar) needed->insert(node->var.get());
    });
  }

  // A vector of what the loop does not change, to registers that nothing else in it writes, nor reads before.
  static bool loads_fixed_vector(const LoopBlock& body, size_t at, const std::set<const ir::Var*>& changing,
                                 const std::set<const ir::Buffer*>& written) {
    const auto* vector = std::get_if<LoopIntrinsic>(&body[at].node);
    if (!vector || vector->kind != LoopIntrinsic::Kind::kCopyVector) return false;
    const LoopIntrinsic::Operand &to = vector->operands[0], &from = vector->operands[1];
    if (in_memory(to.buffer) || !in_memory(from.buffer) || written.count(from.buffer.get())) return false;
    for (const ExprRef& expr : {to.index, from.index, vector->guard})
      if (expr && !fixed(expr, changing, written)) return false;
    bool alone = true;
    for (size_t i = 0; i < body.size(); ++i)
      if (i != at)
        for_each_statement(body[i], [&](const LoopStmt& stmt) {
          for_each_access(stmt, [&](const ir::BufferRef& buffer, bool write) {
            alone &= buffer != to.buffer || (i > at && !write);
          });
        });
    return alone;
  }

  static ExprRef with(const ExprRef& expr, const std::unordered_map<const ir::Var*, ExprRef>& names) {
    return ir::rewrite(expr, [&](const ExprRef& node) {
      const auto it = node->kind == ExprKind::kVar ? names.find(node->var.get()) : names.end();
      return it == names.end() ? node : it->second;
    });
  }
  static bool loads_memory(const ExprRef& expr) {
    bool found = false;
    ir::visit(expr, [&](const ExprRef& node) { found |= node->kind == ExprKind::kLoad && in_memory(node->buffer); });
    return found;
  }
  static bool fixed(const ExprRef& expr, const std::set<const ir::Var*>& changing,
                    const std::set<const ir::Buffer*>& written) {
    bool fixed = true;
    ir::visit(expr, [&](const ExprRef& node) {
      fixed &= !(node->kind == ExprKind::kVar && changing.count(node->var.get()));
      // Registers change by intrinsics that name a part of them.
      fixed &= !(node->kind == ExprKind::kLoad && (!in_memory(node->buffer) || written.count(node->buffer.get())));
    });
    return fixed;
  }

  Ranges& ranges_;
  NamedSums sums_;  // of names that stand in front
};

}  // namespace

void hoist_invariants(LoopKernel* kernel) {
  Hoister(kernel->ranges).block(&kernel->body);
}

}  // namespace kachel::lowering
