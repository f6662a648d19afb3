#include "lowering/tile_ir/written_out_args.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "ir/visit.h"
#include "lowering/planted.h"
#include "lowering/tile_ir/part_access.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

using ir::ExprKind;
using ir::ExprRef;
using ir::Op;

constexpr int64_t kMostWrittenOut = 32;  // elements, each in a register

// Elements of tiles lie with whichever thread has them; and of what the region writes, its iterations see what there
// was before, but where they name an element just as they have written it.
bool is_small(const ir::Expr& expr, const BufferSet& written) {
  if (expr.kind != ExprKind::kReduce || !ir::is_arg(expr.reduce)) return false;
  int64_t count = 1;
  for (const ir::IterVar& iter : expr.iters) {
    if (iter.extent->int_value > kMostWrittenOut) return false;
    count *= iter.extent->int_value;
  }
  bool plain = count <= kMostWrittenOut;
  ir::visit(expr.args[0], [&](const ExprRef& node) {
    plain &= node->kind != ExprKind::kReduce;
    plain &= node->kind != ExprKind::kLoad ||
             (node->buffer->scope == ir::Scope::kGlobal && !written.count(node->buffer.get()));
  });
  return plain;
}

// The operand for each of the elements, the last index fastest.
std::vector<ExprRef> elements_of(const ir::Expr& reduce) {
  std::vector<ExprRef> elements{reduce.args[0]};
  for (const ir::IterVar& iter : reduce.iters) {
    std::vector<ExprRef> further;
    for (const ExprRef& one : elements)
      for (int64_t i = 0; i < iter.extent->int_value; ++i)
        further.push_back(substituted(one, iter.var, ir::make_int(i, iter.extent->type)));
    elements = std::move(further);
  }
  return elements;
}

class Writer {
 public:
  ir::Block block(const ir::Block& body) {
    ir::Block out;
    for (ir::Stmt stmt : body) {
      if (auto* region = std::get_if<ir::ParallelStmt>(&stmt.node)) {
        written_.clear();
        note_writes(stmt, &written_);
        region->body = within(region->body);
      } else {
        replace_blocks(&stmt, [this](const ir::Block& inner) { return block(inner); });
      }
      out.push_back(std::move(stmt));
    }
    return out;
  }

 private:
  ir::Block within(const ir::Block& body) {
    ir::Block out;
    for (ir::Stmt stmt : body) {
      loc_ = stmt.loc;
      if (auto* let = std::get_if<ir::LetStmt>(&stmt.node)) let->value = written_out(let->value, &out);
      if (auto* assign = std::get_if<ir::AssignStmt>(&stmt.node)) {
        for (ExprRef& index : assign->indices) index = written_out(index, &out);
        assign->value = written_out(assign->value, &out);
      }
      if (auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) {
        branch->condition = written_out(branch->condition, &out);
        branch->then_body = within(branch->then_body);
        branch->else_body = within(branch->else_body);
      }
      out.push_back(std::move(stmt));
    }
    return out;
  }

  ExprRef written_out(const ExprRef& expr, ir::Block* out) {
    if (is_small(*expr, written_)) return place_of(*expr, out);
    if (expr->kind == ExprKind::kReduce) return expr;  // what follows its indices has no place in front
    bool changed = false;
    std::vector<ExprRef> args;
    for (const ExprRef& arg : expr->args) {
      args.push_back(written_out(arg, out));
      changed |= args.back() != arg;
    }
    if (!changed) return expr;
    auto copy = std::make_shared<ir::Expr>(*expr);
    copy->args = std::move(args);
    return copy;
  }

  ExprRef place_of(const ir::Expr& reduce, ir::Block* out) {
    const Op most_of = reduce.reduce == ir::ReduceOp::kArgMax ? Op::kMax : Op::kMin;
    const bool last = planted(Planted::kArgLast);
    std::vector<ExprRef> elements;
    ExprRef most;
    for (const ExprRef& value : elements_of(reduce)) {
      elements.push_back(named(fmt::format("e{}", elements.size()), value, out));
      most = most ? ir::make_typed(most_of, {most, elements.back()}) : elements.back();
    }
    most = named("most", most, out);
    const auto count = static_cast<int64_t>(elements.size());
    ExprRef place = ir::make_int(0, ir::DType::I32);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at = last ? i : count - 1 - i;  // what is asked first is written last
      const ExprRef& element = elements[static_cast<size_t>(at)];
      place = ir::make_typed(Op::kSelect,
                             {ir::make_typed(Op::kEq, {element, most}), ir::make_int(at, ir::DType::I32), place});
    }
    return ir::make_cast({ir::DType::I64, nullptr}, place);
  }

  ExprRef named(const std::string& name, const ExprRef& value, ir::Block* out) {
    const ir::TypeRef type{value->type, nullptr};
    auto var = std::make_shared<const ir::Var>(ir::Var{ir::VarKind::kLet, name, type, loc_});
    out->push_back({loc_, ir::LetStmt{var, value}});
    return ir::make_var(var);
  }

  BufferSet written_;  // by the region
  ir::Loc loc_;
};

}  // namespace

ir::Kernel written_out_args(const ir::Kernel& kernel) {
  ir::Kernel out = kernel;
  out.body = Writer().block(kernel.body);
  return out;
}

}  // namespace kachel::lowering
