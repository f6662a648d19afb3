#include "lowering/phases.h"

namespace kachel::lowering {

using ir::DType;
using ir::ExprRef;
using ir::Op;

namespace {

ExprRef int32(int64_t value) {
  return ir::make_int(value, DType::I32);
}

}  // namespace

ExprRef named(const char* name, const ExprRef& value, LoopBlock* out) {
  auto var = std::make_shared<ir::Var>(ir::Var{ir::VarKind::kLet, name, {value->type, nullptr}, {}});
  out->push_back({LoopLet{var, value}});
  return ir::make_var(var);
}

LoopStmt phase_operation(LoopIntrinsic::Kind kind, const ir::BufferRef& barrier, const ExprRef& stage, int64_t immediate,
                         const ExprRef& parity) {
  LoopIntrinsic operation{kind, {}, nullptr};
  operation.operands = {{barrier, stage, 1, true}};
  operation.immediate = immediate;
  if (parity) operation.coordinates = {parity};
  return {std::move(operation)};
}

PhaseState begin_phase(const LoopPipeline::Bulk::State& state, const ir::VarRef& stage, LoopBlock* out) {
  out->push_back({LoopLet{stage, ir::make_load(state.stage, {int32(0)})}});
  return {ir::make_var(stage), named("parity", ir::make_load(state.parity, {int32(0)}), out)};
}

void end_phase(const LoopPipeline::Bulk::State& state, const PhaseState& now, int64_t depth, LoopBlock* out) {
  const ExprRef last = named("last", ir::make_typed(Op::kEq, {now.stage, int32(depth - 1)}), out);
  auto choose = [&](const ExprRef& yes, const ExprRef& no) { return ir::make_typed(Op::kSelect, {last, yes, no}); };
  out->push_back({LoopStore{state.stage, int32(0), choose(int32(0), ir::make_typed(Op::kAdd, {now.stage, int32(1)}))}});
  out->push_back({LoopStore{state.parity, int32(0), choose(ir::make_typed(Op::kBitXor, {now.parity, int32(1)}), now.parity)}});
}

}  // namespace kachel::lowering
