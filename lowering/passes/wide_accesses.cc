#include "lowering/passes/wide_accesses.h"

#include <algorithm>
#include <map>

#include "ir/visit.h"
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
constexpr int64_t kMostNodes = 1000;        // of what a name stands for

// Calls fn on each load that is evaluated wherever the expression is.
template <class Fn>
void for_each_certain_load(const ExprRef& expr, const Fn& fn) {
  if (expr->kind == ExprKind::kLoad) fn(expr);
  const size_t certain = ir::is_lazy(*expr) ? 1 : expr->args.size();
  for (size_t arg = 0; arg < certain; ++arg) for_each_certain_load(expr->args[arg], fn);
}

bool is_short(const LoopFor& loop) {
  return unrolled_trips(loop) > 1 && unrolled_trips(loop) <= kMostIterations;
}

// Of a loop in whose body there is nothing but what each thread does for itself, in order.
class Body {
 public:
  explicit Body(const LoopBlock& body) {
    for (const LoopStmt& stmt : body) {
      if (const auto* let = std::get_if<LoopLet>(&stmt.node)) name(*let);
      plain_ &= std::holds_alternative<LoopLet>(stmt.node) || std::holds_alternative<LoopStore>(stmt.node) ||
                std::holds_alternative<LoopIf>(stmt.node) || std::holds_alternative<LoopComment>(stmt.node);
      for_each_statement(stmt, [&](const LoopStmt& inner) {
        plain_ &= !std::holds_alternative<LoopFor>(inner.node) && !std::holds_alternative<LoopBarrier>(inner.node) &&
                  !std::holds_alternative<LoopShuffle>(inner.node) && !std::holds_alternative<LoopPipeline>(inner.node);
        note(inner, &inner == &stmt);
      });
    }
  }
  bool plain() const { return plain_; }
  // Without names that are given at the top of the body.
  ExprRef inlined(const ExprRef& expr) const {
    return ir::rewrite(expr, [this](const ExprRef& node) {
      const auto it = node->kind == ExprKind::kVar ? names_.find(node->var.get()) : names_.end();
      return it == names_.end() ? node : it->second.value;
    });
  }
  // Whether all that the body does with the buffer can be done at once: it only reads it, or does all at one place, and
  // writes there once, for certain, after the last read.
  bool may_widen(const ir::BufferRef& buffer) const {
    const Use& use = uses_.at(buffer.get());
    return !use.unknown && (use.stores == 0 || (use.stores == 1 && use.one_place));
  }

 private:
  struct Use {
    int stores = 0;
    bool one_place = true, unknown = false;
    ExprRef place;
  };

  struct Name {
    ExprRef value;
    int64_t nodes = 0;
  };

  // Of names that use others several times over no access is known.
  void name(const LoopLet& let) {
    Name name;
    ir::visit(let.value, [&](const ExprRef& node) {
      const auto used = node->kind == ExprKind::kVar ? names_.find(node->var.get()) : names_.end();
      name.nodes += used == names_.end() ? 1 : used->second.nodes;
    });
    plain_ &= name.nodes <= kMostNodes;
    if (!plain_) return;
    name.value = inlined(let.value);
    names_[let.var.get()] = std::move(name);
  }
  void note(const LoopStmt& stmt, bool certain) {
    for_each_expr(stmt, [&](const ExprRef& expr) {
      ir::visit(expr, [&](const ExprRef& node) {
        if (node->kind != ExprKind::kLoad) return;
        at(node->buffer, node->args[0]);
        Use& use = uses_[node->buffer.get()];
        use.unknown |= use.stores > 0;  // of what has been stored
      });
    });
    const auto* store = std::get_if<LoopStore>(&stmt.node);
    if (store && certain) {
      at(store->buffer, store->index);
      ++uses_[store->buffer.get()].stores;
    } else {
      for_each_access(stmt, [&](const ir::BufferRef& buffer, bool write) {
        if (write) uses_[buffer.get()].unknown = true;
      });
    }
  }
  void at(const ir::BufferRef& buffer, const ExprRef& index) {
    Use& use = uses_[buffer.get()];
    const ExprRef place = inlined(index);
    if (!use.place) use.place = place;
    use.one_place &= ir::same(use.place, place);
  }

