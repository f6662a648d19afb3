#include "lowering/passes/loads_ahead.h"

#include <algorithm>
#include <set>
#include <utility>

#include "ir/visit.h"
#include "lowering/loop_ir/loop_build.h"
#include "lowering/passes/loop_loads.h"
#include "lowering/passes/simplify.h"
#include "lowering/planted.h"

namespace kachel::lowering {
namespace {

using ir::DType;
using ir::ExprRef;
using ir::Op;

// Iterations: a load of global memory takes some 600 clocks, a short iteration 40. One that gathers waits for a load
// itself, and loops over lists are short: on an H200 the bags of 64 rows of an embedding take 65 us with 16, 50
// with 4.
constexpr int64_t kFarthest = 16, kFarthestOfGathers = 4;
// Words of a ring; of a thread, what the loop computes with has to fit beside it. Few: the part of what seems to be
// left that a ring may take in any case.
constexpr int64_t kMostRegisters = 32, kOthers = 48, kFew = 8;
// Words of an iteration whose loads all threads wait for, which has twice as many registers for those of the next one:
// two such blocks of 256 threads fit on a multiprocessor, which is enough under way for what memory gives.
constexpr int64_t kMostExposed = 40;
// Nodes of expressions in all copies of a body.
constexpr int64_t kMostNodes = 6000;

// Whether an iteration reads a tensor where another load of it says.
bool gathers(const LoopBlock& body) {
  std::set<const ir::Var*> names;         // that hold what is loaded
  std::set<const ir::Buffer*> registers;  // the same
  bool found = false;
  const auto is_global = [](const ir::BufferRef& buffer) { return buffer->scope == ir::Scope::kGlobal; };
  const auto is_loaded = [&](const ExprRef& expr) {
    bool loaded = false;
    if (expr)
      ir::visit(expr, [&](const ExprRef& node) {
        loaded |= node->kind == ir::ExprKind::kVar && names.count(node->var.get());
        loaded |= node->kind == ir::ExprKind::kLoad && (is_global(node->buffer) || registers.count(node->buffer.get()));
      });
    return loaded;
  };
  for_each_statement(body, [&](const LoopStmt& stmt) {
    for_each_expr(stmt, [&](const ExprRef& expr) {
      ir::visit(expr, [&](const ExprRef& node) {
        if (node->kind == ir::ExprKind::kLoad && is_global(node->buffer)) found |= is_loaded(node->args[0]);
      });
    });
    if (const auto* let = std::get_if<LoopLet>(&stmt.node); let && is_loaded(let->value)) names.insert(let->var.get());
    if (const auto* store = std::get_if<LoopStore>(&stmt.node); store && is_loaded(store->value))
      registers.insert(store->buffer.get());
    if (const auto* intrinsic = std::get_if<LoopIntrinsic>(&stmt.node)) {
      const bool copy = intrinsic->kind == LoopIntrinsic::Kind::kCopyVector;
      for (const LoopIntrinsic::Operand& operand : intrinsic->operands)
        if (copy && !operand.write && is_global(operand.buffer)) {
          found |= is_loaded(operand.index);
          registers.insert(intrinsic->operands[0].buffer.get());
        }
    }
  });
  return found;
}

// Where all threads meet, and a write to a tensor, in front of which the assembler moves no load.
bool holds_up(const LoopStmt& stmt) {
  const auto is_global = [](const ir::BufferRef& buffer) { return buffer->scope == ir::Scope::kGlobal; };
  if (const auto* store = std::get_if<LoopStore>(&stmt.node)) return is_global(store->buffer);
  if (const auto* intrinsic = std::get_if<LoopIntrinsic>(&stmt.node))
    return std::any_of(intrinsic->operands.begin(), intrinsic->operands.end(),
                       [&](const auto& operand) { return operand.write && is_global(operand.buffer); });
  return std::holds_alternative<LoopBarrier>(stmt.node);
}
// Whether no load of the next iteration is begun before this one's end.
bool is_exposed(const LoopBlock& body) {
  bool found = false;
  for_each_statement(body, [&](const LoopStmt& stmt) { found = found || holds_up(stmt); });
  return found;
}

// One loop as loops of `turns` iterations, or with loads for the next iteration. REQUIRES: there are some.
class Rounds {
 public:
  Rounds(LoopKernel* kernel, const LoopFor& loop, LoopLoads* body, ExprRef begin, ExprRef end, int64_t turns)
      : kernel_(*kernel), loop_(loop), body_(*body), begin_(std::move(begin)), end_(std::move(end)), turns_(turns) {}

