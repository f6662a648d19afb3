// The producer walks the same tiles, loops and branches as the consumers, since all of them are uniform, and drops what
// is not copied ahead. Each stage is used in turn: the producer waits until a ring's part of it is empty, announces its
// bytes and starts the copies, which end the phase of its `full` barrier when they are there.
#include "lowering/roles.h"

#include <algorithm>
#include <unordered_set>

#include "lowering/phases.h"
#include "lowering/planted.h"
#include "lowering/simplify.h"

namespace kachel::lowering {
namespace {

class Splitter {
 public:
  bool failed = false;

  LoopBlock block(const LoopBlock& body) {
    LoopBlock out;
    bool fills = false;
    for (const LoopStmt& stmt : body) {
      if (const auto* let = std::get_if<LoopLet>(&stmt.node)) {
        if (known(let->value))
          out.push_back(stmt);
        else
          unknown_.insert(let->var.get());
      } else if (const auto* loop = std::get_if<LoopFor>(&stmt.node)) {
        LoopFor copy{loop->var, loop->begin, loop->end, loop->unroll, false, block(loop->body)};
        if (copy.body.empty()) continue;
        failed |= !known(loop->begin) || !known(loop->end);
        out.push_back({std::move(copy)});
        fills = true;
      } else if (const auto* branch = std::get_if<LoopIf>(&stmt.node)) {
        LoopIf copy{branch->condition, block(branch->then_body), block(branch->else_body)};
        if (copy.then_body.empty() && copy.else_body.empty()) continue;
        failed |= !known(branch->condition);
        out.push_back({std::move(copy)});
        fills = true;
      } else if (const auto* pipeline = std::get_if<LoopPipeline>(&stmt.node)) {
        if (pipeline->bulk) {
          out.push_back({fill(*pipeline)});
          fills = true;
        } else {
          failed |= !Splitter().block(pipeline->consume).empty();
        }
      }
    }
    if (!fills) out.clear();
    return out;
  }

 private:
  // Values that need neither tiles nor registers.
  bool known(const ir::ExprRef& expr) const {
    bool known = true;
    ir::visit(expr, [&](const ir::ExprRef& node) {
      if (node->kind == ir::ExprKind::kVar) known &= !unknown_.count(node->var.get());
      if (node->kind == ir::ExprKind::kLoad)
        known &= node->buffer->scope == ir::Scope::kGlobal && node->buffer->direction == ir::Direction::kIn;
    });
    return known;
  }

  LoopFor fill(const LoopPipeline& node) {
    const LoopPipeline::Bulk& bulk = *node.bulk;
    failed |= !known(node.begin) || !known(node.end);
    LoopFor loop{node.ahead, node.begin, node.end, false, false, {}};
    const PhaseState state = begin_phase(bulk.producer, node.into, &loop.body);
    // An empty stage is one whose phase before this is over; the first one before all is.
    const ir::ExprRef before =
        ir::make_typed(ir::Op::kBitXor, {state.parity, int32(planted(Planted::kPhaseParity) ? 0 : 1)});
    // Each ring in front of its first copy.
    std::unordered_set<const ir::Buffer*> announced;
    auto announce = [&](const ir::Buffer* full) {
      for (const LoopPipeline::Bulk::Ring& ring : bulk.rings) {
        if (ring.full.get() != full || !announced.insert(full).second) continue;
        loop.body.push_back(phase_operation(LoopIntrinsic::Kind::kPhaseWait, ring.empty, state.stage, 0, before));
        loop.body.push_back(phase_operation(LoopIntrinsic::Kind::kPhaseExpect, ring.full, state.stage, ring.bytes));
      }
    };
    std::unordered_set<const ir::Var*> named;
    for (const LoopStmt& stmt : node.produce) {
      if (const auto* let = std::get_if<LoopLet>(&stmt.node)) {
        failed |= !known(let->value);
        named.insert(let->var.get());
      }
      const auto* copy = std::get_if<LoopIntrinsic>(&stmt.node);
      if (copy) {
        for (const ir::ExprRef& at : copy->coordinates) failed |= !known(at);
        announce(copy->operands[2].buffer.get());
      }
      loop.body.push_back(stmt);
    }
    end_phase(bulk.producer, state, node.depth, &loop.body);
    // Pipelines within: of the same iteration, whose names may be known already.
    for (LoopStmt& stmt : block(substituted(node.consume, {{node.var.get(), ir::make_var(node.ahead)}}))) {
      const auto* let = std::get_if<LoopLet>(&stmt.node);
      if (!let || !named.count(let->var.get())) loop.body.push_back(std::move(stmt));
    }
    return loop;
  }

  std::unordered_set<const ir::Var*> unknown_;
};

}  // namespace

bool split_producer(LoopKernel* kernel) {
  Splitter splitter;
  kernel->producer = splitter.block(kernel->body);
  return !splitter.failed;
}

}  // namespace kachel::lowering
