#include "runtime/engine/programs/parts_of_sums.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "ir/instantiate.h"

namespace kachel::runtime {
namespace {

constexpr int64_t kTile = 128, kMostParts = 128, kLeastSteps = 4;
// A step of a part takes some eight times as long as the addition of a part, so that steps / parts + parts / 8 is least
// where parts^2 is so many times the steps.
constexpr int64_t kStepInAdditions = 8;
constexpr int64_t kUnlisted = 64;  // stands for a tunable whose values are derived

// What covers the widest axis of the grid along which the kernel has a number in a tunable's place.
Result<int64_t> extent_of_sums(const KernelModel& model, const ir::Kernel& kernel, const ir::HostEnv& env) {
  int64_t widest = 0;
  for (size_t axis = 0; axis < kernel.grid.size(); ++axis) {
    const ir::Expr &fixed = *kernel.grid[axis].extent, &asked = *model.kernel.grid[axis].extent;
    const auto by_tunable = [](const ir::Expr& extent) {
      return extent.kind == ir::ExprKind::kApply && extent.op == ir::Op::kCeilDiv &&
             extent.args[1]->kind == ir::ExprKind::kVar && extent.args[1]->var->kind == ir::VarKind::kTunable;
    };
    if (fixed.kind != ir::ExprKind::kApply || fixed.op != ir::Op::kCeilDiv || !by_tunable(asked) || by_tunable(fixed))
      continue;
    KACHEL_ASSIGN(const int64_t elements, ir::evaluate_int(fixed.args[0], env));
    widest = std::max(widest, elements);
  }
  if (widest <= 0 || widest >= derive::kMostExtent) return derive::kMostExtent;
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(widest)));
}

// To three significant bits: shapes that are alike come to the same program.
int64_t rounded_down(int64_t parts) {
  if (parts < 1) return 1;
  const int dropped = std::max(0, static_cast<int>(std::bit_width(static_cast<uint64_t>(parts))) - 3);
  return parts >> dropped << dropped;
}

Result<PartsOfSums> chosen(const KernelModel& model, const ir::Kernel& kernel, const derive::SumLoop& loop,
                           const BoundArguments& arguments, const ir::HostEnv& env, int multiprocessors) {
  int64_t blocks = 1;
  for (const ir::IterVar& axis : kernel.grid) {
    KACHEL_ASSIGN(const int64_t extent, ir::evaluate_int(axis.extent, env));
    blocks *= std::max<int64_t>(extent, 1);
    if (blocks >= multiprocessors) return PartsOfSums{};
  }
  const auto& sums = std::get<ir::ForStmt>(kernel.body[loop.at].node);
  KACHEL_ASSIGN(const int64_t begin, ir::evaluate_int(sums.begin, env));
  KACHEL_ASSIGN(const int64_t end, ir::evaluate_int(sums.end, env));
  PartsOfSums made{.steps = end - begin};
  KACHEL_ASSIGN(made.extent, extent_of_sums(model, kernel, env));
  const auto worth = static_cast<int64_t>(std::sqrt(static_cast<double>(kStepInAdditions * made.steps)));
  made.parts = rounded_down(std::min({kMostParts, multiprocessors / blocks, made.steps / kLeastSteps, worth}));
  for (const derive::SumLoop::Sum& sum : loop.sums) {
    int64_t elements = made.parts;
    for (const ir::IterVar& axis : sum.free) {
      KACHEL_ASSIGN(const int64_t extent, ir::evaluate_int(axis.extent, env));
      elements *= extent;
    }
    for (const derive::SumLoop::Axis& axis : sum.axes) {
      KACHEL_ASSIGN(const int64_t extent, ir::evaluate_int(axis.all, env));
      elements *= extent;
    }
    made.bytes += elements * ir::bits(tile_type(model, *sum.tile, arguments)) / 8;
  }
  return made;
}

}  // namespace

ir::DType tile_type(const KernelModel& model, const ir::Buffer& tile, const BoundArguments& arguments) {
  if (!tile.type.symbol) return tile.type.dtype;
  const auto& symbols = model.kernel.type_symbols;
  const auto found = std::find_if(symbols.begin(), symbols.end(),
                                  [&](const auto& symbol) { return symbol->name == tile.type.symbol->name; });
  const ir::DType type = arguments.type_of(static_cast<int>(found - symbols.begin()));
  return tile.type.accumulator ? ir::accumulator_type(type) : type;
}

ir::HostEnv host_values(const KernelModel& model, const ir::Kernel& kernel, const BoundArguments& arguments) {
  ir::HostEnv env;
  for (size_t i = 0; i < kernel.dims.size(); ++i) env[kernel.dims[i].get()] = {.i = arguments.dims[i]};
  for (const ir::VarRef& constant : kernel.consts)
    if (const auto found = model.int_consts.find(constant->name); found != model.int_consts.end())
      env[constant.get()] = {.i = found->second};
  for (const ir::Tunable& tunable : kernel.tunables)
    env[tunable.var.get()] = {.i = tunable.values.empty() ? kUnlisted : tunable.values[0]};
  return env;
}

PartsOfSums parts_of_sums(const KernelModel& model, const ir::Kernel& kernel, const derive::SumLoop& loop,
                          const BoundArguments& arguments, int multiprocessors) {
  ir::HostEnv env = host_values(model, kernel, arguments);
  for (const derive::SumLoop::Sum& sum : loop.sums)
    for (size_t axis = 0; axis < sum.axes.size(); ++axis)
      if (sum.axes[axis].var) env[sum.tile->shape[axis]->var.get()] = {.i = kTile};
  const Result<PartsOfSums> made = chosen(model, kernel, loop, arguments, env, multiprocessors);
  return made.ok() ? *made : PartsOfSums{};
}

}  // namespace kachel::runtime
