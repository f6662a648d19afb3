#include "lowering/tile_ir/long_rows.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "ir/parallel.h"
#include "ir/visit.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

using ir::AxisSpec;
using ir::BufferRef;
using ir::ExprKind;
using ir::ExprRef;

// Bytes of fragments: half of the registers of a multiprocessor, less what threads need to compute.
constexpr int64_t kLongRowBytes = 96 * 1024;

// Of a tensor, from places that what stands in between does not change.
bool is_plain(const ir::TileRef& slice) {
  for (const AxisSpec& axis : slice.axes) {
    bool loads = false;
    if (axis.start) ir::visit(axis.start, [&](const ExprRef& node) { loads |= node->kind == ExprKind::kLoad; });
    if (loads) return false;
  }
  return slice.buffer->scope == ir::Scope::kGlobal && ir::bits(slice.buffer->type.dtype) >= 8 && !slice.within_first &&
         !slice.pad && std::none_of(slice.axes.begin(), slice.axes.end(), [](const AxisSpec& axis) {
           return axis.kind == AxisSpec::Kind::kGather;
         });
}

// Where the element [.., indices[a], ..] of the slice lies in its tensor.
std::vector<ExprRef> place_in(const ir::TileRef& slice, const std::vector<ExprRef>& indices) {
  std::vector<ExprRef> place;
  size_t kept = 0;
  for (const AxisSpec& axis : slice.axes) {
    if (axis.kind == AxisSpec::Kind::kIndex)
      place.push_back(axis.start);
    else if (axis.kind == AxisSpec::Kind::kWhole)
      place.push_back(indices[kept++]);
    else
      place.push_back(ir::make_typed(ir::Op::kAdd, {axis.start, indices[kept++]}));
  }
  return place;
}

// Whether a tile of the type has all numbers of the other one.
bool has_all(ir::DType tile, ir::DType tensor) {
  return tile == tensor || (tile == ir::DType::F32 && ir::is_float(tensor));
}

// No iteration beyond the tile.
bool is_within(const ir::ParallelStmt& region, const BufferRef& tile) {
  bool within = region.iters.size() == tile->shape.size();
  for (size_t axis = 0; within && axis < tile->shape.size(); ++axis)
    within = region.iters[axis].extent->int_value <= tile->shape[axis]->int_value;
  return within;
}

// Of what stands at the top of the kernel, each statement of which runs once.
class Rows {
 public:
  explicit Rows(const ir::Block& all) : all_(all) {}

