#include "derive/parts.h"

#include <numeric>
#include <utility>

#include "ir/visit.h"

namespace kachel::derive {

using namespace ir;

namespace {

std::vector<AxisSpec> place_of(const OperandSlice& slice) {
  std::vector<AxisSpec> axes;
  for (const IterVar& var : slice.free) axes.push_back({AxisSpec::Kind::kIndex, make_var(var.var), nullptr, nullptr});
  for (size_t axis : order_of(slice)) {
    const ExprRef& extent = slice.tile->shape[axis];
    const VarRef& var = slice.axes[axis].var;
    axes.push_back({AxisSpec::Kind::kRange, var ? times(make_var(var), extent) : make_int(0), extent, nullptr});
  }
  return axes;
}

TileRef place(const BufferRef& tensor, const OperandSlice& slice) {
  return {tensor, place_of(slice), nullptr, nullptr, nullptr, {}};
}

TileRef whole(const BufferRef& tile) {
  return {tile, std::vector<AxisSpec>(tile->shape.size()), nullptr, nullptr, nullptr, {}};
}

}  // namespace

CopyStmt store_of(const OperandSlice& slice, const BufferRef& tensor, const BufferRef& tile) {
  return {place(tensor, slice), whole(tile)};
}
CopyStmt load_of(const OperandSlice& slice, const BufferRef& tensor, const BufferRef& tile) {
  return {whole(tile), place(tensor, slice)};
}

std::vector<size_t> order_of(const OperandSlice& slice) {
  std::vector<size_t> order(slice.axes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (slice.turned) std::swap(order[0], order[1]);
  return order;
}

BufferRef ordered_tile(const OperandSlice& slice) {
  auto tile = std::make_shared<Buffer>(*slice.tile);
  for (size_t axis = 0; const size_t from : order_of(slice)) tile->shape[axis++] = slice.tile->shape[from];
  return tile;
}

std::set<const Buffer*> written_by(const Block& block) {
  std::set<const Buffer*> written;
  for_each_stmt(block, [&](const Stmt& stmt) {
    for_each_tile(stmt, [&](const TileRef& tile, bool writes) {
      if (writes) written.insert(tile.buffer.get());
    });
    if (const auto* assign = std::get_if<AssignStmt>(&stmt.node)) written.insert(assign->buffer.get());
  });
  return written;
}

Stmt declaration(const BufferRef& buffer, Scope scope) {
  auto copy = std::make_shared<Buffer>(*buffer);
  copy->scope = scope;
  return {{}, DeclStmt{copy, nullptr}};
}

BufferRef with_direction(const BufferRef& tensor, Direction direction) {
  auto copy = std::make_shared<Buffer>(*tensor);
  copy->direction = direction;
  return copy;
}

ExprRef times(const ExprRef& a, const ExprRef& b) {
  return make_apply(Op::kMul, {a, b});
}
ExprRef ceil_div(const ExprRef& a, const ExprRef& b) {
  return make_apply(Op::kCeilDiv, {a, b});
}

}  // namespace kachel::derive
