#include "lowering/plan/operand_slices.h"

#include "ir/numerics.h"

namespace kachel::lowering {

using Kind = ir::AxisSpec::Kind;

namespace {

constexpr int64_t kPatternRows = 8;  // of the swizzle

}  // namespace

std::optional<OperandSlice> operand_slice(const ir::TileRef& ref) {
  if (ref.axes.size() != 2 || ref.within_first) return std::nullopt;
  OperandSlice slice;
  for (size_t axis = 0; axis < 2; ++axis) {
    const ir::AxisSpec& spec = ref.axes[axis];
    const ir::ExprRef& extent = spec.kind == Kind::kWhole ? ref.buffer->shape[axis] : spec.extent;
    if ((spec.kind != Kind::kWhole && spec.kind != Kind::kRange) || extent->kind != ir::ExprKind::kInt)
      return std::nullopt;
    slice.shape[axis] = extent->int_value;
    if (spec.kind == Kind::kRange && !ir::is_int(spec.start, 0)) slice.starts[axis] = spec.start;
  }
  return slice;
}

bool is_aligned_slice(const ir::TileRef& ref, const Ranges& loops, int64_t row_bytes) {
  const std::optional<OperandSlice> slice = operand_slice(ref);
  if (!slice) return false;
  for (size_t axis = 0; axis < 2; ++axis) {
    const ir::ExprRef& start = slice->starts[axis];
    const int64_t extent = ref.buffer->shape[axis]->int_value;
    if (slice->shape[axis] > extent) return false;
    if (!start) continue;
    const int64_t unit = axis ? row_bytes * 8 / ir::bits(ref.buffer->type.dtype) : kPatternRows;
    const Interval range = loops.of(start);
    if (loops.multiple_of(start) % unit || range.lo < 0 || range.hi > extent - slice->shape[axis]) return false;
  }
  return true;
}

void note_loop_ranges(const ir::Block& body, Ranges* ranges) {
  for (const ir::Stmt& stmt : body) {
    if (const auto* loop = std::get_if<ir::ForStmt>(&stmt.node)) {
      const Interval begin = ranges->of(loop->begin), end = ranges->of(loop->end);
      if (begin.lo < end.hi) ranges->set(loop->var, {begin.lo, end.hi - 1});
      note_loop_ranges(loop->body, ranges);
    }
    if (const auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) {
      note_loop_ranges(branch->then_body, ranges);
      note_loop_ranges(branch->else_body, ranges);
    }
  }
}

}  // namespace kachel::lowering
