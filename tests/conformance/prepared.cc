#include "tests/conformance/prepared.h"

#include <fmt/format.h>

#include <bit>

namespace kachel::conformance {
namespace {

using lowering::Fact;
using lowering::Slot;

// Binds the dimensions that shapes name; later mentions are the interpreter's to check.
ir::HostEnv dims_of(const ir::Kernel& kernel, const std::vector<ArgumentSpec>& args) {
  ir::HostEnv env;
  for (size_t i = 0; i < kernel.params.size(); ++i) {
    const ir::Param& param = kernel.params[i];
    if (!param.tensor) {
      ir::HostValue value;
      value.is_float = param.scalar->type.dtype == ir::DType::F32;
      value.i = args[i].scalar.i;
      value.f = args[i].scalar.f;
      env[param.scalar.get()] = value;
      continue;
    }
    for (size_t axis = 0; axis < param.tensor->shape.size(); ++axis) {
      const ir::ExprRef& extent = param.tensor->shape[axis];
      if (extent->kind == ir::ExprKind::kVar && extent->var->kind == ir::VarKind::kDim)
        env.emplace(extent->var.get(), ir::HostValue{false, args[i].tensor.shape[axis], 0});
    }
  }
  return env;
}

}  // namespace

Result<ir::Kernel> concrete_kernel(const Case& test) {
  ir::Bindings bindings = test.bindings;
  ir::HostEnv generic = dims_of(test.kernel, test.args);
  for (const ir::VarRef& dim : test.kernel.dims)
    if (auto it = generic.find(dim.get()); it != generic.end()) bindings.dims[dim->name] = it->second.i;
  return ir::instantiate(test.kernel, bindings);
}

Result<std::unique_ptr<Prepared>> Prepared::make(const Case& test) {
  std::unique_ptr<Prepared> made(new Prepared(test));
  KACHEL_ASSIGN(made->concrete_, concrete_kernel(test));
  Random random(test.seed);
  for (size_t i = 0; i < test.args.size(); ++i) {
    ir::Argument argument;
    if (made->concrete_.params[i].tensor) {
      made->before_.emplace_back(test.args[i].tensor, random);
    } else {
      made->before_.emplace_back();
      argument.scalar = test.args[i].scalar;
    }
    made->arguments_.push_back(argument);
  }
  for (size_t i = 0; i < test.args.size(); ++i)
    if (made->concrete_.params[i].tensor) made->arguments_[i].tensor = made->before_[i].view();
  KACHEL_ASSIGN(made->expected_, ir::interpret(made->concrete_, made->arguments_));
  return made;
}

uint64_t Prepared::facts() const {
  uint64_t mask = 0;
  std::vector<Fact> facts = lowering::facts_of(test_.kernel);
  for (size_t i = 0; i < facts.size(); ++i) {
    bool holds = facts[i].kind == Fact::Kind::kIndex32;  // conformance shapes are small
    if (facts[i].kind == Fact::Kind::kUnitStride)
      holds = arguments_[static_cast<size_t>(facts[i].param)].tensor.strides.back() == 1;
    if (facts[i].kind == Fact::Kind::kVector || facts[i].kind == Fact::Kind::kTransposed) holds = row_fact(facts[i]);
    if (facts[i].kind == Fact::Kind::kRows) holds = joined_fact(facts[i]);
    if (facts[i].kind == Fact::Kind::kOneAxis) holds = one_axis_fact(facts[i]);
    if (facts[i].kind == Fact::Kind::kMultiple)
      holds = lowering::is_multiple(arguments_[static_cast<size_t>(facts[i].param)].scalar.i, facts[i].bytes);
    if (holds) mask |= uint64_t{1} << i;
  }
  return mask & test_.fact_mask;
}

bool Prepared::row_fact(const Fact& fact) const {
  const auto index = static_cast<size_t>(fact.param);
  ir::HostTensor tensor = arguments_[index].tensor;
  if (fact.kind == Fact::Kind::kTransposed) {
    if (tensor.strides.back() == 1 || tensor.shape.back() <= 1 || tensor.shape.end()[-2] <= 1) return false;
    tensor = exchanged(std::move(tensor));
  }
  const int64_t bits = ir::bits(test_.args[index].tensor.type), wanted = fact.bytes * 8;
  if (tensor.strides.back() != 1 || std::count(tensor.shape.begin(), tensor.shape.end(), 0)) return false;
  if (test_.args[index].tensor.misalignment * std::max<int64_t>(bits, 8) % wanted) return false;
  if (tensor.shape.back() * bits % wanted) return false;
  for (size_t axis = 0; axis + 1 < tensor.shape.size(); ++axis)
    if (tensor.shape[axis] > 1 && (tensor.strides[axis] * bits % wanted || (!tensor.strides[axis] && wanted > 64)))
      return false;
  return true;
}

bool Prepared::one_axis_fact(const Fact& fact) const {
  const auto index = static_cast<size_t>(fact.param);
  const ir::HostTensor& tensor = arguments_[index].tensor;
  const int64_t bits = ir::bits(test_.args[index].tensor.type), wanted = fact.bytes * 8, rows = tensor.shape.end()[-2];
  if (tensor.strides.back() != 1 || (rows > 1 && tensor.strides.end()[-2] != tensor.shape.back())) return false;
  if (std::count(tensor.shape.begin(), tensor.shape.end(), 0)) return false;
  if (test_.args[index].tensor.misalignment * std::max<int64_t>(bits, 8) % wanted) return false;
  for (size_t axis = 0; axis + 2 < tensor.shape.size(); ++axis)
    if (tensor.shape[axis] > 1 && (tensor.strides[axis] * bits % wanted || (!tensor.strides[axis] && wanted > 64)))
      return false;
  return rows * tensor.shape.back() * bits % wanted == 0;
}

// The tensor with one axis in place of its last two has rows of whole vectors, and was not such a one before.
bool Prepared::joined_fact(const Fact& fact) const {
  const auto index = static_cast<size_t>(fact.param);
  const ir::HostTensor& tensor = arguments_[index].tensor;
  const int64_t bits = ir::bits(test_.args[index].tensor.type), wanted = fact.bytes * 8, last = tensor.shape.back();
  if (tensor.strides.back() != 1 || tensor.strides.end()[-2] != last || last * bits % wanted == 0) return false;
  if (last * bits > lowering::kMostJoinedBytes * 8) return false;
  if (std::count(tensor.shape.begin(), tensor.shape.end(), 0)) return false;
  if (test_.args[index].tensor.misalignment * std::max<int64_t>(bits, 8) % wanted) return false;
  for (size_t axis = 0; axis + 2 < tensor.shape.size(); ++axis)
    if (tensor.shape[axis] > 1 && (tensor.strides[axis] == 0 || tensor.strides[axis] * bits % wanted)) return false;
  return tensor.shape.end()[-2] * last * bits % wanted == 0;
}

uint32_t Prepared::blocks(int64_t tiles) const {
  constexpr int64_t kMostBlocks = int64_t{1} << 30;
  auto blocks = static_cast<uint32_t>(std::min(tiles, kMostBlocks));
  return test_.most_blocks ? std::min(blocks, test_.most_blocks) : blocks;
}

Result<Prepared::Launch> Prepared::launch(const std::vector<Slot>& slots, const lowering::ClusterShape& cluster,
                                          const std::vector<void*>& pointers, void* workspace) const {
  ir::HostEnv env = dims_of(concrete_, test_.args);
  Launch launch;
  std::vector<int64_t> grid;
  for (const ir::IterVar& axis : concrete_.grid) {
    KACHEL_ASSIGN(int64_t extent, ir::evaluate_int(axis.extent, env));
    grid.push_back(std::max<int64_t>(extent, 0));
  }
  launch.tiles = lowering::filled_tiles(cluster, grid);
  for (const Slot& slot : slots) {
    const auto index = static_cast<size_t>(slot.index);
    switch (slot.kind) {
      case Slot::Kind::kPointer:
        launch.params.push_back(std::bit_cast<int64_t>(pointers[index]));
        break;
      case Slot::Kind::kStride:
        launch.params.push_back(arguments_[index].tensor.strides[static_cast<size_t>(slot.axis)]);
        break;
      case Slot::Kind::kDim:
        launch.params.push_back(env.at(concrete_.dims[index].get()).i);
        break;
      case Slot::Kind::kScalar: {
        const bool is_float = concrete_.params[index].scalar->type.dtype == ir::DType::F32;
        const auto as_float = static_cast<float>(test_.args[index].scalar.f);
        launch.params.push_back(is_float ? std::bit_cast<uint32_t>(as_float) : test_.args[index].scalar.i);
        break;
      }
      case Slot::Kind::kGrid:
        launch.params.push_back(grid[index]);
        break;
      case Slot::Kind::kBlocks:
        launch.params.push_back(launch.tiles);
        break;
      case Slot::Kind::kWorkspace:
        launch.params.push_back(std::bit_cast<int64_t>(workspace));
        break;
    }
  }
  return launch;
}

Report Prepared::judge(std::vector<OwnedTensor>& after) const {
  Report report;
  for (size_t i = 0; i < after.size(); ++i) {
    if (!concrete_.params[i].tensor) continue;
    report.damaged += after[i].damaged_guards(before_[i]);
    if (expected_.outputs[i].empty()) {
      report.damaged += after[i].bytes() != before_[i].bytes();
      continue;
    }
    ir::Mismatch found = ir::compare(expected_.outputs[i], after[i].view(), before_[i].view());
    report.mismatches += found.count;
    report.undecided += found.undecided;
    report.elements += static_cast<int64_t>(expected_.outputs[i].size());
    report.median_bound_ulps = std::max(report.median_bound_ulps, found.median_bound_ulps);
    if (found.count && report.first.empty())
      report.first = fmt::format("{}: {}", concrete_.params[i].name(), found.first);
  }
  return report;
}

}  // namespace kachel::conformance
