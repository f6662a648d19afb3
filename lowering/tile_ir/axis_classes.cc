#include "lowering/tile_ir/axis_classes.h"

#include <algorithm>
#include <utility>

#include "ir/visit.h"

namespace kachel::lowering {
namespace {

using ir::AxisSpec;
using ir::ExprKind;
using ir::ExprRef;

bool is_tile(const ir::Buffer& buffer) {
  return buffer.scope != ir::Scope::kGlobal;
}
int64_t extent_of(const ir::Buffer& tile, size_t axis) {
  return tile.shape[axis]->int_value;
}
bool is_inside(const ExprRef& index, int64_t extent) {
  return index->kind == ExprKind::kInt && index->int_value >= 0 && index->int_value < extent;
}
bool is_all(const ir::TileRef& tile, size_t axis) {
  const AxisSpec& spec = tile.axes[axis];
  return spec.kind == AxisSpec::Kind::kWhole || (spec.kind == AxisSpec::Kind::kRange && ir::is_int(spec.start, 0) &&
                                                 ir::same(spec.extent, tile.buffer->shape[axis]));
}

// Whether what further iterations would write lies outside of the tensor.
bool ends_with(const ir::Buffer& tensor, size_t axis, const ir::IterVar& iter) {
  return ir::is_int(tensor.shape[axis], iter.extent->int_value);
}

}  // namespace

AxisClasses::AxisClasses(const ir::Kernel& kernel, Depth depth, BufferSet parted)
    : depth_(depth), parted_(std::move(parted)) {
  block(kernel.body);
  for (const int mark : marks_) fixed_.insert(root(mark));
}

int AxisClasses::node(Axis axis) {
  const auto [found, fresh] = axes_.try_emplace(axis, static_cast<int>(parents_.size()));
  if (fresh) parents_.push_back(found->second);
  return found->second;
}
int AxisClasses::node(const ir::Var* var) {
  const auto [found, fresh] = vars_.try_emplace(var, static_cast<int>(parents_.size()));
  if (fresh) parents_.push_back(found->second);
  return found->second;
}
int AxisClasses::root(int node) const {
  while (parents_[static_cast<size_t>(node)] != node) node = parents_[static_cast<size_t>(node)];
  return node;
}
void AxisClasses::join(int a, int b, int64_t extent_a, int64_t extent_b) {
  if (extent_a != extent_b) fix(a), fix(b);
  parents_[static_cast<size_t>(root(a))] = root(b);
}

void AxisClasses::block(const ir::Block& body) {
  std::vector<ir::IterVar> none;
  for (const ir::Stmt& stmt : body) {
    if (const auto* inner = std::get_if<ir::ParallelStmt>(&stmt.node)) {
      region(*inner);
      continue;
    }
    ir::for_each_expr(stmt, [&](const ExprRef& expr) { reads(expr, &none); });
    if (const auto* moved = std::get_if<ir::CopyStmt>(&stmt.node)) copy(*moved);
    if (const auto* fill = std::get_if<ir::FillStmt>(&stmt.node)) slice(fill->dst);
    if (const auto* product = std::get_if<ir::GemmStmt>(&stmt.node)) gemm(*product);
    if (const auto* loop = std::get_if<ir::ForStmt>(&stmt.node)) block(loop->body);
    if (const auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) block(branch->then_body), block(branch->else_body);
  }
}

// Of parts of an axis, and of rows that memory names, nothing is known; as many rows are named as are copied.
void AxisClasses::slice(const ir::TileRef& tile) {
  for (const AxisSpec& axis : tile.axes)
    for (size_t i = 0; axis.gather && is_tile(*axis.gather->buffer) && i < axis.gather->axes.size(); ++i)
      fix(node({axis.gather->buffer.get(), i}));
  if (!is_tile(*tile.buffer)) return;
  for (size_t i = 0; i < tile.axes.size(); ++i) {
    const bool index = tile.axes[i].kind == AxisSpec::Kind::kIndex;
    if (tile.within_first || !(index ? is_inside(tile.axes[i].start, extent_of(*tile.buffer, i)) : is_all(tile, i)))
      fix(node({tile.buffer.get(), i}));
  }
}

void AxisClasses::copy(const ir::CopyStmt& copy) {
  slice(copy.dst), slice(copy.src);
  const std::vector<size_t> to = kept_axes(copy.dst), from = kept_axes(copy.src);
  for (size_t i = 0; i < std::min(to.size(), from.size()); ++i) {
    const ir::Buffer *dst = copy.dst.buffer.get(), *src = copy.src.buffer.get();
    const bool gathers = copy.dst.axes[to[i]].gather || copy.src.axes[from[i]].gather;
    if (is_tile(*dst) && is_tile(*src) && !parted_.count(src))
      join(node({dst, to[i]}), node({src, from[i]}), extent_of(*dst, to[i]), extent_of(*src, from[i]));
    for (const auto& [tile, axis] : {Axis{dst, to[i]}, Axis{src, from[i]}})
      if (is_tile(*tile) && gathers) fix(node({tile, axis}));
  }
}

void AxisClasses::gemm(const ir::GemmStmt& gemm) {
  std::vector<std::vector<Axis>> sides;
  for (const ir::TileRef* tile : {&gemm.c, &gemm.a, &gemm.b}) {
    slice(*tile);
    std::vector<Axis>& side = sides.emplace_back();
    for (const size_t axis : kept_axes(*tile)) side.emplace_back(tile->buffer.get(), axis);
  }
  const auto &c = sides[0], &a = sides[1], &b = sides[2];
  const size_t row = gemm.transpose_a, column = !gemm.transpose_b;
  auto meet = [this](const Axis& x, const Axis& y) {
    join(node(x), node(y), extent_of(*x.first, x.second), extent_of(*y.first, y.second));
  };
  meet(c[0], a[row]), meet(c[1], b[column]);
  const Axis &left = a[1 - row], &right = b[1 - column];
  if (depth_ == Depth::kJoined)
    meet(left, right);
  else
    fix(node(left)), fix(node(right));
}

void AxisClasses::reads(const ExprRef& expr, std::vector<ir::IterVar>* inner) {
  if (expr->kind == ExprKind::kLoad) element(*expr->buffer, expr->args, *inner);
  if (expr->kind == ExprKind::kScan) {
    for (const ir::IterVar& iter : expr->iters) fix(node(iter.var.get()));
    ir::visit(expr->args[1], [this](const ExprRef& part) {
      if (part->kind == ExprKind::kVar) fix(node(part->var.get()));
    });
  }
  inner->insert(inner->end(), expr->iters.begin(), expr->iters.end());
  for (const ExprRef& arg : expr->args) reads(arg, inner);
  inner->resize(inner->size() - expr->iters.size());
}

// By a variable alone, the axis is the variable's. By a place that is computed, elements that are there now may have
// been outside before.
void AxisClasses::element(const ir::Buffer& tile, const std::vector<ExprRef>& indices,
                          const std::vector<ir::IterVar>& inner) {
  if (!is_tile(tile)) return;
  for (size_t i = 0; i < indices.size(); ++i) {
    const int axis = node({&tile, i});
    const auto its = std::find_if(inner.begin(), inner.end(), [&](const ir::IterVar& iter) {
      return indices[i]->kind == ExprKind::kVar && indices[i]->var == iter.var;
    });
    if (its != inner.end())
      join(axis, node(its->var.get()), extent_of(tile, i), its->extent->int_value);
    else if (!is_inside(indices[i], extent_of(tile, i)))
      fix(axis);
  }
}

// What an iteration writes is its own element of a tile, or of a tensor that ends with the region; of a variable that
// does not say which, there are as many iterations as before.
void AxisClasses::region(const ir::ParallelStmt& region) {
  std::vector<ir::IterVar> inner = region.iters;
  ir::for_each_stmt(region.body, [&](const ir::Stmt& stmt) {
    ir::for_each_expr(stmt, [&](const ExprRef& expr) { reads(expr, &inner); });
    const auto* assign = std::get_if<ir::AssignStmt>(&stmt.node);
    if (!assign) return;
    element(*assign->buffer, assign->indices, region.iters);
    for (const ir::IterVar& iter : region.iters) {
      bool own = false;
      for (size_t i = 0; i < assign->indices.size(); ++i)
        own |= assign->indices[i]->kind == ExprKind::kVar && assign->indices[i]->var == iter.var &&
               (is_tile(*assign->buffer) || (depth_ == Depth::kJoined && ends_with(*assign->buffer, i, iter)));
      if (!own) fix(node(iter.var.get()));
    }
  });
}

}  // namespace kachel::lowering
