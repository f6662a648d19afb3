// The producer walks the same tiles, loops and branches as the consumers, since all of them are uniform, and drops what
// is not copied ahead. Each stage is used in turn: the producer waits until a ring's part of it is empty, announces its
// bytes and starts the copies, which end the phase of its `full` barrier when they are there. Where its threads copy
// some of that themselves, each of them walks along, and arrives at the barrier by way of its own copies; or, if it has
// stored, each warp does behind a fence. What goes by way of registers is loaded before the stage is waited for, an
// iteration ahead where there are registers for all of it.
//
// What it cannot know and needs, a prefix sum of a tensor that all threads have made, say, it is handed
// (handed_values.h).
//
// A team goes the same way through the tiles that others compute, but for each pipeline only steps over as many stages
// as they use.
#include "lowering/passes/roles.h"

#include <algorithm>
#include <functional>
#include <unordered_map>
#include <unordered_set>

#include "lowering/loop_ir/phases.h"
#include "lowering/passes/handed_values.h"
#include "lowering/passes/simplify.h"
#include "lowering/planted.h"

namespace kachel::lowering {
namespace {

// Of the consumers' part what leads to pipelines, and something else in the place of each.
class Slice {
 public:
  explicit Slice(const LoopKernel& kernel) {
    for (const LoopHanded& handed : kernel.handed) handed_[handed.var.get()] = &handed;
  }
  virtual ~Slice() = default;
  bool failed = false;
  bool nameless = false;  // not for want of names alone
  std::unordered_set<const ir::Var*> lacking;

  LoopBlock block(const LoopBlock& body) {
    LoopBlock out;
    bool fills = false;
    for (const LoopStmt& stmt : body) {
      if (const auto* let = std::get_if<LoopLet>(&stmt.node)) {
        if (const auto found = handed_.find(let->var.get()); found != handed_.end())
          take(*found->second, &out);
        else if (known(let->value))
          out.push_back(stmt);
        else
          unknown_.insert(let->var.get());
      } else if (const auto* loop = std::get_if<LoopFor>(&stmt.node)) {
        LoopFor copy{loop->var, loop->begin, loop->end, loop->unroll, false, block(loop->body)};
        if (copy.body.empty()) continue;
        require(loop->begin), require(loop->end);
        out.push_back({std::move(copy)});
        fills = true;
      } else if (const auto* branch = std::get_if<LoopIf>(&stmt.node)) {
        LoopIf copy{branch->condition, block(branch->then_body), block(branch->else_body)};
        if (copy.then_body.empty() && copy.else_body.empty()) continue;
        require(branch->condition);
        out.push_back({std::move(copy)});
        fills = true;
      } else if (const auto* pipeline = std::get_if<LoopPipeline>(&stmt.node)) {
        if (pipeline->bulk) {
          require(pipeline->begin), require(pipeline->end);
          instead(*pipeline, &out);
          fills = true;
        } else {
          for_each_statement(pipeline->consume, [&](const LoopStmt& inner) {
            const auto* within = std::get_if<LoopPipeline>(&inner.node);
            if (within && within->bulk) failed = nameless = true;
          });
        }
      }
    }
    if (!fills) out.clear();
    return out;
  }

 protected:
  virtual void instead(const LoopPipeline& node, LoopBlock* out) = 0;
  virtual void take(const LoopHanded& handed, LoopBlock* out) = 0;

  void require(const ir::ExprRef& expr) {
    if (known(expr)) return;
    failed = true;
    ir::visit(expr, [&](const ir::ExprRef& node) {
      if (node->kind == ir::ExprKind::kVar && unknown_.count(node->var.get())) lacking.insert(node->var.get());
      if (node->kind == ir::ExprKind::kLoad) nameless |= !is_input(*node->buffer);
    });
  }

