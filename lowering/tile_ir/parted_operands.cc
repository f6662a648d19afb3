#include "lowering/tile_ir/parted_operands.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "ir/instantiate.h"
#include "ir/visit.h"
#include "lowering/planted.h"
#include "lowering/tile_ir/depth_bytes.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

using ir::AxisSpec;
using ir::BufferRef;
using ir::ExprRef;

// Columns of a tile, which is theirs.
struct Columns {
  int64_t first = 0, extent = 0;
};

int64_t width_of(const BufferRef& tile) {
  return tile->shape[1]->int_value;
}

// Nothing if it is a slice of another form. REQUIRES: of a tile of two axes.
std::optional<Columns> columns_of(const ir::TileRef& slice) {
  if (slice.axes.size() != 2 || slice.within_first || slice.pad || slice.axes[0].kind != AxisSpec::Kind::kWhole)
    return std::nullopt;
  const AxisSpec& axis = slice.axes[1];
  if (axis.kind == AxisSpec::Kind::kWhole) return Columns{0, width_of(slice.buffer)};
  if (axis.kind != AxisSpec::Kind::kRange || !ir::is_const(axis.start) || !ir::is_const(axis.extent))
    return std::nullopt;
  return Columns{axis.start->int_value, axis.extent->int_value};
}

// The axis of a slice that lies along the tile's columns; none where an index tensor picks them.
std::optional<size_t> axis_of_columns(const ir::TileRef& slice) {
  const std::vector<size_t> kept = kept_axes(slice);
  if (kept.size() != 2 || slice.axes[kept[1]].kind == AxisSpec::Kind::kGather) return std::nullopt;
  return kept[1];
}

// Where tiles are cut.
class Cuts {
 public:
  explicit Cuts(const ir::Kernel& kernel) {
    ir::for_each_stmt(kernel.body, [this](const ir::Stmt& stmt) { note(stmt); });
    // Whoever cannot be cut keeps what it is multiplied with from it.
    for (size_t before = ~size_t{0}; std::exchange(before, whole_.size()) != whole_.size();) {
      cuts_.clear();
      for (const ir::GemmStmt* gemm : gemms_)
        for (const ir::TileRef* operand : {&gemm->a, &gemm->b}) cut(*operand);
      round_up();
      for (bool changed = true; std::exchange(changed, false);)
        for (const ir::GemmStmt* gemm : gemms_) changed |= cut_alike(*gemm);
      for (const ir::GemmStmt* gemm : gemms_) check(*gemm);
    }
  }
  bool empty() const { return cuts_.empty(); }
  std::vector<Columns> parts(const BufferRef& tile) const {
    std::vector<Columns> parts;
    int64_t first = 0;
    const auto add = [&](int64_t end) {
      parts.push_back({first, end - first});
      first = end;
    };
    if (const auto found = cuts_.find(tile); found != cuts_.end())
      for (int64_t cut : found->second) add(cut);
    add(width_of(tile));
    return parts;
  }
  // Whether a product takes the part.
  bool reads(const BufferRef& tile, const Columns& part) const {
    const auto takes = [&](const ir::TileRef& operand) {
      return operand.buffer == tile && (has_whole_axes(operand) || columns_of(operand)->first == part.first);
    };
    return std::any_of(gemms_.begin(), gemms_.end(),
                       [&](const ir::GemmStmt* gemm) { return takes(gemm->a) || takes(gemm->b); });
  }

 private:
  static bool is_tile(const BufferRef& buffer) {
    return buffer->scope == ir::Scope::kShared && buffer->shape.size() == 2;
  }

  void note(const ir::Stmt& stmt) {
    if (const auto* gemm = std::get_if<ir::GemmStmt>(&stmt.node)) {
      gemms_.push_back(gemm);
      whole_.insert(gemm->c.buffer.get());
      for (const ir::TileRef* operand : {&gemm->a, &gemm->b})
        if (!is_tile(operand->buffer) || !columns_of(*operand)) whole_.insert(operand->buffer.get());
      return;
    }
    const auto* copy = std::get_if<ir::CopyStmt>(&stmt.node);
    const bool fills = copy && has_whole_axes(copy->dst) && axis_of_columns(copy->src) &&
                       copy->src.buffer->scope == ir::Scope::kGlobal && copy->atomic == ir::AtomicOp::kNone;
    if (fills) return note_uses(copy->src, &whole_);
    if (const auto* decl = std::get_if<ir::DeclStmt>(&stmt.node)) {
      if (decl->init) whole_.insert(decl->buffer.get());
      return;
    }
    if (std::holds_alternative<ir::ForStmt>(stmt.node) || std::holds_alternative<ir::IfStmt>(stmt.node)) {
      ir::for_each_expr(stmt, [this](const ExprRef& expr) { note_loads(expr, &whole_); });
      return;
    }
    note_uses(stmt, &whole_);
  }

