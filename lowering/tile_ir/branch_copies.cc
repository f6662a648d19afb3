#include "lowering/tile_ir/branch_copies.h"

#include <algorithm>
#include <set>
#include <unordered_map>
#include <utility>

#include "ir/expansion.h"
#include "lowering/planted.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

constexpr uint64_t kMostInlined = 256;  // nodes

using Names = std::unordered_map<const ir::Var*, ir::ExprRef>;

bool is_copied_ahead(const ir::CopyStmt& copy) {
  return is_unwritten(*copy.src.buffer) && copy.dst.buffer->scope == ir::Scope::kShared && !copy.dst.within_first &&
         copy.atomic == ir::AtomicOp::kNone;
}

ir::ExprRef inlined(const ir::ExprRef& value, const Names& names) {
  if (!value) return nullptr;
  return ir::rewrite(value, [&](const ir::ExprRef& node) {
    const auto found = node->kind == ir::ExprKind::kVar ? names.find(node->var.get()) : names.end();
    return found == names.end() ? node : found->second;
  });
}

ir::TileRef inlined(ir::TileRef slice, const Names& names) {
  slice.within_first = inlined(slice.within_first, names);
  slice.within_length = inlined(slice.within_length, names);
  for (ir::AxisSpec& axis : slice.axes) {
    axis.start = inlined(axis.start, names), axis.index = inlined(axis.index, names);
    if (axis.gather) axis.gather = std::make_shared<ir::TileRef>(inlined(*axis.gather, names));
  }
  return slice;
}

class Splitter {
 public:
  ir::Block block(const ir::Block& body, bool pipelined) {
    ir::Block out;
    for (const ir::Stmt& stmt : body) {
      ir::Stmt copy = stmt;
      if (auto* loop = std::get_if<ir::ForStmt>(&copy.node)) {
        loop->body = block(loop->body, loop->pipelined);
      } else if (auto* branch = std::get_if<ir::IfStmt>(&copy.node);
                 branch && pipelined && is_known(branch->condition)) {
        if (ir::IfStmt copies = take_copies(branch); !is_empty(copies)) out.push_back({stmt.loc, std::move(copies)});
        if (is_empty(*branch)) continue;
      } else {
        replace_blocks(&copy, [this](const ir::Block& inner) { return block(inner, false); });
      }
      out.push_back(std::move(copy));
    }
    return out;
  }

 private:
  static bool is_empty(const ir::IfStmt& branch) { return branch.then_body.empty() && branch.else_body.empty(); }

  // Whether it can stand in front of the branch: short, and of nothing that changes there.
  bool is_known(const ir::ExprRef& value) const {
    if (!value) return true;
    bool known = is_unchanging(value) && expansion_.size(value) <= kMostInlined;
    ir::visit(value, [&](const ir::ExprRef& node) {
      known &= node->kind != ir::ExprKind::kVar || !opaque_.count(node->var.get());
    });
    return known;
  }
  bool is_known(const ir::TileRef& slice) const {
    bool known = is_unwritten(*slice.buffer) && is_known(slice.within_first) && is_known(slice.within_length);
    for (const ir::AxisSpec& axis : slice.axes)
      known &= is_known(axis.start) && is_known(axis.index) && (!axis.gather || is_known(*axis.gather));
    return known;
  }

  void define(const ir::LetStmt& let) {
    names_[let.var.get()] = inlined(let.value, names_);
    expansion_.define(let.var.get(), let.value);
  }

  ir::IfStmt take_copies(ir::IfStmt* branch) {
    const Names outer = names_;
    ir::IfStmt copies{inlined(branch->condition, names_), take_copies(&branch->then_body), {}};
    names_ = outer;
    copies.else_body = take_copies(&branch->else_body);
    names_ = outer;
    if (planted(Planted::kGuardTurned) && !copies.else_body.empty()) std::swap(copies.then_body, copies.else_body);
    return copies;
  }

  ir::Block take_copies(ir::Block* body) {
    ir::Block copies, rest;
    BufferSet touched;
    bool works = false;
    for (ir::Stmt& stmt : *body) {
      if (const auto* let = std::get_if<ir::LetStmt>(&stmt.node); let && is_known(let->value))
        define(*let);
      else if (let)
        opaque_.insert(let->var.get());
      const auto* copy = std::get_if<ir::CopyStmt>(&stmt.node);
      if (copy && is_copied_ahead(*copy) && !touched.count(copy->dst.buffer.get()) && is_known(copy->src)) {
        ir::CopyStmt moved = *copy;
        moved.src = inlined(std::move(moved.src), names_);
        touched.insert(moved.dst.buffer.get());
        copies.push_back({stmt.loc, std::move(moved)});
        continue;
      }
      note_uses(stmt, &touched);
      auto* branch = std::get_if<ir::IfStmt>(&stmt.node);
      works |= !std::holds_alternative<ir::LetStmt>(stmt.node) && !branch;
      if (branch && !works && is_known(branch->condition)) {
        if (ir::IfStmt inner = take_copies(branch); !is_empty(inner)) copies.push_back({stmt.loc, std::move(inner)});
        if (is_empty(*branch)) continue;
        works = true;
      }
      rest.push_back(std::move(stmt));
    }
    const bool names_only = std::all_of(
        rest.begin(), rest.end(), [](const ir::Stmt& stmt) { return std::holds_alternative<ir::LetStmt>(stmt.node); });
    *body = names_only ? ir::Block() : std::move(rest);
    return copies;
  }