  // Values that need neither tiles nor registers.
  bool known(const ir::ExprRef& expr) const {
    bool known = true;
    ir::visit(expr, [&](const ir::ExprRef& node) {
      if (node->kind == ir::ExprKind::kVar) known &= !unknown_.count(node->var.get());
      if (node->kind == ir::ExprKind::kLoad) known &= is_input(*node->buffer);
    });
    return known;
  }

 private:
  static bool is_input(const ir::Buffer& buffer) {
    return buffer.scope == ir::Scope::kGlobal && buffer.direction == ir::Direction::kIn;
  }

  std::unordered_map<const ir::Var*, const LoopHanded*> handed_;
  std::unordered_set<const ir::Var*> unknown_;
};

class Producer final : public Slice {
 public:
  explicit Producer(const LoopKernel& kernel) : Slice(kernel), kernel_(kernel) {}

 private:
  using Ring = LoopPipeline::Bulk::Ring;
  using Kind = LoopIntrinsic::Kind;

  // Which ring a thread loop of copies fills: none, if registers. Anything else has no place here.
  const Ring* copied_by(const LoopThreads& threads, const LoopPipeline::Bulk& bulk) {
    const ir::Buffer* to = nullptr;
    for_each_statement(threads.body, [&](const LoopStmt& stmt) {
      for_each_expr(stmt, [&](const ir::ExprRef& expr) { require(expr); });
      const auto* copy = std::get_if<LoopIntrinsic>(&stmt.node);
      if (copy) to = copy->operands[0].buffer.get();
      const bool other =
          copy ? copy->kind != Kind::kCopyAsync && copy->kind != Kind::kLoadShifted && copy->kind != Kind::kStoreShifted
               : std::holds_alternative<LoopStore>(stmt.node) || std::holds_alternative<LoopAtomic>(stmt.node);
      if (other) failed = nameless = true;
    });
    for (const Ring& ring : bulk.rings)
      for (const ir::BufferRef& buffer : ring.buffers)
        if (buffer.get() == to) return &ring;
    return nullptr;
  }

  // With the registers that they fill.
  using Loads = std::vector<std::pair<const ir::Buffer*, const LoopStmt*>>;

  // Either half of shifted copies, if a thread loop is made of it.
  static const LoopIntrinsic* shifted(const LoopStmt& stmt) {
    const auto* threads = std::get_if<LoopThreads>(&stmt.node);
    const LoopIntrinsic* found = nullptr;
    if (threads)
      for_each_statement(threads->body, [&](const LoopStmt& inner) {
        const auto* copy = std::get_if<LoopIntrinsic>(&inner.node);
        if (copy && (copy->kind == Kind::kLoadShifted || copy->kind == Kind::kStoreShifted)) found = copy;
      });
    return found;
  }

  // The loads to registers, if all of an iteration are there at once. Then they are issued in the one before, as soon
  // as what is in their registers has been stored.
  static Loads loads_ahead(const LoopBlock& produce) {
    Loads loads;
    bool stored = false;
    for (const LoopStmt& stmt : produce) {
      if (std::holds_alternative<LoopFor>(stmt.node)) return {};
      const LoopIntrinsic* copy = shifted(stmt);
      if (!copy) continue;
      if (copy->kind == Kind::kStoreShifted) {
        stored = true;
      } else {
        if (stored) return {};
        loads.emplace_back(copy->operands[0].buffer.get(), &stmt);
      }
    }
    return loads;
  }

  // One of them for an iteration, if there is one.
  static LoopStmt loaded_for(const LoopPipeline& node, const LoopStmt* load, const ir::ExprRef& iteration) {
    std::unordered_map<const ir::Var*, ir::ExprRef> values = {{node.ahead.get(), iteration}};
    auto value_of = [&](const ir::ExprRef& part) {
      const auto found = part->kind == ir::ExprKind::kVar ? values.find(part->var.get()) : values.end();
      return found == values.end() ? part : found->second;
    };
    for (const LoopStmt& stmt : node.produce)
      if (const auto* let = std::get_if<LoopLet>(&stmt.node))
        values[let->var.get()] = ir::rewrite(let->value, value_of);
    return {LoopIf{ir::make_typed(ir::Op::kLt, {iteration, node.end}), substituted({*load}, values), {}}};
  }

