#include "runtime/engine/program_bound.h"

#include <algorithm>
#include <bit>

namespace kachel::runtime {

Result<std::unique_ptr<BoundProgram>> BoundProgram::create(const ProgramHandle& handle,
                                                           std::shared_ptr<const ProgramModel> program, Device& device,
                                                           const BoundArguments& arguments, const TunableValues& values,
                                                           std::span<const Arg> args, const LaunchSettings& settings) {
  std::unique_ptr<BoundProgram> bound(new BoundProgram(device, arguments));
  bound->engine_ = handle.shared_engine();
  bound->program_ = std::move(program);
  bound->values_ = values;
  KACHEL_TRY(lay_out(*bound->program_, arguments, values, bound->layout_));
  RelaxedCapture relaxed(device);
  if (bound->layout_.bytes > 0) {
    KACHEL_ASSIGN(bound->scratch_,
                  Workspace::allocate_lasting(device, bound->engine_->options().scratch, bound->layout_.bytes));
  }
  StepArguments step_arguments(*bound->program_, arguments, values, bound->layout_, bound->scratch_.get(), args);
  LaunchSettings each = settings;
  for (size_t i = 0; i < bound->program_->steps.size(); ++i) {
    each.overlaps = i > 0 && device.properties().overlapping_launches;
    KACHEL_ASSIGN(std::unique_ptr<BoundLaunch> step,
                  handle.step(i).bind(step_arguments.of(bound->program_->steps[i]), each));
    bound->steps_.push_back(std::move(step));
  }
  const KernelModel& header = *bound->program_->header;
  bound->position_.resize(header.params.size());
  for (size_t i = 0; i < header.tensors.size(); ++i) bound->position_[header.tensors[i]] = static_cast<int>(i);
  return bound;
}

BoundProgram::~BoundProgram() {
  if (!engine_ || !scratch_.get()) return;
  if (!engine_->in_owner_process()) {
    scratch_.forget();
    return;
  }
  RelaxedCapture relaxed(device_);
  scratch_.reset();
}

// What the header demands of scalars, which are new in every launch.
Status BoundProgram::admits(const uint64_t* scalars) const {
  const HostInputs inputs{arguments_.dims, scalars, values_.data()};
  const KernelModel& header = *program_->header;
  for (const auto* conditions : {&header.where, &header.conditions})
    for (const Condition& condition : *conditions)
      if (condition.program.mentions_scalars() && condition.program.run(inputs) == 0)
        return invalid("program `" + header.kernel.name + "`: `" + condition.text +
                       "` does not hold for these scalars; bind anew");
  return {};
}

Status BoundProgram::launch(void* const* pointers, const int64_t* scalars, void* stream) const {
  using Kind = ProgramModel::Argument::Kind;
  const KernelModel& header = *program_->header;
  uint64_t given[kMaxParams];
  for (size_t i = 0; i < header.scalars.size(); ++i) given[header.scalars[i]] = static_cast<uint64_t>(scalars[i]);
  if (!header.scalars.empty()) KACHEL_TRY(admits(given));
  const HostInputs inputs{arguments_.dims, given, values_.data()};
  void* step_pointers[kMaxParams];
  int64_t step_scalars[kMaxParams];
  for (size_t s = 0; s < steps_.size(); ++s) {
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
