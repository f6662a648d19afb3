// Why these bounds. Let u be the unit of the narrowest rounding on the way and U the output's own.
//
//  - The last rounding to the output type may fall on either side of a tie: 2 U relative.
//  - A sum of n terms in f32 in another order moves by about n * 2^-24 of the sum of magnitudes. Against the largest
//    output that is below 2^-13 for any n up to 2^20 of random sign, hence at least that much absolute. Tensor cores
//    cut off what they align to a sum where others round: each of n terms by up to 2^-24 of the sum, all in one
//    direction, half of that in the mean; more than 2^-5 of the largest output is not taken for that.
//  - Where intermediates are rounded to a narrow type at a point that depends on the configuration (the probabilities
//    of a blocked softmax, scaled to another running maximum), each term moves by u; the sum moves by u of its
//    magnitudes, at most a few u of the largest output: 4 u absolute.
//  - An exponential makes of an absolute error a relative one. What tf32 cuts off its operands, up to 2^-10 of each, is
//    several units of its unit where a sum of products is 8, say: a softmax of such sums counts as one of bf16.
//
// A wrong candidate (a lost tile, a race, a shifted index) is off by the order of the values themselves; even for 8-bit
// intermediates, where 4 u is a quarter, most of its elements are outside.
//
// Integers that follow from floats are as far apart as the floats let them be. What is rounded to an integer (8-bit
// codes of a row) falls to the neighbour where the float lies near a tie: with 127 steps and values rounded to bf16 on
// the way, a quarter of the elements. What a comparison chooses (where the largest logit stands) is anything where two
// floats are nearly equal: of 32-bit sums of a thousand products, one row in 10^4. So a third may be neighbours and one
// element in 512 anything, but none of a few.
#include "runtime/engine/tuning/tolerance.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>

namespace kachel::runtime {
namespace {

using ir::DType;

// Half the distance of neighbours at 1.
double unit(DType type) {
  switch (type) {
    case DType::F16:
      return std::ldexp(1, -11);
    case DType::BF16:
      return std::ldexp(1, -8);
    case DType::F8E4M3:
      return std::ldexp(1, -4);
    case DType::F8E5M2:
      return std::ldexp(1, -3);
    default:
      return std::ldexp(1, -24);
  }
}

// Whether two ways to compute it of floats may differ in the last bit: functions, and what may be contracted or
// reordered.
bool is_inexact(const ir::Expr& expr) {
  if (ir::is_reduction(expr)) return !ir::is_extreme(expr.reduce) && !ir::is_arg(expr.reduce);
  constexpr ir::Op kExact[] = {ir::Op::kNeg, ir::Op::kNot, ir::Op::kAnd, ir::Op::kOr,   ir::Op::kSelect,
                               ir::Op::kMin, ir::Op::kMax, ir::Op::kAbs, ir::Op::kClamp};
  return expr.kind == ir::ExprKind::kApply && !ir::is_comparison(expr.op) &&
         std::find(std::begin(kExact), std::end(kExact), expr.op) == std::end(kExact);
}

class Walk {
 public:
  Walk(const KernelModel& model, uint64_t types) : model_(model), types_(types) {}

  Roundings run() {
    for (const ir::Param& param : model_.kernel.params)
      if (param.tensor && param.tensor->direction != ir::Direction::kIn) add(param.tensor->type);
    block(model_.kernel.body);
    if (exponentials_ && tf32_) add({DType::BF16, nullptr});
    return found_;
  }

