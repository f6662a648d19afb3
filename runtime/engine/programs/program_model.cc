#include "runtime/engine/programs/program_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>

#include "ir/numerics.h"
#include "ir/print.h"

namespace kachel::runtime {
namespace {

using ir::DType;

class Builder {
 public:
  Builder(const ir::Module& module, const ir::Program& program, bool derived)
      : module_(module), program_(program), derived_(derived), model_(std::make_shared<ProgramModel>()) {}

  Result<std::shared_ptr<const ProgramModel>> build(std::span<const ConstValue> consts) {
    KACHEL_ASSIGN(model_->header,
                  KernelModel::create_header(program_.header, consts, ir::canonical_body(module_, program_), derived_));
    if (program_.temps.size() > ProgramModel::kMaxTemps) return too_many("temporary tensors", ProgramModel::kMaxTemps);
    if (program_.calls.size() > ProgramModel::kMaxSteps) return too_many("calls", ProgramModel::kMaxSteps);
    for (const ir::BufferRef& temp : program_.temps) KACHEL_TRY(add_temp(*temp));
    for (const ir::Call& call : program_.calls) KACHEL_TRY(add_call(call));
    model_->text = ir::print(ir::Module{module_.version, module_.kernels, {program_}});
    return std::shared_ptr<const ProgramModel>(std::move(model_));
  }

 private:
  Status too_many(const char* what, size_t limit) {
    return unsupported(fmt::format("program `{}` has more than {} {}; make several programs of it",
                                   program_.header.name, limit, what));
  }

  Status add_temp(const ir::Buffer& buffer) {
    ProgramModel::Temp temp{buffer.name, buffer.type, -1, {}, 0};
    if (buffer.type.symbol) {
      const auto& types = model_->header->types;
      temp.symbol = static_cast<int>(std::find(types.begin(), types.end(), buffer.type.symbol->name) - types.begin());
    }
    for (const ir::ExprRef& extent : buffer.shape) {
      KACHEL_ASSIGN(HostProgram program, HostProgram::compile(extent, model_->header->scope));
      temp.shape.push_back(std::move(program));
    }
    model_->temps.push_back(std::move(temp));
    return {};
  }

  // The value of an expression of constants.
  Result<ConstValue> const_value(const ir::Call::Const& given) {
    KACHEL_ASSIGN(const HostProgram program, HostProgram::compile(given.value, model_->header->scope));
    ConstValue value{given.name};
    const int64_t bits = program.run({});
    if (program.is_float())
      value.f = std::bit_cast<double>(bits);
    else
      value.i = bits, value.f = static_cast<double>(bits);
    return value;
  }

  Status add_call(const ir::Call& call) {
    const ir::Kernel* kernel = module_.find(call.kernel);
    if (!kernel) return internal(fmt::format("no kernel `{}`", call.kernel));
    ProgramModel::Step step;
    std::vector<ConstValue> consts;
    std::string text = call.kernel;
    for (const ir::Call::Const& given : call.consts) {
      KACHEL_ASSIGN(ConstValue value, const_value(given));
      text += fmt::format(",{}={}/{}", value.name, value.i, value.f);
      consts.push_back(std::move(value));
    }
    std::shared_ptr<const KernelModel>& known = known_[text];
    if (!known) {
      KACHEL_ASSIGN(known, KernelModel::create(*kernel, consts, derived_));
    }
    step.kernel = known;
    for (const ir::Guard& guard : call.guards) {
      KACHEL_ASSIGN(HostProgram condition, HostProgram::compile(guard.condition, model_->header->scope));
      step.guards.push_back({std::move(condition), guard.holds});
    }
    for (size_t i = 0; i < call.args.size(); ++i) {
      KACHEL_ASSIGN(ProgramModel::Argument argument, argument_of(call, i, kernel->params[i]));
      if (argument.kind == ProgramModel::Argument::Kind::kTemp)
        model_->temps[static_cast<size_t>(argument.index)].users |= uint64_t{1} << model_->steps.size();
      step.arguments.push_back(std::move(argument));
    }
    model_->steps.push_back(std::move(step));
    return {};
  }

