#include "lowering/tile_ir/exchange_loops.h"

#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include "ir/visit.h"
#include "lowering/tile_ir/block_copy.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

using ir::ExprKind;
using ir::ExprRef;
using VarSet = std::set<const ir::Var*>;

constexpr int64_t kMostSteps = 16;        // of one loop: 64 Ki elements
constexpr size_t kMostStatements = 2000;  // of what a kernel's loops are written out to

bool names(const ExprRef& expr, const VarSet& vars) {
  bool found = false;
  ir::visit(expr, [&](const ExprRef& node) { found |= node->kind == ExprKind::kVar && vars.count(node->var.get()); });
  return found;
}

bool has_bits(const ExprRef& expr) {
  bool found = false;
  ir::visit(expr, [&](const ExprRef& node) {
    found |= node->kind == ExprKind::kApply &&
             (node->op == ir::Op::kBitXor || node->op == ir::Op::kBitOr || node->op == ir::Op::kBitAnd);
  });
  return found;
}

// Whether a region in the statements reads a tile at a place that is computed with the variable, by operations on bits.
bool decides_places(const ir::Block& body, const ir::VarRef& var) {
  VarSet follow{var.get()}, bitwise;  // names that are made of the variable, and by such operations
  bool decides = false;
  const auto look = [&](const ExprRef& expr) {
    ir::visit(expr, [&](const ExprRef& node) {
      if (node->kind != ExprKind::kLoad || node->buffer->scope == ir::Scope::kGlobal) return;
      for (const ExprRef& index : node->args)
        decides |= names(index, follow) && (has_bits(index) || names(index, bitwise));
    });
  };
  ir::for_each_stmt(body, [&](const ir::Stmt& stmt) {
    if (const auto* let = std::get_if<ir::LetStmt>(&stmt.node); let && names(let->value, follow)) {
      follow.insert(let->var.get());
      if (has_bits(let->value) || names(let->value, bitwise)) bitwise.insert(let->var.get());
    }
    if (const auto* loop = std::get_if<ir::ForStmt>(&stmt.node))
      if (names(loop->begin, follow) || names(loop->end, follow)) follow.insert(loop->var.get());
    ir::for_each_expr(stmt, look);
  });
  return decides;
}

class Writer {
 public:
  ir::Block block(const ir::Block& in) {
    ir::Block out;
    for (size_t i = 0; i < in.size(); ++i) {
      ir::Stmt stmt = in[i];
      const auto* let = std::get_if<ir::LetStmt>(&stmt.node);
      if (let && written_ && let->value->kind == ExprKind::kInt) {
        const ir::Block rest(in.begin() + static_cast<std::ptrdiff_t>(i) + 1, in.end());
        append(block(copy_of(rest, {{let->var.get(), let->value}})), &out);
        return out;
      }
      if (auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) {
        if (written_ && branch->condition->kind == ExprKind::kBool) {
          append(block(branch->condition->int_value ? branch->then_body : branch->else_body), &out);
          continue;
        }
        branch->then_body = block(branch->then_body);
        branch->else_body = block(branch->else_body);
      }
      if (auto* loop = std::get_if<ir::ForStmt>(&stmt.node)) {
        if (is_network(*loop)) {
          append(steps(*loop), &out);
          continue;
        }
        loop->body = block(loop->body);
      }
      ++statements_;
      out.push_back(std::move(stmt));
    }
    return out;
  }
  bool within_bounds() const { return statements_ <= kMostStatements; }

 private:
  static bool is_network(const ir::ForStmt& loop) {
    return !loop.pipelined && loop.begin->kind == ExprKind::kInt && loop.end->kind == ExprKind::kInt &&
           loop.end->int_value - loop.begin->int_value <= kMostSteps && decides_places(loop.body, loop.var);
  }
  ir::Block steps(const ir::ForStmt& loop) {
    ir::Block out;
    ++written_;
    for (int64_t i = loop.begin->int_value; i < loop.end->int_value && within_bounds(); ++i)
      append(block(copy_of(loop.body, {{loop.var.get(), ir::make_int(i, ir::DType::I64)}})), &out);
    --written_;
    return out;
  }
  static void append(ir::Block made, ir::Block* out) {
    out->insert(out->end(), std::make_move_iterator(made.begin()), std::make_move_iterator(made.end()));
  }

  int written_ = 0;  // loops that are written out around the block at hand
  size_t statements_ = 0;
};

}  // namespace

ir::Kernel write_out_exchanges(const ir::Kernel& kernel) {
  Writer writer;
  ir::Kernel out = kernel;
  out.body = writer.block(kernel.body);
  return writer.within_bounds() ? out : kernel;
}

}  // namespace kachel::lowering
