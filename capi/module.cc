// Modules: parsed texts and what can be asked of them before consts are known.
#include <fmt/format.h>

#include "capi/boundary.h"
#include "capi/handles.h"
#include "ir/parse.h"
#include "runtime/engine/programs/prepared_forms.h"

using namespace kachel;

namespace {

// Programs follow the kernels; of one, the header.
const ir::Kernel* kernel_at(const kachel_module* module, int32_t index) {
  if (!module || index < 0) return nullptr;
  const auto at = static_cast<size_t>(index);
  const auto& kernels = module->module->kernels;
  const auto& programs = module->module->programs;
  if (at < kernels.size()) return &kernels[at];
  return at - kernels.size() < programs.size() ? &programs[at - kernels.size()].header : nullptr;
}

const ir::Var* const_at(const kachel_module* module, int32_t kernel, int32_t index) {
  const ir::Kernel* found = kernel_at(module, kernel);
  if (!found || index < 0 || static_cast<size_t>(index) >= found->consts.size()) return nullptr;
  return found->consts[static_cast<size_t>(index)].get();
}

// Exactly one of the two.
struct Found {
  const ir::Kernel* kernel = nullptr;
  const ir::Program* program = nullptr;
};

Result<Found> find(const ir::Module& module, const char* name) {
  if (!name) {
    if (module.programs.size() == 1) return Found{nullptr, &module.programs[0]};
    if (module.kernels.size() == 1 && module.programs.empty()) return Found{&module.kernels[0], nullptr};
    return invalid(fmt::format("the module has {} kernels and {} programs; name the one you want",
                               module.kernels.size(), module.programs.size()));
  }
  if (const ir::Kernel* kernel = module.find(name)) return Found{kernel, nullptr};
  if (const ir::Program* program = module.find_program(name)) return Found{nullptr, program};
  std::string names;
  for (const ir::Kernel& kernel : module.kernels)
    names += fmt::format("{}`{}`", names.empty() ? "" : ", ", kernel.name);
  for (const ir::Program& program : module.programs)
    names += fmt::format("{}`{}`", names.empty() ? "" : ", ", program.header.name);
  return invalid(fmt::format("the module has no kernel `{}`; it has {}", name, names));
}

}  // namespace

kachel_status kachel_module_create(kachel_engine* engine, const char* text, size_t length, const char* name,
                                   kachel_module** out, kachel_error** err) {
  return capi::guarded(err, [&]() -> Status {
    if (!engine) return capi::missing("engine");
    if (!text) return capi::missing("text");
    if (!out) return capi::missing("out");
    KACHEL_ASSIGN(ir::Module module, ir::load({text, length}, name ? name : "program.tile"));
    *out = new kachel_module{engine->engine, std::make_shared<const ir::Module>(std::move(module))};
    return {};
  });
}

void kachel_module_release(kachel_module* module) {
  delete module;
}

int32_t kachel_module_kernel_count(const kachel_module* module) {
  return module ? static_cast<int32_t>(module->module->kernels.size() + module->module->programs.size()) : 0;
}
const char* kachel_module_kernel_name(const kachel_module* module, int32_t index) {
  const ir::Kernel* kernel = kernel_at(module, index);
  return kernel ? kernel->name.c_str() : nullptr;
}
int32_t kachel_module_const_count(const kachel_module* module, int32_t kernel_index) {
  const ir::Kernel* kernel = kernel_at(module, kernel_index);
  return kernel ? static_cast<int32_t>(kernel->consts.size()) : 0;
}
const char* kachel_module_const_name(const kachel_module* module, int32_t kernel_index, int32_t index) {
  const ir::Var* var = const_at(module, kernel_index, index);
  return var ? var->name.c_str() : nullptr;
}
const char* kachel_module_const_type(const kachel_module* module, int32_t kernel_index, int32_t index) {
  const ir::Var* var = const_at(module, kernel_index, index);
  return var ? ir::name(var->type.dtype).data() : nullptr;
}

kachel_status kachel_kernel_get(kachel_module* module, const char* name, const kachel_const* consts, size_t const_count,
                                kachel_kernel** out, kachel_error** err) {
  return capi::guarded(err, [&]() -> Status {
    if (!module) return capi::missing("module");
    if (!out) return capi::missing("out");
    if (const_count != 0 && !consts) return capi::missing("consts");
    KACHEL_ASSIGN(const Found found, find(*module->module, name));
    std::vector<runtime::ConstValue> values;
    for (size_t i = 0; i < const_count; ++i) {
      if (!consts[i].name) return capi::missing("name of a const");
      values.push_back({consts[i].name, consts[i].i, consts[i].f});
    }
    if (found.program) {
      KACHEL_ASSIGN(auto program, runtime::ProgramModel::create(*module->module, *found.program, values));
      *out = new kachel_kernel{std::make_shared<runtime::ProgramHandle>(module->engine, std::move(program))};
      return {};
    }
    KACHEL_ASSIGN(auto model, runtime::KernelModel::create(*found.kernel, values));
    auto forms = runtime::PreparedForms::create(module->engine, *found.kernel, values, model);
    *out =
        new kachel_kernel{std::make_shared<runtime::KernelHandle>(module->engine, std::move(model), std::move(forms))};
    return {};
  });
}
