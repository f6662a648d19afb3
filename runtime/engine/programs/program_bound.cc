#include "runtime/engine/programs/program_bound.h"

#include <algorithm>
#include <bit>

namespace kachel::runtime {

Result<std::unique_ptr<BoundProgram>> BoundProgram::create(const ProgramHandle& handle,
                                                           std::shared_ptr<const ProgramModel> program, Device& device,
                                                           const BoundArguments& arguments, const TunableValues& values,
                                                           std::span<const Arg> args, const LaunchSettings& settings) {
  std::unique_ptr<BoundProgram> bound(new BoundProgram(arguments));
  bound->program_ = std::move(program);
  bound->values_ = values;
  KACHEL_TRY(lay_out(*bound->program_, arguments, values, bound->layout_));
  KACHEL_ASSIGN(bound->scratch_, LastingScratch::allocate(handle.shared_engine(), device, bound->layout_.bytes));
  StepArguments step_arguments(*bound->program_, arguments, values, bound->layout_, bound->scratch_.get(), args);
  LaunchSettings each = settings;
  bound->steps_.resize(bound->program_->steps.size());
  for (size_t i = 0; i < bound->steps_.size(); ++i) {
    if (!bound->layout_.runs(i)) continue;
    KACHEL_ASSIGN(bound->steps_[i], handle.step(i).bind(step_arguments.of(bound->program_->steps[i]), each));
    each.follows = true;
  }
  const KernelModel& header = *bound->program_->header;
  bound->position_.resize(header.params.size());
  for (size_t i = 0; i < header.tensors.size(); ++i) bound->position_[header.tensors[i]] = static_cast<int>(i);
  return bound;
}

Status BoundProgram::launch(void* const* pointers, const int64_t* scalars, void* stream) const {
  using Kind = ProgramModel::Argument::Kind;
  const KernelModel& header = *program_->header;
  uint64_t given[kMaxParams];
  for (size_t i = 0; i < header.scalars.size(); ++i) given[header.scalars[i]] = static_cast<uint64_t>(scalars[i]);
  const HostInputs inputs{arguments_.dims, given, values_.data()};
  if (!header.scalars.empty()) KACHEL_TRY(admit_scalars(header, inputs));
  void* step_pointers[kMaxParams];
  int64_t step_scalars[kMaxParams];
  for (size_t s = 0; s < steps_.size(); ++s) {
    if (!steps_[s]) continue;
    const ProgramModel::Step& step = program_->steps[s];
    size_t tensor = 0, scalar = 0;
    for (const ProgramModel::Argument& argument : step.arguments) {
      if (argument.kind == Kind::kParam) {
        step_pointers[tensor++] = pointers[position_[static_cast<size_t>(argument.index)]];
      } else if (argument.kind == Kind::kTemp) {
        step_pointers[tensor++] = static_cast<char*>(scratch_.get()) + layout_.temps[argument.index].offset;
      } else {
        // As in a launch slot: f32 as its bits in the low half.
        const int64_t value = argument.value.run(inputs);
        step_scalars[scalar++] = argument.value.is_float()
                                     ? std::bit_cast<uint32_t>(static_cast<float>(std::bit_cast<double>(value)))
                                     : value;
      }
    }
    KACHEL_TRY(steps_[s]->launch(step_pointers, step_scalars, stream));
  }
  return {};
}

}  // namespace kachel::runtime
