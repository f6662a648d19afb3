#include "lowering/tile_ir/sum_steps.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "ir/visit.h"
#include "lowering/tile_ir/hoist_reductions.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

using ir::ExprKind;
using ir::ExprRef;

class Parter {
 public:
  explicit Parter(const ir::Kernel& kernel) {
    ir::for_each_stmt(kernel.body, [this](const ir::Stmt& stmt) {
      const auto* region = std::get_if<ir::ParallelStmt>(&stmt.node);
      if (region && reduction_of(*region)) results_.insert(std::get<ir::AssignStmt>(region->body[0].node).buffer.get());
    });
  }

  ir::Block block(const ir::Block& body) const {
    ir::Block out;
    for (ir::Stmt stmt : body) {
      if (const auto* region = std::get_if<ir::ParallelStmt>(&stmt.node); region && parts(*region)) {
        for (size_t i = 0; i < region->body.size() / 2; ++i) out.push_back({stmt.loc, step(*region, i)});
        continue;
      }
      replace_blocks(&stmt, [this](const ir::Block& inner) { return block(inner); });
      out.push_back(std::move(stmt));
    }
    return out;
  }

 private:
  // As many names as assignments of them, in the same order.
  bool parts(const ir::ParallelStmt& region) const {
    const size_t count = region.body.size() / 2;
    if (count < 2 || region.body.size() % 2) return false;
    BufferSet written;
    for (size_t i = 0; i < count; ++i) {
      const ir::ParallelStmt pair{region.iters, {region.body[i], region.body[count + i]}};
      const auto [store, value] = step_of(pair);
      if (!store || store->buffer->scope != ir::Scope::kFragment) return false;
      BufferSet read;
      note_loads(value, &read);
      const auto in = [&](const BufferSet& set) {
        return std::any_of(read.begin(), read.end(), [&](const ir::Buffer* one) { return set.count(one) != 0; });
      };
      if (!in(results_) || in(written) || names_one_of(region, value)) return false;
      written.insert(store->buffer.get());
    }
    return written.size() == count;
  }
  static bool names_one_of(const ir::ParallelStmt& region, const ExprRef& value) {
    bool found = false;
    ir::visit(value, [&](const ExprRef& node) {
      found |= node->kind == ExprKind::kVar &&
               std::any_of(region.body.begin(), region.body.end(), [&](const ir::Stmt& stmt) {
                 const auto* let = std::get_if<ir::LetStmt>(&stmt.node);
                 return let && let->var == node->var;
               });
    });
    return found;
  }

  // With variables of its own.
  static ir::ParallelStmt step(const ir::ParallelStmt& region, size_t number) {
    ir::ParallelStmt made{region.iters, {region.body[number], region.body[region.body.size() / 2 + number]}};
    std::unordered_map<const ir::Var*, ExprRef> fresh;
    for (ir::IterVar& iter : made.iters) {
      const ir::VarRef own = std::make_shared<ir::Var>(*iter.var);
      fresh[iter.var.get()] = ir::make_var(own);
      iter.var = own;
    }
    const auto renamed = [&](const ExprRef& expr) {
      return ir::rewrite(expr, [&](const ExprRef& node) {
        const auto found = node->kind == ExprKind::kVar ? fresh.find(node->var.get()) : fresh.end();
        return found == fresh.end() ? node : found->second;
      });
    };
    auto& let = std::get<ir::LetStmt>(made.body[0].node);
    let.value = renamed(let.value);
    for (ExprRef& index : std::get<ir::AssignStmt>(made.body[1].node).indices) index = renamed(index);
    return made;
  }

  BufferSet results_;  // of reductions
};

}  // namespace

ir::Kernel sum_steps(const ir::Kernel& kernel) {
  ir::Kernel out = kernel;
  out.body = Parter(kernel).block(kernel.body);
  return out;
}

}  // namespace kachel::lowering
