#include "lowering/passes/wide_reads.h"

#include <algorithm>
#include <set>

#include "lowering/loop_ir/index_groups.h"
#include "lowering/loop_ir/loop_build.h"
#include "lowering/passes/simplify.h"
#include "lowering/planted.h"

namespace kachel::lowering {
namespace {

using ir::ExprKind;
using ir::ExprRef;
using ir::Op;

constexpr int64_t kWidest = 16, kWord = 4;  // bytes of an access
constexpr int64_t kMostIterations = 128;    // whose parts stay unrolled

bool guards_operands(const ir::Expr& expr) {
  return expr.kind == ExprKind::kApply && (expr.op == Op::kSelect || expr.op == Op::kAnd || expr.op == Op::kOr);
}

// Calls fn on each load that is evaluated wherever the expression is.
template <class Fn>
void for_each_certain_load(const ExprRef& expr, const Fn& fn) {
  if (expr->kind == ExprKind::kLoad) fn(expr);
  const size_t certain = guards_operands(*expr) ? 1 : expr->args.size();
  for (size_t arg = 0; arg < certain; ++arg) for_each_certain_load(expr->args[arg], fn);
}

bool is_countable(const LoopFor& loop) {
  return loop.unroll && ir::is_int(loop.begin, 0) && ir::is_const(loop.end) && loop.end->int_value > 1 &&
         loop.end->int_value <= kMostIterations;
}

// Of a loop in whose body there is nothing but what each thread does for itself, in order.
struct Body {
  std::unordered_map<const ir::Var*, ExprRef> names;  // what those given at its top stand for, without each other
  std::set<const ir::Buffer*> written;
  bool plain = true;

  explicit Body(const LoopBlock& body) {
    for (const LoopStmt& stmt : body) {
      const auto* let = std::get_if<LoopLet>(&stmt.node);
      if (let)
        names[let->var.get()] = inlined(let->value);
      else if (!std::holds_alternative<LoopStore>(stmt.node) && !std::holds_alternative<LoopIf>(stmt.node) &&
               !std::holds_alternative<LoopComment>(stmt.node))
        plain = false;
      for_each_statement(stmt, [&](const LoopStmt& inner) {
        plain &= !std::holds_alternative<LoopFor>(inner.node) && !std::holds_alternative<LoopBarrier>(inner.node) &&
                 !std::holds_alternative<LoopShuffle>(inner.node) && !std::holds_alternative<LoopPipeline>(inner.node);
        for_each_access(inner, [&](const ir::BufferRef& buffer, bool write) {
          if (write) written.insert(buffer.get());
        });
      });
    }
  }
  ExprRef inlined(const ExprRef& expr) const {
    return ir::rewrite(expr, [this](const ExprRef& node) {
      const auto it = node->kind == ExprKind::kVar ? names.find(node->var.get()) : names.end();
      return it == names.end() ? node : it->second;
    });
  }
};

class Widener {
 public:
  explicit Widener(LoopKernel* kernel) : kernel_(*kernel) {
    for (const LoopBuffer& buffer : kernel->buffers) alignment_[buffer.buffer.get()] = buffer.alignment;
  }

  void block(LoopBlock* body) {
    LoopBlock out;
    for (LoopStmt& stmt : *body) {
      if (const auto* let = std::get_if<LoopLet>(&stmt.node)) {
        const int64_t multiple = kernel_.ranges.multiple_of(let->value);
        if (multiple != 1) kernel_.ranges.set_multiple(let->var, multiple);
      } else if (auto* loop = std::get_if<LoopFor>(&stmt.node)) {
        block(&loop->body);
        widen(loop, &out);
      } else if (auto* threads = std::get_if<LoopThreads>(&stmt.node)) {
        block(&threads->body);
      } else if (auto* branch = std::get_if<LoopIf>(&stmt.node)) {
        block(&branch->then_body);
        block(&branch->else_body);
      }
      out.push_back(std::move(stmt));
    }
    *body = std::move(out);
  }

 private:
  struct Read {
    ir::BufferRef buffer;
    ExprRef index;  // without names of the body
    int64_t width;  // elements of an access
    ir::BufferRef wide;
  };

  // Elements that one access to the load's neighbours along the loop has; 1: they are loaded one by one.
  int64_t width_of(const ir::BufferRef& buffer, const ExprRef& index, const LoopFor& loop) const {
    const int64_t bytes = ir::bits(buffer->type.dtype) / 8;
    const auto aligned = alignment_.find(buffer.get());
    if (buffer->scope != ir::Scope::kShared || buffer->type.dtype == ir::DType::Bool || bytes == 0 ||
        aligned == alignment_.end())
      return 1;
    bool fixed = true;
    ir::visit(index, [&](const ExprRef& node) { fixed &= node->kind != ExprKind::kLoad; });
    if (!fixed) return 1;
    const int64_t most = std::min(kWidest, aligned->second) / bytes;
    for (int64_t width = most; width > 1 && width * bytes >= kWord; width /= 2)
      if (loop.end->int_value % width == 0 && in_group(index, loop.var, width, kernel_.ranges) == InGroup::kRises)
        return width;
    return 1;
  }

