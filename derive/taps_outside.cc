#include "derive/taps_outside.h"

#include <algorithm>
#include <set>

#include "derive/depth_axes.h"
#include "derive/fresh_names.h"
#include "derive/lets.h"
#include "derive/parts.h"
#include "derive/uses.h"
#include "ir/poly.h"
#include "ir/visit.h"

namespace kachel::derive {

using namespace ir;

namespace {

bool is(const ExprRef& expr, Op op) {
  return expr->kind == ExprKind::kApply && expr->op == op;
}
// A literal divisor; 0: it is none.
int64_t literal(const ExprRef& expr) {
  return expr->kind == ExprKind::kInt && expr->int_value > 0 ? expr->int_value : 0;
}
ExprRef divided(Op op, const ExprRef& value, int64_t by) {
  return op == Op::kDiv && by == 1 ? value : make_apply(op, {value, make_int(by)});
}

class Reorderer {
 public:
  Reorderer(const Kernel& kernel, size_t at)
      : kernel_(kernel), at_(at), fresh_(kernel), loop_(std::get<ForStmt>(kernel.body[at].node)), depth_(loop_.body) {
    tap_ = variable(VarKind::kLet, "tap");
    first_ = variable(VarKind::kLet, "first");
  }

  std::optional<Kernel> run() {
    if (!is_int(loop_.begin, 0)) return std::nullopt;
    for (size_t i = 0; i < at_; ++i)
      if (const auto* let = std::get_if<LetStmt>(&kernel_.body[i].node)) lets_.define(*let);
    const ExprRef end = lets_.expanded(loop_.end);
    if (!is(end, Op::kCeilDiv)) return std::nullopt;
    extent_ = end->args[1];
    if (!is_tunable(extent_) && !literal(extent_)) return std::nullopt;
    lets_.define_all(loop_.body);
    find_channel();
    if (!by_) return std::nullopt;
    Block body;
    for (const Stmt& stmt : loop_.body)
      if (!statement(stmt, &body)) return std::nullopt;
    if (!lets_.complete() || !channels_) return std::nullopt;

    const ExprRef chunks = ceil_div(channels_, extent_), counter = make_var(loop_.var);
    Block names;
    names.push_back({{}, LetStmt{tap_, make_apply(Op::kDiv, {counter, chunks})}});
    names.push_back({{}, LetStmt{first_, times(make_apply(Op::kMod, {counter, chunks}), extent_)}});
    body.insert(body.begin(), names.begin(), names.end());
    Kernel out = kernel_;
    auto& loop = std::get<ForStmt>(out.body[at_].node);
    loop.end = times(make_int(by_), chunks);
    loop.body = std::move(body);
    return out;
  }

 private:
  VarRef variable(VarKind kind, const char* name) {
    return std::make_shared<Var>(Var{kind, fresh_(name), {DType::I64, nullptr, false}, {}});
  }

  // k*E + i, the place along k.
  bool is_place(const ExprRef& expr, const Var* along) const {
    if (!is(expr, Op::kAdd)) return false;
    for (size_t i = 0; i < 2; ++i)
      if (expr->args[1 - i]->kind == ExprKind::kVar && expr->args[1 - i]->var.get() == along && is_start(expr->args[i]))
        return true;
    return false;
  }
  bool is_start(const ExprRef& expr) const {
    if (!is(expr, Op::kMul)) return false;
    for (size_t i = 0; i < 2; ++i)
      if (expr->args[i]->kind == ExprKind::kVar && expr->args[i]->var == loop_.var && same(expr->args[1 - i], extent_))
        return true;
    return false;
  }

  // The divisor of which a quotient alone is a tensor's place along some axis.
  void find_channel() {
    for_each_stmt(loop_.body, [this](const Stmt& stmt) {
      const auto* region = std::get_if<ParallelStmt>(&stmt.node);
      const Var* along = region ? depth_index(*region, depth_) : nullptr;
      if (!along) return;
      for_each_stmt(region->body, [&](const Stmt& inner) {
        for_each_expr(inner, [&](const ExprRef& expr) {
          visit(expr, [&](const ExprRef& node) {
            for (size_t axis = 0; node->kind == ExprKind::kLoad && axis < node->args.size(); ++axis) {
              const ExprRef index = lets_.expanded(node->args[axis]);
              if (!is(index, Op::kDiv) || !literal(index->args[1]) || !is_place(index->args[0], along)) continue;
              by_ = literal(index->args[1]);
              channels_ = node->buffer->shape[axis];
            }
          });
        });
      });
    });
  }

