// The kernels of a derived program. Private to derive/.
#pragma once
#include <algorithm>
#include <functional>
#include <set>

#include "derive/operand_slice.h"
#include "ir/visit.h"

namespace kachel::derive {

// Tiles of the kernels that prepare. Fewer rows a block are quicker where little is read for an element (H100: 46 for
// 47.6 us of 126 MB).
inline constexpr int64_t kTileRows = 32, kFewTileRows = 8, kTileColumns = 128;

// The kernel `name` that makes a slice's tensor. Loops become axes of the grid, which the text says by the name alone.
ir::Kernel maker_of(const ir::Kernel& kernel, const OperandSlice& slice, const ir::BufferRef& tensor, std::string name);
// The kernel's statements with each slice replaced by a copy from its tensor, at the last of its statements.
ir::Block body_of_reader(const ir::Kernel& kernel, const std::vector<OperandSlice>& slices,
                         const std::vector<ir::BufferRef>& tensors);

// A copy between the whole of `tile`, which the slice's is or one that is turned, and its place in the tensor: by the
// variables of digits in the kernel that makes it, by their values where it is read.
ir::CopyStmt store_of(const OperandSlice& slice, const ir::BufferRef& tensor, const ir::BufferRef& tile);
ir::CopyStmt load_of(const OperandSlice& slice, const ir::BufferRef& tensor, const ir::BufferRef& tile);
// The axes of the tile in the order of the tensor's last ones.
std::vector<size_t> order_of(const OperandSlice& slice);
// The slice's tile, with its axes in that order, under the same name.
ir::BufferRef ordered_tile(const OperandSlice& slice);
// With the element of the axis last, the others in their order.
template <class Each>
std::vector<Each> with_last(const std::vector<Each>& indices, size_t axis) {
  std::vector<Each> out = indices;
  std::rotate(out.begin() + static_cast<std::ptrdiff_t>(axis), out.begin() + static_cast<std::ptrdiff_t>(axis) + 1,
              out.end());
  return out;
}
// Calls fn on what a statement, without those inside it, says at compile time: extents and depths.
template <class Fn>
void for_each_extent(const ir::Stmt& stmt, const Fn& fn) {
  const auto one = [&fn](const ir::ExprRef& expr) {
    if (expr) fn(expr);
  };
  ir::for_each_tile(stmt, [&](const ir::TileRef& tile, bool) {
    for (const ir::AxisSpec& axis : tile.axes) one(axis.extent);
  });
  if (const auto* decl = std::get_if<ir::DeclStmt>(&stmt.node))
    for (const ir::ExprRef& extent : decl->buffer->shape) one(extent);
  if (const auto* region = std::get_if<ir::ParallelStmt>(&stmt.node))
    for (const ir::IterVar& iter : region->iters) one(iter.extent);
  if (const auto* loop = std::get_if<ir::ForStmt>(&stmt.node)) one(loop->stages);
}
// Gives `made` the parameters, constants, types and dimensions of the kernel that its body and its grid name, and the
// tensors as further parameters.
void complete(const ir::Kernel& kernel, const std::vector<ir::BufferRef>& tensors, ir::Kernel* made);
// All of a tile.
ir::TileRef whole(const ir::BufferRef& tile);
// A region that adds one tile to another of its shape, or takes extremes of both in it (kMax, kMin); `variable` makes
// its indices.
ir::ParallelStmt added_up(ir::Op op, const ir::BufferRef& to, const ir::BufferRef& from,
                          const std::function<ir::VarRef()>& variable);
// What the statements write, with everything inside them.
std::set<const ir::Buffer*> written_by(const ir::Block& block);
ir::Stmt declaration(const ir::BufferRef& buffer, ir::Scope scope);
ir::BufferRef with_direction(const ir::BufferRef& tensor, ir::Direction direction);
// A loop or a grid may be empty for a number below 0, a tensor not.
ir::ExprRef at_least_zero(const ir::ExprRef& extent);
bool is_tunable(const ir::ExprRef& expr);
ir::ExprRef times(const ir::ExprRef& a, const ir::ExprRef& b);
ir::ExprRef ceil_div(const ir::ExprRef& a, const ir::ExprRef& b);

}  // namespace kachel::derive
