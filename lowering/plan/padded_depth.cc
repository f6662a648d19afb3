#include "lowering/plan/padded_depth.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "ir/visit.h"
#include "lowering/plan/cleared_depth.h"
#include "lowering/plan/placement.h"
#include "lowering/tile_ir/depth_bytes.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

using ir::AxisSpec;
using ir::BufferRef;

bool is_plain(const ir::TileRef& tile) {
  return !tile.pad && has_whole_axes(tile);
}

// The slice's axis that is the tile's `axis`; none where it picks rows by an index tensor or is of another rank.
std::optional<size_t> axis_of_slice(const ir::TileRef& slice, size_t axis, size_t rank) {
  const std::vector<size_t> kept = kept_axes(slice);
  if (kept.size() != rank || slice.axes[kept[axis]].kind == AxisSpec::Kind::kGather) return std::nullopt;
  return kept[axis];
}

class Padder {
 public:
  explicit Padder(const ir::Kernel& kernel) : kernel_(kernel) {
    note(kernel.body);
    for (const ir::GemmStmt* gemm : gemms_)
      if (may_take_mma(*gemm))
        for (const auto& [tile, axis] : operands(*gemm)) choose(tile, axis);
    // All products along that axis have to be padded; of others the tile's first rows or columns are operands.
    for (bool changed = true; std::exchange(changed, false);)
      for (const ir::GemmStmt* gemm : gemms_) {
        const auto sides = operands(*gemm);
        const bool all = std::all_of(sides.begin(), sides.end(), [this](const auto& side) {
          const auto found = axes_.find(side.first->buffer);
          return found != axes_.end() && found->second == side.second;
        });
        const bool short_k = std::any_of(sides.begin(), sides.end(), [](const auto& side) {
          return side.first->buffer->shape.size() != 2 ||
                 padded(side.first->buffer, side.second) != side.first->buffer->shape[side.second]->int_value;
        });
        for (const auto& [tile, axis] : sides)
          if ((short_k && !all) || !(is_plain(*tile) || is_part_of_others(*tile, axis)))
            changed |= axes_.erase(tile->buffer) != 0;
      }
  }

  ir::Kernel run() {
    ir::Kernel out = kernel_;
    for (const auto& [tile, axis] : axes_) {
      auto made = std::make_shared<ir::Buffer>(*tile);
      const ir::DType type = tile->shape[axis]->type;
      made->shape[axis] = ir::make_int(padded(tile, axis), type);
      made_[tile] = made;
    }
    if (!made_.empty()) out.body = block(kernel_.body);
    return out;
  }

 private:
  using Side = std::pair<const ir::TileRef*, size_t>;  // an operand and its axis along k
  static std::vector<Side> operands(const ir::GemmStmt& gemm) {
    return {{&gemm.a, gemm.transpose_a ? 0 : 1}, {&gemm.b, gemm.transpose_b ? 1 : 0}};
  }
  // Whether a product along `along` reads a part of a tile that is padded along its other axis, which stays that part.
  bool is_part_of_others(const ir::TileRef& tile, size_t along) const {
    const auto found = axes_.find(tile.buffer);
    if (found == axes_.end() || found->second == along || tile.within_first || tile.pad) return false;
    const AxisSpec &part = tile.axes[found->second], &own = tile.axes[along];
    return own.kind == AxisSpec::Kind::kWhole && part.kind == AxisSpec::Kind::kRange && !part.gather;
  }
  // By fma, zeros are work as any other numbers.
  static bool may_take_mma(const ir::GemmStmt& gemm) {
    return ir::bits(gemm.a.buffer->type.dtype) <= 16 || gemm.precision == ir::Precision::kTf32;
  }
  static int64_t padded(const BufferRef& tile, size_t axis) {
    const int64_t unit = depth_unit(tile->type.dtype);
    return (tile->shape[axis]->int_value + unit - 1) / unit * unit;
  }

  void note(const ir::Block& body) {
    for (const ir::Stmt& stmt : body) {
      note(stmt);
      if (const auto* loop = std::get_if<ir::ForStmt>(&stmt.node)) note(loop->body);
      if (const auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) note(branch->then_body), note(branch->else_body);
    }
  }
  void note(const ir::Stmt& stmt) {
    if (const auto* gemm = std::get_if<ir::GemmStmt>(&stmt.node)) {
      gemms_.push_back(gemm);
      refused_.insert(gemm->c.buffer.get());
      return;
    }
    const auto* decl = std::get_if<ir::DeclStmt>(&stmt.node);
    if (decl && decl->init && !ir::is_zero_constant(decl->init)) refused_.insert(decl->buffer.get());
    const auto* copy = std::get_if<ir::CopyStmt>(&stmt.node);
    if (copy) {
      copies_.push_back(copy);
      if (!is_plain(copy->src)) refused_.insert(copy->src.buffer.get());
    }
    if (std::holds_alternative<ir::ForStmt>(stmt.node) || std::holds_alternative<ir::IfStmt>(stmt.node) ||
        std::holds_alternative<ir::DeclStmt>(stmt.node)) {
      ir::for_each_expr(stmt, [this](const ir::ExprRef& expr) { note_loads(expr, &refused_); });
      return;
    }
    // Regions may read it: where there was nothing there are zeros.
    BufferSet used;
    std::holds_alternative<ir::ParallelStmt>(stmt.node) ? note_writes(stmt, &used) : note_uses(stmt, &used);
    if (copy) used.erase(copy->dst.buffer.get());
    if (copy && is_plain(copy->src)) used.erase(copy->src.buffer.get());
    refused_.insert(used.begin(), used.end());
  }

