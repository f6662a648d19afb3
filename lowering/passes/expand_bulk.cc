// With the copy engine an iteration waits until its stage is full and releases it when nobody reads it any more. Seven
// forms, by what consuming is:
//   products alone    one batch is left under way, and the next iteration releases the stage
//   prepared          work that makes left operands in registers, products of those: an iteration issues the products
//   of the
//                     one before and does its own work while they run, with results in f32, which are rounded to
//                     operands when the products are over: the assembler serialises wgmma where other instructions make
//                     operands meanwhile. Groups issue their products in turn, so that one rounds beside another's. The
//                     first iteration's work stands in front of the loop, the last one's products behind it
//   skewed            products, work on their result, products with that work's outcome: an iteration issues its first
//                     products, then the second ones of the iteration before, and does its work while those run. The
//                     first iteration's first half stands in front of the loop, the last one's second half behind it.
//                     Iterations without masks have a loop of their own, see mask_free.h
//   made              work that makes operands in shared memory, products of those: they are left under way beside the
//                     next iteration's work, which makes its operands in the other half, see alternating.h
//   halves            work that unpacks left operands in registers, products of those: half of k is unpacked while the
//                     products of the half before run, the assembler waiting for no more than it is told to where both
//                     have registers of their own
//   runs              products that begin new sums, and work on those: the next iteration's products are issued, to
//                     registers of their own, before the work. Two iterations make one of the loop. The first one's
//                     products stand in front of it, the last one's work behind it. Of several runs an iteration, ptxas
//                     13.0 would serialise the products (C7514)
//   plain             what is issued in an iteration ends in it
//
// Where threads themselves read a stage (ldmatrix, loads), a fence stands in front of its release. Arriving at a
// barrier orders them with each other, not with the copy engine, whose writes come another way: on a loaded SM it has
// overwritten a stage that a load was still waiting to read. Source: PTX ISA, "Proxies"; the products of wgmma are
// waited for instead.
#include <set>

#include "lowering/machine/operation_price.h"
#include "lowering/passes/bulk_consumer.h"

namespace kachel::lowering {

using ir::ExprRef;
using ir::Op;

namespace {

// Instructions for an element of what is made beside products. Found on an H200: max(x * s, 0) gains 5 % there, exact
// silu loses 10 %, and groups overlap with each other all the same.
constexpr double kMostWork = 16;
// Of 32 bits, for what a loop holds in arrays: of some 230 that a thread may have, with addresses and values on their
// way.
constexpr int64_t kMostRegisters = 208;
// And beside all arrays, where runs alternate. On an H200 192 in arrays of 232 do not spill.
constexpr int64_t kBesideRuns = 32;

// Of the values that the innermost loops make.
double work_of(const LoopBlock& work) {
  double instructions = 0;
  for_each_statement(work, [&](const LoopStmt& stmt) {
    for_each_expr(stmt, [&](const ExprRef& expr) {
      ir::visit(expr, [&](const ExprRef& node) {
        if (ir::is_float(node->type)) instructions += price_of(*node).scalar;
      });
    });
  });
  return instructions;
}

// Of 32 bits, what an iteration of the prepared form holds; operands once more, exactly.
int64_t registers_of(const LoopPipeline& node, const Prepared& form, const FurtherRegisters& further) {
  std::set<const ir::Buffer*> seen;
  int64_t bits = 0;
  for (const ir::BufferRef& operand : form.operands) bits += further.elements(operand.get()) * 32;
  for_each_statement(node.consume, [&](const LoopStmt& stmt) {
    for_each_access(stmt, [&](const ir::BufferRef& buffer, bool) {
      if (buffer->scope == ir::Scope::kRegister && seen.insert(buffer.get()).second)
        bits += further.elements(buffer.get()) * ir::bits(buffer->type.dtype);
    });
  });
  return bits / 32;
}

}  // namespace

void BulkConsumer::iterate(LoopBlock* out) {
  const bool overlapped = overlaps(node_), later = overlapped && !early_;
  const Rings rings = all_rings();
  LoopBlock body = consumed(node_, &batches_, synchronised_);
  if (overlapped) batches_.pin(out);
  take_turn(true, out);
  LoopFor loop{node_.var, node_.begin, node_.end, false, false, {}};
  const PhaseState state = begin(&loop.body);
  wait(rings, state, &loop.body);
  for (LoopStmt& stmt : body) loop.body.push_back(std::move(stmt));
  if (later) {
    batches_.leave_one(&loop.body);
    const ExprRef not_first = ir::make_typed(Op::kLt, {node_.begin, ir::make_var(node_.var)});
    LoopBlock before;
    release(rings, previous(state.stage), &before);
    loop.body.push_back({LoopIf{not_first, std::move(before), {}}});
  } else {
    release(rings, state.stage, &loop.body);
  }
  end_phase(bulk_.consumer, state, node_.depth, &loop.body);
  out->push_back({std::move(loop)});
  pass_turn(true, out);
  batches_.settle(out);
  if (!later) return;
  LoopBlock rest;
  release(rings, last(&rest).stage, &rest);
  out->push_back({LoopIf{runs(), std::move(rest), {}}});
}

void expand_bulk(const LoopPipeline& node, const Ranges& ranges, GroupBatches* batches,
                 const Synchronised& synchronised, FurtherRegisters* further, LoopBlock* out) {
  BulkConsumer consumer(node, ranges, batches, synchronised, further);
  if (const std::optional<Skew> form = skewed(node))
    consumer.skew(*form, out);
  else if (makes_operands(node))
    consumer.make(out);
  else if (const std::optional<Halves> form = product_halves(node, ranges))
    consumer.unpack(*form, out);
  else if (const std::optional<Prepared> form = prepared(node);
           form && registers_of(node, *form, *further) <= kMostRegisters && work_of(form->work) <= kMostWork)
    consumer.prepare(*form, out);
  else if (const std::optional<Run> form = single_run(node);
           form && further->only_in(node.consume, form->sums.get()) &&
           further->elements(form->sums.get()) + kBesideRuns <= further->free())
    consumer.alternate(*form, out);
  else
    consumer.iterate(out);
}

}  // namespace kachel::lowering
