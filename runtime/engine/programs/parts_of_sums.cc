#include "runtime/engine/programs/parts_of_sums.h"

#include <algorithm>

#include "ir/instantiate.h"

namespace kachel::runtime {
namespace {

constexpr int64_t kTile = 128, kMostParts = 32, kLeastSteps = 4;
constexpr int64_t kUnlisted = 64;  // stands for a tunable whose values are derived

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
  while (2 * made.parts <= kMostParts && 2 * made.parts * blocks <= multiprocessors &&
         made.steps / (2 * made.parts) >= kLeastSteps)
    made.parts *= 2;
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

PartsOfSums parts_of_sums(const KernelModel& model, const ir::Kernel& kernel, const derive::SumLoop& loop,
                          const BoundArguments& arguments, int multiprocessors) {
  ir::HostEnv env;
  for (size_t i = 0; i < kernel.dims.size(); ++i) env[kernel.dims[i].get()] = {.i = arguments.dims[i]};
  for (const ir::VarRef& constant : kernel.consts)
    if (const auto found = model.int_consts.find(constant->name); found != model.int_consts.end())
      env[constant.get()] = {.i = found->second};
  for (const ir::Tunable& tunable : kernel.tunables)
    env[tunable.var.get()] = {.i = tunable.values.empty() ? kUnlisted : tunable.values[0]};
  for (const derive::SumLoop::Sum& sum : loop.sums)
    for (size_t axis = 0; axis < sum.axes.size(); ++axis)
      if (sum.axes[axis].var) env[sum.tile->shape[axis]->var.get()] = {.i = kTile};
  const Result<PartsOfSums> made = chosen(model, kernel, loop, arguments, env, multiprocessors);
  return made.ok() ? *made : PartsOfSums{};
}

}  // namespace kachel::runtime
