#include "runtime/engine/bind/argument_binder.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "runtime/engine/bind/facts.h"
#include "runtime/engine/bind/overlap.h"

namespace kachel::runtime {
namespace {

using ir::DType;

std::string shape_text(const TensorArg& tensor) {
  std::string text = "[";
  for (int32_t i = 0; i < tensor.ndim; ++i) text += fmt::format("{}{}", i ? ", " : "", tensor.shape[i]);
  return text + "]";
}

std::string data_type_text(DataType type) {
  DType known;
  if (from_data_type(type, known)) return std::string(ir::name(known));
  return fmt::format("a type with code {}, {} bits and {} lanes", type.code, type.bits, type.lanes);
}

std::string device_text(DeviceRef device) {
  switch (device.type) {
    case 1:
      return "the CPU";
    case 2:
      return fmt::format("CUDA device {}", device.id);
    case 3:
    case 11:
      return "pinned host memory";
    case 13:
      return "CUDA managed memory";
    default:
      return fmt::format("device type {}, id {}", device.type, device.id);
  }
}

class Binder {
 public:
  Binder(const KernelModel& model, std::span<const Arg> args, BoundArguments& out)
      : model_(model), args_(args), out_(out) {}

  // False: status() says why.
  bool bind(bool for_launch) {
    if (args_.size() != model_.params.size()) [[unlikely]]
      return refuse(fmt::format("kernel `{}` takes {} arguments, {} were given; pass one for each of its parameters",
                                model_.kernel.name, model_.params.size(), args_.size()));
    out_.device = {};
    out_.types = 0;
    for (size_t i = 0; i < args_.size(); ++i) {
      const ParamModel& param = model_.params[i];
      if (param.is_tensor) {
        if (!tensor(static_cast<int>(i), param, for_launch)) return false;
      } else {
        if (!scalar(static_cast<int>(i), param)) return false;
      }
    }
    // Extents may be computed from dimensions that a later parameter binds, and programs may read scalars.
    for (int index : model_.tensors)
      if (!computed_extents(index)) return false;
    const HostInputs inputs = out_.inputs();
    for (const Condition& condition : model_.where)
      if (condition.program.run(inputs) == 0) [[unlikely]]
        return where_failed(condition);
    if (for_launch) {
      status_ = check_overlap(model_, out_);
      if (!status_.ok()) [[unlikely]]
        return false;
    }
    out_.facts = facts_that_hold(model_, out_);
    return true;
  }

  const Status& status() const { return status_; }

 private:
  [[gnu::cold]] bool refuse(std::string message) {
    status_ = invalid(std::move(message));
    return false;
  }
  // kInvalid with the kernel, the parameter and the sentence, which ends in a mend.
  [[gnu::cold]] bool fail(int index, std::string sentence) {
    return refuse(fmt::format("kernel `{}`, argument {} `{}`: {}", model_.kernel.name, index, model_.params[index].name,
                              sentence));
  }

  bool scalar(int index, const ParamModel& param) {
    const Arg& arg = args_[index];
    if (param.dtype == DType::F32) {
      if (arg.kind != Arg::kFloat) [[unlikely]]
        return fail(index, "it is an f32 scalar; pass KACHEL_ARG_FLOAT");
      out_.scalars[index] = std::bit_cast<uint32_t>(static_cast<float>(arg.f));
      return true;
    }
    if (arg.kind != Arg::kInt) [[unlikely]]
      return fail(index, fmt::format("it is a scalar of type {}; pass KACHEL_ARG_INT", ir::name(param.dtype)));
    int64_t low = 0, high = 1;  // of Bool
    switch (param.dtype) {
      case DType::I32:
        low = std::numeric_limits<int32_t>::min(), high = std::numeric_limits<int32_t>::max();
        break;
      case DType::U32:
        high = std::numeric_limits<uint32_t>::max();
        break;
      case DType::Bool:
        break;
      default:
        low = std::numeric_limits<int64_t>::min(), high = std::numeric_limits<int64_t>::max();
    }
    if (arg.i < low || arg.i > high) [[unlikely]]
      return fail(index, fmt::format("{} is not a value of {}; pass one from {} to {}", arg.i, ir::name(param.dtype),
                                     low, high));
    out_.scalars[index] = static_cast<uint64_t>(arg.i);
    return true;
  }

