// Loops that read a little in each iteration and add it up, as a fold of partial sums does: each iteration waits for
// its reads. Several stand side by side here, so that what they read is on its way together; what is left over follows
// one by one. See tile_lowering.h.
#include <algorithm>

#include "ir/visit.h"
#include "lowering/lower/tile_lowering.h"
#include "lowering/planted.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {

using ir::DType;
using ir::ExprRef;
using ir::Op;

namespace {

constexpr int64_t kBytesAtOnce = 64;  // that a thread waits for, each element in a register of its own
constexpr int64_t kMostSideBySide = 8;

}  // namespace

// Each thread works in its own registers, on what it reads of tensors that nothing writes.
int64_t TileLowering::side_by_side(const ir::ForStmt& loop) const {
  if (on_cpu() || target_.generic || loop.pipelined) return 1;
  const auto is_own = [this](const ir::BufferRef& tile) {
    const auto found = placements_.tiles.find(tile.get());
    return found != placements_.tiles.end() && found->second.fragment && in_registers(tile);
  };
  int64_t bytes = 0;
  for (const ir::Stmt& stmt : loop.body) {
    if (const auto* copy = std::get_if<ir::CopyStmt>(&stmt.node)) {
      const ir::BufferRef& from = copy->src.buffer;
      if (copy->atomic != ir::AtomicOp::kNone || !is_own(copy->dst.buffer) || !is_whole(copy->dst)) return 1;
      if (is_unwritten(*from))
        bytes += 4 * placements_.at(copy->dst.buffer.get()).fragment->registers();
      else if (!is_own(from) || !is_whole(copy->src))
        return 1;
    } else if (const auto* region = std::get_if<ir::ParallelStmt>(&stmt.node)) {
      bool own = placements_.regions.count(region) != 0;
      ir::for_each_stmt(region->body, [&](const ir::Stmt& part) {
        if (const auto* assign = std::get_if<ir::AssignStmt>(&part.node)) own &= is_own(assign->buffer);
      });
      for_each_node(region->body, [&](const ExprRef& node) {
        own &= !ir::is_reduction(*node);  // threads meet there
        if (node->kind == ir::ExprKind::kLoad) own &= is_unwritten(*node->buffer) || is_own(node->buffer);
      });
      if (!own) return 1;
    } else {
      return 1;
    }
  }
  int64_t together = 1;
  while (bytes && 2 * together * bytes <= kBytesAtOnce && 2 * together <= kMostSideBySide) together *= 2;
  return together;
}

// From `loop`, whose bounds are known, what precedes it: as many iterations as are a multiple of `together`.
void TileLowering::loop_side_by_side(const ir::ForStmt& stmt, int64_t together, LoopFor* loop) {
  const ExprRef rounds =
      let("rounds", ir::make_typed(Op::kDiv, {ir::make_typed(Op::kSub, {loop->end, loop->begin}), int64(together)}));
  LoopFor outer;
  outer.var = make_local(stmt.var->name + "_round", DType::I64, ir::VarKind::kLoop);
  outer.begin = int64(0);
  outer.end = rounds;
  const Interval all = out_.ranges.of(rounds);
  out_.ranges.set(outer.var, {0, std::max<int64_t>(all.hi, 1) - 1});
  out_.ranges.set_limit(outer.var, rounds);
  outer.body = nested([&] {
    unrolled(stmt.var->name + "_r", together, [&](ExprRef one) {
      const ExprRef first = plus(loop->begin, times(ir::make_var(outer.var), together));
      emit({LoopLet{stmt.var, plus(first, ir::make_cast({DType::I64, nullptr}, one))}});
      block(stmt.body);
    });
  });
  emit({std::move(outer)});
  const int64_t left = planted(Planted::kRestOfRounds) ? together : 0;
  loop->begin = let("rest", plus(plus(loop->begin, times(rounds, together)), int64(left)));
}

}  // namespace kachel::lowering
