#include "lowering/emit/ptx/ptx_statements.h"

#include <algorithm>
#include <utility>

#include "ir/query.h"
#include "lowering/loop_ir/loop_build.h"

namespace kachel::lowering::ptx {

using ir::DType;
using ir::ExprKind;

Statements::Statements(const LoopKernel& kernel, bool bounded, Code* code)
    : kernel_(kernel), bounded_(bounded), code_(*code), memory_(code), expressions_(kernel, code, &memory_) {
  const auto special = [&](const char* name) {
    const Value made = code_.fresh(Class::kB32);
    code_.line("mov.u32 {}, %%{};", made.text, name);
    return made;
  };
  tid_ = special("tid.x");
  block_ = special("ctaid.x");
  blocks_ = special("nctaid.x");
  pieces_.allowed = !multiplies_alone(kernel.body);
  waits_for_blocks_ = kernel.tile_blocks > 1;
  if (waits_for_blocks_) code_.line("barrier.cluster.arrive.relaxed;");
}

void Statements::wait_for_blocks() {
  if (std::exchange(waits_for_blocks_, false)) code_.line("barrier.cluster.wait;");
}

Value Statements::thread() const {
  if (producing_) return code_.sub(tid_, Code::integer(consumers(), 32));
  if (kernel_.tile_blocks > 1) {
    const Value part = code_.bits("and", block_, Code::integer(kernel_.tile_blocks - 1, 32));
    return code_.add(code_.mul(part, Code::integer(consumers(), 32)), tid_);
  }
  if (kernel_.teams == 1) return tid_;
  return code_.pure(Class::kB32, "rem.u32", {tid_, Code::integer(kernel_.threads, 32)});
}
Value Statements::first_of(int64_t threads) {
  const Value number = code_.bits("and", tid_, Code::integer(threads - 1, 32));
  return code_.compare("eq", "s32", number, Code::integer(0, 32));
}

void Statements::only_where(const Value& condition, const std::string& line) {
  if (condition.is(0)) return;
  code_.say(condition.constant ? line : fmt::format("@{} {}", condition.text, line));
}

void Statements::block(const LoopBlock& body) {
  // The assembler takes more than proportional time; NVRTC's optimiser would leave loops rolled.
  constexpr size_t kMostLines = 40000;
  for (size_t i = 0; i < body.size(); ++i) {
    if (code_.lines() > kMostLines) expressions_.lacks("so many instructions");
    body_ = &body;
    at_ = i;
    if (waits_for_blocks_ && &body == &kernel_.body && stores_to_shared(body[i])) wait_for_blocks();
    const GroupRun run = group_run(body, i);
    if (run.first) {
      group_products(run);
      i += run.products.size() - 1;
    } else {
      std::visit([&](const auto& node) { statement(node); }, body[i].node);
    }
    if (!expressions_.missing().empty()) return;
  }
}

void Statements::statement(const LoopLet& let) {
  expressions_.bind(let.var, code_.settled(expressions_.of(let.value)));
}

// Whether nobody asks for what the expression has come to once this statement has stored it: it has no name, or one of
// this very block that nothing behind mentions.
bool Statements::ends_here(const ir::ExprRef& value, const Value& made) {
  const bool named = value->kind == ExprKind::kVar;
  if (expressions_.names_of(made) != (named ? 1 : 0)) return false;
  if (!named) return value->kind == ExprKind::kApply || value->kind == ExprKind::kCast;
  const auto [known, is_new] = lives_.try_emplace(body_);
  if (is_new) {
    for (size_t i = 0; i < body_->size(); ++i) {
      const auto note = [&](const ir::ExprRef& expr) {
        ir::visit(expr, [&](const ir::ExprRef& node) {
          const auto life = node->kind == ExprKind::kVar ? known->second.find(node->var.get()) : known->second.end();
          if (life != known->second.end()) life->second = i;
        });
      };
      for_each_statement((*body_)[i], [&](const LoopStmt& stmt) { for_each_expr(stmt, note); });
      if (const auto* let = std::get_if<LoopLet>(&(*body_)[i].node)) known->second.emplace(let->var.get(), i);
    }
  }
  const auto life = known->second.find(value->var.get());
  return life != known->second.end() && life->second == at_;
}

void Statements::statement(const LoopStore& store) {
  const bool to_blocks = kernel_.tile_blocks > 1 && store.buffer->scope == ir::Scope::kShared;
  if (const ir::Expr* moved = to_blocks ? nullptr : moved_element(store)) {
    const Value there = condition(moved == store.value.get() ? nullptr : store.value->args[0]);
    Value bits = Code::integer(0, 32);
    if (!there.is(0)) {
      const Code::Guard guard(&code_, there);
      bits = memory_.load_bits(expressions_.place(moved->buffer, moved->args[0]));
    }
    if (!there.is(1)) bits = code_.select(there, bits, Code::integer(0, 32));
    return memory_.store_bits(expressions_.place(store.buffer, store.index), bits);
  }
  // The place first: what computes the value is then the last instruction.
  const Place to = expressions_.place(store.buffer, store.index);
  const Value value = expressions_.of(store.value);
  if (to_blocks)
    memory_.store_to_blocks(to, value, kernel_.tile_blocks);
  else
    memory_.store(to, value, ends_here(store.value, value));
}

void Statements::statement(const LoopFor& node) {
  const Value begin = expressions_.of(node.begin), end = expressions_.of(node.end);
  const int width = width_of_type(node.var->type.dtype);
  const char* const type = number_type(node.var->type.dtype);
  if (!node.unroll) {
    const Pieces around = pieces_;
    const bool loop_around = products_.in_loop;
    products_.in_loop |= multiplies(node.body);
    pieces_ = {.allowed = !around.within && !multiplies_alone(node.body)};
    loop(begin, end, Code::integer(1, width), type, [&](const Value& counter) {
      expressions_.bind_own(node.var, counter);
      if (node.apart) keep_apart(counter, node.apart, type);
      block(node.body);
    });
    pieces_ = around;
    products_.in_loop = loop_around;
    return;
  }
  if (!begin.constant || !end.constant) {
    expressions_.lacks("an unrolled loop whose bounds are not known");
    return;
  }
  const bool outermost = !std::exchange(pieces_.within, true);
  if (outermost) pieces_.begin = code_.lines(), pieces_.first = true;
  for (int64_t i = *begin.constant; i < *end.constant && expressions_.missing().empty(); ++i) {
    const Value at = Code::integer(i, width);
    cut_here();
    expressions_.bind(node.var, at);
    if (node.apart) keep_apart(at, node.apart, type);
    block(node.body);
  }
  if (!outermost) return;
  close_piece();
  pieces_.within = false;
}

void Statements::statement(const LoopThreads& threads) {
  const int64_t rounds = (threads.extent + sharers() - 1) / sharers();
  const bool partial = threads.extent % sharers() != 0;
  const Value first = thread();
  const auto round = [&](const Value& slot, bool last) {
    const Value index = code_.add(first, code_.mul(slot, Code::integer(sharers(), 32)));
    expressions_.bind(threads.slot, slot);
    expressions_.bind(threads.index, index);
    if (!partial || !last) return block(threads.body);
    when(code_.compare("lt", "s32", index, Code::integer(threads.extent, 32)), [&] { block(threads.body); });
  };
  // Past this many copies the code grows beyond what unrolling saves.
  constexpr int64_t kMostUnrolled = 256;
  if (rounds > 1 && !(threads.unroll && rounds <= kMostUnrolled))
    return loop(Code::integer(0, 32), Code::integer(rounds, 32), Code::integer(1, 32), "s32",
                [&](const Value& slot) { round(slot, true); });
  for (int64_t slot = 0; slot < rounds; ++slot) round(Code::integer(slot, 32), slot + 1 == rounds);
}

// A few stores to memory, of what registers hold: under a predicate they take no branch, and no way back together.
bool Statements::stores_alone(const LoopBlock& body) const {
  constexpr int kMost = 4;
  const auto in_registers = [&](const ir::BufferRef& buffer) { return memory_.of(buffer).space == Space::kRegister; };
  int stores = 0;
  bool alone = true;
  const auto read = [&](const ir::ExprRef& expr) {
    ir::visit(expr, [&](const ir::ExprRef& node) {
      if (node->kind == ExprKind::kLoad) alone &= in_registers(node->buffer);
    });
  };
  for (const LoopStmt& stmt : body) {
    if (std::holds_alternative<LoopComment>(stmt.node)) continue;
    if (const auto* let = std::get_if<LoopLet>(&stmt.node)) {
      read(let->value);
      continue;
    }
    ++stores;
    if (const auto* store = std::get_if<LoopStore>(&stmt.node)) {
      alone &= !in_registers(store->buffer);
      read(store->index), read(store->value);
      continue;
    }
    const auto* copy = std::get_if<LoopIntrinsic>(&stmt.node);
    if (!copy || copy->kind != LoopIntrinsic::Kind::kCopyVector || copy->guard) return false;
    alone &= !in_registers(copy->operands[0].buffer) && in_registers(copy->operands[1].buffer);
    for (const LoopIntrinsic::Operand& operand : copy->operands) read(operand.index);
  }
  return alone && stores > 0 && stores <= kMost;
}

// A branch in a loop may keep ptxas from leaving products under way; a warp takes it as a whole.
bool Statements::arrives_alone(const LoopBlock& body) {
  return std::all_of(body.begin(), body.end(), [](const LoopStmt& stmt) {
    const auto* intrinsic = std::get_if<LoopIntrinsic>(&stmt.node);
    const auto* let = std::get_if<LoopLet>(&stmt.node);
    return std::holds_alternative<LoopComment>(stmt.node) || (let && !ir::loads(let->value)) ||
           (intrinsic && intrinsic->kind == LoopIntrinsic::Kind::kPhaseArrive);
  });
}

void Statements::statement(const LoopIf& node) {
  const bool cuts = std::exchange(pieces_.allowed, pieces_.allowed && !pieces_.within);
  lower_branch(node);
  pieces_.allowed = cuts;
}

void Statements::lower_branch(const LoopIf& node) {
  const Value condition = expressions_.of(node.condition);
  const auto is_empty = [](const LoopBlock& body) {
    return std::all_of(body.begin(), body.end(),
                       [](const LoopStmt& stmt) { return std::holds_alternative<LoopComment>(stmt.node); });
  };
  if (is_empty(node.else_body) && !condition.constant &&
      (stores_alone(node.then_body) || arrives_alone(node.then_body))) {
    const Code::Guard guard(&code_, condition);
    return block(node.then_body);
  }
  if (is_empty(node.else_body)) return when(condition, [&] { block(node.then_body); });
  if (is_empty(node.then_body)) return when(code_.opposite(condition), [&] { block(node.else_body); });
  branch(
      condition, [&] { block(node.then_body); }, [&] { block(node.else_body); });
}

void Statements::cluster_barrier(const char* arrival, const char* wait) {
  code_.line("barrier.cluster.arrive{};", arrival);
  code_.line("barrier.cluster.wait{};", wait);
}

void Statements::statement(const LoopBarrier&) {
  if (kernel_.tile_blocks > 1)
    cluster_barrier(".release", ".acquire");
  else if (has_producer())
    code_.line("bar.sync 1, {};", kernel_.threads);
  else
    code_.line("bar.sync 0;");
}

void Statements::statement(const LoopShuffle& node) {
  const Value value = code_.in_register(expressions_.of(node.value)), made = code_.fresh(value.kind);
  if (node.lane_mask == kAnyLane)
    code_.line("vote.sync.any.pred {}, {}, -1;", made.text, value.text);
  else if (value.kind == Class::kB32 || value.kind == Class::kF32)
    code_.line("shfl.sync.bfly.b32 {}, {}, {}, 31, -1;", made.text, value.text, node.lane_mask);
  else if (value.kind == Class::kB64) {
    std::string halves[4];
    for (std::string& half : halves) half = code_.fresh(Class::kB32).text;
    code_.line("mov.b64 {{{}, {}}}, {};", halves[0], halves[1], value.text);
    for (int i = 0; i < 2; ++i)
      code_.line("shfl.sync.bfly.b32 {}, {}, {}, 31, -1;", halves[2 + i], halves[i], node.lane_mask);
    code_.line("mov.b64 {}, {{{}, {}}};", made.text, halves[2], halves[3]);
  } else
    expressions_.lacks("shuffles of truths");
  expressions_.bind(node.var, made);
}

}  // namespace kachel::lowering::ptx
