#include "program.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "numbers.h"

namespace kachel::cli {
namespace {

std::vector<std::string> kernel_names(const kachel_module* module) {
  std::vector<std::string> names;
  for (int32_t i = 0; i < kachel_module_kernel_count(module); ++i)
    names.push_back(kachel_module_kernel_name(module, i));
  return names;
}

// Index into the module; the only kernel if `wanted` is empty.
Outcome<int32_t> find_kernel(const kachel_module* module, const std::string& wanted) {
  std::vector<std::string> names = kernel_names(module);
  if (wanted.empty()) {
    if (names.size() == 1) return 0;
    return usage(
        fmt::format("the file holds {} kernels; choose one with --kernel: {}", names.size(), fmt::join(names, ", ")));
  }
  for (size_t i = 0; i < names.size(); ++i)
    if (names[i] == wanted) return static_cast<int32_t>(i);
  return usage(
      fmt::format("--kernel: there is no kernel `{}` in the file; there is: {}", wanted, fmt::join(names, ", ")));
}

const Assignment* find(const std::vector<Assignment>& list, const std::string& name) {
  for (const Assignment& assignment : list)
    if (assignment.name == name) return &assignment;
  return nullptr;
}

Outcome<> refuse_unknown(const char* option, const char* what, const std::vector<Assignment>& given,
                         const std::vector<std::string>& names) {
  for (const Assignment& assignment : given) {
    bool known = false;
    for (const std::string& name : names) known = known || name == assignment.name;
    if (known) continue;
    if (names.empty())
      return usage(fmt::format("{}: the kernel has no {}, so `{}` means nothing", option, what, assignment.name));
    return usage(fmt::format("{}: the kernel has no {} `{}`; it has: {}", option, what, assignment.name,
                             fmt::join(names, ", ")));
  }
  return {};
}

Outcome<KernelHandle> get_kernel(kachel_module* module, const Options& options) {
  KACHEL_CLI_LET(index, find_kernel(module, options.kernel));
  std::vector<std::string> names;
  for (int32_t i = 0; i < kachel_module_const_count(module, index); ++i)
    names.push_back(kachel_module_const_name(module, index, i));
  KACHEL_CLI_TRY(refuse_unknown("--const", "compile-time parameter", options.consts, names));

  std::vector<kachel_const> consts;
  for (size_t i = 0; i < names.size(); ++i) {
    std::string type = kachel_module_const_type(module, index, static_cast<int32_t>(i));
    const Assignment* given = find(options.consts, names[i]);
    if (given == nullptr)
      return usage(fmt::format("the kernel needs `const {}: {}`; give --const {}=VALUE", names[i], type, names[i]));
    kachel_const value{names[i].c_str(), 0, 0};
    KACHEL_CLI_LET(number, parse_scalar("--const", *given, type));
    value.i = number.i;
    value.f = number.f;
    consts.push_back(value);
  }
  kachel_kernel* kernel = nullptr;
  KACHEL_CLI_TRY(attempt([&](kachel_error** err) {
    return kachel_kernel_get(module, kachel_module_kernel_name(module, index), consts.data(), consts.size(), &kernel,
                             err);
  }));
  return KernelHandle(kernel);
}

Outcome<> bind_dims(const Options& options, Program* program) {
  const kachel_kernel* kernel = program->kernel.get();
  for (int32_t i = 0; i < kachel_kernel_dim_count(kernel); ++i)
    program->dim_names.push_back(kachel_kernel_dim_name(kernel, i));
  KACHEL_CLI_TRY(refuse_unknown("--bind", "dimension", options.dims, program->dim_names));
  std::vector<std::string> missing;
  for (const std::string& name : program->dim_names) {
    const Assignment* given = find(options.dims, name);
    if (given == nullptr) {
      missing.push_back(name + "=512");
      continue;
    }
    KACHEL_CLI_LET(value, parse_scalar("--bind", *given, "i64"));
    if (value.i < 0) return usage(fmt::format("--bind: dimension `{}` cannot be {}", name, value.i));
    program->dims.push_back(value.i);
  }
  if (missing.empty()) return {};
  return usage(fmt::format("not every dimension is bound; add for example --bind {}", fmt::join(missing, ",")));
}

// The type of each parameter, type symbols resolved by --type or by their first option.
Outcome<std::vector<Assignment>> choose_types(const Options& options, const kachel_kernel* kernel) {
  std::vector<std::string> names;
  std::vector<Assignment> chosen;
  for (int32_t i = 0; i < kachel_kernel_type_count(kernel); ++i) {
    names.push_back(kachel_kernel_type_name(kernel, i));
    std::vector<std::string> choices;
    for (int32_t k = 0; k < kachel_kernel_type_option_count(kernel, i); ++k)
      choices.push_back(kachel_kernel_type_option(kernel, i, k));
    const Assignment* given = find(options.types, names.back());
    std::string type = given != nullptr ? given->value : choices.front();
    bool allowed = false;
    for (const std::string& choice : choices) allowed = allowed || choice == type;
    if (!allowed)
      return usage(
          fmt::format("--type: `{}` cannot be `{}`; it is one of: {}", names.back(), type, fmt::join(choices, ", ")));
    chosen.push_back({names.back(), type});
  }
  KACHEL_CLI_TRY(refuse_unknown("--type", "type symbol", options.types, names));
  return chosen;
}

Outcome<> describe_parameters(const Options& options, Program* program) {
  const kachel_kernel* kernel = program->kernel.get();
  KACHEL_CLI_LET(types, choose_types(options, kernel));
  for (int32_t i = 0; i < kachel_kernel_param_count(kernel); ++i) {
    kachel_param_info info{};
    info.struct_size = sizeof info;
    KACHEL_CLI_TRY(outcome_of(kachel_kernel_param(kernel, i, &info), nullptr));
    Parameter parameter{info.name, info.type, info.kind, {}};
    if (const Assignment* symbol = find(types, info.type)) parameter.type = symbol->value;
    if (info.kind != KACHEL_SCALAR) {
      int64_t shape[5] = {};
      KACHEL_CLI_TRY(attempt([&](kachel_error** err) {
        return kachel_kernel_param_shape(kernel, i, program->dims.data(), program->dims.size(), shape, err);
      }));
      parameter.shape.assign(shape, shape + info.rank);
    }
    program->parameters.push_back(std::move(parameter));
  }
  return {};
}

}  // namespace

Outcome<std::string> read_text(const std::string& file) {
  std::FILE* stream = file == "-" ? stdin : std::fopen(file.c_str(), "rb");
  if (stream == nullptr) return usage(fmt::format("cannot read {}: {}", file, std::strerror(errno)));
  std::string text;
  char buffer[1 << 16];
  for (size_t got; (got = std::fread(buffer, 1, sizeof buffer, stream)) > 0;) text.append(buffer, got);
  int error = std::ferror(stream) != 0 ? errno : 0;
  if (stream != stdin) std::fclose(stream);
  if (error != 0) return usage(fmt::format("cannot read {}: {}", file, std::strerror(error)));
  return text;
}

Outcome<ModuleHandle> load_module(const Session& session, const std::string& file) {
  KACHEL_CLI_LET(text, read_text(file));
  kachel_module* module = nullptr;
  auto created = attempt([&](kachel_error** err) {
    return kachel_module_create(session.engine(), text.data(), text.size(), file == "-" ? "stdin" : file.c_str(),
                                &module, err);
  });
  if (!created.ok()) {
    Failure failure = created.failure();
    if (failure.exit == Exit::kUsage) failure.exit = Exit::kRefused;
    return failure;
  }
  return ModuleHandle(module);
}

std::string Program::shape_text() const {
  std::string text;
  for (size_t i = 0; i < dims.size(); ++i) text += fmt::format("{}{}={}", i > 0 ? " " : "", dim_names[i], dims[i]);
  return text;
}

Outcome<Program> load_program(const Session& session, const Options& options) {
  Program program;
  KACHEL_CLI_LET(module, load_module(session, options.files.front()));
  program.module = std::move(module);
  KACHEL_CLI_LET(kernel, get_kernel(program.module.get(), options));
  program.kernel = std::move(kernel);
  KACHEL_CLI_TRY(bind_dims(options, &program));
  KACHEL_CLI_TRY(describe_parameters(options, &program));
  return program;
}

}  // namespace kachel::cli
