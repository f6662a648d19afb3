// Two iterations of a `parallel`, or two blocks, must not write one element.
//
// Iterations: injective.h, for every assignment by itself. Blocks: a store must depend on every grid index, in its
// indices or in a condition around it. Dependence is a set of grid indices, a bit each, carried from values to `let`s,
// loop indices and the contents of tiles. That is weaker than a proof of disjointness, which indices from memory make
// impossible, but catches the index that was forgotten; ranges that are plainly longer than their step are caught too.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>

#include "ir/injective.h"
#include "ir/print.h"
#include "ir/quotients.h"
#include "ir/verify_rules.h"

namespace kachel::ir {
namespace {

class Writes {
 public:
  Writes(const Kernel& kernel, Diagnostics& out) : kernel_(kernel), out_(out) {
    for (const Tunable& tunable : kernel.tunables)
      least_[tunable.var.get()] =
          tunable.automatic ? 1 : *std::min_element(tunable.values.begin(), tunable.values.end());
    for (size_t i = 0; i < kernel.grid.size() && i < 64; ++i) depends_[kernel.grid[i].var.get()] = uint64_t{1} << i;
  }

  void run() {
    quiet_ = true;  // what a loop carries to its next iteration takes a second walk
    block(kernel_.body, 0);
    quiet_ = false;
    block(kernel_.body, 0);
  }

 private:
  void report(Loc loc, std::string message, std::string mend) {
    if (!quiet_) out_.push_back({loc, std::move(message), std::move(mend)});
  }

  uint64_t depends(const ExprRef& expr) {
    uint64_t mask = 0;
    visit(expr, [&](const ExprRef& node) {
      const void* what = node->kind == ExprKind::kVar    ? static_cast<const void*>(node->var.get())
                         : node->kind == ExprKind::kLoad ? static_cast<const void*>(node->buffer.get())
                                                         : nullptr;
      auto it = depends_.find(what);
      if (it != depends_.end()) mask |= it->second;
    });
    return mask;
  }
  // Of the place of a slice; with `contents`, of what it holds too.
  uint64_t depends(const TileRef& tile, bool contents) {
    uint64_t mask = 0;
    for (const AxisSpec& axis : tile.axes) {
      mask |= depends(axis.start);
      if (axis.gather) mask |= depends(*axis.gather, true);
    }
    mask |= depends(tile.within_first) | depends(tile.within_length);
    if (contents) mask |= depends_[tile.buffer.get()];
    return mask;
  }

  void block(const Block& body, uint64_t control) {
    for (const Stmt& stmt : body) statement(stmt, control);
  }

  void statement(const Stmt& stmt, uint64_t control) {
    if (const auto* let = std::get_if<LetStmt>(&stmt.node)) {
      define(*let);
    } else if (const auto* copy = std::get_if<CopyStmt>(&stmt.node)) {
      stored(copy->dst, control | depends(copy->src, true), control, copy->atomic);
    } else if (const auto* fill = std::get_if<FillStmt>(&stmt.node)) {
      stored(fill->dst, control | depends(fill->value), control, AtomicOp::kNone);
    } else if (const auto* gemm = std::get_if<GemmStmt>(&stmt.node)) {
      depends_[gemm->c.buffer.get()] |= control | depends(gemm->a, true) | depends(gemm->b, true);
    } else if (const auto* region = std::get_if<ParallelStmt>(&stmt.node)) {
      std::vector<Poly> conditions;
      this->region(region->iters, region->body, conditions, control);
    } else if (const auto* loop = std::get_if<ForStmt>(&stmt.node)) {
      depends_[loop->var.get()] = depends(loop->begin) | depends(loop->end);
      block(loop->body, control);
    } else if (const auto* branch = std::get_if<IfStmt>(&stmt.node)) {
      uint64_t inner = control | depends(branch->condition);
      block(branch->then_body, inner);
      block(branch->else_body, inner);
    }
  }

  void define(const LetStmt& let) {
    depends_[let.var.get()] = depends(let.value);
    polys_.define(let.var, let.value);
    names_[let.var.get()] = let.value;
  }

  void stored(const TileRef& dst, uint64_t value, uint64_t control, AtomicOp atomic) {
    uint64_t place = depends(dst, false);
    if (dst.buffer->scope != Scope::kGlobal) {
      depends_[dst.buffer.get()] |= value | place;
      return;
    }
    if (atomic != AtomicOp::kNone) return;
    if (every_block(*dst.buffer, place | control, dst.loc)) overlap(dst, control);
  }

