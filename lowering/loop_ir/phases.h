// Statements on barriers of phases: how a pipeline steps from stage to stage.
#pragma once
#include "lowering/loop_ir/loop_build.h"

namespace kachel::lowering {

struct PhaseState {
  ir::ExprRef stage, parity;  // of this iteration, I32
};

LoopStmt phase_operation(LoopIntrinsic::Kind kind, const ir::BufferRef& barrier, const ir::ExprRef& stage,
                         int64_t immediate = 0, const ir::ExprRef& parity = nullptr);
// The producer's arrival, all its threads being there, and how many of them a phase awaits.
LoopStmt producer_arrives(const LoopKernel& kernel, const ir::BufferRef& barrier, const ir::ExprRef& stage);
int64_t producer_arrivals(const LoopKernel& kernel);
// By the first of the threads that come there.
LoopStmt by_first_thread(LoopBlock body);
// A value of an integer type or bool, from an I64 that holds it.
ir::ExprRef from_i64(const ir::ExprRef& value, ir::DType type);
// Names the stage `stage` and its parity.
PhaseState begin_phase(const LoopPipeline::Bulk::State& state, const ir::VarRef& stage, LoopBlock* out);
// On to the next stage; behind the last one the first follows with the other parity.
void end_phase(const LoopPipeline::Bulk::State& state, const PhaseState& now, int64_t depth, LoopBlock* out);

// The turns that the intrinsic's first operand stands for; null: it is a barrier of phases like any other.
const LoopPhases* turns_of(const LoopKernel& kernel, const LoopIntrinsic& node);

}  // namespace kachel::lowering
