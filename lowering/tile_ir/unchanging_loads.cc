#include "lowering/tile_ir/unchanging_loads.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "ir/visit.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

using ir::ExprRef;
using Names = std::set<const ir::Var*>;

constexpr size_t kMost = 32;  // of a loop: each takes a register of all threads

// Whether the place says the same in front of the loop as within.
bool is_known(const ExprRef& place, const Names& own) {
  bool known = true;
  ir::visit(place, [&](const ExprRef& part) {
    known &= part->kind != ir::ExprKind::kLoad && !ir::is_reduction(*part);
    if (part->kind != ir::ExprKind::kVar) return;
    const ir::Var& var = *part->var;
    known &= var.kind != ir::VarKind::kParallel && var.kind != ir::VarKind::kReduce && !own.count(&var);
  });
  return known;
}

class Hoister {
 public:
  ir::Block block(const ir::Block& body) {
    ir::Block out;
    for (ir::Stmt stmt : body) {
      if (auto* loop = std::get_if<ir::ForStmt>(&stmt.node); loop && !loop->pipelined) hoist(loop, stmt.loc, &out);
      replace_blocks(&stmt, [this](const ir::Block& inner) { return block(inner); });
      out.push_back(std::move(stmt));
    }
    return out;
  }

 private:
  struct Hoisted {
    ExprRef load;
    ir::VarRef name;
  };

  void hoist(ir::ForStmt* loop, ir::Loc loc, ir::Block* out) {
    Names own{loop->var.get()};
    ir::for_each_stmt(loop->body, [&](const ir::Stmt& stmt) {
      if (const auto* let = std::get_if<ir::LetStmt>(&stmt.node)) own.insert(let->var.get());
      if (const auto* inner = std::get_if<ir::ForStmt>(&stmt.node)) own.insert(inner->var.get());
    });
    std::vector<Hoisted> hoisted;
    const auto is_alike = [&](const ExprRef& node) {
      return node->kind == ir::ExprKind::kLoad && node->buffer->scope == ir::Scope::kGlobal &&
             is_unwritten(*node->buffer) &&
             std::all_of(node->args.begin(), node->args.end(), [&](const ExprRef& at) { return is_known(at, own); });
    };
    const auto named = [&](const ExprRef& expr) {
      return ir::rewrite(expr, [&](const ExprRef& node) {
        if (!is_alike(node)) return node;
        auto found =
            std::find_if(hoisted.begin(), hoisted.end(), [&](const auto& one) { return ir::same(one.load, node); });
        if (found == hoisted.end()) {
          if (hoisted.size() == kMost) return node;
          const std::string name = fmt::format("{}_{}", node->buffer->name, hoisted.size());
          hoisted.push_back(
              {node, std::make_shared<ir::Var>(ir::Var{ir::VarKind::kLet, name, {node->type, nullptr}, {}})});
          found = hoisted.end() - 1;
        }
        return ir::make_var(found->name);
      });
    };
    in_regions(&loop->body, named);
    for (const Hoisted& one : hoisted) out->push_back({loc, ir::LetStmt{one.name, one.load}});
  }

  template <class Fn>
  static void in_regions(ir::Block* body, const Fn& named) {
    for (ir::Stmt& stmt : *body) {
      if (auto* region = std::get_if<ir::ParallelStmt>(&stmt.node)) rewrite_region(&region->body, named);
      if (auto* loop = std::get_if<ir::ForStmt>(&stmt.node); loop && !loop->pipelined) in_regions(&loop->body, named);
      if (auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) {
        in_regions(&branch->then_body, named);
        in_regions(&branch->else_body, named);
      }
    }
  }
};

}  // namespace

ir::Kernel unchanging_loads(const ir::Kernel& kernel) {
  ir::Kernel out = kernel;
  out.body = Hoister().block(kernel.body);
  return out;
}

}  // namespace kachel::lowering
