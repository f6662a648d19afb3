#include "lowering/tile_ir/turned_operands.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "ir/visit.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

using ir::ExprRef;

// 16-bit types can be read either way.
bool is_read_along_k_only(const ir::GemmStmt& gemm) {
  const int bits = ir::bits(gemm.a.buffer->type.dtype);
  return bits == 8 || (bits == 32 && gemm.precision == ir::Precision::kTf32);
}

// Whether the region takes numbers out of integers in shared memory, (q[i / 8, j] >> 4 * (i % 8)) & 15, as it does for
// weights of few bits. Neighbours along k share what they are scaled by, and registers hold them in pairs.
bool takes_bits(const ir::ParallelStmt& region) {
  std::set<const ir::Var*> words;  // names of what is made of them
  const auto has_words = [&words](const ExprRef& expr) {
    bool found = false;
    ir::visit(expr, [&](const ExprRef& node) {
      found |= node->kind == ir::ExprKind::kVar && words.count(node->var.get());
      found |= node->kind == ir::ExprKind::kLoad && node->buffer->scope == ir::Scope::kShared;
    });
    return found;
  };
  ir::for_each_stmt(region.body, [&](const ir::Stmt& stmt) {
    const auto* let = std::get_if<ir::LetStmt>(&stmt.node);
    if (let && has_words(let->value)) words.insert(let->var.get());
  });
  bool takes = false;
  for_each_node(region.body, [&](const ExprRef& node) {
    const bool masks = node->kind == ir::ExprKind::kApply && node->op == ir::Op::kBitAnd && ir::is_const(node->args[1]);
    takes |= masks && has_words(node->args[0]);
  });
  return takes;
}

class Turner {
 public:
  Turner(const ir::Kernel& kernel, const GatheredAxis& gathered) : gathered_(gathered) {
    block(kernel.body);
    for (const ir::Buffer* tile : refused_) down_.erase(tile);
    std::erase_if(down_, [this](const auto& entry) {
      const ir::Buffer* tile = entry.first;
      const bool gathered = gathered_tiles_.count(tile) && !others_.count(tile);
      return !made_.count(tile) || !(needed_.count(tile) || gathered);
    });
    for (const auto& [tile, ref] : down_) {
      auto turned = std::make_shared<ir::Buffer>(*ref);
      std::swap(turned->shape[0], turned->shape[1]);
      turned_[tile] = std::move(turned);
    }
  }

  bool any() const { return !turned_.empty(); }

  ir::Block turned(const ir::Block& body) const {
    ir::Block out = body;
    for (ir::Stmt& stmt : out) {
      if (auto* decl = std::get_if<ir::DeclStmt>(&stmt.node)) turn(&decl->buffer);
      if (auto* gemm = std::get_if<ir::GemmStmt>(&stmt.node)) {
        gemm->transpose_a ^= turn(&gemm->a.buffer);
        gemm->transpose_b ^= turn(&gemm->b.buffer);
      }
      if (auto* region = std::get_if<ir::ParallelStmt>(&stmt.node)) turn(region);
      replace_blocks(&stmt, [this](const ir::Block& inner) { return turned(inner); });
    }
    return out;
  }

 private:
  void block(const ir::Block& body) {
    for (const ir::Stmt& stmt : body) {
      if (std::holds_alternative<ir::ParallelStmt>(stmt.node)) {
        const auto& region = std::get<ir::ParallelStmt>(stmt.node);
        BufferSet written;
        note_writes(stmt, &written);
        made_.insert(written.begin(), written.end());
        (gathered_(region) || takes_bits(region) ? gathered_tiles_ : others_).insert(written.begin(), written.end());
        continue;
      }
      const auto* gemm = std::get_if<ir::GemmStmt>(&stmt.node);
      if (gemm) {
        refused_.insert(gemm->c.buffer.get());
        operand(*gemm, gemm->a, gemm->transpose_a);
        operand(*gemm, gemm->b, !gemm->transpose_b);
      } else {
        ir::for_each_tile(stmt, [this](const ir::TileRef& ref, bool) { refused_.insert(ref.buffer.get()); });
      }
      ir::for_each_expr(stmt, [this](const ExprRef& expr) { note_loads(expr, &refused_); });
      if (const auto* loop = std::get_if<ir::ForStmt>(&stmt.node)) block(loop->body);
      if (const auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) block(branch->then_body), block(branch->else_body);
    }
  }
  void operand(const ir::GemmStmt& gemm, const ir::TileRef& ref, bool k_down) {
    const bool may_turn = k_down && ref.buffer->shape.size() == 2 && has_whole_axes(ref) && !ref.pad &&
                          (is_read_along_k_only(gemm) || ir::bits(ref.buffer->type.dtype) == 16);
    if (!may_turn)
      refused_.insert(ref.buffer.get());
    else if (down_.emplace(ref.buffer.get(), ref.buffer); is_read_along_k_only(gemm))
      needed_.insert(ref.buffer.get());
  }

  bool turn(ir::BufferRef* buffer) const {
    const auto found = turned_.find(buffer->get());
    if (found == turned_.end()) return false;
    *buffer = found->second;
    return true;
  }
  void turn(ir::ParallelStmt* region) const {
    bool all = true;
    rewrite_region(&region->body, [this](const ExprRef& expr) {
      return ir::rewrite(expr, [this](const ExprRef& node) {
        const auto found = node->kind == ir::ExprKind::kLoad ? turned_.find(node->buffer.get()) : turned_.end();
        return found == turned_.end() ? node : ir::make_load(found->second, {node->args[1], node->args[0]});
      });
    });
    turn(&region->body, &all);
    if (all && region->iters.size() == 2) std::swap(region->iters[0], region->iters[1]);
  }
  // `all`: nothing else is assigned.
  void turn(ir::Block* body, bool* all) const {
    for (ir::Stmt& stmt : *body) {
      if (auto* assign = std::get_if<ir::AssignStmt>(&stmt.node)) {
        const bool turned = turn(&assign->buffer);
        if (turned) std::swap(assign->indices[0], assign->indices[1]);
        *all &= turned;
      }
      if (auto* branch = std::get_if<ir::IfStmt>(&stmt.node))
        turn(&branch->then_body, all), turn(&branch->else_body, all);
    }
  }

  const GatheredAxis& gathered_;
  BufferSet made_, refused_;           // by regions; for anything but these and products with k down
  BufferSet needed_;                   // by a product that reads along k only
  BufferSet gathered_tiles_, others_;  // by regions that gather along one axis or take bits, and by others
  std::map<const ir::Buffer*, ir::BufferRef> down_, turned_;
};

}  // namespace

ir::Kernel turned_operands(const ir::Kernel& kernel, const GatheredAxis& gathered) {
  const Turner turner(kernel, gathered);
  if (!turner.any()) return kernel;
  ir::Kernel out = kernel;
  out.body = turner.turned(kernel.body);
  return out;
}

}  // namespace kachel::lowering
