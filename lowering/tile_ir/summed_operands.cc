#include "lowering/tile_ir/summed_operands.h"

#include <map>

#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

class Copier {
 public:
  explicit Copier(const ir::Block& body) {
    ir::for_each_stmt(body, [this](const ir::Stmt& stmt) {
      if (const auto* gemm = std::get_if<ir::GemmStmt>(&stmt.node)) sums_.insert(gemm->c.buffer.get());
    });
  }

  ir::Block block(const ir::Block& body) {
    ir::Block out;
    for (ir::Stmt stmt : body) {
      if (auto* gemm = std::get_if<ir::GemmStmt>(&stmt.node))
        for (ir::TileRef* operand : {&gemm->a, &gemm->b}) replace(operand, stmt.loc, &out);
      replace_blocks(&stmt, [this](const ir::Block& inner) { return block(inner); });
      out.push_back(std::move(stmt));
    }
    return out;
  }
  const std::vector<ir::BufferRef>& made() const { return made_; }

 private:
  void replace(ir::TileRef* operand, ir::Loc loc, ir::Block* out) {
    const ir::BufferRef sums = operand->buffer;
    if (!sums_.count(sums.get()) || sums->scope != ir::Scope::kFragment || ir::bits(sums->type.dtype) != 32 ||
        !has_whole_axes(*operand))
      return;
    ir::BufferRef& copy = copies_[sums.get()];
    if (!copy) {
      ir::Buffer tile = *sums;
      tile.name += "_operand";
      tile.scope = ir::Scope::kShared;
      copy = std::make_shared<const ir::Buffer>(std::move(tile));
      made_.push_back(copy);
    }
    operand->buffer = copy;
    out->push_back({loc, ir::CopyStmt{whole_tile(copy), whole_tile(sums)}});
  }

  BufferSet sums_;  // of products
  std::map<const ir::Buffer*, ir::BufferRef> copies_;
  std::vector<ir::BufferRef> made_;
};

}  // namespace

ir::Kernel summed_operands(const ir::Kernel& kernel) {
  Copier copier(kernel.body);
  ir::Block body = copier.block(kernel.body);
  return with_declared(kernel, copier.made(), std::move(body));
}

}  // namespace kachel::lowering