  ir::Block run() {
    ir::Block out = all_;
    for (size_t i = 0; i < out.size(); ++i)
      if (reads_itself(out, i)) out.erase(out.begin() + static_cast<std::ptrdiff_t>(i--));
    for (size_t i = 0; i + 1 < out.size(); ++i)
      if (writes_itself(&out, i)) out.erase(out.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    return out;
  }

 private:
  int64_t uses(const ir::Buffer* tile) const { return uses_of(tile, all_); }

  // A copy of what nothing writes, for one region behind it, which then loads from the tensor.
  bool reads_itself(ir::Block& body, size_t at) const {
    const auto* copy = std::get_if<ir::CopyStmt>(&body[at].node);
    if (!copy) return false;
    const BufferRef& tile = copy->dst.buffer;
    if (tile->scope != ir::Scope::kFragment || !has_whole_axes(copy->dst) || !is_plain(copy->src) ||
        !is_unwritten(*copy->src.buffer) || uses(tile.get()) != 2 || tile->type.dtype == ir::DType::Bool)
      return false;
    if (!has_all(tile->type.dtype, copy->src.buffer->type.dtype)) return false;
    for (size_t i = at + 1; i < body.size(); ++i) {
      auto* region = std::get_if<ir::ParallelStmt>(&body[i].node);
      if (!region || !uses_of(tile.get(), {body[i]})) continue;
      if (!reads_own(*region, tile.get()) || !is_within(*region, tile)) return false;
      rewrite_region(&region->body, [&](const ExprRef& expr) {
        return ir::rewrite(expr, [&](const ExprRef& node) {
          if (node->kind != ExprKind::kLoad || node->buffer != tile) return node;
          return ir::make_load(copy->src.buffer, place_in(copy->src, node->args));
        });
      });
      return true;
    }
    return false;
  }
  // And writes none of it.
  static bool reads_own(const ir::ParallelStmt& region, const ir::Buffer* tile) {
    bool own = true;
    for_each_node(region.body, [&](const ExprRef& node) {
      own &= node->kind != ExprKind::kLoad || node->buffer.get() != tile || is_own_element(node, region.iters);
      own &= node->kind != ExprKind::kReduce;
    });
    BufferSet written;
    note_writes({{}, region}, &written);
    return own && !written.count(tile);
  }

  // A region that sets all of a tile, which then goes to a tensor and is not used again.
  static bool writes_itself(ir::Block* body, size_t at) {
    auto* region = std::get_if<ir::ParallelStmt>(&(*body)[at].node);
    const auto* copy = std::get_if<ir::CopyStmt>(&(*body)[at + 1].node);
    if (!region || !copy || copy->atomic != ir::AtomicOp::kNone || !has_whole_axes(copy->src) || !is_plain(copy->dst))
      return false;
    const BufferRef& tile = copy->src.buffer;
    const ir::Buffer* tensor = copy->dst.buffer.get();
    if (tile->scope != ir::Scope::kFragment || tile->type.dtype != ir::DType::F32 ||
        ir::compute_type(tensor->type.dtype) != ir::DType::F32 || region->iters.size() != tile->shape.size())
      return false;
    for (size_t axis = 0; axis < tile->shape.size(); ++axis)
      if (!ir::same(region->iters[axis].extent, tile->shape[axis])) return false;
    ir::AssignStmt* made = nullptr;
    bool plain = true;
    for (ir::Stmt& inner : region->body) {
      auto* assign = std::get_if<ir::AssignStmt>(&inner.node);
      plain &= !std::holds_alternative<ir::IfStmt>(inner.node);
      if (!assign || assign->buffer != tile) continue;
      plain &= !made && is_own_element(ir::make_load(tile, assign->indices), region->iters) &&
               &inner == &region->body.back();
      made = assign;
    }
    for_each_node(region->body, [&](const ExprRef& node) {
      plain &= node->kind != ExprKind::kReduce;
      if (node->kind != ExprKind::kLoad) return;
      plain &= node->buffer.get() != tensor;
      plain &= node->buffer != tile || is_own_element(node, region->iters);
    });
    BufferSet written;
    note_writes((*body)[at], &written);
    const auto behind = body->begin() + static_cast<std::ptrdiff_t>(at) + 2;
    if (!plain || !made || written.count(tensor) || uses_of(tile.get(), {behind, body->end()})) return false;
    const ExprRef before = ir::make_load(tile, made->indices);
    constexpr ir::Op kOps[] = {ir::Op::kAdd, ir::Op::kAdd, ir::Op::kSub, ir::Op::kMul, ir::Op::kDiv};
    if (made->op != ir::AssignOp::kSet)
      made->value = ir::make_typed(kOps[static_cast<size_t>(made->op)], {before, made->value});
    made->op = ir::AssignOp::kSet;
    made->indices = place_in(copy->dst, made->indices);
    made->buffer = copy->dst.buffer;
    return true;
  }

  const ir::Block& all_;
};

}  // namespace

int64_t fragment_bytes(const ir::Kernel& kernel) {
  int64_t bytes = 0;
  ir::for_each_stmt(kernel.body, [&](const ir::Stmt& stmt) {
    const auto* decl = std::get_if<ir::DeclStmt>(&stmt.node);
    if (decl && decl->buffer->scope == ir::Scope::kFragment)
      bytes += elements_of(*decl->buffer) * std::max(ir::bits(ir::compute_type(decl->buffer->type.dtype)), 32) / 8;
  });
  return bytes;
}

bool has_long_rows(const ir::Kernel& kernel, int blocks) {
  bool multiplies = false;
  ir::for_each_stmt(kernel.body,
                    [&](const ir::Stmt& stmt) { multiplies |= std::holds_alternative<ir::GemmStmt>(stmt.node); });
  return !multiplies && fragment_bytes(kernel) > blocks * kLongRowBytes;
}

ir::Kernel long_rows(const ir::Kernel& kernel, int blocks) {
  if (!has_long_rows(kernel, blocks)) return kernel;
  ir::Kernel out = kernel;
  out.body = Rows(kernel.body).run();
  std::erase_if(out.body, [&](const ir::Stmt& stmt) {
    const auto* decl = std::get_if<ir::DeclStmt>(&stmt.node);
    return decl && !uses_of(decl->buffer.get(), out.body);
  });
  return out;
}

}  // namespace kachel::lowering