  void cut(const ir::TileRef& operand) {
    const BufferRef& tile = operand.buffer;
    if (whole_.count(tile.get())) return;
    const Columns columns = *columns_of(operand);
    for (int64_t at : {columns.first, columns.first + columns.extent})
      if (at > 0 && at < width_of(tile)) cuts_[tile].insert(at);
  }

  // Where slices end that are rows or columns of products, and none begins, a part may hold more than they: as much as
  // instructions take along k.
  void round_up() {
    for (auto& [tile, cuts] : cuts_) {
      const int64_t unit = depth_unit(tile->type.dtype);
      std::set<int64_t> begins, fixed;
      for (const ir::GemmStmt* gemm : gemms_)
        for (const auto& [operand, along_k] :
             {std::pair(&gemm->a, !gemm->transpose_a), {&gemm->b, gemm->transpose_b}}) {
          if (operand->buffer != tile) continue;
          const Columns columns = *columns_of(*operand);
          begins.insert(columns.first);
          if (along_k) fixed.insert({columns.first, columns.first + columns.extent});
        }
      std::set<int64_t> rounded;
      for (const int64_t at : cuts) {
        const int64_t up = (at + unit - 1) / unit * unit;
        const auto next = begins.lower_bound(at);
        const bool may_move = !fixed.count(at) && (next == begins.end() || *next >= up);
        if (!may_move || up < width_of(tile)) rounded.insert(may_move ? up : at);
      }
      cuts = std::move(rounded);
    }
    std::erase_if(cuts_, [](const auto& one) { return one.second.empty(); });
  }

  // A product of two whole tiles along their columns.
  static bool along_columns(const ir::GemmStmt& gemm) {
    return !gemm.transpose_a && gemm.transpose_b && is_tile(gemm.a.buffer) && is_tile(gemm.b.buffer) &&
           has_whole_axes(gemm.a) && has_whole_axes(gemm.b);
  }
  bool cut_alike(const ir::GemmStmt& gemm) {
    const BufferRef &a = gemm.a.buffer, &b = gemm.b.buffer;
    if (!along_columns(gemm) || whole_.count(a.get()) || whole_.count(b.get())) return false;
    if (!cuts_.count(a) && !cuts_.count(b)) return false;
    const size_t before = cuts_[a].size() + cuts_[b].size();
    cuts_[a].insert(cuts_[b].begin(), cuts_[b].end());
    cuts_[b].insert(cuts_[a].begin(), cuts_[a].end());
    return cuts_[a].size() + cuts_[b].size() != before;
  }
  // Any other product takes one part, whole.
  void check(const ir::GemmStmt& gemm) {
    const bool along = along_columns(gemm) && cuts_.count(gemm.a.buffer) && cuts_.count(gemm.b.buffer);
    for (const ir::TileRef* operand : {&gemm.a, &gemm.b}) {
      const auto found = cuts_.find(operand->buffer);
      if (found == cuts_.end() || along) continue;
      const Columns columns = *columns_of(*operand);
      for (int64_t at : found->second)
        if (at > columns.first && at < columns.first + columns.extent) whole_.insert(operand->buffer.get());
    }
  }

  std::vector<const ir::GemmStmt*> gemms_;
  std::map<BufferRef, std::set<int64_t>> cuts_;
  BufferSet whole_;  // those that cannot be cut: fragments, tensors, what is used in another way
};

class Parter {
 public:
  explicit Parter(const Cuts& cuts) : cuts_(cuts) {}

