#include "lowering/tile_ir/joined_copies.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

using ir::AxisSpec;
using ir::ExprRef;

constexpr size_t kMostTogether = 8;

// Of a copy between a fragment and a tensor.
struct Sides {
  const ir::TileRef *tile, *slice;
  bool to_tile;
};
Sides sides_of(const ir::CopyStmt& copy) {
  const bool to_tile = copy.dst.buffer->scope != ir::Scope::kGlobal;
  return {to_tile ? &copy.dst : &copy.src, to_tile ? &copy.src : &copy.dst, to_tile};
}

// Whether a region can stand for it: of elements a number of which, the last index, is a constant.
bool is_of_elements(const ir::CopyStmt& copy) {
  const auto [tile, slice, to_tile] = sides_of(copy);
  // A place that is read from memory may be another one behind the copy in front.
  const bool plain = std::all_of(slice->axes.begin(), slice->axes.end(), [](const AxisSpec& axis) {
    bool loads = false;
    ir::visit(axis.start, [&loads](const ExprRef& node) { loads |= node->kind == ir::ExprKind::kLoad; });
    return axis.kind != AxisSpec::Kind::kGather && !axis.index && !loads;
  });
  const AxisSpec& last = slice->axes.back();
  return tile->buffer->scope == ir::Scope::kFragment && slice->buffer->scope == ir::Scope::kGlobal && plain &&
         last.kind == AxisSpec::Kind::kIndex && last.start->kind == ir::ExprKind::kInt && !slice->within_first &&
         !slice->pad && copy.atomic == ir::AtomicOp::kNone && has_whole_axes(*tile) &&
         kept_axes(*slice).size() == tile->buffer->shape.size() && ir::bits(slice->buffer->type.dtype) >= 8 &&
         ir::is_float(slice->buffer->type.dtype) == ir::is_float(tile->buffer->type.dtype);
}

bool is_beside(const ir::CopyStmt& one, const ir::CopyStmt& other) {
  const Sides a = sides_of(one), b = sides_of(other);
  if (a.to_tile != b.to_tile || a.slice->buffer != b.slice->buffer || a.tile->buffer == b.tile->buffer) return false;
  const auto alike = [](const ExprRef& x, const ExprRef& y) { return x ? y && ir::same(x, y) : !y; };
  for (size_t axis = 0; axis + 1 < a.slice->axes.size(); ++axis) {
    const AxisSpec &x = a.slice->axes[axis], &y = b.slice->axes[axis];
    if (x.kind != y.kind || !alike(x.start, y.start) || !alike(x.extent, y.extent)) return false;
  }
  const auto& [x, y] = std::pair(a.tile->buffer->shape, b.tile->buffer->shape);
  return a.slice->axes.back().start->int_value != b.slice->axes.back().start->int_value &&
         std::equal(x.begin(), x.end(), y.begin(), y.end(), ir::same);
}

ir::Stmt together(const std::vector<const ir::CopyStmt*>& copies, ir::Loc loc) {
  std::vector<ExprRef> places;
  ir::ParallelStmt region = region_over(sides_of(*copies[0]).tile->buffer->shape, &places);
  for (const ir::CopyStmt* copy : copies) {
    const auto [tile, slice, to_tile] = sides_of(*copy);
    std::vector<ExprRef> indices;
    size_t kept = 0;
    for (const AxisSpec& axis : slice->axes) {
      const bool range = axis.kind != AxisSpec::Kind::kIndex;
      const ExprRef at = range ? places[kept++] : axis.start;
      indices.push_back(range && axis.start ? ir::make_typed(ir::Op::kAdd, {axis.start, at}) : at);
    }
    ir::AssignStmt assign{to_tile ? tile->buffer : slice->buffer, to_tile ? places : indices};
    const ExprRef value = to_tile ? ir::make_load(slice->buffer, indices) : ir::make_load(tile->buffer, places);
    const ir::DType type = ir::compute_type(assign.buffer->type.dtype);
    assign.value = value->type == type ? value : ir::make_cast({type, nullptr}, value);
    region.body.push_back({loc, std::move(assign)});
  }
  return {loc, std::move(region)};
}

// Sums of products leave as they lie (region_results.h would have them back in tiles).
void note_sums(const ir::Block& body, BufferSet* sums) {
  ir::for_each_stmt(body, [sums](const ir::Stmt& stmt) {
    if (const auto* gemm = std::get_if<ir::GemmStmt>(&stmt.node)) sums->insert(gemm->c.buffer.get());
  });
}

ir::Block joined(const ir::Block& body, const BufferSet& sums) {
  ir::Block out;
  for (size_t at = 0; at < body.size(); ++at) {
    std::vector<const ir::CopyStmt*> copies;
    for (size_t i = at; i < body.size() && copies.size() < kMostTogether; ++i) {
      const auto* copy = std::get_if<ir::CopyStmt>(&body[i].node);
      if (!copy || !is_of_elements(*copy) || sums.count(sides_of(*copy).tile->buffer.get()) ||
          !std::all_of(copies.begin(), copies.end(), [&](const ir::CopyStmt* one) { return is_beside(*one, *copy); }))
        break;
      copies.push_back(copy);
    }
    if (copies.size() > 1) {
      out.push_back(together(copies, body[at].loc));
      at += copies.size() - 1;
      continue;
    }
    out.push_back(body[at]);
    replace_blocks(&out.back(), [&sums](const ir::Block& inner) { return joined(inner, sums); });
  }
  return out;
}

}  // namespace

ir::Kernel joined_copies(const ir::Kernel& kernel) {
  BufferSet sums;
  note_sums(kernel.body, &sums);
  ir::Kernel out = kernel;
  out.body = joined(kernel.body, sums);
  return out;
}

}  // namespace kachel::lowering
