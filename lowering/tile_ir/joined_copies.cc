#include "lowering/tile_ir/joined_copies.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "lowering/tile_ir/element_copies.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

using ir::AxisSpec;
using ir::ExprRef;

constexpr size_t kMostTogether = 8;

// Of elements of which the last index is a number.
bool is_of_elements(const ir::CopyStmt& copy) {
  if (!is_by_elements(copy)) return false;
  const AxisSpec& last = sides_of(copy).slice->axes.back();
  return last.kind == AxisSpec::Kind::kIndex && last.start->kind == ir::ExprKind::kInt;
}

bool is_beside(const ir::CopyStmt& one, const ir::CopyStmt& other) {
  const CopySides a = sides_of(one), b = sides_of(other);
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
    const CopySides sides = sides_of(*copy);
    region.body.push_back(element_copy(sides, sides.tile->buffer, places, element_of(*sides.slice, places), loc));
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