  // REQUIRES: one turn.
  LoopBlock next_loaded() {
    LoopBlock out;
    const ExprRef last = named("last", apply(Op::kSub, end_, number(1)), &out), place = int32(0);
    loads(begin_, place, &out);
    LoopFor loop = without_body(loop_);
    loop.begin = begin_, loop.end = end_;
    const ExprRef at = ir::make_var(loop_.var), next = apply(Op::kMin, plus(at, number(1)), last);
    const auto load_next = [&] {
      loads(planted(Planted::kAheadLoad) ? at : named("next", next, &loop.body), place, &loop.body);
    };
    if (const auto behind = body_.behind_uses()) {
      const LoopBlock& body = loop_.body;
      const LoopBlock rest = body_.rest_of(body, place);
      // What is left out of the rest are loads, which stand in front of their uses.
      const auto products = rest.end() - static_cast<std::ptrdiff_t>(body.size() - *behind);
      loop.body.assign(rest.begin(), products);
      load_next();
      loop.body.insert(loop.body.end(), products, rest.end());
    } else {
      const LoopBlock moves = moved();
      loop.body.insert(loop.body.end(), moves.begin(), moves.end());
      load_next();
      for (size_t i = 0; i < now_.size(); ++i) body_.all[i].load.registers = now_[i];
      const LoopBlock rest = body_.rest_of(loop_.body, place);
      loop.body.insert(loop.body.end(), rest.begin(), rest.end());
    }
    out.push_back({std::move(loop)});
    return out;
  }

  LoopBlock loops() {
    LoopBlock out;
    const ExprRef many = apply(Op::kSub, end_, begin_);
    const ExprRef last = named("last", apply(Op::kSub, many, number(1)), &out);
    out.push_back(each(turns_, [&](const ExprRef& turn, const ExprRef& place, LoopBlock* to) {
      loads(plus(begin_, apply(Op::kMin, turn, last)), place, to);
    }));
    const ExprRef rounds = named("rounds", apply(Op::kDiv, many, number(turns_)), &out);
    const ExprRef near = named("near", apply(Op::kSub, end_, number(turns_ + 1)), &out);
    LoopFor round = without_body(loop_);
    round.var = std::make_shared<ir::Var>(ir::Var{ir::VarKind::kLoop, "round", {end_->type, nullptr}, {}});
    round.begin = number(0), round.end = rounds;
    kernel_.ranges.set(round.var, {0, std::max<int64_t>(kernel_.ranges.of(rounds).hi, 1) - 1});
    kernel_.ranges.set_limit(round.var, rounds);
    const ExprRef first = plus(begin_, times(ir::make_var(round.var), turns_));
    round.body.push_back(each(turns_, [&](const ExprRef& turn, const ExprRef& place, LoopBlock* to) {
      const ExprRef at = named("at", plus(first, turn), to);
      iteration(at, place, to);
      loads(planted(Planted::kAheadLoad) ? at : plus(apply(Op::kMin, at, near), number(turns_)), place, to);
    }));
    out.push_back({std::move(round)});
    left_over(rounds, &out);
    return out;
  }

 private:
  ExprRef number(int64_t value) const { return ir::make_int(value, end_->type); }