  ir::Block block(const ir::Block& body) {
    ir::Block out;
    for (const ir::Stmt& stmt : body) {
      if (const auto* decl = std::get_if<ir::DeclStmt>(&stmt.node); decl && declare(stmt, *decl, &out)) continue;
      if (const auto* copy = std::get_if<ir::CopyStmt>(&stmt.node); copy && parts_.count(copy->dst.buffer.get())) {
        this->copy(stmt, *copy, &out);
        continue;
      }
      if (const auto* gemm = std::get_if<ir::GemmStmt>(&stmt.node)) {
        this->gemm(stmt, *gemm, &out);
        continue;
      }
      ir::Stmt made = stmt;
      replace_blocks(&made, [this](const ir::Block& inner) { return block(inner); });
      out.push_back(std::move(made));
    }
    return out;
  }

 private:
  struct Part {
    Columns columns;
    BufferRef tile;
  };

  bool declare(const ir::Stmt& stmt, const ir::DeclStmt& decl, ir::Block* out) {
    const BufferRef& tile = decl.buffer;
    if (tile->scope != ir::Scope::kShared || tile->shape.size() != 2 || decl.init) return false;
    const std::vector<Columns> columns = cuts_.parts(tile);
    if (columns.size() == 1) return false;
    for (const Columns& part : columns) {
      if (!cuts_.reads(tile, part)) continue;
      auto made = std::make_shared<ir::Buffer>(*tile);
      made->name += "_" + std::to_string(part.first);
      made->shape[1] = ir::make_int(part.extent, tile->shape[1]->type);
      parts_[tile.get()].push_back({part, made});
      out->push_back({stmt.loc, ir::DeclStmt{made, nullptr}});
    }
    return true;
  }

  void copy(const ir::Stmt& stmt, const ir::CopyStmt& copy, ir::Block* out) {
    for (const Part& part : parts_.at(copy.dst.buffer.get())) {
      ir::CopyStmt made = copy;
      made.dst = whole_tile(part.tile);
      AxisSpec& axis = made.src.axes[*axis_of_columns(copy.src)];
      const bool whole = axis.kind == AxisSpec::Kind::kWhole;
      const ir::DType type = whole ? ir::DType::I64 : axis.start->type;
      const ExprRef first = ir::make_int(planted(Planted::kPartOfOperand) ? 0 : part.columns.first, type);
      axis.start = whole ? first : ir::fold(ir::make_typed(ir::Op::kAdd, {axis.start, first}));
      axis.kind = AxisSpec::Kind::kRange;
      axis.extent = part.tile->shape[1];
      out->push_back({stmt.loc, std::move(made)});
    }
  }

  void gemm(const ir::Stmt& stmt, const ir::GemmStmt& gemm, ir::Block* out) {
    const auto a = parts_.find(gemm.a.buffer.get()), b = parts_.find(gemm.b.buffer.get());
    const bool along = a != parts_.end() && b != parts_.end() && has_whole_axes(gemm.a) && has_whole_axes(gemm.b);
    const size_t count = along ? a->second.size() : 1;
    for (size_t i = 0; i < count; ++i) {
      ir::GemmStmt made = gemm;
      made.accumulate |= i > 0;
      if (a != parts_.end()) made.a = along ? whole_tile(a->second[i].tile) : part_of(a->second, gemm.a);
      if (b != parts_.end()) made.b = along ? whole_tile(b->second[i].tile) : part_of(b->second, gemm.b);
      out->push_back({stmt.loc, std::move(made)});
    }
  }
  static ir::TileRef part_of(const std::vector<Part>& parts, const ir::TileRef& slice) {
    const Columns columns = *columns_of(slice);  // a part that is read begins where they do
    const Part& part =
        *std::find_if(parts.begin(), parts.end(), [&](const Part& one) { return one.columns.first == columns.first; });
    ir::TileRef made = whole_tile(part.tile);
    if (columns.extent < part.columns.extent)
      made.axes[1] = {AxisSpec::Kind::kRange, ir::make_int(0, ir::DType::I64),
                      ir::make_int(columns.extent, ir::DType::I64), nullptr};
    return made;
  }

  const Cuts& cuts_;
  std::map<const ir::Buffer*, std::vector<Part>> parts_;
};

}  // namespace

ir::Kernel parted_operands(const ir::Kernel& kernel) {
  const Cuts cuts(kernel);
  if (cuts.empty()) return kernel;
  ir::Kernel out = kernel;
  out.body = Parter(cuts).block(kernel.body);
  return out;
}

}  // namespace kachel::lowering