  bool tensor(int index, const ParamModel& param, bool for_launch) {
    const Arg& arg = args_[index];
    if (arg.kind != Arg::kTensor || !arg.tensor) [[unlikely]]
      return fail(index, "it is a tensor; pass KACHEL_ARG_TENSOR with a tensor");
    const TensorArg& given = *arg.tensor;
    const int rank = static_cast<int>(param.axes.size());
    if (given.ndim != rank) [[unlikely]]
      return fail(index, fmt::format("it has {} dimensions; pass a tensor of shape [{}]", given.ndim, param.shape));
    if (!given.shape) [[unlikely]]
      return fail(index, "its shape is NULL; point it at the extents");
    BoundTensor& bound = out_.tensors[index];
    if (for_launch)
      if (!device(index, given)) return false;
    bool container = false;
    if (!element_type(index, param, given, bound.dtype, container)) return false;
    if (!extents(index, given, bound, rank, container)) return false;
    const int bits = bits_of(bound.dtype);
    bound.data = reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(given.data) + given.byte_offset);
    if (bound.elements != 0 && !given.data) [[unlikely]]
      return fail(index, fmt::format("its data is NULL, but its shape is {}; point it at memory", shape_text(given)));
    if (bits > 8 && (reinterpret_cast<uintptr_t>(bound.data) & static_cast<uintptr_t>(bits / 8 - 1)) != 0) [[unlikely]]
      return fail(index, fmt::format("its data is not aligned to its {}-byte elements; align it", bits / 8));
    for (int axis = 0; axis < rank; ++axis) {
      const AxisModel& model = param.axes[axis];
      const int64_t extent = bound.shape[axis];
      if (model.kind == AxisModel::Kind::kBind || model.kind == AxisModel::Kind::kTuned)
        out_.dims[model.dim] = extent;
      else if (model.kind == AxisModel::Kind::kCheck && out_.dims[model.dim] != extent) [[unlikely]]
        return mismatch(index, axis, given, out_.dims[model.dim]);
    }
    return true;
  }

  bool device(int index, const TensorArg& given) {
    if (out_.device.type == 0) {
      out_.device = given.device;
      return true;
    }
    if (out_.device == given.device) [[likely]]
      return true;
    return fail(index, fmt::format("it is on {}, the tensors before it are on {}; put all tensors on one device",
                                   device_text(given.device), device_text(out_.device)));
  }

  bool element_type(int index, const ParamModel& param, const TensorArg& given, DType& out, bool& container) {
    // An 8-bit integer tensor may hold pairs of 4-bit elements.
    const bool may_contain = given.dtype.bits == 8 && given.dtype.lanes == 1 && given.dtype.code <= 1;
    const uint32_t bit = param.symbol < 0 ? 0 : 1u << param.symbol;
    if (param.symbol < 0 || (bound_types_ & bit)) {
      out = param.symbol < 0 ? param.dtype : out_.type_of(param.symbol);
      container = may_contain && bits_of(out) == 4;
      if (given.dtype == to_data_type(out) || container) [[likely]]
        return true;
      if (param.symbol < 0)
        return fail(
            index, fmt::format("its elements are {}; pass a tensor of {}", data_type_text(given.dtype), ir::name(out)));
      return fail(index, fmt::format("its elements are {}, but `{}` is {} from an earlier argument; pass one type",
                                     data_type_text(given.dtype), model_.types[param.symbol], ir::name(out)));
    }
    const std::vector<DType>& options = model_.type_options[param.symbol];
    auto found =
        std::find_if(options.begin(), options.end(), [&](DType option) { return to_data_type(option) == given.dtype; });
    if (found == options.end() && may_contain) {
      found = std::find_if(options.begin(), options.end(), [](DType option) { return bits_of(option) == 4; });
      container = found != options.end();
    }
    if (found == options.end()) [[unlikely]] {
      std::string names;
      for (DType option : options) names += fmt::format("{}{}", names.empty() ? "" : " or ", ir::name(option));
      return fail(index, fmt::format("its elements are {}, but `{}` is {}; pass one of these",
                                     data_type_text(given.dtype), model_.types[param.symbol], names));
    }
    out = *found;
    bound_types_ |= bit;
    out_.types |= static_cast<uint64_t>(out) << (4 * param.symbol);
    return true;
  }