  void left_over(const ExprRef& rounds, LoopBlock* out) {
    const bool counted = ir::is_const(begin_) && ir::is_const(end_);
    const int64_t most = counted ? (end_->int_value - begin_->int_value) % turns_ : turns_ - 1;
    if (most == 0) return;
    const ExprRef begun = named("begun", plus(begin_, times(rounds, turns_)), out);
    const ExprRef left = named("left", apply(Op::kSub, end_, begun), out);
    out->push_back(each(most, [&](const ExprRef& turn, const ExprRef& place, LoopBlock* to) {
      if (counted) return iteration(plus(begun, turn), place, to);
      LoopIf some{apply(Op::kLt, turn, left), {}, {}};
      iteration(plus(begun, turn), place, &some.then_body);
      to->push_back({std::move(some)});
    }));
  }

  // fn(turn, its place in the ring, body), written out.
  template <class Fn>
  LoopStmt each(int64_t count, const Fn& fn) {
    LoopFor turn = without_body(loop_);
    turn.var = std::make_shared<ir::Var>(ir::Var{ir::VarKind::kLoop, "turn", {end_->type, nullptr}, {}});
    turn.begin = number(0), turn.end = number(count), turn.unroll = true;
    kernel_.ranges.set(turn.var, {0, count - 1});
    const ExprRef var = ir::make_var(turn.var);
    fn(var, ir::make_cast({DType::I32, nullptr}, var), &turn.body);
    return {std::move(turn)};
  }
  // What has been loaded, to registers of its own.
  LoopBlock moved() {
    LoopBlock out;
    for (const AheadLoad& ahead : body_.all) {
      const ir::BufferRef& from = ahead.load.registers;
      const bool raw = std::any_of(kernel_.buffers.begin(), kernel_.buffers.end(),
                                   [&](const LoopBuffer& one) { return one.buffer == from && one.raw; });
      const ir::BufferRef to = add_registers(&kernel_, "now", from->type.dtype, ahead.runs * ahead.load.width);
      kernel_.buffers.back().raw = raw;
      now_.push_back(to);
      LoopFor each = without_body(loop_);
      each.var = std::make_shared<ir::Var>(ir::Var{ir::VarKind::kLoop, "run", {DType::I32, nullptr}, {}});
      each.begin = int32(0), each.end = int32(ahead.runs), each.unroll = true;
      kernel_.ranges.set(each.var, {0, ahead.runs - 1});
      const ExprRef place = times(ir::make_var(each.var), ahead.load.width);
      if (ahead.load.vector) {
        LoopIntrinsic copy{LoopIntrinsic::Kind::kCopyVector};
        copy.operands = {{to, place, ahead.load.width, true}, {from, place, ahead.load.width, false}};
        each.body.push_back({std::move(copy)});
      } else {
        each.body.push_back({LoopStore{to, place, ir::make_load(from, {place})}});
      }
      out.push_back({std::move(each)});
    }
    return out;
  }
  void iteration(const ExprRef& at, const ExprRef& place, LoopBlock* to) {
    to->push_back({LoopLet{loop_.var, at}});
    const LoopBlock rest = body_.rest_of(loop_.body, place);
    to->insert(to->end(), rest.begin(), rest.end());
  }
  void loads(const ExprRef& at, const ExprRef& place, LoopBlock* to) {
    const LoopBlock loads = body_.loads_at(at, place, &kernel_);
    to->insert(to->end(), loads.begin(), loads.end());
  }

  LoopKernel& kernel_;
  const LoopFor& loop_;
  LoopLoads& body_;
  const ExprRef begin_, end_;
  const int64_t turns_;
  std::vector<ir::BufferRef> now_;  // what an iteration finds its loads in, if the next one's are under way
};

class Former {
 public:
  explicit Former(LoopKernel* kernel)
      : kernel_(*kernel), uses_(accesses_of(*kernel)), registers_(register_words(*kernel)) {}

