#include "lowering/loop_ir/phases.h"

#include <algorithm>
#include <utility>

namespace kachel::lowering {

using ir::ExprRef;
using ir::Op;

LoopStmt phase_operation(LoopIntrinsic::Kind kind, const ir::BufferRef& barrier, const ExprRef& stage,
                         int64_t immediate, const ExprRef& parity) {
  LoopStmt operation = marker(kind, immediate);
  auto& intrinsic = std::get<LoopIntrinsic>(operation.node);
  intrinsic.operands = {{barrier, stage, 1, true}};
  if (parity) intrinsic.coordinates = {parity};
  return operation;
}

LoopStmt producer_arrives(const LoopKernel& kernel, const ir::BufferRef& barrier, const ExprRef& stage) {
  using Kind = LoopIntrinsic::Kind;
  return phase_operation(kernel.copiers > 1 ? Kind::kPhaseArrive : Kind::kPhaseExpect, barrier, stage);
}

int64_t producer_arrivals(const LoopKernel& kernel) {
  return std::max(kernel.copiers / 32, 1);
}

LoopStmt by_first_thread(LoopBlock body) {
  const auto local = [](const char* name) {
    return std::make_shared<ir::Var>(ir::Var{ir::VarKind::kThread, name, {ir::DType::I32, nullptr}, {}});
  };
  return {LoopThreads{local("e"), local("r"), 1, false, std::move(body)}};
}

ExprRef from_i64(const ExprRef& value, ir::DType type) {
  if (type == ir::DType::Bool) return apply(Op::kNe, value, int64(0));
  return type == ir::DType::I64 ? value : ir::make_cast({type, nullptr}, value);
}

PhaseState begin_phase(const LoopPipeline::Bulk::State& state, const ir::VarRef& stage, LoopBlock* out) {
  out->push_back({LoopLet{stage, ir::make_load(state.stage, {int32(0)})}});
  return {ir::make_var(stage), named("parity", ir::make_load(state.parity, {int32(0)}), out)};
}

void end_phase(const LoopPipeline::Bulk::State& state, const PhaseState& now, int64_t depth, LoopBlock* out) {
  const ExprRef last = named("last", ir::make_typed(Op::kEq, {now.stage, int32(depth - 1)}), out);
  auto choose = [&](const ExprRef& yes, const ExprRef& no) { return ir::make_typed(Op::kSelect, {last, yes, no}); };
  out->push_back({LoopStore{state.stage, int32(0), choose(int32(0), ir::make_typed(Op::kAdd, {now.stage, int32(1)}))}});
  out->push_back(
      {LoopStore{state.parity, int32(0), choose(ir::make_typed(Op::kBitXor, {now.parity, int32(1)}), now.parity)}});
}

const LoopPhases* turns_of(const LoopKernel& kernel, const LoopIntrinsic& node) {
  for (const LoopPhases& phases : kernel.phases)
    if (phases.turns && phases.buffer == node.operands[0].buffer) return &phases;
  return nullptr;
}

}  // namespace kachel::lowering
