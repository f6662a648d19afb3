// The kernel that lays a tensor out along one of its axes. See rows_along_k.h.
#include <algorithm>

#include "derive/parts.h"
#include "derive/rows_along_k.h"

namespace kachel::derive {

using namespace ir;

namespace {

// Tiles of the kernel that lays out: of the crossed axis and the last one, with lanes along either, and of the one
// before the last, for blocks to have enough to do (H200: 32 us for 51 MB where one row a block takes 46, a copy 28).
const std::vector<int64_t> kCrossedCuts = {32, 64}, kLastCuts = {64, 16}, kNextCuts = {2, 4};
// Of the one that fills rows up: of the rows, and of the axis before them.
const std::vector<int64_t> kRowCuts = {128, 64}, kRowsCuts = {16, 4};

}  // namespace

Kernel layer_of(const Kernel& kernel, const CrossedTensor& crossed, const BufferRef& rows, std::string name,
                const std::function<std::string(std::string)>& fresh) {
  const auto variable = [&](VarKind kind, const std::string& base) {
    return std::make_shared<Var>(Var{kind, fresh(base), {DType::I64, nullptr, false}, {}});
  };
  Kernel layer;
  layer.name = std::move(name);
  const size_t rank = rows->shape.size();
  std::vector<AxisSpec> place(rank);    // of a tile in the tensor
  std::vector<ExprRef> extents, there;  // of the tile, and an element of it
  ParallelStmt turning;                 // over the tile as it becomes
  for (size_t axis = 0; axis < rank; ++axis) {
    const VarRef block = variable(VarKind::kGrid, "b" + std::to_string(axis));
    const ExprRef all = axis == crossed.axis ? rows->shape.back() : at_least_zero(crossed.tensor->shape[axis]);
    const bool last = axis + 1 == rank;
    const std::vector<int64_t>& cuts = crossed.has_rows()     ? (last ? kRowCuts : kRowsCuts)
                                       : axis == crossed.axis ? kCrossedCuts
                                       : last                 ? kLastCuts
                                                              : kNextCuts;
    if (axis != crossed.axis && axis + 2 < rank) {
      layer.grid.push_back({block, all});
      place[axis] = {AxisSpec::Kind::kIndex, make_var(block), nullptr, nullptr};
      continue;
    }
    const VarRef cut = variable(VarKind::kTunable, "cut" + std::to_string(axis));
    layer.tunables.push_back({cut, cuts});
    layer.grid.push_back({block, ceil_div(all, make_var(cut))});
    place[axis] = {AxisSpec::Kind::kRange, times(make_var(block), make_var(cut)), make_var(cut), nullptr};
    turning.iters.push_back({variable(VarKind::kParallel, "i" + std::to_string(axis)), make_var(cut)});
    extents.push_back(make_var(cut));
    there.push_back(make_var(turning.iters.back().var));
  }
  const auto tile = [&](const char* base, std::vector<ExprRef> shape) {
    auto made = std::make_shared<Buffer>();
    made->name = fresh(base);
    made->scope = Scope::kFragment;
    made->type = crossed.tensor->type;
    made->shape = std::move(shape);
    layer.body.push_back({{}, DeclStmt{made, nullptr}});
    return made;
  };
  const BufferRef result = with_direction(rows, Direction::kOut);
  const BufferRef from = tile("columns", extents);
  layer.body.push_back({{}, CopyStmt{whole(from), {crossed.tensor, place, nullptr, nullptr, nullptr, {}}}});
  if (crossed.has_rows()) {
    layer.body.push_back({{}, CopyStmt{{result, place, nullptr, nullptr, nullptr, {}}, whole(from)}});
    complete(kernel, {result}, &layer);
    return layer;
  }
  // The crossed axis is the first of the tile's.
  const BufferRef to = tile("turned", with_last(extents, 0));
  std::rotate(turning.iters.begin(), turning.iters.begin() + 1, turning.iters.end());
  turning.body.push_back(
      {{}, AssignStmt{to, with_last(there, 0), AssignOp::kSet, AtomicOp::kNone, make_load(from, there)}});
  layer.body.push_back({{}, std::move(turning)});
  layer.body.push_back(
      {{}, CopyStmt{{result, with_last(place, crossed.axis), nullptr, nullptr, nullptr, {}}, whole(to)}});
  complete(kernel, {result}, &layer);
  return layer;
}

}  // namespace kachel::derive
