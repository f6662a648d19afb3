#include "lowering/plan/bounded_boxes.h"

#include <algorithm>

#include "ir/visit.h"
#include "lowering/loop_ir/range.h"
#include "lowering/machine/machine.h"
#include "lowering/plan/box_rules.h"
#include "lowering/plan/pipeline_tiles.h"
#include "lowering/planted.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

using ir::ExprRef;
using ir::Op;

class Bounded {
 public:
  Bounded(const ir::Kernel& kernel, uint64_t fact_mask, BoundedBoxes which)
      : kernel_(kernel), fact_mask_(fact_mask), which_(which) {
    note_multiples(kernel, &multiples_);
    ir::for_each_stmt(kernel.body, [this](const ir::Stmt& stmt) {
      const auto* gemm = std::get_if<ir::GemmStmt>(&stmt.node);
      if (!gemm) return;
      for (const ir::TileRef* operand : {&gemm->a, &gemm->b}) operands_.insert(operand->buffer.get());
      sums_.insert(gemm->c.buffer.get());
    });
  }

  // `looped`: in a loop of more than one iteration.
  ir::Block block(const ir::Block& body, bool pipelined, bool looped) const {
    const bool aligned = pipelined && std::all_of(body.begin(), body.end(), [this](const ir::Stmt& stmt) {
                           const auto* copy = std::get_if<ir::CopyStmt>(&stmt.node);
                           return !copy || is_aligned(*copy);
                         });
    ir::Block out;
    for (ir::Stmt stmt : body) {
      const auto* copy = std::get_if<ir::CopyStmt>(&stmt.node);
      if (copy && ((aligned && may_part(*copy)) || (!looped && may_part_store(*copy)))) {
        out.push_back({stmt.loc, parted(stmt, *copy)});
        continue;
      }
      auto* loop = std::get_if<ir::ForStmt>(&stmt.node);
      if (loop)
        loop->body = block(loop->body, loop->pipelined, looped || !is_single(*loop));
      else
        replace_blocks(&stmt, [&](const ir::Block& inner) { return block(inner, false, looped); });
      out.push_back(std::move(stmt));
    }
    return out;
  }

 private:
  // Whether cp.async could make it. Beside what has to go by way of registers there are no copies under conditions.
  bool is_aligned(const ir::CopyStmt& copy) const {
    return copy.src.buffer->scope != ir::Scope::kGlobal || copy.dst.buffer->scope != ir::Scope::kShared ||
           vector_bytes(kernel_, fact_mask_, copy.src.buffer) >= kLeastAsyncBytes;
  }

  static const ir::AxisSpec& rows_of(const ir::TileRef& slice) {
    return slice.axes[kept_axes(slice)[0]];  // what `within` bounds
  }

  bool may_part(const ir::CopyStmt& copy) const {
    const ir::BufferRef &to = copy.dst.buffer, &from = copy.src.buffer;
    if (!which_.operands || !copy.src.within_first || !operands_.count(to.get()) || to->scope != ir::Scope::kShared ||
        from->scope != ir::Scope::kGlobal || !is_unwritten(*from) || !is_whole(copy.dst) || copy.src.pad ||
        kept_axes(copy.src).size() != 2 || rows_of(copy.src).kind != ir::AxisSpec::Kind::kRange)
      return false;
    return refuses_boxes(kernel_, unbounded(copy).src, multiples_, fact_mask_).empty();
  }

  bool may_part_store(const ir::CopyStmt& copy) const {
    const ir::BufferRef& to = copy.dst.buffer;
    if (!which_.stores || !copy.dst.within_first || !sums_.count(copy.src.buffer.get()) ||
        to->scope != ir::Scope::kGlobal || ir::bits(to->type.dtype) != 16 || copy.atomic != ir::AtomicOp::kNone ||
        !is_whole(copy.src) || kept_axes(copy.dst).size() != 2 || rows_of(copy.dst).kind != ir::AxisSpec::Kind::kRange)
      return false;
    return refuses_boxes(kernel_, unbounded(copy).dst, multiples_, fact_mask_).empty();
  }

