#include "derive/taps_outside.h"

#include <algorithm>
#include <set>

#include "derive/depth_axes.h"
#include "derive/fresh_names.h"
#include "derive/lets.h"
#include "derive/parts.h"
#include "derive/uses.h"
#include "ir/concrete.h"
#include "ir/query.h"
#include "ir/visit.h"

namespace kachel::derive {

using namespace ir;

namespace {

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
    for (const Stmt& stmt : loop_.body) written_.merge(find_uses(stmt).written);
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
    taps_ = times_by(end->args[0]);
    Block body;
    for (const Stmt& stmt : loop_.body)
      if (!statement(stmt, &body)) return std::nullopt;
    if (!lets_.complete()) return std::nullopt;
    // What operands hold behind the loop is another part of k.
    for (size_t i = 0; i < kernel_.body.size(); ++i)
      for (const Buffer* read : find_uses(kernel_.body[i]).read)
        if (i != at_ && made_.count(read)) return std::nullopt;

    const ExprRef chunks = ceil_div(channels_, extent_), counter = make_var(loop_.var);
    Block names;
    names.push_back({{}, LetStmt{tap_, make_apply(Op::kDiv, {counter, chunks})}});
    names.push_back({{}, LetStmt{first_, times(make_apply(Op::kMod, {counter, chunks}), extent_)}});
    body.insert(body.begin(), names.begin(), names.end());
    Kernel out = kernel_;
    auto& loop = std::get<ForStmt>(out.body[at_].node);
    loop.end = times(channels_outside_ ? by_ : taps_ ? taps_ : ceil_div(end->args[0], by_), chunks);
    loop.body = std::move(body);
    // What was listed was listed for channels and taps together.
    for (Tunable& tunable : out.tunables)
      if (is_tunable(extent_) && tunable.var == extent_->var && is_free(tunable.var.get()))
        tunable = {tunable.var, {}, true};
    return out;
  }

 private:
  // Whether nothing but the loop and the shapes of its operands follow it.
  bool is_free(const Var* tunable) const {
    bool used = false;
    const auto note = [&](const ExprRef& expr) { used |= expr && mentions(expr, tunable); };
    for (const ExprRef& condition : kernel_.where) note(condition);
    for (const IterVar& axis : kernel_.grid) note(axis.extent);
    for (size_t i = 0; i < kernel_.body.size(); ++i) {
      const auto* decl = std::get_if<DeclStmt>(&kernel_.body[i].node);
      if (decl && !made_.count(decl->buffer.get()))
        for (const ExprRef& extent : decl->buffer->shape) note(extent);
      if (i != at_ && !decl) for_each_stmt({kernel_.body[i]}, [&](const Stmt& stmt) { for_each_expr(stmt, note); });
    }
    return !used;
  }

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

  // The divisor of which a digit alone is a tensor's place along some axis: the quotient, of literals, or the remainder
  // by the extent of that axis.
  void find_channel() {
    for_each_stmt(loop_.body, [this](const Stmt& stmt) {
      const auto* region = std::get_if<ParallelStmt>(&stmt.node);
      const Var* along = region ? depth_index(*region, depth_) : nullptr;
      if (!along) return;
      for_each_stmt(region->body, [&](const Stmt& inner) {
        for_each_expr(inner, [&](const ExprRef& expr) {
          visit(expr, [&](const ExprRef& node) {
            for (size_t axis = 0; node->kind == ExprKind::kLoad && axis < node->args.size(); ++axis)
              if (!by_) look_at(lets_.expanded(node->args[axis]), along, node->buffer->shape[axis]);
          });
        });
      });
    });
  }
  void look_at(const ExprRef& index, const Var* along, const ExprRef& extent) {
    const bool quotient = is(index, Op::kDiv) && literal(index->args[1]);
    const bool remainder = is(index, Op::kMod) && same(index->args[1], extent);
    if ((!quotient && !remainder) || !is_place(index->args[0], along)) return;
    by_ = index->args[1];
    channels_outside_ = quotient;
    channels_ = extent;
  }

  ExprRef channel(const VarRef& along) const { return make_apply(Op::kAdd, {make_var(first_), make_var(along)}); }
  ExprRef place(const VarRef& along) const {
    const ExprRef tap = make_var(tap_);
    return channels_outside_ ? make_apply(Op::kAdd, {times(channel(along), by_), tap})
                             : make_apply(Op::kAdd, {times(tap, by_), channel(along)});
  }
  // What a quotient or a remainder of the place is, in digits; null: it is in none.
  ExprRef digit(const ExprRef& expr, const VarRef& along) const {
    if (!is(expr, Op::kDiv) && !is(expr, Op::kMod)) return nullptr;
    const ExprRef &of = expr->args[0], &by = expr->args[1], tap = make_var(tap_);
    const bool quotient = is(expr, Op::kDiv);
    if (is_place(of, along.get())) {
      if (same(by, by_)) return quotient == channels_outside_ ? channel(along) : tap;
      for (size_t i = 0; quotient && !channels_outside_ && is(by, Op::kMul) && i < 2; ++i)
        if (same(by->args[i], by_) && literal(by->args[1 - i])) return divided(Op::kDiv, tap, literal(by->args[1 - i]));
    }
    if (quotient || !channels_outside_ || !literal(by)) return nullptr;
    // Of what a whole number of channels has alike.
    const int64_t most = literal(by_), inner = is(of, Op::kDiv) ? literal(of->args[1]) : 1;
    if (!inner || most % (inner * literal(by)) != 0 || !is_place(inner == 1 ? of : of->args[0], along.get()))
      return nullptr;
    const ExprRef high = divided(Op::kDiv, tap, inner);
    return inner * literal(by) == most ? high : divided(Op::kMod, high, literal(by));
  }