  void take(const LoopHanded& handed, LoopBlock* out) override {
    const ir::ExprRef parity = next_parity(handed.taking, out);
    if (!planted(Planted::kHandedNotAwaited))
      out->push_back(phase_operation(Kind::kPhaseWait, handed.given, int32(0), 0, parity));
    out->push_back({LoopLet{handed.var, from_i64(ir::make_load(handed.place, {int32(0)}), handed.var->type.dtype)}});
    out->push_back(producer_arrives(kernel_, handed.taken, int32(0)));
  }

  void instead(const LoopPipeline& node, LoopBlock* out) override {
    const LoopPipeline::Bulk& bulk = *node.bulk;
    LoopFor loop{node.ahead, node.begin, node.end, false, false, {}};
    const PhaseState state = begin_phase(bulk.producer, node.into, &loop.body);
    // An empty stage is one whose phase before this is over; the first one before all is.
    const ir::ExprRef before =
        ir::make_typed(ir::Op::kBitXor, {state.parity, int32(planted(Planted::kPhaseParity) ? 0 : 1)});
    // Each ring in front of its first copy.
    std::unordered_set<const ir::Buffer*> announced;
    auto announce = [&](const ir::Buffer* full) {
      for (const Ring& ring : bulk.rings) {
        if (ring.full.get() != full || !announced.insert(full).second) continue;
        loop.body.push_back(phase_operation(Kind::kPhaseWait, ring.empty, state.stage, 0, before));
        auto expect = [&](int64_t guarded) {
          return phase_operation(Kind::kPhaseExpect, ring.full, state.stage, ring.bytes + guarded);
        };
        const int64_t holds = ring.guarded_bytes[0];
        const int64_t else_ = ring.guarded_bytes[planted(Planted::kGuardedBytes) ? 0 : 1];
        loop.body.push_back(ring.guard ? LoopStmt{LoopIf{ring.guard, {expect(holds)}, {expect(else_)}}} : expect(0));
      }
    };
    auto copied = [&] {
      for (const Ring& ring : bulk.rings) {
        if (ring.stored && !planted(Planted::kStoredNotFenced)) loop.body.push_back(marker(Kind::kProxyFence));
        const auto arrive = ring.stored ? Kind::kPhaseArrive : Kind::kPhaseCopied;
        if (ring.by_threads) loop.body.push_back(phase_operation(arrive, ring.full, state.stage));
      }
    };
    if (planted(Planted::kCopiesNotAwaited)) copied();
    std::function<void(const LoopStmt&)> look = [&](const LoopStmt& stmt) {
      if (const auto* let = std::get_if<LoopLet>(&stmt.node)) require(let->value);
      if (const auto* rounds = std::get_if<LoopFor>(&stmt.node))
        std::for_each(rounds->body.begin(), rounds->body.end(), look);
      if (const auto* branch = std::get_if<LoopIf>(&stmt.node)) {
        require(branch->condition);
        for (const LoopBlock* part : {&branch->then_body, &branch->else_body})
          std::for_each(part->begin(), part->end(), look);
      }
      if (const auto* threads = std::get_if<LoopThreads>(&stmt.node))
        if (const Ring* ring = copied_by(*threads, bulk)) announce(ring->full.get());
      if (const auto* box = std::get_if<LoopIntrinsic>(&stmt.node)) {
        for (const ir::ExprRef& at : box->coordinates) require(at);
        if (box->l2_policy) require(box->l2_policy);
        announce(box->operands[box->kind == Kind::kPhaseBytes ? 0 : 2].buffer.get());
      }
    };
    std::unordered_set<const ir::Var*> named;
    const Loads loads = loads_ahead(node.produce);
    for (const auto& [registers, load] : loads) out->push_back(loaded_for(node, load, node.begin));
    for (const LoopStmt& stmt : node.produce) {
      if (const auto* let = std::get_if<LoopLet>(&stmt.node)) named.insert(let->var.get());
      look(stmt);
      if (loads.empty()) {
        loop.body.push_back(stmt);
        continue;
      }
      const LoopIntrinsic* moved = shifted(stmt);
      if (moved && moved->kind == Kind::kLoadShifted) continue;
      loop.body.push_back(stmt);
      for (const auto& [registers, load] : loads)
        if (moved && moved->operands[1].buffer.get() == registers)
          loop.body.push_back(loaded_for(node, load, plus(ir::make_var(node.ahead), int64(1))));
    }
    for (const Ring& ring : bulk.rings) announce(ring.full.get());  // whose copies a condition has ruled out
    if (!planted(Planted::kCopiesNotAwaited)) copied();
    end_phase(bulk.producer, state, node.depth, &loop.body);
    // Pipelines within: of the same iteration, whose names may be known already.
    for (LoopStmt& stmt : block(substituted(node.consume, {{node.var.get(), ir::make_var(node.ahead)}}))) {
      const auto* let = std::get_if<LoopLet>(&stmt.node);
      if (!let || !named.count(let->var.get())) loop.body.push_back(std::move(stmt));
    }
    out->push_back({std::move(loop)});
  }

