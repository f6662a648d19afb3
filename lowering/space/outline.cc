#include "lowering/space/outline.h"

#include <algorithm>

#include "ir/concrete.h"
#include "ir/typecheck.h"
#include "ir/visit.h"
#include "lowering/machine/machine.h"

namespace kachel::lowering {

using ir::ExprKind;
using ir::ExprRef;

namespace {

// Of the registers of a multiprocessor, what fragments may take: the rest holds operands, addresses and indices.
constexpr int kFragmentShare = 8;  // all but an eighth
// Elements of a block's product from which on a pair gains by copying for each other; smaller ones lose by waiting. And
// those with which clusters of four and eight do, where lines are asked for twice.
constexpr double kLargeProduct = 128 * 256, kLeastShared = 64 * 64, kMostShared = 128 * 128;

// A tile shape without the axes that an index drops.
std::vector<ExprRef> shape_of(const ir::TileRef& tile) {
  std::vector<ExprRef> shape;
  for (size_t axis = 0; axis < tile.axes.size(); ++axis)
    if (ExprRef extent = ir::axis_extent(tile, axis)) shape.push_back(extent);
  return shape;
}

}  // namespace

Outline::Outline(const SpaceQuestion& question) : question_(question) {
  const ir::Kernel& kernel = question.kernel;
  for (const ir::VarRef& var : kernel.consts) {
    const auto whole = question.bindings.int_consts.find(var->name);
    const auto real = question.bindings.float_consts.find(var->name);
    if (whole != question.bindings.int_consts.end()) env_[var.get()] = {false, whole->second, 0};
    if (real != question.bindings.float_consts.end()) env_[var.get()] = {true, 0, real->second};
  }
  for (const ir::VarRef& var : kernel.dims)
    if (const auto found = question.bindings.dims.find(var->name); found != question.bindings.dims.end())
      env_[var.get()] = {false, found->second, 0};
  for (const ir::Tunable& tunable : kernel.tunables) env_[tunable.var.get()] = {};
  roles_ = ir::roles_of(kernel);
  if (question.is_program) std::fill(roles_.begin(), roles_.end(), ir::TunableRole::kParts);
  work_ = kernel.tunables.size();
  for (const ir::IterVar& axis : kernel.grid) {
    grid_.push_back(extent_of(axis.extent));
    cover(axis.extent);
  }
  block(kernel.body, nullptr);
  for (const ExprRef& condition : kernel.where) ir::visit(condition, [&](const ExprRef&) { ++work_; });
}

Extent Outline::extent_of(const ExprRef& expr) {
  const auto typed = ir::type_expr(expr);
  Extent extent{.expr = typed.ok() ? *typed : expr, .known = typed.ok()};
  ir::visit(expr, [&](const ExprRef& node) {
    ++work_;
    if (node->kind == ExprKind::kLoad || ir::is_reduction(*node)) extent.known = false;
    if (node->kind == ExprKind::kVar && !env_.count(node->var.get())) extent.known = false;
  });
  for (const ir::Tunable& tunable : question_.kernel.tunables)
    extent.tuned |= tunable.automatic && ir::mentions(expr, tunable.var);
  return extent;
}

ir::DType Outline::type_of(const ir::TypeRef& type) const {
  if (!type.symbol) return type.dtype;
  const auto found = question_.bindings.types.find(type.symbol->name);
  const ir::DType dtype = found == question_.bindings.types.end() ? type.symbol->options[0] : found->second;
  return type.accumulator ? ir::accumulator_type(dtype) : dtype;
}

void Outline::block(const ir::Block& body, const ir::ForStmt* loop) {
  for (const ir::Stmt& stmt : body) {
    if (const auto* decl = std::get_if<ir::DeclStmt>(&stmt.node)) {
      TileOutline tile{.bits = ir::bits(type_of(decl->buffer->type)),
                       .shared = decl->buffer->scope == ir::Scope::kShared};
      for (const ExprRef& extent : decl->buffer->shape) tile.extents.push_back(extent_of(extent));
      tiles_.push_back(std::move(tile));
      buffers_.push_back(decl->buffer.get());
    } else if (const auto* copy = std::get_if<ir::CopyStmt>(&stmt.node)) {
      if (!loop || copy->src.buffer->scope != ir::Scope::kGlobal) continue;
      const auto found = std::find(buffers_.begin(), buffers_.end(), copy->dst.buffer.get());
      if (found == buffers_.end()) continue;
      TileOutline& tile = tiles_[static_cast<size_t>(found - buffers_.begin())];
      tile.streamed = true;
      if (loop->pipelined && loop->stages) tile.stages = extent_of(loop->stages);
    } else if (const auto* gemm = std::get_if<ir::GemmStmt>(&stmt.node)) {
      product(*gemm);
    } else if (const auto* inner = std::get_if<ir::ForStmt>(&stmt.node)) {
      cover(inner->end);
      block(inner->body, inner);
    } else if (const auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) {
      block(branch->then_body, loop);
      block(branch->else_body, loop);
    }
  }
}

void Outline::product(const ir::GemmStmt& gemm) {
  const std::vector<ExprRef> c = shape_of(gemm.c), a = shape_of(gemm.a);
  if (c.size() != 2 || a.size() != 2) return;
  ProductOutline product{.m = extent_of(c[0]), .n = extent_of(c[1]), .k = extent_of(a[gemm.transpose_a ? 0 : 1])};
  product.a = type_of(gemm.a.buffer->type), product.b = type_of(gemm.b.buffer->type);
  product.bits = std::min(ir::bits(product.a), ir::bits(product.b));
  // Of branches that differ in precision one is taken.
  for (const ProductOutline& other : products_)
    if (ir::same(other.m.expr, product.m.expr) && ir::same(other.n.expr, product.n.expr) &&
        ir::same(other.k.expr, product.k.expr) && other.a == product.a && other.b == product.b)
      return;
  products_.push_back(std::move(product));
}

void Outline::cover(const ExprRef& expr) {
  ir::visit(expr, [&](const ExprRef& node) {
    if (node->kind != ExprKind::kApply || node->op != ir::Op::kCeilDiv) return;
    CoverOutline cover{extent_of(node->args[0]), extent_of(node->args[1])};
    if (cover.total.known && cover.extent.known && cover.extent.tuned) covers_.push_back(std::move(cover));
  });
}

int Outline::bits_along_k(size_t tunable) const {
  const ir::VarRef& var = question_.kernel.tunables[tunable].var;
  int bits = 0;
  for (const ProductOutline& product : products_) {
    if (ir::mentions(product.m.expr, var) || ir::mentions(product.n.expr, var)) return 0;
    if (ir::mentions(product.k.expr, var)) bits = bits ? std::min(bits, product.bits) : product.bits;
  }
  return bits;
}

void Outline::set(const std::vector<int64_t>& values) {
  for (size_t i = 0; i < values.size(); ++i) env_[question_.kernel.tunables[i].var.get()].i = values[i];
}

std::optional<int64_t> Outline::value(const Extent& extent) const {
  if (!extent.known || !extent.expr) return std::nullopt;
  const auto value = ir::evaluate_int(extent.expr, env_);
  return value.ok() ? std::optional(*value) : std::nullopt;
}

std::optional<int64_t> Outline::elements(const TileOutline& tile) const {
  constexpr int64_t kMost = int64_t{1} << 30;  // products of two stay in the range
  int64_t count = 1;
  for (const Extent& extent : tile.extents) {
    const auto each = value(extent);
    if (!each || *each < 1) return std::nullopt;
    count = std::min(count * std::min(*each, kMost), kMost);
  }
  return count;
}

const ir::Tunable* Outline::tunable(ir::TunableRole role) const {
  const auto found = std::find(roles_.begin(), roles_.end(), role);
  return found == roles_.end() ? nullptr : &question_.kernel.tunables[static_cast<size_t>(found - roles_.begin())];
}

int64_t Outline::cluster() const {
  const ir::Tunable* blocks = tunable(ir::TunableRole::kCluster);
  return blocks && blocks->automatic ? env_.at(blocks->var.get()).i : 1;
}

bool Outline::has_shape() const {
  const ir::Tunable *all = tunable(ir::TunableRole::kCluster), *along = tunable(ir::TunableRole::kClusterColumns);
  if (!along || !along->automatic || is_cpu() || !has_group_mma(question_.target.architecture)) return true;
  const int64_t blocks = all ? env_.at(all->var.get()).i : 1, columns = env_.at(along->var.get()).i;
  return columns >= 1 && blocks % columns == 0 && 2 * columns * columns >= blocks;
}

bool Outline::rows_straddle() const {
  constexpr int64_t kLineBits = 128 * 8;
  return std::any_of(products_.begin(), products_.end(), [&](const ProductOutline& product) {
    return std::any_of(covers_.begin(), covers_.end(), [&](const CoverOutline& cover) {
      const auto total = ir::same(cover.extent.expr, product.k.expr) ? value(cover.total) : std::nullopt;
      return total && *total % (kLineBits / product.bits);
    });
  });
}

bool Outline::gains_by(int64_t cluster) const {
  if (cluster == 1) return true;
  return std::any_of(products_.begin(), products_.end(), [&](const ProductOutline& product) {
    const auto m = value(product.m), n = value(product.n);
    if (!m || !n) return false;
    const double elements = static_cast<double>(*m) * static_cast<double>(*n);
    return cluster == 2 ? elements >= kLargeProduct : elements >= kLeastShared && elements <= kMostShared;
  });
}

int64_t resident_of(const Outline& outline, const Footprint& footprint) {
  if (outline.is_cpu()) return 1;
  return std::clamp<int64_t>(resident_by_shared(footprint.shared_bytes, outline.question().target.architecture), 1,
                             kMostResident);
}

Footprint footprint_of(const Outline& outline) {
  constexpr int64_t kMostStages = 64;  // as the lowering has it
  Footprint sum;
  for (const TileOutline& tile : outline.tiles()) {
    const auto elements = outline.elements(tile);
    if (!elements) continue;
    sum.elements = std::max(sum.elements, *elements);
    const int64_t bytes = (*elements * tile.bits + 7) / 8;
    if (!tile.shared)
      sum.registers += (bytes + 3) / 4;
    else
      sum.shared_bytes +=
          bytes * (tile.stages ? std::clamp<int64_t>(outline.value(*tile.stages).value_or(1), 1, kMostStages) : 1);
  }
  return sum;
}

bool fits(const Outline& outline, const Footprint& footprint) {
  constexpr int64_t kMostElements = int64_t{1} << 24;  // of a tile, in the language
  if (footprint.elements > kMostElements) return false;
  const bool cpu = outline.is_cpu();
  if (!cpu && footprint.shared_bytes > outline.question().target.shared_limit) return false;
  if (!cpu) {
    const int64_t registers = machine_of(outline.question().target.architecture).registers_per_sm;
    if (footprint.registers > registers - registers / kFragmentShare) return false;
  }
  auto usable = [&](const Extent& extent, int64_t unit) {
    const auto value = extent.tuned ? outline.value(extent) : std::nullopt;
    return !value || *value % unit == 0;
  };
  if (!outline.gains_by(outline.cluster()) || !outline.has_shape()) return false;
  return std::all_of(outline.products().begin(), outline.products().end(), [&](const ProductOutline& product) {
    return usable(product.m, kMmaRows) && usable(product.n, kMmaColumns) &&
           usable(product.k, std::max(kMmaBytes * 8 / product.bits, 1));
  });
}

}  // namespace kachel::lowering
