#include "runtime/engine/report/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "ir/instantiate.h"
#include "runtime/engine/bind/argument_binder.h"
#include "runtime/engine/specialise/configurations.h"

namespace kachel::runtime {
namespace {

ir::HostTensor host_tensor(const BoundTensor& tensor, size_t rank) {
  return {tensor.data, tensor.dtype, {tensor.shape, tensor.shape + rank}, {tensor.strides, tensor.strides + rank}};
}

std::vector<ir::Argument> interpreter_arguments(const KernelModel& model, const BoundArguments& bound) {
  std::vector<ir::Argument> list(model.params.size());
  for (size_t i = 0; i < list.size(); ++i) {
    const ParamModel& param = model.params[i];
    if (param.is_tensor)
      list[i].tensor = host_tensor(bound.tensors[i], param.axes.size());
    else if (param.dtype == ir::DType::F32)
      list[i].scalar.f = std::bit_cast<float>(static_cast<uint32_t>(bound.scalars[i]));
    else
      list[i].scalar.i = static_cast<int64_t>(bound.scalars[i]);
  }
  return list;
}

ir::Bindings bindings_of(const KernelModel& model, const BoundArguments& bound, const TunableValues& values) {
  ir::Bindings bindings;
  for (size_t i = 0; i < model.types.size(); ++i) bindings.types[model.types[i]] = bound.type_of(static_cast<int>(i));
  bindings.int_consts = model.int_consts;
  bindings.float_consts = model.float_consts;
  for (size_t i = 0; i < values.size(); ++i) bindings.tunables[model.tunables[i].name] = values[i];
  for (int dim : model.static_dims) bindings.dims[model.dims[dim]] = bound.dims[dim];
  return bindings;
}

}  // namespace

Result<CheckResult> check(const KernelModel& model, std::span<const Arg> before, std::span<const Arg> after,
                          const std::string_view* configuration) {
  BoundArguments initial, final;
  KACHEL_TRY(bind_host_arguments(model, before, initial));
  KACHEL_TRY(bind_host_arguments(model, after, final));
  for (int index : model.tensors) {
    const size_t rank = model.params[index].axes.size();
    if (initial.tensors[index].dtype != final.tensors[index].dtype ||
        !std::equal(initial.tensors[index].shape, initial.tensors[index].shape + rank, final.tensors[index].shape))
      return invalid(
          fmt::format("kernel `{}`: `{}` differs in shape or type before and after; pass the tensors of one launch",
                      model.kernel.name, model.params[index].name));
  }
  TunableValues values;
  if (configuration) {
    KACHEL_ASSIGN(values, parse_configuration(model, *configuration));
  } else {
    // Derived values are those for a CPU, as which the interpreter runs here.
    Point point{initial.types, initial.facts, {}, {}};
    for (int dim : model.static_dims) point.static_dims.push_back(initial.dims[dim]);
    DeviceProperties host;
    host.name = "a CPU";
    KACHEL_ASSIGN(std::vector<TunableValues> admitted, admitted_configurations(model, host, point, initial.inputs()));
    values = admitted[0];
  }
  KACHEL_ASSIGN(ir::Kernel concrete, ir::instantiate(model.kernel, bindings_of(model, initial, values)));
  KACHEL_ASSIGN(ir::InterpretResult expected, ir::interpret(concrete, interpreter_arguments(model, initial)));
  CheckResult result;
  for (int index : model.tensors) {
    const std::vector<ir::Expected>& outputs = expected.outputs[index];
    if (outputs.empty()) continue;
    const size_t rank = model.params[index].axes.size();
    ir::Mismatch mismatch =
        ir::compare(outputs, host_tensor(final.tensors[index], rank), host_tensor(initial.tensors[index], rank));
    result.elements += outputs.size();
    result.mismatches += static_cast<uint64_t>(mismatch.count);
    result.undecided += static_cast<uint64_t>(mismatch.undecided);
    result.median_bound_ulps = std::max(result.median_bound_ulps, mismatch.median_bound_ulps);
    if (result.first.empty() && !mismatch.first.empty())
      result.first = fmt::format("`{}`: {}", model.params[index].name, mismatch.first);
  }
  return result;
}

}  // namespace kachel::runtime
