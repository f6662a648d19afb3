// Which buffers an expression or a slice names, for passes that ask whether a tile is used in one way only, or that
// put another one in its place.
#pragma once
#include <set>
#include <vector>

#include "ir/visit.h"

namespace kachel::lowering {

using BufferSet = std::set<const ir::Buffer*>;

// Adds what `expr` (or null) loads from.
void note_loads(const ir::ExprRef& expr, BufferSet* buffers);
// Adds the buffer of the slice, and what its places and bounds are read from.
void note_uses(const ir::TileRef& tile, BufferSet* buffers);
// Adds what the statement reads or writes, nested ones included.
void note_uses(const ir::Stmt& stmt, BufferSet* buffers);

// Adds what the statement writes, nested ones included.
void note_writes(const ir::Stmt& stmt, BufferSet* buffers);

// Puts `to`, which has the shape and the type of `from`, in its place throughout the statement.
void replace_uses(const ir::BufferRef& from, const ir::BufferRef& to, ir::Stmt* stmt);

// Calls fn on every node of the run-time expressions of the statements and of those inside them.
template <class Fn>
void for_each_node(const ir::Block& body, const Fn& fn) {
  ir::for_each_stmt(body, [&](const ir::Stmt& stmt) {
    ir::for_each_expr(stmt, [&](const ir::ExprRef& expr) { ir::visit(expr, fn); });
  });
}

// Puts fn(expression) in the place of each run-time expression of a region's body.
template <class Fn>
void rewrite_region(ir::Block* body, const Fn& fn) {
  for (ir::Stmt& stmt : *body) {
    if (auto* let = std::get_if<ir::LetStmt>(&stmt.node)) let->value = fn(let->value);
    if (auto* assign = std::get_if<ir::AssignStmt>(&stmt.node)) {
      for (ir::ExprRef& index : assign->indices) index = fn(index);
      assign->value = fn(assign->value);
    }
    if (auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) {
      branch->condition = fn(branch->condition);
      rewrite_region(&branch->then_body, fn);
      rewrite_region(&branch->else_body, fn);
    }
  }
}

// Puts fn(block) in the place of each block that the statement holds, of loops and branches, not of regions.
template <class Fn>
void replace_blocks(ir::Stmt* stmt, const Fn& fn) {
  if (auto* loop = std::get_if<ir::ForStmt>(&stmt->node)) loop->body = fn(loop->body);
  if (auto* branch = std::get_if<ir::IfStmt>(&stmt->node)) {
    branch->then_body = fn(branch->then_body);
    branch->else_body = fn(branch->else_body);
  }
}

// Whether the kernel only reads it.
bool is_unwritten(const ir::Buffer& buffer);
// Whether the value is the same wherever in its block it is evaluated: of names, and of tensors that the kernel only
// reads.
bool is_unchanging(const ir::ExprRef& value);
// REQUIRES: constant extents.
int64_t elements_of(const ir::Buffer& tile);

// All of the tile, and whether a slice is written so: no ranges, and no bounds, beyond which a copy would leave it as it
// was.
ir::TileRef whole_tile(const ir::BufferRef& tile);
bool has_whole_axes(const ir::TileRef& slice);

// The slice's axes that are those of its shape, in order: all that name no single element.
std::vector<size_t> kept_axes(const ir::TileRef& slice);

enum class Ways { kAll, kOne };  // of branches: both cases, or the one that touches it more often
// Statements that use the buffer, of which loops and branches are none.
int64_t uses_of(const ir::Buffer* buffer, const ir::Block& body, Ways ways = Ways::kAll);
// The kernel with another body, in front of which these tiles are declared.
ir::Kernel with_declared(const ir::Kernel& kernel, const std::vector<ir::BufferRef>& tiles, ir::Block body);

// A region over all elements of a tile of that shape, without a body; where an iteration's element is.
ir::ParallelStmt region_over(const std::vector<ir::ExprRef>& shape, std::vector<ir::ExprRef>* places);
// One that combines a tile of results with another one of its shape.
ir::ParallelStmt combined_into(ir::ReduceOp op, const ir::BufferRef& to, const ir::BufferRef& from, ir::Loc loc);

// Whether it is `tile[i, ...]` with these variables in their order.
bool is_own_element(const ir::ExprRef& expr, const std::vector<ir::IterVar>& iters);

}  // namespace kachel::lowering
