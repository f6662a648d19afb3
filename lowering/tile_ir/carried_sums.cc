#include "lowering/tile_ir/carried_sums.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "ir/numerics.h"
#include "lowering/planted.h"
#include "lowering/tile_ir/reduce_ops.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

using ir::ExprKind;
using ir::ExprRef;

struct Step {
  ir::BufferRef sum;
  ExprRef added;  // the reduction
};

// `sum[i...] += sum[...](...)` of a region, in whichever way it is written, or an extreme alike; nothing if it is
// anything else.
std::optional<Step> step_of_sum(const ir::ParallelStmt& region) {
  const auto* assign = region.body.size() == 1 ? std::get_if<ir::AssignStmt>(&region.body[0].node) : nullptr;
  if (!assign || assign->atomic != ir::AtomicOp::kNone || assign->buffer->scope != ir::Scope::kFragment) return {};
  const ExprRef own = ir::make_load(assign->buffer, assign->indices);
  if (!is_own_element(own, region.iters)) return {};
  ExprRef added;
  if (assign->op == ir::AssignOp::kAdd) added = assign->value;
  const ExprRef& value = assign->value;
  const bool joins = assign->op == ir::AssignOp::kSet && value->kind == ExprKind::kApply && value->args.size() == 2;
  for (size_t side = 0; joins && side < 2; ++side)
    if (ir::same(value->args[side], own)) added = value->args[1 - side];
  if (!added || added->kind != ExprKind::kReduce || added->type != assign->buffer->type.dtype) return {};
  if (added->reduce != ir::ReduceOp::kSum && !ir::is_extreme(added->reduce)) return {};
  if ((joins ? value->op : ir::Op::kAdd) != ir::operation_of(added->reduce)) return {};
  BufferSet read;
  note_loads(added, &read);
  if (read.count(assign->buffer.get())) return {};
  return Step{assign->buffer, added};
}

// The regions that set a tile each, in the order of its assignments, if it has several that do not read each other's.
ir::Block parted(const ir::ParallelStmt& region, ir::Loc loc) {
  BufferSet written;
  ir::Block parts;
  for (const ir::Stmt& stmt : region.body) {
    const auto* assign = std::get_if<ir::AssignStmt>(&stmt.node);
    if (!assign || !written.insert(assign->buffer.get()).second) return {};
    parts.push_back({loc, ir::ParallelStmt{region.iters, {stmt}}});
  }
  for (const ir::Stmt& part : parts) {
    const std::optional<Step> step = step_of_sum(std::get<ir::ParallelStmt>(part.node));
    if (!step) return {};
    BufferSet read;
    note_loads(step->added, &read);
    if (std::any_of(read.begin(), read.end(), [&](const ir::Buffer* one) { return written.count(one) != 0; }))
      return {};
  }
  return parts;
}

class Carrier {
 public:
  explicit Carrier(bool has_products) : has_products_(has_products) {}

  ir::Block declared;

  static bool mentions_products(const ir::Block& body) {
    bool found = false;
    ir::for_each_stmt(body, [&](const ir::Stmt& stmt) { found |= std::holds_alternative<ir::GemmStmt>(stmt.node); });
    return found;
  }

  ir::Block block(const ir::Block& body) {
    ir::Block out;
    for (ir::Stmt stmt : body) {
      replace_blocks(&stmt, [this](const ir::Block& inner) { return block(inner); });
      auto* loop = std::get_if<ir::ForStmt>(&stmt.node);
      ir::Block behind;
      if (loop) carry(loop, &out, &behind);
      out.push_back(std::move(stmt));
      out.insert(out.end(), behind.begin(), behind.end());
    }
    return out;
  }

 private:
  static void part_regions(ir::Block* body) {
    ir::Block out;
    for (const ir::Stmt& stmt : *body) {
      const auto* region = std::get_if<ir::ParallelStmt>(&stmt.node);
      const ir::Block parts = region && region->body.size() > 1 ? parted(*region, stmt.loc) : ir::Block();
      if (parts.empty())
        out.push_back(stmt);
      else
        out.insert(out.end(), parts.begin(), parts.end());
    }
    *body = std::move(out);
  }

  // What the loop's products read of memory.
  static BufferSet operands_of(const ir::Block& body) {
    BufferSet operands;
    for (const ir::Stmt& stmt : body)
      if (const auto* gemm = std::get_if<ir::GemmStmt>(&stmt.node))
        for (const ir::TileRef* tile : {&gemm->a, &gemm->b})
          if (tile->buffer->scope == ir::Scope::kShared) operands.insert(tile->buffer.get());
    return operands;
  }

  struct Loop {
    const ir::ForStmt* stmt;
    BufferSet operands;
    bool statistics;
    ir::Block *before, *behind;
  };

  void carry(ir::ForStmt* loop, ir::Block* before, ir::Block* behind) {
    const Loop all{loop, operands_of(loop->body), has_products_ && !mentions_products(loop->body), before, behind};
    if (!all.operands.empty() || all.statistics) carry(&loop->body, all);
  }

