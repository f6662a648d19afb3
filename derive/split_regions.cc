#include "derive/split_regions.h"

#include <algorithm>
#include <map>
#include <set>

#include "ir/visit.h"

namespace kachel::derive {

using namespace ir;

namespace {

// The region's statements for one tile, with the names that they use.
class Part {
 public:
  Part(const ParallelStmt& region, const BufferRef& tile) : region_(region), tile_(tile) {}

  ParallelStmt run() {
    for (size_t at = region_.body.size(); at-- > 0;) {
      const Stmt& stmt = region_.body[at];
      const auto* let = std::get_if<LetStmt>(&stmt.node);
      const auto* assign = std::get_if<AssignStmt>(&stmt.node);
      if (let ? !used_.count(let->var.get()) : assign->buffer != tile_) continue;
      for_each_expr(stmt, [this](const ExprRef& expr) {
        visit(expr, [this](const ExprRef& node) {
          if (node->kind == ExprKind::kVar) used_.insert(node->var.get());
        });
      });
      kept_.insert(kept_.begin(), stmt);
    }
    ParallelStmt part;
    for (const IterVar& iter : region_.iters) part.iters.push_back({own(iter.var), iter.extent});
    for (Stmt& stmt : kept_) {
      if (auto* let = std::get_if<LetStmt>(&stmt.node)) {
        const ExprRef value = renamed(let->value);
        *let = {own(let->var), value};
      } else {
        auto& assign = std::get<AssignStmt>(stmt.node);
        for (ExprRef& index : assign.indices) index = renamed(index);
        assign.value = renamed(assign.value);
      }
      part.body.push_back(std::move(stmt));
    }
    return part;
  }

 private:
  VarRef own(const VarRef& var) {
    VarRef& made = own_[var.get()];
    if (!made) made = std::make_shared<Var>(*var);
    return made;
  }
  ExprRef renamed(const ExprRef& expr) const {
    return rewrite(expr, [this](const ExprRef& node) {
      const auto found = node->kind == ExprKind::kVar ? own_.find(node->var.get()) : own_.end();
      return found == own_.end() ? node : make_var(found->second);
    });
  }

  const ParallelStmt& region_;
  const BufferRef& tile_;
  std::set<const Var*> used_;
  std::map<const Var*, VarRef> own_;
  Block kept_;
};

void find_operands(const Block& body, std::set<const Buffer*>* operands) {
  for_each_stmt(body, [&](const Stmt& stmt) {
    if (const auto* gemm = std::get_if<GemmStmt>(&stmt.node))
      operands->insert({gemm->a.buffer.get(), gemm->b.buffer.get()});
  });
}

// The tiles, in the order of their first assignments; none where the region must stay one.
std::vector<BufferRef> tiles_of(const ParallelStmt& region, const std::set<const Buffer*>& operands) {
  std::vector<BufferRef> tiles;
  for (const Stmt& stmt : region.body) {
    const auto* assign = std::get_if<AssignStmt>(&stmt.node);
    if (!assign && !std::holds_alternative<LetStmt>(stmt.node)) return {};
    if (!assign) continue;
    if (assign->atomic != AtomicOp::kNone || !operands.count(assign->buffer.get())) return {};
    if (std::find(tiles.begin(), tiles.end(), assign->buffer) == tiles.end()) tiles.push_back(assign->buffer);
  }
  bool reads = false;
  for (const Stmt& stmt : region.body)
    for_each_expr(stmt, [&](const ExprRef& expr) {
      visit(expr, [&](const ExprRef& node) {
        reads |= node->kind == ExprKind::kLoad && std::count(tiles.begin(), tiles.end(), node->buffer);
      });
    });
  return reads ? std::vector<BufferRef>() : tiles;
}

Block split(const Block& body, const std::set<const Buffer*>& operands) {
  Block out;
  for (Stmt stmt : body) {
    if (auto* loop = std::get_if<ForStmt>(&stmt.node)) loop->body = split(loop->body, operands);
    if (auto* branch = std::get_if<IfStmt>(&stmt.node)) {
      branch->then_body = split(branch->then_body, operands);
      branch->else_body = split(branch->else_body, operands);
    }
    const auto* region = std::get_if<ParallelStmt>(&stmt.node);
    const std::vector<BufferRef> tiles = region ? tiles_of(*region, operands) : std::vector<BufferRef>();
    if (tiles.size() < 2) {
      out.push_back(std::move(stmt));
      continue;
    }
    for (const BufferRef& tile : tiles) out.push_back({stmt.loc, Part(*region, tile).run()});
  }
  return out;
}

}  // namespace

Kernel split_regions(const Kernel& kernel) {
  std::set<const Buffer*> operands;
  find_operands(kernel.body, &operands);
  Kernel out = kernel;
  out.body = split(kernel.body, operands);
  return out;
}

}  // namespace kachel::derive