 private:
  DType resolve(const ir::TypeRef& type) const {
    if (!type.symbol) return type.dtype;
    const auto found = std::find(model_.types.begin(), model_.types.end(), type.symbol->name);
    const auto bound = static_cast<DType>(types_ >> (4 * (found - model_.types.begin())) & 15);
    return type.accumulator ? ir::accumulator_type(bound) : bound;
  }
  void add(const ir::TypeRef& type) {
    const DType resolved = resolve(type);
    if (ir::is_float(resolved) && unit(resolved) > unit(found_.narrowest)) found_.narrowest = resolved;
  }
  bool is_float(const ir::ExprRef& expr) const {
    switch (expr->kind) {
      case ir::ExprKind::kFloat:
        return true;
      case ir::ExprKind::kVar:
        return floats_.count(expr->var.get()) || ir::is_float(resolve(expr->var->type));
      case ir::ExprKind::kCast:
        return ir::is_float(resolve(expr->cast_type));
      case ir::ExprKind::kLoad:
        return ir::is_float(resolve(expr->buffer->type));
      default:
        if (ir::is_reduction(*expr) ? ir::is_arg(expr->reduce) : ir::is_comparison(expr->op)) return false;
        return std::any_of(expr->args.begin(), expr->args.end(), [this](const auto& arg) { return is_float(arg); });
    }
  }
  void value(const ir::ExprRef& expr) {
    ir::visit(expr, [this](const ir::ExprRef& node) {
      if (node->kind == ir::ExprKind::kCast) add(node->cast_type);
      exponentials_ |= node->kind == ir::ExprKind::kApply && (node->op == ir::Op::kExp || node->op == ir::Op::kExp2);
      if (!found_.computes && is_inexact(*node)) found_.computes = is_float(node);
    });
  }
  void block(const ir::Block& body) {
    for (const ir::Stmt& stmt : body) {
      if (const auto* copy = std::get_if<ir::CopyStmt>(&stmt.node)) {
        if (resolve(copy->dst.buffer->type) != resolve(copy->src.buffer->type)) add(copy->dst.buffer->type);
      } else if (const auto* gemm = std::get_if<ir::GemmStmt>(&stmt.node)) {
        // tf32 keeps as many bits as f16. Sums of 8-bit floats keep 13 behind the leading one: where all terms are of
        // one sign, runs of them lose as much as bf16 does, and long ones a quarter.
        const DType operand = resolve(gemm->a.buffer->type);
        found_.computes |= ir::is_float(operand);
        found_.products |= ir::is_float(operand);
        if (gemm->precision == ir::Precision::kTf32 && operand == DType::F32) tf32_ = true, add({DType::F16, nullptr});
        if (ir::is_float8(operand) && ir::is_float8(resolve(gemm->b.buffer->type)))
          add({gemm->precision == ir::Precision::kFast ? DType::F8E4M3 : DType::BF16, nullptr});
      } else if (const auto* assign = std::get_if<ir::AssignStmt>(&stmt.node)) {
        add(assign->buffer->type);
        value(assign->value);
        found_.computes |= assign->op != ir::AssignOp::kSet && ir::is_float(resolve(assign->buffer->type));
      } else if (const auto* fill = std::get_if<ir::FillStmt>(&stmt.node)) {
        value(fill->value);
      } else if (const auto* let = std::get_if<ir::LetStmt>(&stmt.node)) {
        value(let->value);
        if (is_float(let->value)) floats_.insert(let->var.get());
      } else if (const auto* parallel = std::get_if<ir::ParallelStmt>(&stmt.node)) {
        block(parallel->body);
      } else if (const auto* loop = std::get_if<ir::ForStmt>(&stmt.node)) {
        block(loop->body);
      } else if (const auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) {
        value(branch->condition);
        block(branch->then_body);
        block(branch->else_body);
      }
    }
  }

  const KernelModel& model_;
  uint64_t types_;
  Roundings found_;
  std::set<const ir::Var*> floats_;  // names of them
  bool exponentials_ = false, tf32_ = false;
};

}  // namespace

Tolerance tolerance_for(DType output, const Roundings& roundings) {
  const double cut = std::min(std::ldexp(static_cast<double>(roundings.longest), -25), std::ldexp(1, -5));
  if (ir::is_float(output))
    return {2 * 2 * unit(output), std::max({4 * unit(roundings.narrowest), std::ldexp(1, -13), cut})};
  if (!roundings.computes) return {};
  return {.neighbours = 1.0 / 3, .others = 1.0 / 512};
}

Roundings roundings_of(const KernelModel& model, uint64_t types) {
  return Walk(model, types).run();
}

int64_t longest_extent(const KernelModel& model, const BoundArguments& arguments) {
  int64_t longest = 0;
  for (size_t i = 0; i < model.params.size(); ++i)
    for (size_t axis = 0; model.params[i].is_tensor && axis < model.params[i].axes.size(); ++axis)
      longest = std::max(longest, arguments.tensors[i].shape[axis]);
  return longest;
}

}  // namespace kachel::runtime