  // Reports the first grid index that a store does not depend on.
  bool every_block(const Buffer& buffer, uint64_t mask, Loc loc) {
    for (size_t i = 0; i < kernel_.grid.size() && i < 64; ++i) {
      if (mask >> i & 1 || polys_.of(kernel_.grid[i].extent) == PolyContext::constant(1)) continue;
      const std::string& axis = kernel_.grid[i].var->name;
      report(loc, fmt::format("every block along `{}` writes the same elements of `{}`", axis, buffer.name),
             fmt::format("use `{0}` in the indices, write in `if {0} == 0 {{ ... }}`, or combine with `atomic`", axis));
      return false;
    }
    return true;
  }

  // Neighbouring blocks along g write [g*S + rest, E) with E > S.
  void overlap(const TileRef& dst, uint64_t control) {
    for (size_t i = 0; i < kernel_.grid.size() && i < 64; ++i) {
      const Var* g = kernel_.grid[i].var.get();
      uint64_t bit = uint64_t{1} << i;
      if (control & bit || polys_.of(kernel_.grid[i].extent) == PolyContext::constant(1)) continue;
      const AxisSpec* only = nullptr;
      int uses = dst.within_first && (depends(dst.within_first) | depends(dst.within_length)) & bit ? 2 : 0;
      for (const AxisSpec& axis : dst.axes) {
        uint64_t mask = depends(axis.start) | (axis.gather ? depends(*axis.gather, true) : 0);
        if (!(mask & bit)) continue;
        ++uses;
        only = &axis;
      }
      if (uses != 1 || only->kind != AxisSpec::Kind::kRange) continue;
      Poly step, rest, length = polys_.of(only->extent);
      if (!polys_.linear(polys_.of(only->start), g, step, rest) || depends_of(rest) & bit) continue;
      // Blocks may begin at the end.
      const bool back = positive(polys_.add({}, step, -1));
      if (!positive(polys_.add(length, step, back ? 1 : -1))) continue;
      report(
          dst.loc,
          fmt::format("neighbouring blocks along `{}` write overlapping elements of `{}`", g->name, dst.buffer->name),
          fmt::format("the step of `{}` is less than the length {}; make them equal", g->name, print(only->extent)));
      return;
    }
  }

  uint64_t depends_of(const Poly& poly) {
    uint64_t mask = 0;
    for (const auto& [what, bits] : depends_)
      if (bits && polys_.mentions(poly, static_cast<const Var*>(what))) mask |= bits;
    return mask;
  }

  // Above 0 whatever the tunables are.
  bool positive(const Poly& poly) {
    int64_t least = 0;
    for (const auto& [product, coefficient] : poly.terms) {
      int64_t value = coefficient;
      for (int atom : product) {
        auto it = least_.find(polys_.variable(atom));
        if (coefficient < 0 || it == least_.end() || __builtin_mul_overflow(value, it->second, &value)) return false;
      }
      if (__builtin_add_overflow(least, value, &least)) return false;
    }
    return least > 0;
  }

  // Whether a node for which that holds is in the value, or in the names that it uses.
  bool has(const ExprRef& value, const std::function<bool(const Expr&)>& what) const {
    std::set<const Var*> seen;
    const auto looks = [&](const ExprRef& expr, auto&& self) -> bool {
      bool found = false;
      visit(expr, [&](const ExprRef& node) {
        found = found || what(*node);
        if (found || node->kind != ExprKind::kVar) return;
        const auto name = names_.find(node->var.get());
        if (name != names_.end() && seen.insert(node->var.get()).second) found = self(name->second, self);
      });
      return found;
    };
    return looks(value, looks);
  }

  // `conditions`: a - b for each `a == b` that holds here.
  void region(const std::vector<IterVar>& iters, const Block& body, std::vector<Poly>& conditions, uint64_t control) {
    for (const Stmt& stmt : body) {
      if (const auto* let = std::get_if<LetStmt>(&stmt.node)) {
        define(*let);
      } else if (const auto* branch = std::get_if<IfStmt>(&stmt.node)) {
        uint64_t inner = control | depends(branch->condition);
        size_t known = conditions.size();
        assume(branch->condition, conditions);
        region(iters, branch->then_body, conditions, inner);
        conditions.resize(known);
        region(iters, branch->else_body, conditions, inner);
      } else if (const auto* assign = std::get_if<AssignStmt>(&stmt.node)) {
        this->assign(iters, *assign, conditions, control, stmt.loc);
      }
    }
  }

