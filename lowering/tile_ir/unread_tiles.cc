#include "lowering/tile_ir/unread_tiles.h"

#include <algorithm>
#include <utility>

#include "ir/visit.h"

namespace kachel::lowering {
namespace {

class Dropper {
 public:
  Dropper(const ir::Kernel& kernel, BufferSet tiles) : unread_(std::move(tiles)) {
    size_t before;
    do {
      before = unread_.size();
      mark(kernel.body);
    } while (unread_.size() < before && !unread_.empty());
  }

  bool drops() const { return !unread_.empty(); }

  ir::Block block(const ir::Block& body) const {
    ir::Block out;
    for (ir::Stmt stmt : body) {
      const auto* decl = std::get_if<ir::DeclStmt>(&stmt.node);
      if (is_dropped(stmt) || (decl && unread_.count(decl->buffer.get()))) continue;
      bool empty = false;
      replace_blocks(&stmt, [&](const ir::Block& inner) {
        ir::Block rest = block(inner);
        empty |= rest.empty() && !inner.empty();
        return rest;
      });
      // A branch whose other case is there stays.
      const auto* branch = std::get_if<ir::IfStmt>(&stmt.node);
      if (empty && !(branch && (!branch->then_body.empty() || !branch->else_body.empty()))) continue;
      out.push_back(std::move(stmt));
    }
    return out;
  }

 private:
  // Whether it sets such tiles and nothing else.
  bool is_dropped(const ir::Stmt& stmt) const {
    if (const auto* copy = std::get_if<ir::CopyStmt>(&stmt.node)) return unread_.count(copy->dst.buffer.get()) != 0;
    if (const auto* fill = std::get_if<ir::FillStmt>(&stmt.node)) return unread_.count(fill->dst.buffer.get()) != 0;
    if (const auto* gemm = std::get_if<ir::GemmStmt>(&stmt.node)) return unread_.count(gemm->c.buffer.get()) != 0;
    const auto* region = std::get_if<ir::ParallelStmt>(&stmt.node);
    bool all = region != nullptr;
    if (region)
      ir::for_each_stmt(region->body, [&](const ir::Stmt& inner) {
        const auto* assign = std::get_if<ir::AssignStmt>(&inner.node);
        all &= !assign || unread_.count(assign->buffer.get()) != 0;
      });
    return all;
  }

  void mark(const ir::Block& body) {
    for (const ir::Stmt& stmt : body) {
      if (is_dropped(stmt)) continue;
      reads(stmt);
      if (const auto* region = std::get_if<ir::ParallelStmt>(&stmt.node))
        ir::for_each_stmt(region->body, [this](const ir::Stmt& inner) {
          reads(inner);
          // Beside other tiles it is set by the same region.
          if (const auto* assign = std::get_if<ir::AssignStmt>(&inner.node)) unread_.erase(assign->buffer.get());
        });
      if (const auto* loop = std::get_if<ir::ForStmt>(&stmt.node)) mark(loop->body);
      if (const auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) mark(branch->then_body), mark(branch->else_body);
    }
  }
  void reads(const ir::Stmt& stmt) {
    ir::for_each_expr(stmt, [this](const ir::ExprRef& expr) {
      ir::visit(expr, [this](const ir::ExprRef& node) {
        if (node->kind == ir::ExprKind::kLoad) unread_.erase(node->buffer.get());
      });
    });
    ir::for_each_tile(stmt, [this](const ir::TileRef& tile, bool written) {
      if (!written) unread_.erase(tile.buffer.get());
    });
  }

  BufferSet unread_;
};

}  // namespace

ir::Kernel without_unread_tiles(const ir::Kernel& kernel, BufferSet tiles) {
  const Dropper dropper(kernel, std::move(tiles));
  if (!dropper.drops()) return kernel;
  ir::Kernel out = kernel;
  out.body = dropper.block(kernel.body);
  return out;
}

}  // namespace kachel::lowering
