#include "lowering/tile_ir/operand_regions.h"

#include <algorithm>
#include <set>
#include <vector>

#include "ir/visit.h"
#include "lowering/planted.h"
#include "lowering/tile_ir/block_copy.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

using ir::ExprKind;
using ir::ExprRef;

// The statements of a region that assign to one buffer, and the names that these use.
ir::ParallelStmt part_of(const ir::ParallelStmt& region, const ir::Buffer* buffer) {
  ir::ParallelStmt part{region.iters, {}};
  std::set<const ir::Var*> used;
  const auto note = [&](const ExprRef& expr) {
    ir::visit(expr, [&](const ExprRef& node) {
      if (node->kind == ExprKind::kVar) used.insert(node->var.get());
    });
  };
  for (auto stmt = region.body.rbegin(); stmt != region.body.rend(); ++stmt) {
    const auto* let = std::get_if<ir::LetStmt>(&stmt->node);
    const auto* assign = std::get_if<ir::AssignStmt>(&stmt->node);
    if (let ? !used.count(let->var.get()) : assign->buffer.get() != buffer) continue;
    if (let) note(let->value);
    if (assign) ir::for_each_expr(*stmt, note);
    part.body.push_back(*stmt);
  }
  std::reverse(part.body.begin(), part.body.end());
  return part;
}

BufferSet integer_tiles(const ir::Block& body) {
  BufferSet found;
  for_each_node(body, [&](const ExprRef& node) {
    if (node->kind == ExprKind::kLoad && node->buffer->scope != ir::Scope::kGlobal &&
        !ir::is_float(node->buffer->type.dtype))
      found.insert(node->buffer.get());
  });
  return found;
}

class Parter {
 public:
  explicit Parter(const ir::Kernel& kernel) {
    ir::for_each_stmt(kernel.body, [this](const ir::Stmt& stmt) {
      if (const auto* gemm = std::get_if<ir::GemmStmt>(&stmt.node))
        operands_.insert({gemm->a.buffer.get(), gemm->b.buffer.get()});
    });
  }

  ir::Block block(const ir::Block& body) const {
    ir::Block out;
    for (ir::Stmt stmt : body) {
      const auto* region = std::get_if<ir::ParallelStmt>(&stmt.node);
      const std::vector<ir::ParallelStmt> parts = region ? parts_of(*region) : std::vector<ir::ParallelStmt>{};
      for (const ir::ParallelStmt& part : parts) {
        const ir::Block made = copy_of({{stmt.loc, part}}, {});
        out.insert(out.end(), made.begin(), made.end());
      }
      if (!parts.empty()) continue;
      replace_blocks(&stmt, [this](const ir::Block& inner) { return block(inner); });
      out.push_back(std::move(stmt));
    }
    return out;
  }

 private:
  // Nothing: it stays.
  std::vector<ir::ParallelStmt> parts_of(const ir::ParallelStmt& region) const {
    std::vector<const ir::Buffer*> written;  // in order
    for (const ir::Stmt& stmt : region.body) {
      const auto* assign = std::get_if<ir::AssignStmt>(&stmt.node);
      if (!assign && !std::holds_alternative<ir::LetStmt>(stmt.node)) return {};
      if (!assign) continue;
      const ir::Buffer* buffer = assign->buffer.get();
      if (assign->op != ir::AssignOp::kSet || assign->atomic != ir::AtomicOp::kNone || !operands_.count(buffer))
        return {};
      if (std::find(written.begin(), written.end(), buffer) == written.end()) written.push_back(buffer);
    }
    if (written.size() < 2) return {};
    bool reads = false;  // what it writes, or a reduction
    for_each_node(region.body, [&](const ExprRef& node) {
      reads |= ir::is_reduction(*node);
      reads |= node->kind == ExprKind::kLoad &&
               std::find(written.begin(), written.end(), node->buffer.get()) != written.end();
    });
    if (reads) return {};
    std::vector<ir::ParallelStmt> parts;
    BufferSet seen;
    for (const ir::Buffer* buffer : written) {
      parts.push_back(part_of(region, buffer));
      const BufferSet tiles = integer_tiles(parts.back().body);
      for (const ir::Buffer* tile : tiles)
        if (!seen.insert(tile).second) return {};  // words that both want are taken apart once
      if (tiles.empty()) return {};
    }
    if (planted(Planted::kOtherOperand)) parts.back() = parts.front();
    return parts;
  }

  BufferSet operands_;
};

}  // namespace

ir::Kernel operand_regions(const ir::Kernel& kernel) {
  ir::Kernel out = kernel;
  out.body = Parter(kernel).block(kernel.body);
  return out;
}

}  // namespace kachel::lowering
