#include "lowering/tile_ir/arg_reductions.h"

#include <utility>

#include "lowering/planted.h"
#include "lowering/tile_ir/region_hoister.h"

namespace kachel::lowering {
namespace {

using ir::DType;
using ir::ExprRef;
using ir::Op;

constexpr int64_t kMostKept = int64_t{1} << 28;  // as for all tiles of a block (ir/instantiate)
// Of a tensor's elements, what the threads of a block hold; more are read twice, the second time from a cache.
constexpr int64_t kMostReadOnce = int64_t{1} << 14;

bool is_arg_reduction(const ir::Expr& expr) {
  return expr.kind == ir::ExprKind::kReduce && ir::is_arg(expr.reduce);
}

class ArgReductions : public RegionHoister {
 public:
  const Status& status() const { return status_; }

 private:
  bool hoists(const ExprRef& expr, const Iters&, const Lets&) const override { return is_arg_reduction(*expr); }
  bool stays(const ir::ParallelStmt& region) const override { return !holds(region, is_arg_reduction); }

  ExprRef hoisted(const ExprRef& reduce, const Iters& iters) override {
    const Iters own = reduce->iters;
    if (elements(own) > kMostKept) fail();
    Iters within = iters;
    within.insert(within.end(), own.begin(), own.end());
    ExprRef operand = replaced(reduce->args[0], within, {});
    Iters outer = used(ir::make_reduce(reduce->reduce, own, operand), iters);

    const ir::Scope scope = iters.empty() ? ir::Scope::kShared : ir::Scope::kFragment;
    if (!can_be_read_again(*operand, outer, own)) operand = kept(operand, outer, own);
    std::vector<ExprRef> at = places(outer);
    if (outer.empty()) {
      outer.push_back(one());
      at.push_back(ir::make_int(0, DType::I64));
    }
    const bool largest = reduce->reduce == ir::ReduceOp::kArgMax;
    const ir::BufferRef most = make_tile("most", scope, operand->type, outer);
    push_region(most, reduction(largest ? ir::ReduceOp::kMax : ir::ReduceOp::kMin, own, operand), outer);
    const auto& [number, count] = number_of(own);
    const ExprRef none = ir::make_int(count, DType::I32);
    const bool last = planted(Planted::kArgLast);
    const ExprRef is_most = ir::make_typed(Op::kEq, {operand, ir::make_load(most, at)});
    const ExprRef candidate =
        ir::make_typed(Op::kSelect, {is_most, number, last ? ir::make_int(-1, DType::I32) : none});
    const ir::BufferRef first = make_tile("first", scope, DType::I32, outer);
    push_region(first, reduction(last ? ir::ReduceOp::kMax : ir::ReduceOp::kMin, own, candidate), outer);

    ExprRef result = ir::make_load(first, at);
    if (ir::is_float(operand->type)) {  // of NaN alone, the first
      const ExprRef found = ir::make_typed(Op::kLt, {result, none});
      result = ir::make_typed(Op::kSelect, {found, result, ir::make_int(0, DType::I32)});
    }
    return ir::make_cast({DType::I64, nullptr}, result);
  }

  void fail() {
    if (status_.ok())
      status_ =
          invalid("an `argmax` or `argmin` has more than 2^28 values to compare in a region; compare fewer at a time");
  }
  static int64_t elements(const Iters& iters) {
    int64_t count = 1;
    for (const ir::IterVar& iter : iters) count = std::min(count * iter.extent->int_value, 2 * kMostKept);
    return count;
  }

  // Whether it has the same value when it is evaluated once more, at no great cost.
  static bool can_be_read_again(const ir::Expr& operand, const Iters& outer, const Iters& own) {
    if (operand.kind != ir::ExprKind::kLoad) return false;
    for (const ExprRef& index : operand.args) {
      bool rounds = false;
      ir::visit(index, [&](const ExprRef& node) { rounds |= ir::is_float(node->type); });
      if (rounds) return false;
    }
    if (operand.buffer->scope != ir::Scope::kGlobal) return true;
    return elements(outer) > kMostReadOnce / elements(own);
  }

  ExprRef kept(const ExprRef& operand, Iters outer, const Iters& own) {
    outer.insert(outer.end(), own.begin(), own.end());
    outer = used(operand, outer);
    if (outer.empty()) return operand;  // a constant
    if (elements(outer) > kMostKept) fail();
    const ir::BufferRef tile = make_tile("operand", ir::Scope::kFragment, operand->type, outer);
    push_region(tile, operand, outer);
    return ir::make_load(tile, places(outer));
  }

  // With variables of its own, since no two reductions share one.
  static ExprRef reduction(ir::ReduceOp op, const Iters& own, const ExprRef& operand) {
    Iters iters;
    Lets fresh;
    for (const ir::IterVar& iter : own) {
      iters.push_back({std::make_shared<ir::Var>(*iter.var), iter.extent});
      fresh[iter.var.get()] = ir::make_var(iters.back().var);
    }
    return ir::make_reduce(op, iters, inline_lets(operand, fresh));
  }

  // The last index fastest. Narrow, so that a minimum of them is one instruction.
  static std::pair<ExprRef, int64_t> number_of(const Iters& own) {
    ExprRef number;
    int64_t count = 1;
    for (const ir::IterVar& iter : own) {
      const ExprRef index = ir::make_cast({DType::I32, nullptr}, ir::make_var(iter.var));
      const ExprRef extent = ir::make_int(iter.extent->int_value, DType::I32);
      number = number ? ir::make_typed(Op::kAdd, {ir::make_typed(Op::kMul, {number, extent}), index}) : index;
      count *= iter.extent->int_value;
    }
    return {number, count};
  }

  Status status_;
};

}  // namespace

Result<ir::Kernel> expand_arg_reductions(const ir::Kernel& kernel) {
  ArgReductions pass;
  ir::Kernel expanded = pass.run(kernel);
  KACHEL_TRY(pass.status());
  return expanded;
}

}  // namespace kachel::lowering
