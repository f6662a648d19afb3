#include "lowering/tile_ir/turned_tiles.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>

#include "ir/visit.h"
#include "lowering/loop_ir/region_index.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

using ir::ExprKind;
using ir::ExprRef;

constexpr int64_t kMostBytes = 64 * 1024;  // of all such tiles, so that a few blocks share a multiprocessor

// How regions read a fragment.
struct Reads {
  bool others = false;  // in ways that a thread needs several elements at once for
  bool turned = false;  // a column along a region's rows
};

class Regions {
 public:
  explicit Regions(const ir::Block& body) {
    ir::for_each_stmt(body, [this](const ir::Stmt& stmt) {
      if (const auto* region = std::get_if<ir::ParallelStmt>(&stmt.node)) this->region(*region);
    });
  }
  const Reads& of(const ir::Buffer* tile) { return reads_[tile]; }

 private:
  void region(const ir::ParallelStmt& region) {
    RegionIndexes indexes(region.iters);
    ir::for_each_stmt(region.body, [&](const ir::Stmt& stmt) {
      ir::for_each_expr(stmt, [&](const ExprRef& expr) { this->expr(expr, indexes, region.iters.size()); });
      if (const auto* let = std::get_if<ir::LetStmt>(&stmt.node)) indexes.name(*let);
      if (const auto* assign = std::get_if<ir::AssignStmt>(&stmt.node)) reads_[assign->buffer.get()].others = true;
    });
  }
  void expr(const ExprRef& expr, const RegionIndexes& indexes, size_t rank) {
    if (ir::is_reduction(*expr)) {
      BufferSet within;
      note_loads(expr, &within);
      for (const ir::Buffer* buffer : within) reads_[buffer].others = true;
      return;
    }
    if (expr->kind == ExprKind::kLoad) {
      std::vector<size_t> axes;
      for (const ExprRef& index : expr->args) {
        const std::optional<RegionIndex> at = indexes.split(indexes.inlined(index));
        axes.push_back(at && !at->base ? at->axis : RegionIndex::kNone);
      }
      const bool rows = std::find(axes.begin(), axes.end() - 1, rank - 1) != axes.end() - 1;
      reads_[expr->buffer.get()].turned |= rows && axes.back() != RegionIndex::kNone && axes.back() + 1 < rank;
    }
    for (const ExprRef& arg : expr->args) this->expr(arg, indexes, rank);
  }

  std::map<const ir::Buffer*, Reads> reads_;
};

// The copies from tensors that are all that regions do not do to a fragment.
class Copies {
 public:
  explicit Copies(const ir::Block& body) { block(body); }
  // Null: none, several, or more than that.
  const ir::CopyStmt* only(const ir::Buffer* tile) const {
    const auto found = copies_.find(tile);
    return found == copies_.end() || others_.count(tile) ? nullptr : found->second;
  }

 private:
  void block(const ir::Block& body) {
    for (const ir::Stmt& stmt : body) {
      if (std::holds_alternative<ir::ParallelStmt>(stmt.node)) continue;
      const auto* copy = std::get_if<ir::CopyStmt>(&stmt.node);
      const bool fills = copy && copy->src.buffer->scope == ir::Scope::kGlobal && copy->atomic == ir::AtomicOp::kNone &&
                         has_whole_axes(copy->dst) && copies_.emplace(copy->dst.buffer.get(), copy).second;
      ir::for_each_tile(stmt, [&](const ir::TileRef& slice, bool) {
        if (!(fills && &slice == &copy->dst)) others_.insert(slice.buffer.get());
      });
      ir::for_each_expr(stmt, [&](const ExprRef& expr) { note_loads(expr, &others_); });
      if (const auto* decl = std::get_if<ir::DeclStmt>(&stmt.node); decl && decl->init)
        others_.insert(decl->buffer.get());
      if (const auto* loop = std::get_if<ir::ForStmt>(&stmt.node)) block(loop->body);
      if (const auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) block(branch->then_body), block(branch->else_body);
    }
  }

  std::map<const ir::Buffer*, const ir::CopyStmt*> copies_;
  BufferSet others_;
};

using Tiles = std::map<const ir::Buffer*, ir::BufferRef>;

ir::Block with_tiles(ir::Block body, const Tiles& tiles) {
  for (ir::Stmt& stmt : body) {
    if (auto* decl = std::get_if<ir::DeclStmt>(&stmt.node); decl && tiles.count(decl->buffer.get()))
      decl->buffer = tiles.at(decl->buffer.get());
    if (auto* copy = std::get_if<ir::CopyStmt>(&stmt.node); copy && tiles.count(copy->dst.buffer.get()))
      copy->dst.buffer = tiles.at(copy->dst.buffer.get());
    if (auto* region = std::get_if<ir::ParallelStmt>(&stmt.node))
      rewrite_region(&region->body, [&](const ExprRef& value) {
        return ir::rewrite(value, [&](const ExprRef& node) {
          if (node->kind != ExprKind::kLoad || !tiles.count(node->buffer.get())) return node;
          const ExprRef load = ir::make_load(tiles.at(node->buffer.get()), node->args);
          const ir::DType type = node->buffer->type.dtype;
          return load->buffer->type.dtype == type ? load : ir::make_cast({type, nullptr}, load);
        });
      });
    replace_blocks(&stmt, [&](const ir::Block& inner) { return with_tiles(inner, tiles); });
  }
  return body;
}

}  // namespace

ir::Kernel turned_tiles(const ir::Kernel& kernel) {
  Regions regions(kernel.body);
  const Copies copies(kernel.body);
  Tiles tiles;
  int64_t bytes = 0;
  for (const ir::Stmt& stmt : kernel.body) {
    const auto* decl = std::get_if<ir::DeclStmt>(&stmt.node);
    if (!decl || decl->buffer->scope != ir::Scope::kFragment) continue;
    const Reads& reads = regions.of(decl->buffer.get());
    if (reads.others || !reads.turned) continue;
    const ir::CopyStmt* copy = copies.only(decl->buffer.get());
    if (!copy || ir::bits(copy->src.buffer->type.dtype) < 8) continue;
    auto tile = std::make_shared<ir::Buffer>(*decl->buffer);
    tile->scope = ir::Scope::kShared;
    if (const ir::DType held = copy->src.buffer->type.dtype; ir::bits(held) <= ir::bits(tile->type.dtype))
      tile->type.dtype = held;
    const int64_t size = elements_of(*tile) * ir::bits(tile->type.dtype) / 8;
    if (bytes + size > kMostBytes) continue;
    bytes += size;
    tiles[decl->buffer.get()] = std::move(tile);
  }
  if (tiles.empty()) return kernel;
  ir::Kernel out = kernel;
  out.body = with_tiles(kernel.body, tiles);
  return out;
}

}  // namespace kachel::lowering
