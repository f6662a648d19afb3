#include <algorithm>
#include <map>
#include <set>

#include "derive/parts.h"
#include "derive/uses.h"
#include "ir/visit.h"

namespace kachel::derive {

using namespace ir;

namespace {

class Reader {
 public:
  Reader(const Kernel& kernel, const std::vector<OperandSlice>& slices, const std::vector<BufferRef>& tensors)
      : kernel_(kernel), slices_(slices), tensors_(tensors) {
    for (const OperandSlice& slice : slices_) tiles_.push_back(slice.turned ? ordered_tile(slice) : slice.tile);
  }

  Block run() const {
    std::set<const Stmt*> gone;
    std::set<const Buffer*> tiles;
    std::map<const Stmt*, size_t> last;
    for (size_t number = 0; number < slices_.size(); ++number) {
      const OperandSlice& slice = slices_[number];
      const std::vector<const Stmt*> statements = slice.statements_of(kernel_);
      for (const Stmt* stmt : statements) {
        gone.insert(stmt);
        tiles.merge(written_by({*stmt}));
      }
      last[statements.back()] = number;
    }
    keep_tiles(gone, tiles);
    keep_names(gone);
    return rebuilt(kernel_.body, gone, tiles, last);
  }

 private:
  // Tiles on the way to operands that other statements read too, with those that they are made from.
  void keep_tiles(std::set<const Stmt*>& gone, std::set<const Buffer*>& tiles) const {
    std::set<const Buffer*> read;
    std::vector<const Stmt*> leaving;
    const auto walk = [&](const Block& block, auto&& self) -> void {
      for (const Stmt& stmt : block) {
        if (const auto* loop = std::get_if<ForStmt>(&stmt.node)) {
          for (const ExprRef& bound : {loop->begin, loop->end})
            visit(bound, [&](const ExprRef& node) {
              if (node->kind == ExprKind::kLoad) read.insert(node->buffer.get());
            });
          self(loop->body, self);
        } else if (gone.count(&stmt))
          leaving.push_back(&stmt);
        else
          read.merge(std::set<const Buffer*>(find_uses(stmt).read));
      }
    };
    walk(kernel_.body, walk);
    const auto is_operand = [&](const Buffer* tile) {
      return std::any_of(slices_.begin(), slices_.end(),
                         [&](const OperandSlice& slice) { return slice.tile.get() == tile; });
    };
    for (auto stmt = leaving.rbegin(); stmt != leaving.rend(); ++stmt) {
      const Uses uses = find_uses(**stmt);
      const bool needed = std::any_of(uses.written.begin(), uses.written.end(),
                                      [&](const Buffer* tile) { return !is_operand(tile) && read.count(tile) > 0; });
      if (!needed) continue;
      gone.erase(*stmt);
      for (const Buffer* tile : uses.written) tiles.erase(tile);
      read.insert(uses.read.begin(), uses.read.end());
    }
  }
  // Names that other statements use too, and what they are made from.
  void keep_names(std::set<const Stmt*>& gone) const {
    std::set<const Var*> used;
    auto note = [&](const Stmt& stmt) {
      for_each_stmt({stmt}, [&](const Stmt& inside) {
        for_each_expr(inside, [&](const ExprRef& expr) {
          visit(expr, [&](const ExprRef& node) {
            if (node->kind == ExprKind::kVar) used.insert(node->var.get());
          });
        });
      });
    };
    std::vector<const Stmt*> lets;
    auto walk = [&](const Block& block, auto&& self) -> void {
      for (const Stmt& stmt : block) {
        const auto* loop = std::get_if<ForStmt>(&stmt.node);
        if (loop)
          self(loop->body, self);
        else if (!gone.count(&stmt))
          note(stmt);
        else if (std::holds_alternative<LetStmt>(stmt.node))
          lets.push_back(&stmt);
        if (loop)
          for (const ExprRef& bound : {loop->begin, loop->end})
            visit(bound, [&](const ExprRef& node) {
              if (node->kind == ExprKind::kVar) used.insert(node->var.get());
            });
      }
    };
    walk(kernel_.body, walk);
    for (auto let = lets.rbegin(); let != lets.rend(); ++let) {
      if (!used.count(std::get<LetStmt>((*let)->node).var.get())) continue;
      gone.erase(*let);
      note(**let);
    }
  }

  Block rebuilt(const Block& block, const std::set<const Stmt*>& gone, const std::set<const Buffer*>& tiles,
                const std::map<const Stmt*, size_t>& last) const {
    Block out;
    for (const Stmt& stmt : block) {
      if (const auto* decl = std::get_if<DeclStmt>(&stmt.node); decl && tiles.count(decl->buffer.get())) {
        // Tiles that only slices have are gone, operands are where copies may run ahead.
        if (const BufferRef tile = operand(decl->buffer)) out.push_back(declaration(tile, Scope::kShared));
        continue;
      }
      if (const auto found = last.find(&stmt); found != last.end())
        out.push_back({{}, load_of(slices_[found->second], tensors_[found->second], tiles_[found->second])});
      if (gone.count(&stmt)) continue;
      out.push_back(stmt);
      if (auto* gemm = std::get_if<GemmStmt>(&out.back().node)) {
        turn(&gemm->a, &gemm->transpose_a);
        turn(&gemm->b, &gemm->transpose_b);
      }
      if (auto* branch = std::get_if<IfStmt>(&out.back().node)) {
        const auto& from = std::get<IfStmt>(stmt.node);
        branch->then_body = rebuilt(from.then_body, gone, tiles, last);
        branch->else_body = rebuilt(from.else_body, gone, tiles, last);
      }
      if (auto* loop = std::get_if<ForStmt>(&out.back().node))
        loop->body = rebuilt(std::get<ForStmt>(stmt.node).body, gone, tiles, last);
    }
    return out;
  }

  // What takes the tile's place; null: it is no operand.
  BufferRef operand(const BufferRef& tile) const {
    for (size_t i = 0; i < slices_.size(); ++i)
      if (slices_[i].tile == tile) return tiles_[i];
    return nullptr;
  }
  void turn(TileRef* operand, bool* transposed) const {
    for (size_t i = 0; i < slices_.size(); ++i) {
      if (!slices_[i].turned || operand->buffer != slices_[i].tile) continue;
      operand->buffer = tiles_[i];
      *transposed = !*transposed;
      return;
    }
  }

  const Kernel& kernel_;
  const std::vector<OperandSlice>& slices_;
  const std::vector<BufferRef>& tensors_;
  std::vector<BufferRef> tiles_;  // as they are read
};

}  // namespace

Block body_of_reader(const Kernel& kernel, const std::vector<OperandSlice>& slices,
                     const std::vector<BufferRef>& tensors) {
  return Reader(kernel, slices, tensors).run();
}

}  // namespace kachel::derive
