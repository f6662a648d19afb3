#include "lowering/passes/loop_loads.h"

#include <algorithm>
#include <utility>

#include "ir/query.h"
#include "ir/visit.h"
#include "lowering/loop_ir/loop_build.h"
#include "lowering/passes/simplify.h"

namespace kachel::lowering {

using ir::DType;
using ir::ExprRef;

namespace {

constexpr int64_t kTrips = 16;          // that are expected of a loop of unknown length
constexpr int64_t kMostRuns = 1 << 20;  // beyond which they are not counted

// Of products and of what is around them in an iteration, at whose end nothing of it is under way.
bool is_product(LoopIntrinsic::Kind kind) {
  using Kind = LoopIntrinsic::Kind;
  switch (kind) {
    case Kind::kDot4:
    case Kind::kLoadMatrix:
    case Kind::kMma:
    case Kind::kStoreMatrix:
    case Kind::kQuadExchange:
    case Kind::kQuadJoin:
    case Kind::kTurnMatrix:
    case Kind::kGroupMma:
    case Kind::kGroupFence:
    case Kind::kGroupCommit:
    case Kind::kGroupWait:
    case Kind::kProxyFence:
      return true;
    default:
      return false;
  }
}

// Of copies that run ahead of the loop.
bool is_wait(LoopIntrinsic::Kind kind) {
  using Kind = LoopIntrinsic::Kind;
  switch (kind) {
    case Kind::kCopyAsync:
    case Kind::kAsyncCommit:
    case Kind::kAsyncWait:
    case Kind::kPhaseWait:
    case Kind::kPhaseArrive:
      return true;
    default:
      return false;
  }
}

bool has_products(const LoopStmt& stmt) {
  bool found = false;
  for_each_statement(stmt, [&](const LoopStmt& inner) {
    const auto* intrinsic = std::get_if<LoopIntrinsic>(&inner.node);
    found |= intrinsic && is_product(intrinsic->kind);
  });
  return found;
}

int64_t trips_of(const LoopFor& loop) {
  if (const int64_t trips = unrolled_trips(loop)) return trips;
  if (!ir::is_const(loop.begin) || !ir::is_const(loop.end)) return kTrips;
  return std::max<int64_t>(loop.end->int_value - loop.begin->int_value, 0);
}

int64_t rounds_of(const LoopThreads& loop, int threads) {
  return (loop.extent + threads - 1) / threads;
}

// Whether it divides by what is no literal.
bool divides(const ExprRef& expr) {
  bool found = false;
  ir::visit(expr, [&](const ExprRef& node) {
    const bool quotient = node->kind == ir::ExprKind::kApply && (node->op == ir::Op::kDiv || node->op == ir::Op::kMod);
    found |= quotient && !ir::is_float(node->type) && !ir::is_const(node->args[1]);
  });
  return found;
}

// Names of loads beside the body's own, in blocks as well, which may come to be no blocks. One name may be given in
// several blocks, each of which has its own then: the last one first, within what follows it.
void rename(LoopBlock* loads, Ranges* ranges) {
  for (size_t i = loads->size(); i-- > 0;) {
    for_each_block(&(*loads)[i], [&](LoopBlock* inner) { rename(inner, ranges); });
    auto* let = std::get_if<LoopLet>(&(*loads)[i].node);
    if (!let) continue;
    const auto name = std::make_shared<ir::Var>(*let->var);
    if (!ir::is_float(let->value->type)) ranges->set(name, ranges->of(ir::make_var(let->var)));
    const ir::VarRef known = std::exchange(let->var, name);
    const auto behind = loads->begin() + static_cast<std::ptrdiff_t>(i) + 1;
    const LoopBlock rest = substituted(LoopBlock(behind, loads->end()), {{known.get(), ir::make_var(name)}});
    loads->erase(behind, loads->end());  // not as many, maybe, since what is substituted is simplified
    loads->insert(loads->end(), rest.begin(), rest.end());
  }
}

}  // namespace

bool is_raw(DType type) {
  return ir::is_float(type) && ir::bits(type) < 32;
}

ExprRef AheadLoad::number(const ExprRef& turn) const {
  return plus(times(turn, runs), run);
}
bool AheadLoad::is(const ExprRef& expr, const LoopBlock& of) const {
  if (!load.read || block != &of || load.read->kind != expr->kind) return false;
  return load.read == expr.get() || ir::same(std::make_shared<ir::Expr>(*load.read), expr);
}

// The statement with fn(block) in the place of each of its blocks. Thread loops whose slots name registers are
// written out.
template <class Fn>
LoopStmt LoopLoads::mapped(const LoopStmt& stmt, const Fn& fn) const {
  LoopStmt copy = stmt;
  if (auto* loop = std::get_if<LoopFor>(&copy.node)) loop->body = fn(std::get<LoopFor>(stmt.node).body);
  if (auto* threads = std::get_if<LoopThreads>(&copy.node)) {
    threads->body = fn(std::get<LoopThreads>(stmt.node).body);
    threads->unroll |= holds_.count(&std::get<LoopThreads>(stmt.node).body) != 0;
  }
  if (auto* branch = std::get_if<LoopIf>(&copy.node)) {
    branch->then_body = fn(std::get<LoopIf>(stmt.node).then_body);
    branch->else_body = fn(std::get<LoopIf>(stmt.node).else_body);
  }
  return copy;
}

LoopLoads::LoopLoads(const LoopFor& loop, const LoopKernel& kernel, const BufferCounts& uses, int threads,
                     Wanted wanted)
    : loop_(loop), kernel_(kernel), uses_(uses), threads_(threads), wanted_(wanted) {
  for_each_statement(loop.body, [this](const LoopStmt& stmt) { look_at(stmt); });
  if (plain_ || wanted_ == Wanted::kPlaces) block(loop.body, 1);
}

LoopBlock LoopLoads::loads_at(const ExprRef& at, const ExprRef& turn, LoopKernel* kernel) const {
  const auto ahead = std::make_shared<ir::Var>(*loop_.var);
  kernel->ranges.set(ahead, kernel->ranges.of(ir::make_var(loop_.var)));
  kernel->ranges.set_limit(ahead, loop_.end);
  LoopBlock loads = loads_of(loop_.body, turn);
  rename(&loads, &kernel->ranges);
  loads = substituted(loads, {{loop_.var.get(), ir::make_var(ahead)}});
  loads.insert(loads.begin(), {LoopLet{ahead, at}});
  return loads;
}

int64_t LoopLoads::words() const {
  int64_t words = 0;
  for (const AheadLoad& ahead : all) words += ahead.runs * ahead.load.words();
  return words;
}

std::optional<size_t> LoopLoads::behind_uses() const {
  const auto holds = [this](const LoopStmt& stmt) {
    const auto* loop = std::get_if<LoopFor>(&stmt.node);
    const auto* threads = std::get_if<LoopThreads>(&stmt.node);
    const auto* branch = std::get_if<LoopIf>(&stmt.node);
    return (loop && holds_.count(&loop->body)) || (threads && holds_.count(&threads->body)) ||
           (branch && (holds_.count(&branch->then_body) || holds_.count(&branch->else_body)));
  };
  // What a copy of the body's own loads, other statements of the body read.
  std::set<const ir::Buffer*> loaded;
  for (const AheadLoad& ahead : all)
    if (ahead.load.vector && ahead.block == &loop_.body) loaded.insert(ahead.load.vector->operands[0].buffer.get());
  const auto reads = [&loaded](const LoopStmt& stmt) {
    bool found = false;
    for_each_statement(stmt, [&](const LoopStmt& inner) {
      for_each_access(inner, [&](const ir::BufferRef& buffer, bool) { found |= loaded.count(buffer.get()) != 0; });
    });
    return found;
  };
  size_t behind = 0;
  for (size_t i = 0; i < loop_.body.size(); ++i) {
    const bool own = std::any_of(all.begin(), all.end(),
                                 [&](const AheadLoad& ahead) { return ahead.block == &loop_.body && ahead.at == i; });
    if (own || holds(loop_.body[i]) || reads(loop_.body[i])) behind = i + 1;
  }
  while (behind < loop_.body.size() && !has_products(loop_.body[behind])) ++behind;
  if (behind == loop_.body.size()) return std::nullopt;
  // Those that run on by themselves do so while addresses are worked out.
  for (size_t i = behind; i < loop_.body.size(); ++i) {
    const auto* intrinsic = std::get_if<LoopIntrinsic>(&loop_.body[i].node);
    if (intrinsic && intrinsic->kind == LoopIntrinsic::Kind::kGroupCommit) return i + 1;
  }
  return behind;
}

LoopBlock LoopLoads::loads_of(const LoopBlock& body, const ExprRef& turn) const {
  LoopBlock out;
  bool any = false;
  for (size_t i = 0; i < body.size(); ++i) {
    if (const auto* let = std::get_if<LoopLet>(&body[i].node); let && names_.is_known(let->value))
      out.push_back(body[i]);
    for (const AheadLoad& ahead : all) {
      if (ahead.block != &body || ahead.at != i) continue;
      out.push_back(load_early(ahead.load, ahead.number(turn)));
      any = true;
    }
    LoopStmt nested = mapped(body[i], [&](const LoopBlock& inner) { return loads_of(inner, turn); });
    bool holds = false;
    for_each_block(&nested, [&](const LoopBlock* inner) { holds |= !inner->empty(); });
    if (holds) out.push_back(std::move(nested)), any = true;
  }
  return any ? out : LoopBlock{};
}

LoopBlock LoopLoads::rest_of(const LoopBlock& body, const ExprRef& turn) const {
  LoopBlock out;
  for (const LoopStmt& stmt : body) {
    const auto* copy = std::get_if<LoopIntrinsic>(&stmt.node);
    if (std::any_of(all.begin(), all.end(), [&](const AheadLoad& a) { return copy && a.load.vector == copy; }))
      continue;
    LoopStmt rest = mapped(stmt, [&](const LoopBlock& inner) { return rest_of(inner, turn); });
    for_each_expr(rest, [&](ExprRef& expr) { expr = with_loads(expr, body, turn); });
    for (const AheadLoad& ahead : all)
      if (ahead.load.vector) use_vector(ahead.load, ahead.number(turn), &rest);
    out.push_back(std::move(rest));
  }
  return out;
}

void LoopLoads::look_at(const LoopStmt& stmt) {
  if (const auto* let = std::get_if<LoopLet>(&stmt.node)) names_.add(*let), fixed_.add(*let);
  if (const auto* shuffle = std::get_if<LoopShuffle>(&stmt.node)) changing_.insert(shuffle->var.get());
  const auto* loop = std::get_if<LoopFor>(&stmt.node);
  if (loop && !unrolled_trips(*loop)) changing_.insert(loop->var.get());
  const auto* intrinsic = std::get_if<LoopIntrinsic>(&stmt.node);
  plain_ &= !std::holds_alternative<LoopPipeline>(stmt.node);
  waits_ |= intrinsic && is_wait(intrinsic->kind);
  plain_ &= !intrinsic || is_own_work(*intrinsic) || is_product(intrinsic->kind) || is_wait(intrinsic->kind);
  for_each_access(stmt, [&](const ir::BufferRef& buffer, bool write) { writes_[buffer.get()] += write; });
}

void LoopLoads::add(AheadLoad ahead, const std::function<bool(const Level&)>& counts) {
  ahead.run = int32(0);
  for (const Level& level : levels_) {
    if (!counts(level)) continue;
    ahead.run = plus(times(ahead.run, level.trips), ir::make_cast({DType::I32, nullptr}, ir::make_var(level.var)));
    ahead.runs *= level.trips;
  }
  all.push_back(std::move(ahead));
}

void LoopLoads::block(const LoopBlock& body, int64_t runs) {
  const size_t before = all.size();
  for (size_t i = 0; i < body.size(); ++i) {
    for_each_expr(body[i], [&](const ExprRef& expr) {
      ir::visit(expr, [&](const ExprRef&) { nodes += runs; });
      if (wanted_ == Wanted::kPlaces)
        places(expr, {{}, &body, i});
      else
        reads(expr, {{}, &body, i});
    });
    const auto* copy = std::get_if<LoopIntrinsic>(&body[i].node);
    if (copy && wanted_ == Wanted::kLoads) vector(*copy, {{}, &body, i});
    if (const auto* threads = std::get_if<LoopThreads>(&body[i].node)) {
      const int64_t rounds = rounds_of(*threads, threads_);
      levels_.push_back({threads->slot, rounds, threads->index.get()});
      block(threads->body, runs * rounds);
      levels_.pop_back();
    } else if (const auto* loop = std::get_if<LoopFor>(&body[i].node); loop && unrolled_trips(*loop)) {
      const int64_t trips = unrolled_trips(*loop);
      levels_.push_back({loop->var, trips});
      block(loop->body, runs * trips);
      levels_.pop_back();
    } else if (const auto* branch = std::get_if<LoopIf>(&body[i].node);
               branch && (wanted_ == Wanted::kPlaces ? fixed_ : names_).is_known(branch->condition)) {
      block(branch->then_body, runs);
      block(branch->else_body, runs);
    } else {
      count(body[i], runs);
    }
  }
  if (all.size() > before) holds_.insert(&body);
}

void LoopLoads::count(const LoopStmt& stmt, int64_t runs) {
  const auto* threads = std::get_if<LoopThreads>(&stmt.node);
  const auto* loop = std::get_if<LoopFor>(&stmt.node);
  if (threads) runs = std::min(kMostRuns, runs * rounds_of(*threads, threads_));
  if (loop) runs = std::min(kMostRuns, runs * std::min(kMostRuns, trips_of(*loop)));
  LoopStmt of = stmt;
  for_each_block(&of, [&](const LoopBlock* body) {
    for (const LoopStmt& inner : *body) {
      for_each_expr(inner, [&](const ExprRef& expr) { ir::visit(expr, [&](const ExprRef&) { nodes += runs; }); });
      count(inner, runs);
    }
  });
}

// Operands that are evaluated only where they are needed stay where they are.
void LoopLoads::reads(const ExprRef& expr, AheadLoad ahead) {
  const ir::Expr* load = input_read(*expr);
  if (!load) {
    for (size_t arg = 0; arg < (ir::is_lazy(*expr) ? 1 : expr->args.size()); ++arg) reads(expr->args[arg], ahead);
    return;
  }
  const DType type = load->buffer->type.dtype;
  if (type == DType::Bool || (is_raw(type) && load != expr.get() && !ir::is_zero_constant(expr->args[2]))) return;
  const bool known = std::all_of(expr->args.begin(), expr->args.end(), [&](const ExprRef& arg) {
    return names_.is_known(arg.get() == load ? load->args[0] : arg);
  });
  if (!known || std::any_of(all.begin(), all.end(), [&](const AheadLoad& one) { return one.is(expr, *ahead.block); }))
    return;
  ahead.load.read = expr.get();
  add(std::move(ahead), [](const Level&) { return true; });
}

// The largest ones. Operands that are evaluated only where they are needed (`lazily`) stay where they are if they read
// memory.
void LoopLoads::places(const ExprRef& expr, AheadLoad ahead, bool lazily) {
  const bool fits = (expr->type == DType::I32 || expr->type == DType::U32) && expr->kind == ir::ExprKind::kApply;
  if (!fits || !fixed_.is_known(expr) || !divides(expr) || (lazily && ir::loads(expr))) {
    for (size_t arg = 0; arg < expr->args.size(); ++arg)
      places(expr->args[arg], ahead, lazily || (arg > 0 && ir::is_lazy(*expr)));
    return;
  }
  if (std::any_of(all.begin(), all.end(), [&](const AheadLoad& one) { return one.is(expr, *ahead.block); })) return;
  ahead.load.read = expr.get();
  // One for all runs of the loops around it that it does not depend on.
  add(std::move(ahead), [&](const Level& level) {
    return level.trips > 1 &&
           (fixed_.depends(expr, level.var.get()) || (level.element && fixed_.depends(expr, level.element)));
  });
}

void LoopLoads::vector(const LoopIntrinsic& copy, AheadLoad ahead) {
  if (!copies_input(copy)) return;
  const ir::Buffer* to = copy.operands[0].buffer.get();
  BufferCounts own;
  for_each_statement(*ahead.block, [&](const LoopStmt& stmt) {
    for_each_access(stmt, [&](const ir::BufferRef& buffer, bool) { ++own[buffer.get()]; });
  });
  if (writes_.at(to) != 1 || own.at(to) != uses_.at(to) || !names_.is_known(copy.operands[1].index) ||
      (copy.guard && !names_.is_known(copy.guard)))
    return;
  ahead.load.vector = &copy;
  ahead.load.width = copy.operands[0].elements;
  add(std::move(ahead), [](const Level&) { return true; });
}

ExprRef LoopLoads::with_loads(const ExprRef& expr, const LoopBlock& body, const ExprRef& turn) const {
  return replaced(expr, [&](const ExprRef& node) -> ExprRef {
    for (const AheadLoad& ahead : all)
      if (ahead.is(node, body)) return loaded(ahead.load, ahead.number(turn));
    return nullptr;
  });
}

}  // namespace kachel::lowering
