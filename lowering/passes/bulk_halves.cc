// Loops that unpack left operands in halves, see expand_bulk.cc.
#include "lowering/passes/bulk_consumer.h"
#include "lowering/passes/simplify.h"
#include "lowering/planted.h"

namespace kachel::lowering {

using ir::ExprRef;
using ir::Op;

// The second half has registers of its own, so that what is known to be under way says which half is being read.
void BulkConsumer::unpack(const Halves& halves, LoopBlock* out) {
  const Rings rings = all_rings();
  Halves form = halves;
  for (const ir::BufferRef& left : form.left) {
    const LoopBuffer& other = further_.other(left);
    form.second = on_registers(form.second, left, other.buffer);
    form.second_products = on_registers(form.second_products, left, other.buffer);
  }
  // Behind its first half an iteration releases the stage of the one before, whose products are over then.
  const auto iteration = [&](const ExprRef& stage, LoopBlock* to) {
    LoopBlock not_awaited;
    batches_.leave_one(planted(Planted::kHalvesCollide) ? &not_awaited : to);
    for (const LoopBlock* part : {&form.before, &form.first, &form.first_products}) synchronised_(*part, to);
    batches_.commit(to);
    batches_.leave_one(to);
    LoopBlock before;  // arrivals alone: a branch with anything else would make the assembler serialise the products
    if (!planted(Planted::kReleaseNotFenced)) to->push_back(marker(LoopIntrinsic::Kind::kProxyFence));
    release(rings, previous(stage), &before, true);
    to->push_back({LoopIf{ir::make_typed(Op::kLt, {node_.begin, ir::make_var(node_.var)}), std::move(before), {}}});
    for (const LoopBlock* part : {&form.second, &form.behind, &form.second_products}) synchronised_(*part, to);
    batches_.commit(to);
  };
  // As an iteration finds it: both halves of the one before under way.
  LoopBlock before;
  iteration(int32(0), &before);
  batches_.pin(out);
  take_turn(true, out);
  LoopFor loop{node_.var, node_.begin, node_.end, false, false, {}};
  const PhaseState state = begin(&loop.body);
  wait(rings, state, &loop.body);
  iteration(state.stage, &loop.body);
  close(std::move(loop), rings, state, out);
}

}  // namespace kachel::lowering