  Result<ProgramModel::Argument> argument_of(const ir::Call& call, size_t index, const ir::Param& param) {
    using Kind = ProgramModel::Argument::Kind;
    ProgramModel::Argument argument;
    const ir::CallArg& given = call.args[index];
    if (given.tensor) {
      const auto& temps = program_.temps;
      const auto temp = std::find(temps.begin(), temps.end(), given.tensor);
      const auto& params = program_.header.params;
      const auto own =
          std::find_if(params.begin(), params.end(), [&](const ir::Param& p) { return p.tensor == given.tensor; });
      argument.kind = temp != temps.end() ? Kind::kTemp : Kind::kParam;
      argument.index = static_cast<int>(temp != temps.end() ? temp - temps.begin() : own - params.begin());
      return argument;
    }
    argument.kind = Kind::kScalar;
    KACHEL_ASSIGN(argument.value, HostProgram::compile(given.value, model_->header->scope));
    const bool wants_float = !param.scalar->type.symbol && ir::is_float(param.scalar->type.dtype);
    if (argument.value.is_float() != wants_float)
      return internal(fmt::format("program `{}` passes `{}` of `{}` a value of another type", program_.header.name,
                                  param.name(), call.kernel));
    return argument;
  }

  const ir::Module& module_;
  const ir::Program& program_;
  const bool derived_;
  std::shared_ptr<ProgramModel> model_;
  std::map<std::string, std::shared_ptr<const KernelModel>> known_;  // by name and constants
};

}  // namespace

Result<std::shared_ptr<const ProgramModel>> ProgramModel::create(const ir::Module& module, const ir::Program& program,
                                                                 std::span<const ConstValue> consts, bool derived) {
  return Builder(module, program, derived).build(consts);
}

DType ProgramModel::type_of(const Temp& temp, const BoundArguments& arguments) const {
  if (temp.symbol < 0) return temp.type.dtype;
  const DType type = arguments.type_of(temp.symbol);
  return temp.type.accumulator ? ir::accumulator_type(type) : type;
}

Status lay_out(const ProgramModel& model, const BoundArguments& arguments, const TunableValues& values,
               ProgramLayout& out) {
  const HostInputs inputs = arguments.inputs(values.data());
  out.steps = 0;
  for (size_t i = 0; i < model.steps.size(); ++i) {
    const auto& guards = model.steps[i].guards;
    const bool runs = std::all_of(guards.begin(), guards.end(), [&](const ProgramModel::Guard& guard) {
      return (guard.condition.run(inputs) != 0) == guard.holds;
    });
    out.steps |= uint64_t{runs} << i;
  }
  out.bytes = 0;
  for (size_t i = 0; i < model.temps.size(); ++i) {
    const ProgramModel::Temp& temp = model.temps[i];
    if (!(temp.users & out.steps)) continue;
    int64_t bytes = ir::bits(model.type_of(temp, arguments)) / 8;
    bool sound = true;
    for (size_t axis = 0; axis < temp.shape.size(); ++axis) {
      const int64_t extent = temp.shape[axis].run(inputs);
      out.temps[i].shape[axis] = extent;
      sound &= extent >= 0 && !__builtin_mul_overflow(bytes, extent, &bytes);
    }
    out.temps[i].offset = out.bytes;
    sound &= !__builtin_add_overflow(out.bytes, bytes, &out.bytes) && out.bytes <= kMaxTensorBytes;
    if (!sound)
      return invalid(
          fmt::format("program `{}`: the temporary tensor `{}` has a negative extent or is larger than any memory; "
                      "check the dimensions",
                      model.header->kernel.name, temp.name));
    out.bytes = (out.bytes + ProgramLayout::kAlign - 1) / ProgramLayout::kAlign * ProgramLayout::kAlign;
  }
  return {};
}

std::span<const Arg> StepArguments::of(const ProgramModel::Step& step) {
  using Kind = ProgramModel::Argument::Kind;
  for (size_t i = 0; i < step.arguments.size(); ++i) {
    const ProgramModel::Argument& argument = step.arguments[i];
    Arg& out = args_[i];
    switch (argument.kind) {
      case Kind::kParam:
        out = given_[static_cast<size_t>(argument.index)];
        break;
      case Kind::kTemp: {
        const ProgramModel::Temp& temp = model_.temps[static_cast<size_t>(argument.index)];
        const ProgramLayout::Temp& place = layout_.temps[argument.index];
        TensorArg& tensor = tensors_[i];
        tensor = {static_cast<char*>(scratch_) + place.offset,
                  arguments_.device,
                  static_cast<int32_t>(temp.shape.size()),
                  to_data_type(model_.type_of(temp, arguments_)),
                  const_cast<int64_t*>(place.shape),
                  nullptr,
                  0};
        out.kind = Arg::kTensor;
        out.tensor = &tensor;
        break;
      }
      case Kind::kScalar: {
        const int64_t value = argument.value.run(arguments_.inputs(values_.data()));
        out.kind = argument.value.is_float() ? Arg::kFloat : Arg::kInt;
        if (argument.value.is_float())
          out.f = std::bit_cast<double>(value);
        else
          out.i = value;
        break;
      }
    }
  }
  return {args_, step.arguments.size()};
}

}  // namespace kachel::runtime