  // The expression of the place's digits; sets failed_ where it follows the place in another way.
  ExprRef in_digits(const ExprRef& expr, const VarRef& along) {
    const ExprRef channel = make_apply(Op::kAdd, {make_var(first_), make_var(along)}), tap = make_var(tap_);
    if (is_place(expr, along.get())) return make_apply(Op::kAdd, {times(channel, make_int(by_)), tap});
    if (is(expr, Op::kDiv) || is(expr, Op::kMod)) {
      const int64_t by = literal(expr->args[1]);
      const ExprRef& of = expr->args[0];
      if (by && is_place(of, along.get())) {
        if (is(expr, Op::kDiv) && by == by_) return channel;
        if (is(expr, Op::kMod) && by_ % by == 0) return by == by_ ? tap : divided(Op::kMod, tap, by);
      }
      const int64_t inner = is(of, Op::kDiv) ? literal(of->args[1]) : 0;
      if (by && inner && is(expr, Op::kMod) && by_ % (inner * by) == 0 && is_place(of->args[0], along.get())) {
        const ExprRef high = divided(Op::kDiv, tap, inner);
        return inner * by == by_ ? high : divided(Op::kMod, high, by);
      }
    }
    if (expr->kind == ExprKind::kVar && (expr->var == along || expr->var == loop_.var)) failed_ = true;
    if (expr->args.empty()) return expr;
    auto copy = std::make_shared<Expr>(*expr);
    for (ExprRef& arg : copy->args) arg = in_digits(arg, along);
    return copy;
  }

  // False: it cannot be in another order.
  bool statement(const Stmt& stmt, Block* out) {
    if (std::holds_alternative<LetStmt>(stmt.node)) return true;  // written out
    if (const auto* gemm = std::get_if<GemmStmt>(&stmt.node)) {
      const bool along_k = depth_.of(gemm->a.buffer.get()) && depth_.of(gemm->b.buffer.get()) && gemm->accumulate;
      out->push_back(stmt);
      return along_k && made_.count(gemm->a.buffer.get()) && made_.count(gemm->b.buffer.get());
    }
    if (const auto* region = std::get_if<ParallelStmt>(&stmt.node)) return made(*region, out);
    const auto* copy = std::get_if<CopyStmt>(&stmt.node);
    return copy && copied(*copy, out);
  }

  bool made(const ParallelStmt& region, Block* out) {
    const Var* along = depth_index(region, depth_);
    const auto iter = std::find_if(region.iters.begin(), region.iters.end(),
                                   [&](const IterVar& one) { return one.var.get() == along; });
    if (!along || !same(iter->extent, extent_)) return false;
    ParallelStmt other{region.iters, {}};
    for (const Stmt& stmt : region.body) {
      const auto* assign = std::get_if<AssignStmt>(&stmt.node);
      if (!assign) continue;  // lets, written out
      if (assign->op != AssignOp::kSet || assign->atomic != AtomicOp::kNone) return false;
      AssignStmt set = *assign;
      set.value = in_digits(lets_.expanded(assign->value), iter->var);
      made_.insert(set.buffer.get());
      other.body.push_back({{}, std::move(set)});
    }
    if (failed_) return false;
    out->push_back({{}, std::move(other)});
    return true;
  }

  // f = F[o, k*E +: E], as a region.
  bool copied(const CopyStmt& copy, Block* out) {
    const auto axis = depth_.of(copy.dst.buffer.get());
    const TileRef& from = copy.src;
    if (!axis || !is_whole(copy.dst) || copy.atomic != AtomicOp::kNone || from.buffer->scope != Scope::kGlobal ||
        from.within_first || from.pad)
      return false;
    ParallelStmt region;
    std::vector<ExprRef> places, indices;
    for (const AxisSpec& spec : from.axes) {
      if (spec.kind == AxisSpec::Kind::kIndex) {
        places.push_back(lets_.expanded(spec.start));
      } else if (spec.kind == AxisSpec::Kind::kRange) {
        const VarRef index = variable(VarKind::kParallel, "at");
        const ExprRef start = lets_.expanded(spec.start);
        places.push_back(make_apply(Op::kAdd, {start, make_var(index)}));
        if (region.iters.size() == *axis) {
          if (!is_start(start) || !same(spec.extent, extent_)) return false;
          places.back() = in_digits(places.back(), index);
        }
        region.iters.push_back({index, spec.extent});
        indices.push_back(make_var(index));
      } else {
        return false;
      }
      if (mentions(places.back(), loop_.var.get())) return false;
    }
    if (region.iters.size() != 2) return false;
    made_.insert(copy.dst.buffer.get());
    const AssignStmt set{copy.dst.buffer, indices, AssignOp::kSet, AtomicOp::kNone, make_load(from.buffer, places)};
    region.body.push_back({{}, set});
    out->push_back({{}, std::move(region)});
    return true;
  }

  const Kernel& kernel_;
  const size_t at_;
  FreshNames fresh_;
  const ForStmt& loop_;
  const DepthAxes depth_;
  Lets lets_;
  VarRef tap_, first_;  // the first channel of an iteration
  ExprRef extent_;      // of tiles along k
  int64_t by_ = 0;      // taps a channel; 0: not found
  ExprRef channels_;
  std::set<const Buffer*> made_;  // operands, so far
  bool failed_ = false;
};

}  // namespace

std::optional<Kernel> taps_outside(const Kernel& kernel) {
  for (size_t at = 0; at < kernel.body.size(); ++at) {
    if (!std::holds_alternative<ForStmt>(kernel.body[at].node)) continue;
    if (auto other = Reorderer(kernel, at).run()) return other;
  }
  return std::nullopt;
}

}  // namespace kachel::derive
