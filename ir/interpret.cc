// Launch checks, blocks, results. Blocks run in order, each alone; what that order would decide is found out by Memory
// and left undecided. Only one such thing needs another run: when a block writes an element that an earlier block has
// read, the reader should not have known its value. The element is remembered and everything is done again.
#include "ir/interpret.h"

#include <fmt/format.h>

#include "ir/instantiate.h"
#include "ir/interpreter.h"
#include "ir/numerics.h"

namespace kachel::ir {
namespace {

constexpr int kMostRuns = 4;
constexpr uint64_t kMostBlocks = uint64_t{1} << 31;

class Launch {
 public:
  Launch(const Kernel& kernel, const std::vector<Argument>& args) : kernel_(kernel), args_(args) {}

  Status check();
  Result<InterpretResult> run(int64_t step_limit);

 private:
  Status check_tensor(const Buffer& buffer, const HostTensor& tensor);
  Status check_layout(const Buffer& buffer, const HostTensor& tensor);
  void bind_scalar(const Var& var, const ScalarValue& value);
  Status run_blocks(Interpreter& interpreter, const InterpretedKernel& program);
  Cell cell_of(const Var& var) const;

  const Kernel& kernel_;
  const std::vector<Argument>& args_;
  HostEnv env_;
  std::vector<int64_t> grid_;
};

Status Launch::check_layout(const Buffer& buffer, const HostTensor& tensor) {
  int64_t elements = 1;
  for (int64_t extent : tensor.shape) {
    if (extent < 0) return invalid(fmt::format("`{}` has a negative extent", buffer.name));
    elements *= extent > 0 ? 1 : 0;
  }
  if (elements == 0) return {};
  if (tensor.data == nullptr) return invalid(fmt::format("`{}` has elements but no memory", buffer.name));
  const bool packed = bits(tensor.type) == 4;
  for (size_t axis = 0; axis < tensor.shape.size(); ++axis) {
    if (tensor.shape[axis] <= 1) continue;
    bool last = axis + 1 == tensor.shape.size();
    if (packed && (last ? tensor.strides[axis] != 1 : tensor.strides[axis] % 2 != 0))
      return invalid(
          fmt::format("`{}` is {}, so its last axis must have stride 1 and the others even strides; axis {} "
                      "has {}",
                      buffer.name, name(tensor.type), axis, tensor.strides[axis]));
    if (buffer.direction != Direction::kIn && tensor.strides[axis] == 0)
      return invalid(fmt::format("`{}` is written, but its axis {} has stride 0", buffer.name, axis));
  }
  return {};
}

Status Launch::check_tensor(const Buffer& buffer, const HostTensor& tensor) {
  if (tensor.type != buffer.type.dtype)
    return invalid(fmt::format("`{}` is {}, the kernel was specialised for {}", buffer.name, name(tensor.type),
                               name(buffer.type.dtype)));
  if (tensor.shape.size() != buffer.shape.size() || tensor.strides.size() != buffer.shape.size())
    return invalid(fmt::format("`{}` has {} axes and {} strides, the kernel declares {} axes", buffer.name,
                               tensor.shape.size(), tensor.strides.size(), buffer.shape.size()));
  KACHEL_TRY(check_layout(buffer, tensor));
  for (size_t axis = 0; axis < buffer.shape.size(); ++axis) {
    const ExprRef& declared = buffer.shape[axis];
    int64_t actual = tensor.shape[axis];
    bool is_dim = declared->kind == ExprKind::kVar && declared->var->kind == VarKind::kDim;
    if (is_dim && env_.try_emplace(declared->var.get(), HostValue{false, actual, 0}).second) continue;
    KACHEL_ASSIGN(int64_t expected, evaluate_int(declared, env_));
    if (expected != actual)
      return invalid(fmt::format("axis {} of `{}` has {} elements{}, expected {}", axis, buffer.name, actual,
                                 is_dim ? fmt::format(", but `{}` is {}", declared->var->name, expected) : "",
                                 expected));
  }
  return {};
}

void Launch::bind_scalar(const Var& var, const ScalarValue& value) {
  HostValue bound;
  bound.is_float = var.type.dtype == DType::F32;
  if (bound.is_float)
    bound.f = round_float(DType::F32, value.f);
  else
    bound.i = wrap_integer(var.type.dtype, value.i);
  env_[&var] = bound;
}

Status Launch::check() {
  if (!kernel_.type_symbols.empty() || !kernel_.tunables.empty() || !kernel_.consts.empty())
    return invalid(fmt::format("`{}` is not concrete; instantiate it first", kernel_.name));
  if (args_.size() != kernel_.params.size())
    return invalid(fmt::format("`{}` takes {} arguments, not {}", kernel_.name, kernel_.params.size(), args_.size()));
  for (size_t i = 0; i < args_.size(); ++i)
    if (kernel_.params[i].scalar) bind_scalar(*kernel_.params[i].scalar, args_[i].scalar);
  for (size_t i = 0; i < args_.size(); ++i)
    if (kernel_.params[i].tensor) KACHEL_TRY(check_tensor(*kernel_.params[i].tensor, args_[i].tensor));
  for (size_t i = 0; i < kernel_.where.size(); ++i) {
    KACHEL_ASSIGN(int64_t holds, evaluate_int(kernel_.where[i], env_));
    if (holds == 0) return invalid(fmt::format("`where` condition {} of `{}` does not hold", i + 1, kernel_.name));
  }
  uint64_t blocks = 1;
  for (const IterVar& axis : kernel_.grid) {
    KACHEL_ASSIGN(int64_t extent, evaluate_int(axis.extent, env_));
    grid_.push_back(extent > 0 ? extent : 0);
    blocks = extent > 0 ? blocks * static_cast<uint64_t>(extent < int64_t{1} << 32 ? extent : int64_t{1} << 32) : 0;
    if (blocks > kMostBlocks) return unsupported("more than 2^31 blocks");
  }
  return {};
}

Cell Launch::cell_of(const Var& var) const {
  auto found = env_.find(&var);
  if (found == env_.end()) return Cell::undecided();
  return found->second.is_float ? Cell::exact(found->second.f) : Cell::integer(found->second.i);
}

Status Launch::run_blocks(Interpreter& interpreter, const InterpretedKernel& program) {
  for (int64_t extent : grid_)
    if (extent == 0) return {};
  std::vector<int64_t> index(grid_.size(), 0);
  for (uint32_t block = 0;; ++block) {
    for (size_t axis = 0; axis < index.size(); ++axis) interpreter.set(program.grid[axis], Cell::integer(index[axis]));
    KACHEL_TRY(interpreter.run_block(block));
    size_t axis = index.size();
    for (;; --axis) {
      if (axis == 0) return {};
      if (++index[axis - 1] < grid_[axis - 1]) break;
      index[axis - 1] = 0;
    }
  }
}

Result<InterpretResult> Launch::run(int64_t step_limit) {
  const InterpretedKernel program = compile(kernel_);
  std::vector<Memory> memories;
  std::vector<size_t> argument_of;  // by memory number
  for (size_t i = 0; i < args_.size(); ++i) {
    if (!kernel_.params[i].tensor) continue;
    memories.push_back(Memory::tensor(args_[i].tensor, kernel_.params[i].tensor->direction));
    argument_of.push_back(i);
  }
  const size_t tensors = memories.size();
  for (size_t i = tensors; i < program.buffers.size(); ++i) {
    std::vector<int64_t> shape;
    for (const ExprRef& extent : program.buffers[i]->shape) shape.push_back(extent->int_value);
    memories.push_back(Memory::tile(program.buffers[i]->type.dtype, std::move(shape)));
  }
  Interpreter interpreter(program, std::move(memories), step_limit);
  for (const VarRef& dim : kernel_.dims) interpreter.set(program.variables.at(dim.get()), cell_of(*dim));
  for (const Param& param : kernel_.params)
    if (param.scalar) interpreter.set(program.variables.at(param.scalar.get()), cell_of(*param.scalar));
  for (int runs = 1;; ++runs) {
    KACHEL_TRY(run_blocks(interpreter, program));
    bool raced = false;
    for (const Memory& memory : interpreter.memories()) raced |= memory.found_race();
    if (!raced || runs == kMostRuns) break;
    for (size_t i = 0; i < tensors; ++i)
      interpreter.memories()[i].restart(args_[argument_of[i]].tensor, kernel_.params[argument_of[i]].tensor->direction);
  }
  InterpretResult result;
  result.outputs.resize(args_.size());
  for (size_t i = 0; i < tensors; ++i)
    if (interpreter.memories()[i].is_output()) interpreter.memories()[i].expect(result.outputs[argument_of[i]]);
  return result;
}

}  // namespace

Result<InterpretResult> interpret(const Kernel& concrete, const std::vector<Argument>& args, int64_t step_limit) {
  Launch launch(concrete, args);
  KACHEL_TRY(launch.check());
  return launch.run(step_limit);
}

}  // namespace kachel::ir