  void choose(LoopBlock* body) {
    each_serial(body, [this](LoopFor* loop) {
      const LoopLoads found(*loop, kernel_, uses_, kernel_.threads);
      if (found.all.empty()) return false;
      // A long iteration is no more than once in the code, and takes as long as a load.
      const bool once = found.waits() || kMostNodes / found.nodes < 2;
      const int64_t copies = once && !found.behind_uses() ? 2 : 1;  // of what is loaded, at a time
      const int64_t farthest = gathers(loop->body) ? kFarthestOfGathers : kFarthest;
      int64_t ahead = std::min(farthest, room() / (copies * found.words()));
      if (ir::is_const(loop->begin) && ir::is_const(loop->end))
        ahead = std::min(ahead, loop->end->int_value - loop->begin->int_value);
      if (ahead < (once ? 1 : 2)) {
        const int64_t words = 2 * found.words();
        if (once || words > 2 * kMostExposed || left() - kOthers < words || !is_exposed(loop->body)) return false;
        loop->ahead = 1;
        registers_ += words;
        return true;
      }
      loop->ahead = once ? 1 : std::min(ahead, kMostNodes / found.nodes);
      registers_ += std::max(loop->ahead, copies) * found.words();
      return true;
    });
  }
  // Whether there was one.
  bool form(LoopBlock* body) {
    LoopBlock out;
    bool any = false;
    for (LoopStmt& stmt : *body) {
      for_each_block(&stmt, [&](LoopBlock* inner) { any |= form(inner); });
      const auto* loop = std::get_if<LoopFor>(&stmt.node);
      if (loop && loop->ahead)
        form(*loop, &out), any = true;
      else
        out.push_back(std::move(stmt));
    }
    *body = std::move(out);
    return any;
  }

 private:
  int64_t left() const { return (kernel_.registers ? kernel_.registers : registers_alike(kernel_)) - registers_; }
  // What few words cost has room where arrays, which do not all live at a time, seem to leave none.
  int64_t room() const { return std::max(std::min(left() - kOthers, kMostRegisters), left() / kFew); }

  // Those of the whole block, but for what threads do by themselves, inner ones first, of which none may have been
  // chosen: what is around it has time. Whether one was.
  template <class Fn>
  bool each_serial(LoopBlock* body, const Fn& choose) {
    bool chosen = false;
    for (LoopStmt& stmt : *body) {
      if (std::holds_alternative<LoopThreads>(stmt.node)) continue;
      bool inside = false;
      for_each_block(&stmt, [&](LoopBlock* inner) { inside |= each_serial(inner, choose); });
      auto* loop = std::get_if<LoopFor>(&stmt.node);
      chosen |= inside || (loop && !loop->unroll && !loop->apart && choose(loop));
    }
    return chosen;
  }

  void form(LoopFor loop, LoopBlock* out) {
    const int64_t turns = std::exchange(loop.ahead, 0);
    LoopLoads body(loop, kernel_, uses_, kernel_.threads);
    for (AheadLoad& ahead : body.all) {
      const DType in_memory = ahead.load.read ? input_read(*ahead.load.read)->buffer->type.dtype : DType::F32;
      const DType type = is_raw(in_memory) ? in_memory : ahead.load.type();
      ahead.load.registers = add_registers(&kernel_, "ahead", type, turns * ahead.runs * ahead.load.width);
      kernel_.buffers.back().raw = is_raw(in_memory);
    }
    const ExprRef begin = kept("begin", loop.begin, out), end = kept("end", loop.end, out);
    Rounds rounds(&kernel_, loop, &body, begin, end, turns);
    out->push_back({LoopIf{apply(Op::kLt, begin, end), turns == 1 ? rounds.next_loaded() : rounds.loops(), {}}});
  }

  // A bound, which what the loop does is not to change.
  ExprRef kept(const char* name, const ExprRef& bound, LoopBlock* out) {
    if (ir::is_const(bound)) return bound;
    const ExprRef var = named(name, bound, out);
    kernel_.ranges.set(var->var, kernel_.ranges.of(bound));
    return var;
  }

  LoopKernel& kernel_;
  const BufferCounts uses_;
  int64_t registers_;  // of a thread
};

}  // namespace

void choose_loads_ahead(LoopKernel* kernel) {
  Former(kernel).choose(&kernel->body);
}
void loads_ahead(LoopKernel* kernel) {
  if (Former(kernel).form(&kernel->body)) simplify(kernel);
}

}  // namespace kachel::lowering
