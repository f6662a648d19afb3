// How the work of a block depends on its place in the grid. See schedule.h.
#include <optional>
#include <set>
#include <unordered_map>

#include "ir/visit.h"
#include "lowering/plan/grid_reads.h"
#include "lowering/plan/pipeline_tiles.h"
#include "lowering/plan/placement.h"
#include "lowering/plan/schedule.h"
#include "lowering/tile_ir/branch_copies.h"

namespace kachel::lowering {
namespace {

using ir::ExprKind;
using ir::ExprRef;
using ir::Op;

class Slopes {
 public:
  explicit Slopes(const ir::VarRef& axis) : axis_(axis) {}

  void block(const ir::Block& body) {
    for (const ir::Stmt& stmt : body) {
      if (const auto* let = std::get_if<ir::LetStmt>(&stmt.node)) {
        lets_[let->var.get()] = slope(let->value);
      } else if (const auto* loop = std::get_if<ir::ForStmt>(&stmt.node)) {
        note(slope(loop->end));
        auto begin = slope(loop->begin);
        note(begin ? std::optional<int>(-*begin) : begin);
        block(loop->body);
      } else if (const auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) {
        block(branch->then_body);
        block(branch->else_body);
      }
    }
  }
  bool rises() const { return rises_ && !falls_ && known_; }
  bool falls() const { return falls_ && !rises_ && known_; }

 private:
  void note(std::optional<int> slope) {
    known_ &= slope.has_value();
    rises_ |= slope == 1;
    falls_ |= slope == -1;
  }

  // The sign of the change with the axis; nothing if it is not known to have one.
  std::optional<int> slope(const ExprRef& expr) const {
    if (expr->kind == ExprKind::kVar) {
      if (expr->var == axis_) return 1;
      auto it = lets_.find(expr->var.get());
      return it == lets_.end() ? 0 : it->second;
    }
    std::vector<std::optional<int>> parts;
    bool constant = true;
    for (const ExprRef& arg : expr->args) {
      parts.push_back(slope(arg));
      constant &= parts.back() == 0;
    }
    if (constant) return 0;
    if (expr->kind == ExprKind::kCast) return parts[0];
    if (expr->kind != ExprKind::kApply) return std::nullopt;
    auto merged = [](std::optional<int> a, std::optional<int> b) -> std::optional<int> {
      if (!a || !b || *a * *b < 0) return std::nullopt;
      return *a ? a : b;
    };
    switch (expr->op) {
      case Op::kAdd:
      case Op::kMin:
      case Op::kMax:
        return merged(parts[0], parts[1]);
      case Op::kSub:
        return merged(parts[0], parts[1] ? std::optional<int>(-*parts[1]) : parts[1]);
      case Op::kMul:
        for (size_t i = 0; i < 2; ++i)
          if (expr->args[i]->kind == ExprKind::kInt && expr->args[i]->int_value > 0) return parts[1 - i];
        return std::nullopt;
      case Op::kDiv:
      case Op::kCeilDiv:
        return expr->args[1]->kind == ExprKind::kInt && expr->args[1]->int_value > 0 ? parts[0] : std::nullopt;
      case Op::kSelect:
        return parts[0] == 0 ? merged(parts[1], parts[2]) : std::nullopt;
      default:
        return std::nullopt;
    }
  }

  const ir::VarRef axis_;
  std::unordered_map<const ir::Var*, std::optional<int>> lets_;
  bool rises_ = false, falls_ = false, known_ = true;
};

// Which of the grid's axes decide what the copies in the innermost pipelined loops read.
class Readers {
 public:
  explicit Readers(const ir::Kernel& kernel) : reads_(kernel) {}
  GridAxes decided_by;
  bool any = false;
  ExprRef bytes;  // of all of them in a tile; null if there are none, or their number is not known of the grid alone

  void block(const ir::Block& body, bool pipelined) {
    for (const ir::Stmt& stmt : body) {
      if (const auto* let = std::get_if<ir::LetStmt>(&stmt.node)) {
        reads_.define(*let);
      } else if (const auto* loop = std::get_if<ir::ForStmt>(&stmt.node)) {
        const bool innermost = loop->pipelined && !encloses_pipeline(loop->body);
        if (innermost) {
          count(*loop);
          decided_by.merge(reads_.dealt_out(*loop));
        }
        block(loop->body, pipelined || innermost);
      } else if (const auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) {
        block(branch->then_body, pipelined);
        block(branch->else_body, pipelined);
      } else if (const auto* copy = std::get_if<ir::CopyStmt>(&stmt.node);
                 copy && pipelined && copy->src.buffer->scope == ir::Scope::kGlobal) {
        any = true;
        decided_by.merge(reads_.of(copy->src));
      }
    }
  }