  void choose(const ir::TileRef* operand, size_t axis) {
    const BufferRef& tile = operand->buffer;
    if (tile->scope != ir::Scope::kShared || tile->shape.size() != 2 || ir::bits(tile->type.dtype) < 8) return;
    if (refused_.count(tile.get()) || padded(tile, axis) == tile->shape[axis]->int_value) return;
    for (const ir::CopyStmt* copy : copies_)
      if (copy->dst.buffer == tile && !reaches_end(*copy, axis)) return;
    axes_.emplace(tile, axis);
  }

  // Whether the copy fills the tile with all that the tensor has along the axis.
  static bool reaches_end(const ir::CopyStmt& copy, size_t axis) {
    const ir::TileRef& src = copy.src;
    if (!is_plain(copy.dst) || src.buffer->scope != ir::Scope::kGlobal || copy.atomic != ir::AtomicOp::kNone ||
        src.pad || src.buffer->packed)
      return false;
    const std::optional<size_t> at = axis_of_slice(src, axis, copy.dst.buffer->shape.size());
    if (at && src.within_first && *at == kept_axes(src)[0]) return false;
    return at && ends_with_tensor(src, *at, copy.dst.buffer->shape[axis]->int_value);
  }

  ir::Block block(const ir::Block& body) const {
    ir::Block out;
    for (ir::Stmt stmt : body) {
      if (auto* loop = std::get_if<ir::ForStmt>(&stmt.node)) loop->body = block(loop->body);
      if (auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) {
        branch->then_body = block(branch->then_body);
        branch->else_body = block(branch->else_body);
      }
      if (auto* decl = std::get_if<ir::DeclStmt>(&stmt.node)) replace(&decl->buffer);
      if (std::holds_alternative<ir::ParallelStmt>(stmt.node))
        for (const auto& [from, to] : made_) replace_uses(from, to, &stmt);
      if (auto* gemm = std::get_if<ir::GemmStmt>(&stmt.node))
        for (const auto& [operand, along] :
             {std::pair(&gemm->a, gemm->transpose_a ? 0 : 1), std::pair(&gemm->b, gemm->transpose_b ? 1 : 0)})
          read_part(operand, along);
      if (auto* copy = std::get_if<ir::CopyStmt>(&stmt.node); copy && made_.count(copy->src.buffer)) {
        const size_t axis = axes_.at(copy->src.buffer);
        const ir::ExprRef extent = copy->src.buffer->shape[axis];
        replace(&copy->src.buffer);
        copy->src.axes[axis] = {AxisSpec::Kind::kRange, ir::make_int(0, ir::DType::I64), extent, nullptr};
      }
      if (auto* copy = std::get_if<ir::CopyStmt>(&stmt.node); copy && made_.count(copy->dst.buffer)) {
        const size_t axis = axes_.at(copy->dst.buffer);
        replace(&copy->dst.buffer);
        const ir::ExprRef& extent = copy->dst.buffer->shape[axis];
        AxisSpec& spec = copy->src.axes[*axis_of_slice(copy->src, axis, copy->dst.buffer->shape.size())];
        const ir::ExprRef start = spec.kind == AxisSpec::Kind::kWhole ? ir::make_int(0, ir::DType::I64) : spec.start;
        spec = {AxisSpec::Kind::kRange, start, extent, nullptr};
      }
      out.push_back(std::move(stmt));
    }
    return out;
  }
  void read_part(ir::TileRef* operand, size_t along) const {
    const auto padded = axes_.find(operand->buffer);
    if (padded != axes_.end() && padded->second != along && is_plain(*operand))
      operand->axes[padded->second] = {AxisSpec::Kind::kRange, ir::make_int(0, ir::DType::I64),
                                       operand->buffer->shape[padded->second], nullptr};
    replace(&operand->buffer);
  }
  void replace(BufferRef* tile) const {
    if (const auto made = made_.find(*tile); made != made_.end()) *tile = made->second;
  }

  const ir::Kernel& kernel_;
  std::vector<const ir::GemmStmt*> gemms_;
  std::vector<const ir::CopyStmt*> copies_;
  BufferSet refused_;                 // used in another way than as an operand
  std::map<BufferRef, size_t> axes_;  // of the tiles that are padded, along k
  std::map<BufferRef, BufferRef> made_;
};

}  // namespace

ir::Kernel padded_depth(const ir::Kernel& kernel) {
  return Padder(kernel).run();
}

}  // namespace kachel::lowering