  // Shape and strides in elements of the logical type, the number of elements and the span in bytes.
  bool extents(int index, const TensorArg& given, BoundTensor& bound, int rank, bool container) {
    const bool packed = bits_of(bound.dtype) == 4;
    bool empty = false, overflow = false;
    int64_t contiguous = 1;
    for (int axis = rank - 1; axis >= 0; --axis) {
      int64_t extent = given.shape[axis];
      if (extent < 0) [[unlikely]]
        return fail(index, fmt::format("its shape is {}; extents are >= 0", shape_text(given)));
      int64_t stride = given.strides ? given.strides[axis] : contiguous;
      const bool last = axis == rank - 1;
      if (container) {
        if (last)
          overflow |= __builtin_mul_overflow(extent, 2, &extent);
        else if (given.strides)
          overflow |= __builtin_mul_overflow(stride, 2, &stride);
      }
      if (stride < 0) [[unlikely]]
        return fail(index, fmt::format("stride {} is {}; pass strides >= 0", axis, stride));
      if (packed && extent > 1 && (last ? stride != 1 : stride % 2 != 0)) [[unlikely]]
        return fail(index,
                    last ? fmt::format("the stride of its last axis is {}; 4-bit elements are packed along it, so "
                                       "make it 1",
                                       stride)
                         : fmt::format("stride {} is {}; 4-bit rows start on a byte, so make the strides of all "
                                       "axes but the last even",
                                       axis, stride));
      bound.shape[axis] = extent;
      bound.strides[axis] = stride;
      empty |= extent == 0;
      if (!empty) overflow |= __builtin_mul_overflow(contiguous, extent, &contiguous);
    }
    bound.elements = empty ? 0 : contiguous;
    int64_t span = 1;  // elements from the first to the last
    for (int axis = 0; axis < rank && !empty; ++axis) {
      int64_t reach;
      overflow |= __builtin_mul_overflow(bound.shape[axis] - 1, bound.strides[axis], &reach);
      overflow |= __builtin_add_overflow(span, reach, &span);
    }
    if (overflow || span > kMaxTensorBytes / 8 || contiguous > kMaxTensorBytes / 8) [[unlikely]]
      return fail(index,
                  fmt::format("its shape {} spans more than 2^62 bytes; check shape and strides", shape_text(given)));
    bound.bytes = empty ? 0 : packed ? (span + 1) / 2 : span * (bits_of(bound.dtype) / 8);
    return true;
  }

  bool computed_extents(int index) {
    const ParamModel& param = model_.params[index];
    for (size_t axis = 0; axis < param.axes.size(); ++axis) {
      if (param.axes[axis].kind != AxisModel::Kind::kValue) continue;
      const int64_t expected = param.axes[axis].program.run(out_.inputs());
      if (out_.tensors[index].shape[axis] != expected) [[unlikely]]
        return mismatch(index, static_cast<int>(axis), *args_[index].tensor, expected);
    }
    return true;
  }

  [[gnu::cold]] bool mismatch(int index, int axis, const TensorArg& given, int64_t expected) {
    const ParamModel& param = model_.params[index];
    return fail(index,
                fmt::format("its shape is {}, but axis {} must be {}, which is `{}` here; pass a tensor of shape [{}]",
                            shape_text(given), axis, expected, param.axes[axis].text, param.shape));
  }

  [[gnu::cold]] bool where_failed(const Condition& condition) {
    std::string values;
    const auto add = [&](const std::string& name, const std::string& value) {
      values += fmt::format("{}{} = {}", values.empty() ? "" : ", ", name, value);
    };
    for (size_t i = 0; i < model_.dims.size(); ++i) add(model_.dims[i], fmt::format("{}", out_.dims[i]));
    for (size_t i = 0; condition.program.mentions_scalars() && i < model_.params.size(); ++i) {
      if (model_.params[i].is_tensor) continue;
      const bool real = model_.params[i].dtype == ir::DType::F32;
      add(model_.params[i].name, real ? fmt::format("{}", args_[i].f) : fmt::format("{}", args_[i].i));
    }
    return refuse(fmt::format("kernel `{}` needs `{}`, which does not hold for {}; pass arguments for which it does",
                              model_.kernel.name, condition.text, values.empty() ? "these scalars" : values));
  }

  const KernelModel& model_;
  std::span<const Arg> args_;
  BoundArguments& out_;
  uint32_t bound_types_ = 0;
  Status status_;
};

}  // namespace

Status bind_completely(const KernelModel& model, std::span<const Arg> args, BoundArguments& out) {
  Binder binder(model, args, out);
  return binder.bind(true) ? Status() : binder.status();
}

Status bind_host_arguments(const KernelModel& model, std::span<const Arg> args, BoundArguments& out) {
  Binder binder(model, args, out);
  return binder.bind(false) ? Status() : binder.status();
}

Status admit_scalars(const KernelModel& model, const HostInputs& inputs) {
  for (const auto* conditions : {&model.where, &model.conditions})
    for (const Condition& condition : *conditions)
      if (condition.program.mentions_scalars() && condition.program.run(inputs) == 0)
        return invalid(fmt::format("{} `{}`: `{}` does not hold for these scalars; bind anew",
                                   model.is_program ? "program" : "kernel", model.kernel.name, condition.text));
  return {};
}

}  // namespace kachel::runtime
