#include "derive/adder.h"

#include <algorithm>
#include <iterator>

#include "derive/parts.h"
#include "ir/visit.h"

namespace kachel::derive {

using namespace ir;

namespace {

// Of a block: small, so that there are many.
const std::vector<int64_t> kRows = {8, 16}, kColumns = {64, 32};

}  // namespace

bool is_cut_at_will(const SumLoop::Sum& sum, const std::function<bool(const Var&)>& free) {
  for (size_t axis = 0; axis < sum.axes.size(); ++axis) {
    const ExprRef& extent = sum.tile->shape[axis];
    if (!sum.axes[axis].var || !is_tunable(extent) || !free(*extent->var)) return false;
  }
  return true;
}

Kernel adder_of(const Kernel& kernel, const SumLoop::Sum& sum, const BufferRef& parts, const BufferRef& total,
                const std::function<std::string(std::string)>& fresh) {
  const auto variable = [&](VarKind kind, const char* name) {
    return std::make_shared<Var>(Var{kind, fresh(name), {DType::I64, nullptr, false}, {}});
  };
  Kernel adder;
  adder.name = fresh(kernel.name + "_adder");
  adder.grid = sum.free;
  std::vector<AxisSpec> place;
  for (const IterVar& axis : sum.free) place.push_back({AxisSpec::Kind::kIndex, make_var(axis.var), nullptr, nullptr});
  auto added = std::make_shared<Buffer>();
  added->name = fresh("added");
  added->scope = Scope::kFragment;
  added->type = total->type;
  for (size_t axis = 0; axis < sum.axes.size(); ++axis) {
    const bool columns = axis + 1 == sum.axes.size();
    const VarRef extent = variable(VarKind::kTunable, columns ? "columns" : "rows");
    const VarRef block = variable(VarKind::kGrid, columns ? "n" : "m");
    adder.tunables.push_back({extent, columns ? kColumns : kRows});
    adder.grid.push_back({block, ceil_div(total->shape[sum.free.size() + axis], make_var(extent))});
    added->shape.push_back(make_var(extent));
    place.push_back({AxisSpec::Kind::kRange, times(make_var(block), make_var(extent)), make_var(extent), nullptr});
  }
  auto one = std::make_shared<Buffer>(*added);
  one->name = fresh("one_part");
  adder.body.push_back({{}, DeclStmt{added, sum.begin}});
  adder.body.push_back({{}, DeclStmt{one, nullptr}});

  ForStmt loop;
  loop.var = variable(VarKind::kLoop, "part");
  loop.begin = make_int(0);
  loop.end = parts->shape[0];
  std::vector<AxisSpec> of_part = place;
  of_part.insert(of_part.begin(), {AxisSpec::Kind::kIndex, make_var(loop.var), nullptr, nullptr});
  const BufferRef source = with_direction(parts, Direction::kIn), result = with_direction(total, Direction::kOut);
  loop.body.push_back({{}, CopyStmt{whole(one), {source, of_part, nullptr, nullptr, nullptr, {}}}});
  loop.body.push_back({{}, added_up(sum.op, added, one, [&] { return variable(VarKind::kParallel, "i"); })});
  adder.body.push_back({{}, std::move(loop)});
  adder.body.push_back({{}, CopyStmt{{result, place, nullptr, nullptr, nullptr, {}}, whole(added)}});
  complete(kernel, {source, result}, &adder);
  const auto is_known = [&](const ExprRef& expr) {
    bool known = true;
    visit(expr, [&](const ExprRef& node) {
      known &= node->kind != ExprKind::kVar || std::count(adder.dims.begin(), adder.dims.end(), node->var) ||
               std::count(adder.consts.begin(), adder.consts.end(), node->var);
    });
    return known;
  };
  std::copy_if(kernel.key.begin(), kernel.key.end(), std::back_inserter(adder.key), is_known);
  return adder;
}

}  // namespace kachel::derive