  const LoopKernel& kernel_;
};

class Passing final : public Slice {
 public:
  using Slice::Slice;

 private:
  void take(const LoopHanded&, LoopBlock*) override { failed = true; }

  void instead(const LoopPipeline& node, LoopBlock* out) override {
    const LoopPipeline::Bulk::State& state = node.bulk->consumer;
    auto number = [](ir::DType type, const ir::ExprRef& value) { return ir::make_cast({type, nullptr}, value); };
    const ir::ExprRef trips =
        ir::make_typed(ir::Op::kMax, {ir::make_typed(ir::Op::kSub, {node.end, node.begin}), int64(0)});
    const ir::ExprRef at = number(ir::DType::I64, ir::make_load(state.stage, {int32(0)}));
    const ir::ExprRef next = named("next", planted(Planted::kNotPassedOver) ? at : plus(trips, at), out);
    const ir::ExprRef rounds = number(ir::DType::I32, ir::make_typed(ir::Op::kDiv, {next, int64(node.depth)}));
    const ir::ExprRef odd = ir::make_typed(ir::Op::kMod, {rounds, int32(2)});
    const ir::ExprRef parity = ir::make_typed(ir::Op::kBitXor, {ir::make_load(state.parity, {int32(0)}), odd});
    const ir::ExprRef stage = number(ir::DType::I32, ir::make_typed(ir::Op::kMod, {next, int64(node.depth)}));
    out->push_back({LoopStore{state.parity, int32(0), parity}});
    out->push_back({LoopStore{state.stage, int32(0), stage}});
  }
};

}  // namespace

bool split_roles(LoopKernel* kernel) {
  Producer producer(*kernel);
  kernel->producer = producer.block(kernel->body);
  if (kernel->teams < 2) return !producer.failed;
  Passing passing(*kernel);
  kernel->passed_over = passing.block(kernel->body);
  return !producer.failed && !passing.failed;
}

std::vector<ir::VarRef> lacking(const LoopKernel& kernel) {
  Producer producer(kernel);
  producer.block(kernel.body);
  if (!producer.failed || producer.nameless) return {};
  std::vector<ir::VarRef> names;
  for_each_statement(kernel.body, [&](const LoopStmt& stmt) {
    const auto* let = std::get_if<LoopLet>(&stmt.node);
    if (let && producer.lacking.erase(let->var.get())) names.push_back(let->var);
  });
  return names;
}

}  // namespace kachel::lowering
