#include "lowering/tile_ir/tensor_reads.h"

#include <algorithm>

#include "lowering/planted.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

using ir::ExprKind;
using ir::ExprRef;

std::optional<TensorRead> read_of(const ir::ParallelStmt& region, const RegionIndexes& indexes, const ExprRef& load,
                                  bool ahead) {
  const ir::BufferRef& tensor = load->buffer;
  if (!is_unwritten(*tensor)) return std::nullopt;
  ir::Buffer tile{tensor->name + "_tile", ir::Scope::kShared, ir::Direction::kInOut, tensor->type, {}, tensor->loc};
  TensorRead read{load, nullptr, {}, {}};
  read.copy.src.buffer = tensor;
  std::vector<size_t> followed;  // axes of the region
  for (const ExprRef& arg : load->args) {
    const std::optional<RegionIndex> index = indexes.split(indexes.inlined(arg));
    if (!index) return std::nullopt;
    ir::AxisSpec axis;
    axis.start = index->base ? index->base : ir::make_int(0, ir::DType::I64);
    axis.kind = index->axis == RegionIndex::kNone ? ir::AxisSpec::Kind::kIndex : ir::AxisSpec::Kind::kRange;
    if (index->axis != RegionIndex::kNone) {
      const bool again = std::count(followed.begin(), followed.end(), index->axis) != 0;
      if (again || (!ahead && !followed.empty() && index->axis < followed.back())) return std::nullopt;
      followed.push_back(index->axis);
      const ir::IterVar& iter = region.iters[index->axis];
      if (read.place.empty() && planted(Planted::kFetchedPlace))
        axis.start = ir::make_typed(ir::Op::kSub, {axis.start, ir::make_int(1, axis.start->type)});
      axis.extent = iter.extent;
      tile.shape.push_back(iter.extent);
      read.place.push_back(ir::make_var(iter.var));
    }
    read.copy.src.axes.push_back(std::move(axis));
  }
  if (read.place.empty()) return std::nullopt;
  read.tile = std::make_shared<const ir::Buffer>(std::move(tile));
  read.copy.dst.buffer = read.tile;
  read.copy.dst.axes.resize(read.place.size());
  return read;
}

// Calls fn(load) on each load that is evaluated for some of the region's iterations and not for others.
template <class Fn>
void for_each_masked_load(const ExprRef& expr, const RegionIndexes& indexes, bool masked, const Fn& fn) {
  if (expr->kind == ExprKind::kReduce) return;
  if (expr->kind == ExprKind::kLoad && masked) fn(expr);
  for (size_t i = 0; i < expr->args.size(); ++i) {
    const bool lazily = i > 0 && ir::is_lazy(*expr);
    if (lazily && indexes.axes_of(expr->args[0]).empty()) return;  // for all or for none
    for_each_masked_load(expr->args[i], indexes, masked || lazily, fn);
  }
}

ir::Block block_with_tiles(ir::Block body, const std::vector<TensorRead>& reads) {
  auto expr = [&](const ExprRef& root) {
    return ir::rewrite(root, [&](const ExprRef& node) {
      if (node->kind != ExprKind::kLoad) return node;
      for (const TensorRead& read : reads)
        if (ir::same(node, read.load)) return ir::make_load(read.tile, read.place);
      return node;
    });
  };
  for (ir::Stmt& stmt : body) {
    if (auto* let = std::get_if<ir::LetStmt>(&stmt.node)) let->value = expr(let->value);
    if (auto* assign = std::get_if<ir::AssignStmt>(&stmt.node)) assign->value = expr(assign->value);
    if (auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) {
      branch->condition = expr(branch->condition);
      branch->then_body = block_with_tiles(std::move(branch->then_body), reads);
      branch->else_body = block_with_tiles(std::move(branch->else_body), reads);
    }
  }
  return body;
}

}  // namespace

std::vector<TensorRead> tensor_reads(const ir::ParallelStmt& region, bool ahead) {
  std::vector<TensorRead> found;
  RegionIndexes indexes(region.iters);
  for (const ir::Stmt& stmt : region.body) {
    const auto* let = std::get_if<ir::LetStmt>(&stmt.node);
    const auto* assign = std::get_if<ir::AssignStmt>(&stmt.node);
    if (!let && !assign) continue;
    const ExprRef& value = let ? let->value : assign->value;
    const auto note = [&](const ExprRef& load) {
      if (std::any_of(found.begin(), found.end(), [&](const TensorRead& other) { return ir::same(other.load, load); }))
        return;
      if (std::optional<TensorRead> read = read_of(region, indexes, load, ahead)) found.push_back(std::move(*read));
    };
    for_each_certain_load(value, note);
    if (ahead) for_each_masked_load(value, indexes, false, note);
    if (let) indexes.name(*let);
  }
  return found;
}

ir::ParallelStmt with_tiles(const ir::ParallelStmt& region, const std::vector<TensorRead>& reads) {
  return {region.iters, block_with_tiles(region.body, reads)};
}

}  // namespace kachel::lowering
