#include "tests/conformance/runner.h"

#include <fmt/format.h>

#include <bit>

#include "ir/verify.h"

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

struct Launch {
  std::vector<int64_t> params;
  int64_t tiles = 1;
};

class Runner {
 public:
  Runner(runtime::Device& device, const Case& test) : device_(device), test_(test) {}

  Report run() {
    report_.status = go();
    for (void* pointer : allocations_) device_.free(pointer);
    return std::move(report_);
  }

 private:
  Status go() {
    ir::Bindings bindings = test_.bindings;
    ir::HostEnv generic = dims_of(test_.kernel, test_.args);
    for (const ir::VarRef& dim : test_.kernel.dims)
      if (auto it = generic.find(dim.get()); it != generic.end()) bindings.dims[dim->name] = it->second.i;
    KACHEL_ASSIGN(concrete_, ir::instantiate(test_.kernel, bindings));
    fill_arguments();
    KACHEL_ASSIGN(ir::InterpretResult expected, ir::interpret(concrete_, arguments_));
    KACHEL_TRY(launch());
    judge(expected);
    return {};
  }

  void fill_arguments() {
    Random random(test_.seed);
    for (size_t i = 0; i < concrete_.params.size(); ++i) {
      ir::Argument argument;
      if (concrete_.params[i].tensor) {
        before_.emplace_back(test_.args[i].tensor, random);
      } else {
        before_.emplace_back();
        argument.scalar = test_.args[i].scalar;
      }
      arguments_.push_back(argument);
    }
    after_ = before_;
    for (size_t i = 0; i < arguments_.size(); ++i)
      if (concrete_.params[i].tensor) arguments_[i].tensor = before_[i].view();
  }

  uint64_t facts() const {
    uint64_t mask = 0;
    std::vector<Fact> facts = lowering::facts_of(test_.kernel);
    for (size_t i = 0; i < facts.size(); ++i) {
      bool holds = facts[i].kind == Fact::Kind::kIndex32;  // conformance shapes are small
      if (facts[i].kind == Fact::Kind::kUnitStride)
        holds = arguments_[static_cast<size_t>(facts[i].param)].tensor.strides.back() == 1;
      if (holds) mask |= uint64_t{1} << i;
    }
    return mask & test_.fact_mask;
  }

  Status launch() {
    const runtime::DeviceProperties& properties = device_.properties();
    lowering::Target target;
    const bool cuda = properties.kind == runtime::DeviceKind::kCuda;
    target.kind = cuda ? lowering::Target::Kind::kCuda : lowering::Target::Kind::kCpu;
    target.architecture = properties.compute_major * 10 + properties.compute_minor;
    target.threads = test_.threads;
    target.shared_limit = test_.shared_limit ? test_.shared_limit : properties.shared_bytes_per_block;
    KACHEL_ASSIGN(lowering::Lowered lowered, lowering::lower(concrete_, target, facts()));
    KACHEL_ASSIGN(runtime::CompileResult compiled,
                  device_.compiler().compile({lowered.text, lowered.entry, properties.architecture, 0}));
    KACHEL_ASSIGN(auto module, device_.load(compiled.binary));
    const auto shared = static_cast<uint32_t>(lowered.shared_bytes);
    KACHEL_ASSIGN(auto function, module->function(lowered.entry, shared));
    for (size_t i = 0; i < after_.size(); ++i) {
      pointers_.push_back(nullptr);
      if (!concrete_.params[i].tensor) continue;
      KACHEL_ASSIGN(void* memory, device_.allocate(after_[i].bytes().size()));
      allocations_.push_back(memory);
      KACHEL_TRY(device_.copy(memory, after_[i].bytes().data(), after_[i].bytes().size(), nullptr));
      pointers_.back() = static_cast<uint8_t*>(memory) + after_[i].offset();
    }
    KACHEL_ASSIGN(Launch launch, fill_params(lowered.slots));
    constexpr int64_t kMostBlocks = int64_t{1} << 30;
    auto blocks = static_cast<uint32_t>(std::min(launch.tiles, kMostBlocks));
    if (test_.most_blocks) blocks = std::min(blocks, test_.most_blocks);
    if (lowered.workspace_bytes) {
      blocks = std::min(blocks, 64u);
      KACHEL_ASSIGN(void* scratch, device_.allocate(static_cast<size_t>(lowered.workspace_bytes) * blocks + 1));
      allocations_.push_back(scratch);
      for (size_t i = 0; i < lowered.slots.size(); ++i)
        if (lowered.slots[i].kind == Slot::Kind::kWorkspace) launch.params[i] = std::bit_cast<int64_t>(scratch);
    }
    runtime::LaunchDims dims{blocks, static_cast<uint32_t>(lowered.threads), shared};
    KACHEL_TRY(function->launch(dims, launch.params.data(), launch.params.size() * 8, nullptr));
    KACHEL_TRY(device_.synchronize(nullptr));
    for (size_t i = 0, next = 0; i < after_.size(); ++i) {
      if (!concrete_.params[i].tensor) continue;
      KACHEL_TRY(device_.copy(after_[i].bytes().data(), allocations_[next++], after_[i].bytes().size(), nullptr));
    }
    return device_.synchronize(nullptr);
  }

  Result<Launch> fill_params(const std::vector<Slot>& slots) {
    ir::HostEnv env = dims_of(concrete_, test_.args);
    Launch launch;
    std::vector<int64_t> grid;
    for (const ir::IterVar& axis : concrete_.grid) {
      KACHEL_ASSIGN(int64_t extent, ir::evaluate_int(axis.extent, env));
      grid.push_back(std::max<int64_t>(extent, 0));
      launch.tiles *= grid.back();
    }
    for (const Slot& slot : slots) {
      const auto index = static_cast<size_t>(slot.index);
      switch (slot.kind) {
        case Slot::Kind::kPointer:
          launch.params.push_back(std::bit_cast<int64_t>(pointers_[index]));
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
          launch.params.push_back(0);
          break;
      }
    }
    return launch;
  }

  void judge(const ir::InterpretResult& expected) {
    for (size_t i = 0; i < after_.size(); ++i) {
      if (!concrete_.params[i].tensor) continue;
      report_.damaged += after_[i].damaged_guards(before_[i]);
      if (expected.outputs[i].empty()) {
        report_.damaged += after_[i].bytes() != before_[i].bytes();
        continue;
      }
      ir::Mismatch found = ir::compare(expected.outputs[i], after_[i].view(), before_[i].view());
      report_.mismatches += found.count;
      report_.undecided += found.undecided;
      report_.elements += static_cast<int64_t>(expected.outputs[i].size());
      report_.median_bound_ulps = std::max(report_.median_bound_ulps, found.median_bound_ulps);
      if (found.count && report_.first.empty())
        report_.first = fmt::format("{}: {}", concrete_.params[i].name(), found.first);
    }
  }

  runtime::Device& device_;
  const Case& test_;
  ir::Kernel concrete_;
  std::vector<OwnedTensor> before_, after_;
  std::vector<ir::Argument> arguments_;
  std::vector<void*> pointers_, allocations_;
  Report report_;
};

}  // namespace

std::string Report::describe() const {
  if (!status.ok()) return fmt::format("did not run: {}\n{}", status.message(), status.log().substr(0, 2000));
  return fmt::format("{} of {} elements wrong, {} bytes damaged, {} undecided; {}", mismatches, elements, damaged,
                     undecided, first);
}

Report run_case(runtime::Device& device, const Case& test) {
  return Runner(device, test).run();
}

}  // namespace kachel::conformance
