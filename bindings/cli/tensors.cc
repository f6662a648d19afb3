#include "tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace kachel::cli {
namespace {

constexpr int64_t kMostBytes = int64_t{1} << 40;  // a tensor beyond this is a slip of the keyboard

Outcome<> refuse_unknown_ranges(const Program& program, const Options& options) {
  for (const Assignment& range : options.ranges) {
    std::vector<std::string> tensors;
    bool known = false;
    for (const Parameter& parameter : program.parameters) {
      if (parameter.kind == KACHEL_SCALAR) continue;
      tensors.push_back(parameter.name);
      known = known || parameter.name == range.name;
    }
    if (!known)
      return usage(
          fmt::format("--range: the kernel has no tensor `{}`; it has: {}", range.name, fmt::join(tensors, ", ")));
  }
  return {};
}

Outcome<kachel_arg> scalar_argument(const Parameter& parameter, const Options& options) {
  for (const Assignment& given : options.scalars) {
    if (given.name != parameter.name) continue;
    KACHEL_CLI_LET(value, parse_scalar("--scalar", given, parameter.type));
    kachel_arg arg{};
    arg.kind = value.is_float ? KACHEL_ARG_FLOAT : KACHEL_ARG_INT;
    if (value.is_float)
      arg.u.f = value.f;
    else
      arg.u.i = value.i;
    return arg;
  }
  return usage(fmt::format("the kernel needs the scalar `{}: {}`; give --scalar {}=VALUE", parameter.name,
                           parameter.type, parameter.name));
}

Outcome<> refuse_unknown_scalars(const Program& program, const Options& options) {
  for (const Assignment& given : options.scalars) {
    bool known = false;
    for (const Parameter& parameter : program.parameters)
      known = known || (parameter.kind == KACHEL_SCALAR && parameter.name == given.name);
    if (!known) return usage(fmt::format("--scalar: the kernel has no scalar parameter `{}`", given.name));
  }
  return {};
}

}  // namespace

Outcome<std::unique_ptr<Arguments>> Arguments::make(const Session& session, const Program& program,
                                                    kachel_device device, const Options& options) {
  KACHEL_CLI_TRY(refuse_unknown_ranges(program, options));
  KACHEL_CLI_TRY(refuse_unknown_scalars(program, options));
  std::unique_ptr<Arguments> arguments(new Arguments(session, device));
  uint64_t seed = options.seed;
  for (const Parameter& parameter : program.parameters) {
    seed = seed * 0x9e3779b97f4a7c15u + 1;
    if (parameter.kind == KACHEL_SCALAR) {
      KACHEL_CLI_LET(arg, scalar_argument(parameter, options));
      arguments->args_.push_back(arg);
    } else {
      KACHEL_CLI_TRY(arguments->add_tensor(parameter, options, seed));
    }
  }
  return arguments;
}

Outcome<> Arguments::add_tensor(const Parameter& parameter, const Options& options, uint64_t seed) {
  auto tensor = std::make_unique<Tensor>();
  kachel_tensor& view = tensor->view;
  if (kachel_dtype_parse(parameter.type.c_str(), &view.dtype) != KACHEL_OK)
    return Failure{Exit::kFailed, fmt::format("the library does not name the type `{}`", parameter.type), {}};
  tensor->shape = parameter.shape;
  tensor->strides.resize(parameter.shape.size());
  // Rows of 4-bit elements start at whole bytes.
  int64_t elements = 1;
  for (size_t axis = parameter.shape.size(); axis-- > 0;) {
    tensor->strides[axis] = elements;
    int64_t extent = parameter.shape[axis];
    if (axis + 1 == parameter.shape.size() && view.dtype.bits == 4) extent += extent % 2;
    if (__builtin_mul_overflow(elements, extent, &elements) || elements > kMostBytes)
      return usage(
          fmt::format("tensor `{}` of shape [{}] is too large", parameter.name, fmt::join(parameter.shape, ", ")));
  }
  ValueRange range = default_range(view.dtype);
  for (const Assignment& given : options.ranges) {
    if (given.name != parameter.name) continue;
    KACHEL_CLI_LET(wanted, parse_range(given));
    range = wanted;
  }

  const size_t bytes = storage_bytes(view.dtype, elements);
  view.device = device_;
  view.ndim = static_cast<int32_t>(tensor->shape.size());
  view.shape = tensor->shape.data();
  view.strides = tensor->strides.data();
  tensors_.push_back(std::move(tensor));
  Tensor& kept = *tensors_.back();  // from here on the destructor frees its memory
  KACHEL_CLI_TRY(attempt([&](kachel_error** err) {
    return kachel_memory_alloc(session_.engine(), device_, bytes, &kept.view.data, err);
  }));
  if (options.command == Command::kRun || options.command == Command::kTune) {
    kept.before.resize(bytes);
    fill_random(kept.view.dtype, range, seed, elements, kept.before.data());
    KACHEL_CLI_TRY(attempt([&](kachel_error** err) {
      return kachel_memory_copy(session_.engine(), device_, kept.view.data, kept.before.data(), bytes, nullptr, err);
    }));
  }
  kachel_arg arg{};
  arg.kind = KACHEL_ARG_TENSOR;
  arg.u.tensor = &kept.view;
  args_.push_back(arg);
  return {};
}

Arguments::~Arguments() {
  for (const auto& tensor : tensors_)
    if (tensor->view.data != nullptr) (void)kachel_memory_free(session_.engine(), device_, tensor->view.data);
}

int64_t Arguments::tensor_bytes() const {
  int64_t bytes = 0;
  for (const auto& tensor : tensors_) bytes += static_cast<int64_t>(tensor->before.size());
  return bytes;
}

Outcome<kachel_check_result> Arguments::check(const kachel_kernel* kernel, const std::string& configuration) const {
  std::vector<kachel_arg> before = args_, after = args_;
  std::vector<kachel_tensor> views(2 * tensors_.size());
  std::vector<std::vector<std::byte>> results(tensors_.size());
  size_t next = 0;
  for (size_t i = 0; i < args_.size(); ++i) {
    if (args_[i].kind != KACHEL_ARG_TENSOR) continue;
    const Tensor& tensor = *tensors_[next];
    std::vector<std::byte>& result = results[next];
    result.resize(tensor.before.size());
    KACHEL_CLI_TRY(attempt([&](kachel_error** err) {
      return kachel_memory_copy(session_.engine(), device_, result.data(), tensor.view.data, result.size(), nullptr,
                                err);
    }));
    kachel_tensor& then = views[2 * next] = tensor.view;
    kachel_tensor& now = views[2 * next + 1] = tensor.view;
    then.device = now.device = {KACHEL_CPU, 0};
    then.data = const_cast<std::byte*>(tensor.before.data());  // only read
    now.data = result.data();
    before[i].u.tensor = &then;
    after[i].u.tensor = &now;
    ++next;
  }
  kachel_check_result result{};
  result.struct_size = sizeof result;
  KACHEL_CLI_TRY(attempt([&](kachel_error** err) {
    return kachel_check(const_cast<kachel_kernel*>(kernel), before.data(), after.data(), args_.size(),
                        configuration.empty() ? nullptr : configuration.c_str(), &result, err);
  }));
  return result;
}

}  // namespace kachel::cli
