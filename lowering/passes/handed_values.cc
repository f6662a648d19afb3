#include "lowering/passes/handed_values.h"

#include <algorithm>

#include "lowering/loop_ir/loop_build.h"
#include "lowering/loop_ir/phases.h"
#include "lowering/passes/roles.h"
#include "lowering/planted.h"

namespace kachel::lowering {

using ir::DType;
using ir::ExprRef;
using ir::Op;
using Kind = LoopIntrinsic::Kind;

namespace {

constexpr size_t kMostHanded = 8;

bool has_bulk(const LoopBlock& body) {
  bool found = false;
  for_each_statement(body, [&](const LoopStmt& stmt) {
    const auto* pipeline = std::get_if<LoopPipeline>(&stmt.node);
    found |= pipeline && pipeline->bulk;
  });
  return found;
}

// Where all come to it alike: not in a loop over registers or threads, nor in a pipeline.
bool is_named_in(const LoopBlock& body, const ir::Var* var) {
  return std::any_of(body.begin(), body.end(), [&](const LoopStmt& stmt) {
    if (const auto* let = std::get_if<LoopLet>(&stmt.node)) return let->var.get() == var;
    if (const auto* loop = std::get_if<LoopFor>(&stmt.node)) return !loop->unroll && is_named_in(loop->body, var);
    const auto* branch = std::get_if<LoopIf>(&stmt.node);
    return branch && (is_named_in(branch->then_body, var) || is_named_in(branch->else_body, var));
  });
}

LoopHanded handed(LoopKernel* kernel, const ir::VarRef& var) {
  const auto shared = [&](const char* name, DType type) {
    auto made = std::make_shared<ir::Buffer>(
        ir::Buffer{name, ir::Scope::kShared, ir::Direction::kInOut, {type, nullptr}, {int64(1)}, {}});
    kernel->buffers.push_back({made, 1});
    kernel->buffers.back().alignment = 8;
    return made;
  };
  const auto state = [&](const char* name) {
    const ir::BufferRef made = add_registers(kernel, name, DType::I32, 1);
    kernel->buffers.back().zeroed = true;
    return made;
  };
  LoopHanded out{var,
                 shared("handed", DType::I64),
                 shared("handed_given", DType::U64),
                 shared("handed_taken", DType::U64),
                 state("giving"),
                 state("taking")};
  kernel->phases.push_back({out.given, 1, kernel->threads / 32});
  kernel->phases.push_back({out.taken, 1, producer_arrivals(*kernel)});
  return out;
}

void hand_over(const LoopKernel& kernel, LoopBlock* body) {
  LoopBlock out;
  for (LoopStmt& stmt : *body) {
    for_each_block(&stmt, [&](LoopBlock* inner) { hand_over(kernel, inner); });
    const auto* let = std::get_if<LoopLet>(&stmt.node);
    const ir::VarRef var = let ? let->var : nullptr;
    out.push_back(std::move(stmt));
    for (const LoopHanded& handed : kernel.handed) {
      if (handed.var != var) continue;
      const ExprRef parity = next_parity(handed.giving, &out);
      if (!planted(Planted::kHandedEarly))
        out.push_back(
            phase_operation(Kind::kPhaseWait, handed.taken, int32(0), 0, apply(Op::kBitXor, parity, int32(1))));
      out.push_back(by_first_thread(
          {{LoopStore{handed.place, int32(0), ir::make_cast({DType::I64, nullptr}, ir::make_var(var))}}}));
      out.push_back(phase_operation(Kind::kPhaseArrive, handed.given, int32(0)));
    }
  }
  *body = std::move(out);
}

}  // namespace

ExprRef next_parity(const ir::BufferRef& state, LoopBlock* out) {
  const ExprRef now = named("parity", ir::make_load(state, {int32(0)}), out);
  out->push_back({LoopStore{state, int32(0), apply(Op::kBitXor, now, int32(1))}});
  return now;
}

void choose_handed(LoopKernel* kernel) {
  if (kernel->teams > 1 || !has_bulk(kernel->body)) return;
  LoopKernel tried = *kernel;
  while (true) {
    const std::vector<ir::VarRef> names = lacking(tried);
    if (names.empty()) break;
    // The first one: others may follow from it.
    const bool passes = !ir::is_float(names[0]->type.dtype) && is_named_in(tried.body, names[0].get());
    if (!passes || tried.handed.size() == kMostHanded) return;
    tried.handed.push_back(handed(&tried, names[0]));
  }
  if (tried.handed.empty() || !split_roles(&tried)) return;
  kernel->handed = tried.handed;
  kernel->buffers = tried.buffers;
  kernel->phases = tried.phases;
}

void hand_over(LoopKernel* kernel) {
  if (!kernel->handed.empty()) hand_over(*kernel, &kernel->body);
}

}  // namespace kachel::lowering