  // How many of its factor `by_` an extent consists of, by a `where` too; null: it is not known to have that factor.
  ExprRef times_by(const ExprRef& extent) const {
    for (size_t i = 0; is(extent, Op::kMul) && i < 2; ++i)
      if (same(extent->args[i], by_)) return extent->args[1 - i];
    for (const ExprRef& fact : kernel_.where)
      for (size_t i = 0; extent->kind == ExprKind::kVar && is(fact, Op::kEq) && i < 2; ++i)
        if (same(fact->args[i], extent) && is(fact->args[1 - i], Op::kMul)) return times_by(fact->args[1 - i]);
    return nullptr;
  }
  // `place < n * by_` is a matter of the outer digit alone; null: it is no such comparison.
  ExprRef compared(const ExprRef& expr, const VarRef& along) const {
    const bool less = is(expr, Op::kLt);
    if ((!less && !is(expr, Op::kGt)) || !is_place(expr->args[less ? 0 : 1], along.get())) return nullptr;
    const ExprRef most = times_by(expr->args[less ? 1 : 0]);
    if (!most) return nullptr;
    return make_apply(Op::kLt, {channels_outside_ ? channel(along) : make_var(tap_), most});
  }

  // Whether it is such a comparison with all taps that the loop walks through.
  bool holds(const ExprRef& expr, const VarRef& along) const {
    if (channels_outside_ || !taps_) return false;
    const ExprRef found = compared(expr, along);
    return found && same(found->args[1], taps_);
  }

  // The expression of the place's digits; sets failed_ where it follows the place in another way.
  ExprRef in_digits(const ExprRef& expr, const VarRef& along) {
    if (is_place(expr, along.get())) return place(along);
    if (const ExprRef found = digit(expr, along)) return found;
    if (is(expr, Op::kSelect) && holds(expr->args[0], along)) return in_digits(expr->args[1], along);
    if (const ExprRef found = compared(expr, along)) return found;
    if (expr->kind == ExprKind::kVar && (expr->var == along || expr->var == loop_.var)) failed_ = true;
    if (expr->args.empty()) return expr;
    auto copy = std::make_shared<Expr>(*expr);
    for (ExprRef& arg : copy->args) arg = in_digits(arg, along);
    return copy;
  }
  // 0 beyond the last channel, where a tensor says so or a condition does.
  ExprRef bounded(const ExprRef& value, const VarRef& along) const {
    ExprRef load = value;
    if (is(load, Op::kSelect) && is_zero(load->args[2])) load = load->args[1];
    const ExprRef own = channel(along);
    for (size_t axis = 0; load->kind == ExprKind::kLoad && axis < load->args.size(); ++axis)
      if (same(load->args[axis], own) && same(load->buffer->shape[axis], channels_)) return value;
    const ExprRef there = make_apply(Op::kLt, {own, channels_});
    return make_apply(Op::kSelect, {there, value, make_int(0)});
  }
  static bool is_zero(const ExprRef& expr) {
    return is_int(expr, 0) || (expr->kind == ExprKind::kFloat && expr->float_value == 0);
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
      const ExprRef value = lets_.expanded(assign->value);
      visit(value, [&](const ExprRef& node) {
        failed_ |= node->kind == ExprKind::kLoad && written_.count(node->buffer.get());
      });
      AssignStmt set = *assign;
      set.value = bounded(in_digits(value, iter->var), iter->var);
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
      } else if (is_tile_axis(spec) && spec.kind != AxisSpec::Kind::kGather) {
        const bool ranges = spec.kind == AxisSpec::Kind::kRange, along_k = region.iters.size() == *axis;
        const VarRef index = variable(VarKind::kParallel, "at");
        const ExprRef start = ranges ? lets_.expanded(spec.start) : nullptr;
        const ExprRef extent = ranges ? spec.extent : from.buffer->shape[places.size()];
        if (along_k && !(ranges && is_start(start) && same(extent, extent_))) return false;
        const ExprRef place = ranges ? make_apply(Op::kAdd, {start, make_var(index)}) : make_var(index);
        places.push_back(along_k ? in_digits(place, index) : place);
        region.iters.push_back({index, extent});
        indices.push_back(make_var(index));
      } else {
        return false;
      }
      if (mentions(places.back(), loop_.var.get())) return false;
    }
    if (region.iters.size() != 2) return false;
    made_.insert(copy.dst.buffer.get());
    const ExprRef value = bounded(make_load(from.buffer, places), region.iters[*axis].var);
    region.body.push_back({{}, AssignStmt{copy.dst.buffer, indices, AssignOp::kSet, AtomicOp::kNone, value}});
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
  // The place along k is channel * by_ + tap, or tap * by_ + channel. Null: not found.
  ExprRef by_;
  bool channels_outside_ = false;
  ExprRef channels_;                 // how many there are
  ExprRef taps_;                     // how many the loop walks through, if `where` or its end says so
  std::set<const Buffer*> made_;     // operands, so far
  std::set<const Buffer*> written_;  // in the loop
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