  Names names_;  // of branches, and what they stand for
  ir::Expansion expansion_;
  std::set<const ir::Var*> opaque_;  // those that stand for too much, or for what may change
};

// Adds the tiles that the block fills in any case. False if it holds anything but copies to tiles that are not there
// yet.
bool add_tiles(const ir::Block& body, std::vector<ir::BufferRef>* tiles) {
  auto add = [&](const ir::BufferRef& tile) {
    if (std::find(tiles->begin(), tiles->end(), tile) != tiles->end()) return false;
    tiles->push_back(tile);
    return true;
  };
  for (const ir::Stmt& stmt : body) {
    if (const auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) {
      const std::optional<BranchTiles> inner = branch_tiles(*branch);
      if (!inner || inner->depend()) return false;
      if (!std::all_of(inner->always.begin(), inner->always.end(), add)) return false;
    } else {
      const auto* copy = std::get_if<ir::CopyStmt>(&stmt.node);
      if (!copy || !add(copy->dst.buffer)) return false;
    }
  }
  return true;
}

// Whether statements of the body, other than `filling`, touch the tile outside of branches with this condition, or in
// their other case.
bool touched_elsewhere(const ir::Block& body, const ir::IfStmt& filling, bool holds, const ir::Buffer* tile) {
  return std::any_of(body.begin(), body.end(), [&](const ir::Stmt& stmt) {
    const auto* branch = std::get_if<ir::IfStmt>(&stmt.node);
    if (branch == &filling) return false;
    BufferSet used;
    if (branch && ir::same(branch->condition, filling.condition)) {
      for (const ir::Stmt& inner : holds ? branch->else_body : branch->then_body) note_uses(inner, &used);
    } else {
      note_uses(stmt, &used);
    }
    return used.count(tile) != 0;
  });
}

void add_copies(const ir::Stmt& stmt, std::vector<const ir::CopyStmt*>* copies) {
  if (const auto* copy = std::get_if<ir::CopyStmt>(&stmt.node)) copies->push_back(copy);
  if (const auto* branch = std::get_if<ir::IfStmt>(&stmt.node))
    for (const ir::Block* body : {&branch->then_body, &branch->else_body})
      for (const ir::Stmt& inner : *body) add_copies(inner, copies);
}

}  // namespace

ir::Kernel split_branches(const ir::Kernel& kernel) {
  ir::Kernel out = kernel;
  out.body = Splitter().block(kernel.body, false);
  return out;
}

std::optional<BranchTiles> branch_tiles(const ir::IfStmt& branch) {
  std::vector<ir::BufferRef> if_true, if_false;
  if (!add_tiles(branch.then_body, &if_true) || !add_tiles(branch.else_body, &if_false)) return std::nullopt;
  BranchTiles tiles;
  for (const ir::BufferRef& tile : if_true) {
    const auto other = std::find(if_false.begin(), if_false.end(), tile);
    (other == if_false.end() ? tiles.if_true : tiles.always).push_back(tile);
    if (other != if_false.end()) if_false.erase(other);
  }
  tiles.if_false = std::move(if_false);
  return tiles;
}

std::vector<const ir::CopyStmt*> copies_of(const ir::Stmt& producer) {
  std::vector<const ir::CopyStmt*> copies;
  add_copies(producer, &copies);
  return copies;
}

const ir::IfStmt* guard_of(const std::vector<const ir::Stmt*>& producers) {
  for (const ir::Stmt* producer : producers)
    if (const auto* branch = std::get_if<ir::IfStmt>(&producer->node); branch && branch_tiles(*branch)->depend())
      return branch;
  return nullptr;
}

bool read_in_its_case(const ir::Block& body, const ir::IfStmt& branch, const BranchTiles& tiles) {
  auto elsewhere = [&](const std::vector<ir::BufferRef>& filled, bool holds) {
    return std::any_of(filled.begin(), filled.end(),
                       [&](const ir::BufferRef& tile) { return touched_elsewhere(body, branch, holds, tile.get()); });
  };
  return !elsewhere(tiles.if_true, true) && !elsewhere(tiles.if_false, false);
}

}  // namespace kachel::lowering