  // Of a block of the loop, and of what stands under conditions in it: where they fail nothing is added.
  void carry(ir::Block* block, const Loop& loop) {
    for (ir::Stmt& stmt : *block)
      if (auto* branch = std::get_if<ir::IfStmt>(&stmt.node))
        for (ir::Block* body : {&branch->then_body, &branch->else_body}) carry(body, loop);
    if (loop.statistics) part_regions(block);
    for (size_t at = block->size(); at-- > 0;) {
      const auto* region = std::get_if<ir::ParallelStmt>(&(*block)[at].node);
      const std::optional<Step> step = region ? step_of_sum(*region) : std::nullopt;
      if (!step || !(loop.statistics || reads_operands_alone(step->added, loop.operands)) ||
          uses_of(step->sum.get(), loop.stmt->body) != 1)
        continue;
      const ir::Loc loc = (*block)[at].loc;
      const ir::BufferRef carried = tile_like(step->sum, "_carried", ir::Scope::kFragment, loc),
                          moved = tile_like(step->sum, "_moved", ir::Scope::kShared, loc);
      ir::ParallelStmt within = *region;
      ir::Block together;  // what it reads, by wide accesses, and the sum
      set(&within, carried, by_way_of_fragments(within.iters, step->added, loop.operands, loc, &together));
      together.push_back({loc, std::move(within)});
      block->erase(block->begin() + static_cast<std::ptrdiff_t>(at));
      BufferSet read;
      note_loads(step->added, &read);
      const size_t behind_products = place_behind(*block, at, read);
      block->insert(block->begin() + static_cast<std::ptrdiff_t>(behind_products), together.begin(), together.end());
      const ir::ReduceOp op = step->added->reduce;
      ir::Block* cleared = planted(Planted::kCarriedOn) ? &declared : loop.before;
      cleared->push_back({loc, ir::FillStmt{whole_tile(carried), neutral_element(op, carried->type.dtype)}});
      loop.behind->push_back({loc, ir::CopyStmt{whole_tile(moved), whole_tile(carried)}});
      loop.behind->push_back({loc, combined_into(op, step->sum, moved, loc)});
    }
  }

  // Fragments, too, would have their layouts decide how the sums are read.
  static bool reads_operands_alone(const ExprRef& added, const BufferSet& operands) {
    BufferSet read;
    note_loads(added, &read);
    const bool from_memory =
        std::all_of(read.begin(), read.end(), [](const ir::Buffer* one) { return one->scope != ir::Scope::kFragment; });
    return from_memory &&
           std::any_of(read.begin(), read.end(), [&](const ir::Buffer* one) { return operands.count(one) != 0; });
  }

  ir::BufferRef tile_like(const ir::BufferRef& sum, const char* suffix, ir::Scope scope, ir::Loc loc) {
    auto tile = std::make_shared<ir::Buffer>(*sum);
    tile->name += suffix;
    tile->scope = scope;
    declared.push_back({loc, ir::DeclStmt{tile, nullptr}});
    return tile;
  }

  static void set(ir::ParallelStmt* region, const ir::BufferRef& tile, const ExprRef& added) {
    auto& assign = std::get<ir::AssignStmt>(region->body[0].node);
    assign.buffer = tile;
    assign.op = ir::AssignOp::kSet;
    assign.value = combined(added->reduce, ir::make_load(tile, assign.indices), added);
  }

  // The sum with fragments in the place of operands that it reads all of, element by element; those are filled by
  // `copies`.
  ExprRef by_way_of_fragments(const std::vector<ir::IterVar>& outer, const ExprRef& added, const BufferSet& operands,
                              ir::Loc loc, ir::Block* copies) {
    std::vector<ir::IterVar> iters = outer;
    iters.insert(iters.end(), added->iters.begin(), added->iters.end());
    std::map<const ir::Buffer*, ir::BufferRef> held;
    BufferSet refused;
    ir::visit(added, [&](const ExprRef& node) {
      if (node->kind != ExprKind::kLoad || !operands.count(node->buffer.get())) return;
      if (!spans(*node, iters) || ir::bits(node->buffer->type.dtype) < 8) refused.insert(node->buffer.get());
      held.emplace(node->buffer.get(), node->buffer);
    });
    for (const ir::Buffer* tile : refused) held.erase(tile);
    for (auto& [tile, fragment] : held) {
      const ir::BufferRef from = fragment;
      fragment = tile_like(from, "_held", ir::Scope::kFragment, loc);
      copies->push_back({loc, ir::CopyStmt{whole_tile(fragment), whole_tile(from)}});
    }
    return ir::rewrite(added, [&](const ExprRef& node) {
      const auto found = node->kind == ExprKind::kLoad ? held.find(node->buffer.get()) : held.end();
      return found == held.end() ? node : ir::make_load(found->second, node->args);
    });
  }
  // Whether the load is of all elements of its tile, one for each of the iterations of some variables.
  static bool spans(const ir::Expr& load, const std::vector<ir::IterVar>& iters) {
    std::set<const ir::Var*> seen;
    for (size_t axis = 0; axis < load.args.size(); ++axis) {
      const auto iter = std::find_if(iters.begin(), iters.end(), [&](const ir::IterVar& each) {
        return load.args[axis]->kind == ExprKind::kVar && load.args[axis]->var == each.var;
      });
      if (iter == iters.end() || !seen.insert(iter->var.get()).second) return false;
      if (!ir::same(iter->extent, load.buffer->shape[axis])) return false;
    }
    return true;
  }

  // Behind the products that follow the place, of which none makes anything that the sum reads.
  static size_t place_behind(const ir::Block& body, size_t at, const BufferSet& read) {
    for (; at < body.size(); ++at) {
      const auto* gemm = std::get_if<ir::GemmStmt>(&body[at].node);
      if (!gemm || read.count(gemm->c.buffer.get())) break;
    }
    return at;
  }

  const bool has_products_;
};

}  // namespace

ir::Kernel carried_sums(const ir::Kernel& kernel) {
  Carrier carrier(Carrier::mentions_products(kernel.body));
  ir::Kernel out = kernel;
  const ir::Block body = carrier.block(kernel.body);
  if (carrier.declared.empty()) return kernel;
  out.body = std::move(carrier.declared);
  out.body.insert(out.body.end(), body.begin(), body.end());
  return out;
}

}  // namespace kachel::lowering