 private:
  void count(const ir::ForStmt& loop) {
    countable_ &= reads_.writable(loop);
    if (!countable_) return bytes.reset();
    int64_t once = 0;
    for (const ir::Stmt& stmt : loop.body) {
      std::set<const ir::Buffer*> filled;
      for (const ir::CopyStmt* copy : copies_of(stmt))
        if (copy->src.buffer->scope == ir::Scope::kGlobal && copy->dst.buffer->scope != ir::Scope::kGlobal &&
            filled.insert(copy->dst.buffer.get()).second)
          once += product(tile_shape(copy->dst.buffer)) * ir::bits(copy->dst.buffer->type.dtype) / 8;
    }
    auto wide = [](const ExprRef& value) { return ir::make_cast({ir::DType::I64, nullptr}, value); };
    const ExprRef trips = ir::make_typed(Op::kSub, {wide(reads_.inlined(loop.end)), wide(reads_.inlined(loop.begin))});
    const ExprRef all = ir::make_typed(Op::kMul, {trips, ir::make_int(once, ir::DType::I64)});
    bytes = bytes ? ir::make_typed(Op::kAdd, {bytes, all}) : all;
  }

  bool countable_ = true;
  GridReads reads_;
};

// `value` for the longest tile along the fastest axis; null if it depends on more than that, dimensions and scalars.
ExprRef at_longest(const ir::Kernel& kernel, const ExprRef& value, const Schedule& schedule) {
  if (!value) return nullptr;
  const ir::IterVar& last = kernel.grid[schedule.order.back()];
  const ExprRef result = ir::rewrite(value, [&](const ExprRef& node) {
    if (node->kind != ExprKind::kVar || node->var != last.var) return node;
    if (schedule.forwards.count(schedule.order.back())) return ir::make_int(0, node->type);
    return ir::make_cast({node->type, nullptr},
                         ir::make_typed(Op::kSub, {last.extent, ir::make_int(1, last.extent->type)}));
  });
  bool known = true;
  ir::visit(result, [&](const ExprRef& node) {
    known &= node->kind != ExprKind::kLoad && !ir::is_reduction(*node);
    if (node->kind == ExprKind::kVar)
      known &= node->var->kind == ir::VarKind::kDim || node->var->kind == ir::VarKind::kScalar;
  });
  return known ? result : nullptr;
}

}  // namespace

void order_grid(const ir::Kernel& kernel, Schedule* schedule) {
  Readers readers(kernel);
  readers.block(kernel.body, false);
  if (!readers.any) return;
  std::vector<size_t> order, shared;
  for (size_t i = 0; i < kernel.grid.size(); ++i) (readers.decided_by.count(i) ? order : shared).push_back(i);
  if (order.empty() || shared.empty()) return;
  const bool uneven = schedule->is_uneven(shared.back());
  order.insert(order.end(), shared.begin(), shared.end());
  schedule->order = std::move(order);
  if (!uneven || schedule->order.size() < 2) return;
  schedule->row_bytes = at_longest(kernel, readers.bytes, *schedule);
  schedule->raster = schedule->row_bytes ? kShortRowsTogether : kRowsTogether;
}

bool tiles_by_length(const Schedule& schedule) {
  if (schedule.backwards.size() + schedule.forwards.size() > 1) return false;
  const size_t axis = schedule.forwards.empty() ? *schedule.backwards.begin() : *schedule.forwards.begin();
  if (schedule.order.empty()) return axis == 0;
  return schedule.raster > 1 ? schedule.order.back() == axis : schedule.order.front() == axis;
}

bool tiles_by_chance(const ir::Kernel& kernel) {
  std::set<const ir::Var*> loaded;  // names of what memory says
  const auto by_memory = [&loaded](const ExprRef& expr) {
    bool found = false;
    ir::visit(expr, [&](const ExprRef& node) {
      found |= node->kind == ExprKind::kLoad && node->buffer->scope == ir::Scope::kGlobal;
      found |= node->kind == ExprKind::kVar && loaded.count(node->var.get());
    });
    return found;
  };
  for (const ir::Stmt& stmt : kernel.body) {
    const auto* let = std::get_if<ir::LetStmt>(&stmt.node);
    if (let && by_memory(let->value)) loaded.insert(let->var.get());
    const auto* branch = std::get_if<ir::IfStmt>(&stmt.node);
    if (!branch || !by_memory(branch->condition)) continue;
    bool works = false;
    ir::for_each_stmt(branch->then_body, [&works](const ir::Stmt& inner) {
      const auto* loop = std::get_if<ir::ForStmt>(&inner.node);
      works |= loop && loop->pipelined;
    });
    if (works && branch->else_body.empty()) return true;
  }
  return false;
}

void note_uneven_axes(const ir::Kernel& kernel, Schedule* schedule) {
  for (size_t i = 0; i < kernel.grid.size(); ++i) {
    Slopes slopes(kernel.grid[i].var);
    slopes.block(kernel.body);
    if (slopes.rises()) schedule->backwards.insert(i);
    if (slopes.falls()) schedule->forwards.insert(i);
  }
}

}  // namespace kachel::lowering