  void widen(LoopFor* loop, LoopBlock* out) {
    if (!is_countable(*loop)) return;
    const Body body(loop->body);
    if (!body.plain) return;
    std::vector<Read> reads;
    for (const LoopStmt& stmt : loop->body)
      for_each_expr(stmt, [&](const ExprRef& expr) {
        for_each_certain_load(expr, [&](const ExprRef& load) {
          if (body.written.count(load->buffer.get())) return;
          Read read{load->buffer, body.inlined(load->args[0]), 1, nullptr};
          read.width = width_of(read.buffer, read.index, *loop);
          if (read.width > 1 && !find(reads, read.buffer, read.index)) reads.push_back(std::move(read));
        });
      });
    if (reads.empty()) return;
    int64_t together = 1;
    for (const Read& read : reads) together = std::max(together, read.width);

    // The loop over accesses, whose body is theirs and then the loop over what each of them loads.
    LoopFor inner = *loop;
    const int64_t accesses = loop->end->int_value / together;
    ExprRef first = ir::make_int(0, loop->var->type.dtype);
    ir::VarRef number;
    if (accesses > 1) {
      number = std::make_shared<ir::Var>(*loop->var);
      kernel_.ranges.set(number, {0, accesses - 1});
      first = times(ir::make_var(number), together);
    }
    LoopBlock in_front;
    for (Read& read : reads) {
      read.wide = std::make_shared<ir::Buffer>(
          ir::Buffer{"wide", ir::Scope::kRegister, ir::Direction::kInOut, {read.buffer->type.dtype, nullptr}, {}, {}});
      kernel_.buffers.push_back({read.wide, together});
      for (int64_t at = 0; at < together; at += read.width) load(read, loop->var, first, at, &in_front);
    }
    inner.end = ir::make_int(together, loop->end->type);
    inner.var = std::make_shared<ir::Var>(*loop->var);
    inner.apart = 0;
    loop->apart = loop->apart ? std::max<int64_t>(loop->apart / together, 1) : 0;
    kernel_.ranges.set(inner.var, {0, together - 1});
    ExprRef slot = ir::make_cast({ir::DType::I32, nullptr}, ir::make_var(inner.var));
    if (planted(Planted::kWideRead)) slot = apply(Op::kSub, int32(together - 1), slot);
    for (LoopStmt& stmt : inner.body) replace(&stmt, body, reads, slot);
    const ExprRef element = ir::make_var(inner.var);
    inner.body = substituted(inner.body, {{loop->var.get(), accesses > 1 ? plus(first, element) : element}});
    LoopBlock whole = std::move(in_front);
    whole.push_back({std::move(inner)});
    if (accesses > 1) {
      loop->var = number;
      loop->end = ir::make_int(accesses, loop->end->type);
      loop->body = std::move(whole);
      return;
    }
    *loop = std::get<LoopFor>(whole.back().node);
    whole.pop_back();
    for (LoopStmt& stmt : whole) out->push_back(std::move(stmt));
  }

  static const Read* find(const std::vector<Read>& reads, const ir::BufferRef& buffer, const ExprRef& index) {
    const auto found = std::find_if(reads.begin(), reads.end(), [&](const Read& read) {
      return read.buffer == buffer && ir::same(read.index, index);
    });
    return found == reads.end() ? nullptr : &*found;
  }

  void load(const Read& read, const ir::VarRef& var, const ExprRef& first, int64_t at, LoopBlock* out) {
    const ExprRef begin = at ? plus(first, ir::make_int(at, first->type)) : first;
    const ExprRef from = ir::rewrite(read.index, [&](const ExprRef& node) {
      return node->kind == ExprKind::kVar && node->var == var ? begin : node;
    });
    LoopIntrinsic copy{LoopIntrinsic::Kind::kCopyVector, {}, nullptr};
    copy.operands = {{read.wide, int32(at), read.width, true}, {read.buffer, from, read.width, false}};
    copy.type = read.buffer->type.dtype;
    out->push_back({std::move(copy)});
  }

  static void replace(LoopStmt* stmt, const Body& body, const std::vector<Read>& reads, const ExprRef& slot) {
    const auto each = [&](ExprRef* expr) {
      *expr = ir::rewrite(*expr, [&](const ExprRef& node) {
        if (node->kind != ExprKind::kLoad || node->buffer->scope != ir::Scope::kShared) return node;
        const Read* read = find(reads, node->buffer, body.inlined(node->args[0]));
        return read ? ir::make_load(read->wide, {slot}) : node;
      });
    };
    if (auto* let = std::get_if<LoopLet>(&stmt->node)) each(&let->value);
    if (auto* store = std::get_if<LoopStore>(&stmt->node)) each(&store->index), each(&store->value);
    if (auto* branch = std::get_if<LoopIf>(&stmt->node)) each(&branch->condition);
  }

  LoopKernel& kernel_;
  std::unordered_map<const ir::Buffer*, int64_t> alignment_;
};

}  // namespace

void wide_reads(LoopKernel* kernel) {
  Widener(kernel).block(&kernel->body);
}

}  // namespace kachel::lowering
