// Kernels: reflection.
#include <fmt/format.h>

#include "capi/boundary.h"
#include "capi/handles.h"

using namespace kachel;

namespace {

const runtime::KernelModel* model_of(const kachel_kernel* kernel) {
  return kernel ? &kernel->kernel->model() : nullptr;
}

template <class List>
bool has(const List& list, int32_t index) {
  return index >= 0 && static_cast<size_t>(index) < list.size();
}

Status evaluate_shape(const runtime::KernelModel& model, const runtime::ParamModel& param, const int64_t* dims,
                      int64_t* shape) {
  // Axes that a tunable decides are given for its first value, or for 1 where its values are derived.
  runtime::TunableValues first;
  for (const runtime::TunableModel& tunable : model.tunables)
    first.push_back(tunable.automatic() ? 1 : tunable.values[0]);
  for (size_t axis = 0; axis < runtime::kMaxRank; ++axis) {
    shape[axis] = 0;
    if (axis >= param.axes.size()) continue;
    const runtime::AxisModel& extent = param.axes[axis];
    const bool is_dim =
        extent.kind == runtime::AxisModel::Kind::kBind || extent.kind == runtime::AxisModel::Kind::kCheck;
    if (!is_dim && extent.program.mentions_scalars())
      return unsupported(
          fmt::format("axis {} of `{}` depends on a scalar; work it out from `{}`", axis, param.name, extent.text));
    shape[axis] = is_dim ? dims[extent.dim] : extent.program.run({dims, nullptr, first.data()});
  }
  return {};
}

}  // namespace

void kachel_kernel_release(kachel_kernel* kernel) {
  delete kernel;
}

kachel_status kachel_kernel_set_policy(kachel_kernel* kernel, int32_t policy, kachel_error** err) {
  return capi::guarded(err, [&]() -> Status {
    if (!kernel) return capi::missing("kernel");
    tuner::Policy known;
    KACHEL_TRY(capi::policy_of(policy, kernel->kernel->engine().options().policy, known));
    kernel->kernel->set_policy(known);
    return {};
  });
}

const char* kachel_kernel_name(const kachel_kernel* kernel) {
  return kernel ? kernel->kernel->model().kernel.name.c_str() : nullptr;
}
int32_t kachel_kernel_param_count(const kachel_kernel* kernel) {
  return kernel ? static_cast<int32_t>(kernel->kernel->model().params.size()) : 0;
}

kachel_status kachel_kernel_param(const kachel_kernel* kernel, int32_t index, kachel_param_info* out) {
  return capi::guarded(nullptr, [&]() -> Status {
    const runtime::KernelModel* model = model_of(kernel);
    if (!model) return capi::missing("kernel");
    if (!has(model->params, index)) return invalid("no such parameter");
    const runtime::ParamModel& param = model->params[static_cast<size_t>(index)];
    kachel_param_info info{};
    info.name = param.name.c_str();
    info.type =
        param.symbol >= 0 ? model->types[static_cast<size_t>(param.symbol)].c_str() : ir::name(param.dtype).data();
    info.shape = param.shape.c_str();
    info.kind = param.is_tensor ? static_cast<int32_t>(param.direction) : KACHEL_SCALAR;
    info.rank = static_cast<int32_t>(param.axes.size());
    return capi::write_struct(out, info, "out");
  });
}

int32_t kachel_kernel_dim_count(const kachel_kernel* kernel) {
  const runtime::KernelModel* model = model_of(kernel);
  return model ? static_cast<int32_t>(model->dims.size()) : 0;
}
const char* kachel_kernel_dim_name(const kachel_kernel* kernel, int32_t index) {
  const runtime::KernelModel* model = model_of(kernel);
  return model && has(model->dims, index) ? model->dims[static_cast<size_t>(index)].c_str() : nullptr;
}
int32_t kachel_kernel_dim_is_static(const kachel_kernel* kernel, int32_t index) {
  const runtime::KernelModel* model = model_of(kernel);
  if (!model) return 0;
  for (int dim : model->static_dims)
    if (dim == index) return 1;
  return 0;
}
int32_t kachel_kernel_type_count(const kachel_kernel* kernel) {
  const runtime::KernelModel* model = model_of(kernel);
  return model ? static_cast<int32_t>(model->types.size()) : 0;
}
const char* kachel_kernel_type_name(const kachel_kernel* kernel, int32_t index) {
  const runtime::KernelModel* model = model_of(kernel);
  return model && has(model->types, index) ? model->types[static_cast<size_t>(index)].c_str() : nullptr;
}
int32_t kachel_kernel_type_option_count(const kachel_kernel* kernel, int32_t index) {
  const runtime::KernelModel* model = model_of(kernel);
  if (!model || !has(model->type_options, index)) return 0;
  return static_cast<int32_t>(model->type_options[static_cast<size_t>(index)].size());
}
const char* kachel_kernel_type_option(const kachel_kernel* kernel, int32_t index, int32_t option) {
  const runtime::KernelModel* model = model_of(kernel);
  if (!model || !has(model->type_options, index)) return nullptr;
  const auto& options = model->type_options[static_cast<size_t>(index)];
  return has(options, option) ? ir::name(options[static_cast<size_t>(option)]).data() : nullptr;
}

kachel_status kachel_kernel_param_shape(const kachel_kernel* kernel, int32_t index, const int64_t* dims,
                                        size_t dim_count, int64_t shape_out[5], kachel_error** err) {
  return capi::guarded(err, [&]() -> Status {
    const runtime::KernelModel* model = model_of(kernel);
    if (!model) return capi::missing("kernel");
    if (!shape_out) return capi::missing("shape_out");
    if (!has(model->params, index))
      return invalid(
          fmt::format("kernel `{}` has no parameter {}; it has {}", model->kernel.name, index, model->params.size()));
    if (dim_count != model->dims.size())
      return invalid(fmt::format("kernel `{}` has {} dimensions, {} values were given; pass one for each",
                                 model->kernel.name, model->dims.size(), dim_count));
    if (dim_count != 0 && !dims) return capi::missing("dims");
    return evaluate_shape(*model, model->params[static_cast<size_t>(index)], dims, shape_out);
  });
}