  void assume(const ExprRef& condition, std::vector<Poly>& conditions) {
    if (condition->kind != ExprKind::kApply) return;
    if (condition->op == Op::kAnd) {
      assume(condition->args[0], conditions);
      assume(condition->args[1], conditions);
    } else if (condition->op == Op::kEq) {
      conditions.push_back(polys_.add(polys_.of(condition->args[0]), polys_.of(condition->args[1]), -1));
    }
  }

  void assign(const std::vector<IterVar>& iters, const AssignStmt& assign, const std::vector<Poly>& conditions,
              uint64_t control, Loc loc) {
    uint64_t place = control;
    for (const ExprRef& index : assign.indices) place |= depends(index);
    if (assign.buffer->scope != Scope::kGlobal) depends_[assign.buffer.get()] |= place | depends(assign.value);
    if (assign.atomic != AtomicOp::kNone || quiet_) return;
    if (assign.buffer->scope == Scope::kGlobal) every_block(*assign.buffer, place, loc);

    std::vector<Poly> components = conditions;
    for (const ExprRef& index : assign.indices) components.push_back(polys_.of(index));
    const auto named = [this](const Var& var) {
      const auto found = names_.find(&var);
      return found == names_.end() ? nullptr : found->second;
    };
    const auto is_fixed = [&](const ExprRef& value) {
      return !has(value, [](const Expr& node) {
        return node.kind == ExprKind::kLoad || (node.kind == ExprKind::kVar && node.var->kind == VarKind::kParallel);
      });
    };
    const auto limit = [&](const Var& var) -> ExprRef {
      const auto iter =
          std::find_if(iters.begin(), iters.end(), [&](const IterVar& one) { return one.var.get() == &var; });
      return iter == iters.end() ? nullptr : iter->extent;
    };
    for (const ExprRef& whole : recomposed(assign.indices, {named, is_fixed, limit}))
      components.push_back(polys_.of(whole));
    std::vector<const Var*> doubtful;
    if (injective(polys_, {iters, least_}, components, doubtful)) return;
    // Where bits or a name make the place, as in a network, the way to say it is the other way round.
    const bool computed = assign.buffer->scope != Scope::kGlobal &&
                          std::any_of(assign.indices.begin(), assign.indices.end(), [](const ExprRef& index) {
                            if (index->kind == ExprKind::kVar) return index->var->kind == VarKind::kLet;
                            return index->kind == ExprKind::kApply &&
                                   (index->op == Op::kBitXor || index->op == Op::kBitOr || index->op == Op::kBitAnd);
                          });
    const std::string& name = doubtful[0]->name;
    const auto is_doubtful = [&](const Expr& node) {
      return node.kind == ExprKind::kVar && node.var.get() == doubtful[0];
    };
    const bool in_index = std::any_of(assign.indices.begin(), assign.indices.end(),
                                      [&](const ExprRef& index) { return has(index, is_doubtful); });
    report(
        loc, fmt::format("two iterations of `parallel` may write the same element of `{}`", assign.buffer->name),
        computed ? fmt::format("it is not seen that places which follow `{0}` differ: write at `{0}` itself and read "
                               "elsewhere (`x[{0}] = f(x[{0}], x[{0} ^ h])`), or use `atomic`",
                               name)
        : in_index
            ? fmt::format("it is not seen that places differ which follow `{0}`: sums of multiples do, and a quotient "
                          "beside its remainder (`[{0} / w, {0} % w]`); reduce with `sum[...]`, keep the places in a "
                          "tile, as `Y[at, :] = x` writes rows, or use `atomic`",
                          name)
            : fmt::format("index with every parallel variable (see `{}`), reduce with `sum[...]`, or use `atomic`",
                          name));
  }

  const Kernel& kernel_;
  Diagnostics& out_;
  PolyContext polys_;
  std::unordered_map<const void*, uint64_t> depends_;  // grid indices that a variable or the contents of a tile follow
  std::unordered_map<const Var*, int64_t> least_;
  std::unordered_map<const Var*, ExprRef> names_;  // of regions
  bool quiet_ = false;
};

}  // namespace

void check_writes(const Kernel& kernel, Diagnostics& out) {
  Writes(kernel, out).run();
}

}  // namespace kachel::ir
