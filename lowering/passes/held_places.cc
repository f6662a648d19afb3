#include "lowering/passes/held_places.h"

#include <algorithm>
#include <utility>

#include "lowering/loop_ir/loop_build.h"
#include "lowering/passes/loop_loads.h"

namespace kachel::lowering {
namespace {

using ir::ExprRef;

// Registers for all places of a loop; of a thread, what else it needs.
constexpr int64_t kMostHeld = 48, kOthers = 64;

class Holder {
 public:
  // The block is run by so many threads of as many registers each, of which so many are taken.
  Holder(LoopKernel* kernel, int threads, int64_t registers, int64_t taken)
      : kernel_(*kernel),
        uses_(accesses_of(*kernel)),
        threads_(threads),
        room_(std::min(registers - taken - kOthers, kMostHeld)) {}

  void block(LoopBlock* body) {
    LoopBlock out;
    for (LoopStmt& stmt : *body) {
      if (!std::holds_alternative<LoopThreads>(stmt.node))
        for_each_block(&stmt, [this](LoopBlock* inner) { block(inner); });
      auto* loop = std::get_if<LoopFor>(&stmt.node);
      if (loop && !loop->unroll && !loop->apart) hold(loop, &out);
      out.push_back(std::move(stmt));
    }
    *body = std::move(out);
  }

 private:
  void hold(LoopFor* loop, LoopBlock* out) {
    const LoopFor before = *loop;
    LoopLoads places(before, kernel_, uses_, threads_, LoopLoads::Wanted::kPlaces);
    if (places.all.empty() || places.words() > room_) return;
    room_ -= places.words();
    for (AheadLoad& place : places.all)
      place.load.registers = add_registers(&kernel_, "held", place.load.type(), place.runs);
    LoopIf some{apply(ir::Op::kLt, before.begin, before.end), {}, {}};
    some.then_body = places.loads_at(before.begin, int32(0), &kernel_);
    out->push_back({std::move(some)});
    loop->body = places.rest_of(before.body, int32(0));
  }

  LoopKernel& kernel_;
  const BufferCounts uses_;
  const int threads_;
  int64_t room_;
};

}  // namespace

void held_places(LoopKernel* kernel) {
  const int64_t alike = registers_alike(*kernel);
  Holder(kernel, kernel->block_threads(), kernel->registers ? kernel->registers : alike, register_words(*kernel))
      .block(&kernel->body);
  // Fragments are the consumers'.
  Holder(kernel, kernel->producer_threads, kernel->producer_registers ? kernel->producer_registers : alike, 0)
      .block(&kernel->producer);
}

}  // namespace kachel::lowering
