// The consumers' loop over the stages of a pipeline that the copy engine fills: private to expand_bulk().
#pragma once
#include "lowering/loop_ir/phases.h"
#include "lowering/passes/expand_pipeline.h"
#include "lowering/passes/product_forms.h"
#include "lowering/passes/product_halves.h"

namespace kachel::lowering {

// The block with other registers in the place of some.
LoopBlock on_registers(const LoopBlock& block, const ir::BufferRef& from, const ir::BufferRef& to);

class BulkConsumer {
 public:
  // `ranges`: of the kernel.
  BulkConsumer(const LoopPipeline& node, const Ranges& ranges, GroupBatches* batches, const Synchronised& synchronised,
               FurtherRegisters* further);

  // The forms; expand_bulk.cc says what each is.
  void iterate(LoopBlock* out);
  void make(LoopBlock* out);                           // bulk_made.cc
  void prepare(const Prepared& form, LoopBlock* out);  // bulk_prepared.cc
  void skew(const Skew& skew, LoopBlock* out);         // bulk_skewed.cc
  void alternate(const Run& form, LoopBlock* out);     // bulk_runs.cc
  void unpack(const Halves& halves, LoopBlock* out);   // bulk_halves.cc

 private:
  using Ring = LoopPipeline::Bulk::Ring;
  using Rings = std::vector<const Ring*>;

  // Of a loop of runs, of which one is under way wherever one iteration follows another.
  class AlternatingRuns {
   public:
    AlternatingRuns(BulkConsumer& consumer, const Run& form);
    void expand(LoopBlock* out);

   private:
    struct Issued {
      bool odd = false;  // its sums are in the other registers
      ir::ExprRef stage, iteration;
    };
    LoopBlock placed(const LoopBlock& part, const Issued& run) const;
    // An iteration's run; then finishes the one that was under way, if there was one.
    void issue(bool odd, const ir::ExprRef& iteration, LoopBlock* out);
    // Releases the stage of a run that is over, and does the work on its sums.
    void finish(const Issued& run, LoopBlock* out);
    void finish_last(LoopBlock* out);

    BulkConsumer& consumer_;
    const Run& form_;
    const ir::BufferRef other_;
    Rings rings_;
    Issued under_way_;  // no stage: none
  };

  // Those that the first part of an iteration alone reads, the second one alone, and the rest.
  struct Shares {
    Rings first, second, others;
  };
  Shares shares(const LoopBlock& first, const LoopBlock* between, const LoopBlock& second) const;
  // A part for the iteration before `next`, whose stage was `stage`.
  LoopBlock of_before(const LoopBlock& part, const ir::ExprRef& stage, const ir::ExprRef& next) const;
  // Iterations behind the first one, with `work` in the place of the form's.
  LoopFor skewed_loop(const Skew& skew, const Shares& rings, const LoopBlock& work, const ir::ExprRef& begin,
                      const ir::ExprRef& end);
  // The operands of the next products.
  LoopBlock rounded(const Prepared& form);
  // The work with f32 in the place of what it would round.
  LoopBlock exactly(const Prepared& form, const LoopBlock& work);

  PhaseState begin(LoopBlock* to) const;
  void wait(const Rings& rings, const PhaseState& state, LoopBlock* to) const;
  // Groups issue their products in turn, so that the tensor cores work for one while the other works on its results.
  // Where a turn is a whole loop, it also keeps a team from waiting for a stage that is still to be filled for the one
  // before: a barrier of phases tells a phase from the next one only. A phase of the first group's barrier is the last
  // one's turn before; for the first turn there was none.
  void take_turn(bool whole, LoopBlock* to) const;
  void pass_turn(bool whole, LoopBlock* to) const;
  // `fenced`: a fence stands in front of it already.
  void release(const Rings& rings, const ir::ExprRef& stage, LoopBlock* to, bool fenced = false) const;
  // The loop's end, and what follows one whose last iteration has its products under way and its stage not released.
  void close(LoopFor loop, const Rings& rings, const PhaseState& state, LoopBlock* out);
  Rings all_rings() const;
  ir::ExprRef runs() const;
  ir::ExprRef previous(const ir::ExprRef& stage) const;
  // The stage before, and its parity then.
  PhaseState previous(const PhaseState& state, LoopBlock* to) const;
  // What was consumed last, after end_phase().
  PhaseState last(LoopBlock* to) const;

  const LoopPipeline& node_;
  const LoopPipeline::Bulk& bulk_;
  const Ranges& ranges_;
  GroupBatches& batches_;
  const Synchronised& synchronised_;
  FurtherRegisters& further_;
  const bool early_;
};

}  // namespace kachel::lowering