  static ir::CopyStmt unbounded(ir::CopyStmt copy) {
    for (ir::TileRef* slice : {&copy.dst, &copy.src}) slice->within_first = slice->within_length = nullptr;
    return copy;
  }

  static ir::IfStmt parted(const ir::Stmt& stmt, const ir::CopyStmt& copy) {
    const auto wide = [](const ExprRef& value) { return ir::make_cast({ir::DType::I64, nullptr}, value); };
    const auto sum = [](const ExprRef& a, const ExprRef& b) { return ir::make_typed(Op::kAdd, {a, b}); };
    const ir::TileRef& slice = copy.dst.within_first ? copy.dst : copy.src;
    const ir::AxisSpec& rows = rows_of(slice);
    const ExprRef first = wide(slice.within_first), length = wide(slice.within_length), start = wide(rows.start);
    const auto at_most = [](const ExprRef& a, const ExprRef& b) { return ir::make_typed(Op::kLe, {a, b}); };
    const auto both = [](const ExprRef& a, const ExprRef& b) { return ir::make_typed(Op::kAnd, {a, b}); };
    // A length that is there keeps first + length from wrapping to where it would hold.
    ExprRef inside =
        both(at_most(wide(rows.extent), length), at_most(sum(start, wide(rows.extent)), sum(first, length)));
    if (!ir::same(first, start)) inside = both(at_most(first, start), inside);
    if (planted(Planted::kRowsUncut)) inside = at_most(first, sum(start, wide(rows.extent)));
    return {inside, {{stmt.loc, unbounded(copy)}}, {stmt}};
  }

  const ir::Kernel& kernel_;
  const uint64_t fact_mask_;
  const BoundedBoxes which_;
  Ranges multiples_;
  BufferSet operands_, sums_;
};

// The unbounded half of a copy that has been parted; null of anything else.
const ir::CopyStmt* unbounded_half(const ir::Stmt& stmt) {
  const auto* branch = std::get_if<ir::IfStmt>(&stmt.node);
  if (!branch || branch->then_body.size() != 1 || branch->else_body.size() != 1) return nullptr;
  const auto* whole = std::get_if<ir::CopyStmt>(&branch->then_body[0].node);
  const auto* cut = std::get_if<ir::CopyStmt>(&branch->else_body[0].node);
  if (!whole || !cut || whole->dst.buffer != cut->dst.buffer || whole->src.buffer != cut->src.buffer) return nullptr;
  const auto is_bounded = [](const ir::CopyStmt& copy) { return copy.dst.within_first || copy.src.within_first; };
  return !is_bounded(*whole) && is_bounded(*cut) ? whole : nullptr;
}

}  // namespace

ir::Kernel bounded_boxes(const ir::Kernel& kernel, uint64_t fact_mask, BoundedBoxes which) {
  ir::Kernel out = kernel;
  out.body = Bounded(kernel, fact_mask, which).block(kernel.body, false, false);
  return out;
}

bool operands_in_boxes(const ir::Kernel& kernel, const Schedule& schedule) {
  bool moved = true;
  ir::for_each_stmt(kernel.body, [&](const ir::Stmt& stmt) {
    const ir::CopyStmt* copy = unbounded_half(stmt);
    if (!copy || copy->dst.buffer->scope == ir::Scope::kGlobal) return;
    moved &= std::any_of(schedule.pipelines.begin(), schedule.pipelines.end(), [&](const Pipeline& pipeline) {
      return pipeline.realisation == Pipeline::Realisation::kBulkCopies && !pipeline.by_threads.count(copy) &&
             std::find(pipeline.producers.begin(), pipeline.producers.end(), &stmt) != pipeline.producers.end();
    });
  });
  return moved;
}

bool stores_in_boxes(const ir::Kernel& kernel, const Placements& placements) {
  bool moved = true;
  ir::for_each_stmt(kernel.body, [&](const ir::Stmt& stmt) {
    const ir::CopyStmt* copy = unbounded_half(stmt);
    if (!copy || copy->dst.buffer->scope != ir::Scope::kGlobal) return;
    const auto box = placements.boxes.find(copy);
    moved &= box != placements.boxes.end() && box->second.columns > 0;
  });
  return moved;
}

}  // namespace kachel::lowering