  std::unordered_map<const ir::Var*, Name> names_;
  std::map<const ir::Buffer*, Use> uses_;
  bool plain_ = true;
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
        for (LoopStmt& part : widened(std::move(*loop))) out.push_back(std::move(part));
        continue;
      } else {
        for_each_block(&stmt, [this](LoopBlock* inner) { block(inner); });
      }
      out.push_back(std::move(stmt));
    }
    *body = std::move(out);
  }

 private:
  struct Access {
    ir::BufferRef buffer;
    ExprRef index;  // without names of the body
    bool write;
    int64_t width, step;  // elements of an access, and neighbours that each of them serves
    ir::BufferRef wide;   // registers for them
    int64_t iterations() const { return width * step; }
  };

  // Elements of one access to neighbours along the loop; 1: they are accessed one by one. Of words of which `step`
  // neighbours have a part each.
  int64_t width_of(const ir::BufferRef& buffer, const ExprRef& index, const LoopFor& loop, int64_t step) const {
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
      if (loop.end->int_value % (width * step) == 0 &&
          in_group(index, loop.var, width, kernel_.ranges, step) == InGroup::kRises)
        return width;
    return 1;
  }

  std::vector<Access> accesses_of(const LoopFor& loop, const Body& body) const {
    std::vector<Access> found;
    const auto add = [&](const ir::BufferRef& buffer, const ExprRef& place, bool write) {
      if (buffer->scope != ir::Scope::kShared || !body.may_widen(buffer)) return;
      Access access{buffer, body.inlined(place), write, 1, 1, nullptr};
      access.width = width_of(buffer, access.index, loop, 1);
      const int64_t most = write || ir::is_float(buffer->type.dtype) ? 1 : ir::bits(buffer->type.dtype);
      for (int64_t step = 2; access.width == 1 && step <= most; step *= 2) {
        access.step = step;
        access.width = width_of(buffer, access.index, loop, step);
      }
      if (access.width > 1 && !find(found, buffer, access.index, write)) found.push_back(std::move(access));
    };
    for (const LoopStmt& stmt : loop.body) {
      for_each_expr(stmt, [&](const ExprRef& expr) {
        for_each_certain_load(expr, [&](const ExprRef& load) { add(load->buffer, load->args[0], false); });
      });
      const auto* store = std::get_if<LoopStore>(&stmt.node);
      if (store && kernel_.tile_blocks == 1) add(store->buffer, store->index, true);
    }
    return found;
  }

  // What stands for the loop: one over accesses, in which there are those and one over what each of them moves.
  LoopBlock widened(LoopFor loop) {
    const auto alone = [](LoopFor same) {
      LoopBlock block;
      block.push_back({std::move(same)});
      return block;
    };
    if (!is_short(loop)) return alone(std::move(loop));
    const Body body(loop.body);
    std::vector<Access> accesses = body.plain() ? accesses_of(loop, body) : std::vector<Access>{};
    if (accesses.empty()) return alone(std::move(loop));
    int64_t together = 1;
    for (const Access& access : accesses) together = std::max(together, access.iterations());
    const int64_t rounds = loop.end->int_value / together;
    ExprRef first = ir::make_int(0, loop.var->type.dtype);
    const ir::VarRef number = std::make_shared<ir::Var>(*loop.var);
    if (rounds > 1) first = times(ir::make_var(number), together);

    LoopBlock whole, behind;
    for (Access& access : accesses) {
      access.wide =
          add_registers(&kernel_, access.write ? "made" : "wide", access.buffer->type.dtype, together / access.step);
      for (int64_t at = 0; at < together; at += access.iterations())
        move(access, loop.var, first, at, access.write ? &behind : &whole);
    }
    LoopFor inner = loop;
    inner.end = ir::make_int(together, loop.end->type);
    inner.var = std::make_shared<ir::Var>(*loop.var);
    inner.apart = 0;
    kernel_.ranges.set(inner.var, {0, together - 1});
    for (LoopStmt& stmt : inner.body) replace(&stmt, body, accesses, ir::make_var(inner.var), together);
    const ExprRef element = ir::make_var(inner.var);
    inner.body = substituted(inner.body, {{loop.var.get(), rounds > 1 ? plus(first, element) : element}});
    whole.push_back({std::move(inner)});
    for (LoopStmt& stmt : behind) whole.push_back(std::move(stmt));
    if (rounds == 1) return whole;
    kernel_.ranges.set(number, {0, rounds - 1});
    loop.var = number;
    loop.end = ir::make_int(rounds, loop.end->type);
    loop.body = std::move(whole);
    if (loop.apart) loop.apart = std::max<int64_t>(loop.apart / together, 1);
    return alone(std::move(loop));
  }

  static const Access* find(const std::vector<Access>& accesses, const ir::BufferRef& buffer, const ExprRef& index,
                            bool write) {
    const auto found = std::find_if(accesses.begin(), accesses.end(), [&](const Access& access) {
      return access.buffer == buffer && access.write == write && ir::same(access.index, index);
    });
    return found == accesses.end() ? nullptr : &*found;
  }

  // Between memory, where iteration `first` + `at` of the loop accesses it, and registers.
  static void move(const Access& access, const ir::VarRef& var, const ExprRef& first, int64_t at, LoopBlock* out) {
    const ExprRef begin = at ? plus(first, ir::make_int(at, first->type)) : first;
    const ExprRef place = ir::rewrite(access.index, [&](const ExprRef& node) {
      return node->kind == ExprKind::kVar && node->var == var ? begin : node;
    });
    LoopIntrinsic copy{LoopIntrinsic::Kind::kCopyVector, {}, nullptr};
    const LoopIntrinsic::Operand memory{access.buffer, place, access.width, access.write};
    const LoopIntrinsic::Operand registers{access.wide, int32(at / access.step), access.width, !access.write};
    copy.operands = access.write ? std::vector{memory, registers} : std::vector{registers, memory};
    copy.type = access.buffer->type.dtype;
    out->push_back({std::move(copy)});
  }

  static void replace(LoopStmt* stmt, const Body& body, const std::vector<Access>& accesses, const ExprRef& element,
                      int64_t together) {
    const ExprRef number = ir::make_cast({ir::DType::I32, nullptr}, element);
    const auto slot = [&](bool reversed) { return reversed ? apply(Op::kSub, int32(together - 1), number) : number; };
    const auto read_slot = [&](const Access& access) {
      const ExprRef at = slot(planted(Planted::kWideRead));
      return access.step > 1 ? apply(Op::kDiv, at, int32(access.step)) : at;
    };
    const auto reads = [&](ExprRef* expr) {
      *expr = ir::rewrite(*expr, [&](const ExprRef& node) {
        if (node->kind != ExprKind::kLoad || node->buffer->scope != ir::Scope::kShared) return node;
        const Access* access = find(accesses, node->buffer, body.inlined(node->args[0]), false);
        return access ? ir::make_load(access->wide, {read_slot(*access)}) : node;
      });
    };
    if (auto* let = std::get_if<LoopLet>(&stmt->node)) reads(&let->value);
    if (auto* branch = std::get_if<LoopIf>(&stmt->node)) reads(&branch->condition);
    if (auto* store = std::get_if<LoopStore>(&stmt->node)) {
      reads(&store->value);
      const Access* access = find(accesses, store->buffer, body.inlined(store->index), true);
      if (access)
        store->buffer = access->wide, store->index = slot(planted(Planted::kWideWrite));
      else
        reads(&store->index);
    }
  }

  LoopKernel& kernel_;
  std::unordered_map<const ir::Buffer*, int64_t> alignment_;
};

}  // namespace

void wide_accesses(LoopKernel* kernel) {
  Widener(kernel).block(&kernel->body);
}

}  // namespace kachel::lowering
