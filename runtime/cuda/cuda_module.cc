#include "runtime/cuda/cuda_module.h"

#include <fmt/format.h>

#include "runtime/cuda/cubin_check.h"
#include "runtime/cuda/cuda_function.h"

namespace kachel::runtime::cuda {
namespace {

// Bytes of the kernel's one parameter, 0 if it has none, -1 if the driver does not say. A second parameter is refused:
// launches pass one pointer, and the driver would read beyond it.
Result<int64_t> parameter_bytes(const DriverApi& api, FunctionRef function, const std::string& entry) {
  if (!api.func_get_param_info) return int64_t{-1};
  size_t offset = 0, bytes = 0;
  if (api.func_get_param_info(function, 1, &offset, &bytes) == DriverResult::kSuccess)
    return invalid(fmt::format("kernel \"{}\" takes several parameters: pass one struct by value", entry));
  if (api.func_get_param_info(function, 0, &offset, &bytes) != DriverResult::kSuccess) return int64_t{0};
  return static_cast<int64_t>(bytes);
}

}  // namespace

Result<std::unique_ptr<DeviceModule>> CudaModule::load(std::shared_ptr<const CudaContext> context,
                                                       int64_t shared_limit_bytes, std::string_view binary) {
  KACHEL_TRY(check_cubin(binary));
  // Aligned and terminated, which a view need not be; the driver makes a copy of its own.
  const std::string image(binary);
  const DriverApi& api = context->api();
  std::unique_ptr<CudaModule> module(new CudaModule(std::move(context), shared_limit_bytes));
  CudaContext::Current current(*module->context_);
  KACHEL_TRY(current.status());
  if (api.has_libraries()) {
    KACHEL_DRIVER_TRY(api,
                      api.library_load_data(&module->library_, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
                      "cuLibraryLoadData");
  } else {
    KACHEL_DRIVER_TRY(api, api.module_load_data(&module->module_, image.data()), "cuModuleLoadData");
  }
  return std::unique_ptr<DeviceModule>(std::move(module));
}

CudaModule::~CudaModule() {
  const DriverApi& api = context_->api();
  CudaContext::Current current(*context_);
  if (!current.status().ok()) return;
  if (library_) (void)api.library_unload(library_);
  if (module_) (void)api.module_unload(module_);
}

Result<FunctionRef> CudaModule::resolve(const std::string& entry) const {
  const DriverApi& api = context_->api();
  FunctionRef function = nullptr;
  DriverResult result;
  if (library_) {
    KernelRef kernel = nullptr;
    result = api.library_get_kernel(&kernel, library_, entry.c_str());
    if (result == DriverResult::kSuccess) result = api.kernel_get_function(&function, kernel);
  } else {
    result = api.module_get_function(&function, module_, entry.c_str());
  }
  if (result == DriverResult::kNotFound) return invalid(fmt::format("the binary has no kernel \"{}\"", entry));
  KACHEL_DRIVER_TRY(api, result, fmt::format("resolving kernel \"{}\"", entry));
  // The driver loads lazily by default: without this the first launch would, and a launch under capture must not.
  if (api.func_load) KACHEL_DRIVER_TRY(api, api.func_load(function), fmt::format("loading kernel \"{}\"", entry));
  return function;
}

Status CudaModule::raise_shared_limit(FunctionRef function, const std::string& entry, uint32_t shared_bytes) {
  const DriverApi& api = context_->api();
  const Status too_much = unsupported(fmt::format(
      "kernel \"{}\" wants {} bytes of dynamic shared memory a block; this device has {} for that and its static part",
      entry, shared_bytes, shared_limit_bytes_));
  if (static_cast<int64_t>(shared_bytes) > shared_limit_bytes_) return too_much;
  std::lock_guard lock(limit_mutex_);
  int limit = 0;
  KACHEL_DRIVER_TRY(api, api.func_get_attribute(&limit, FunctionAttribute::kMaxDynamicSharedBytes, function),
                    "cuFuncGetAttribute");
  if (static_cast<int64_t>(shared_bytes) <= limit) return {};
  // The driver knows what the kernel's static part leaves.
  const DriverResult result =
      api.func_set_attribute(function, FunctionAttribute::kMaxDynamicSharedBytes, static_cast<int>(shared_bytes));
  if (result == DriverResult::kInvalidValue) return too_much;
  return driver_status(api, result, "cuFuncSetAttribute(MAX_DYNAMIC_SHARED_SIZE_BYTES)");
}

Result<std::unique_ptr<DeviceFunction>> CudaModule::function(const std::string& entry, uint32_t shared_bytes) {
  const DriverApi& api = context_->api();
  CudaContext::Current current(*context_);
  KACHEL_TRY(current.status());
  KACHEL_ASSIGN(const FunctionRef function, resolve(entry));
  int registers = 0, local = 0, shared = 0;
  KACHEL_DRIVER_TRY(api, api.func_get_attribute(&registers, FunctionAttribute::kRegisters, function),
                    "cuFuncGetAttribute(NUM_REGS)");
  KACHEL_DRIVER_TRY(api, api.func_get_attribute(&local, FunctionAttribute::kLocalBytes, function),
                    "cuFuncGetAttribute(LOCAL_SIZE_BYTES)");
  KACHEL_DRIVER_TRY(api, api.func_get_attribute(&shared, FunctionAttribute::kSharedBytes, function),
                    "cuFuncGetAttribute(SHARED_SIZE_BYTES)");
  KACHEL_TRY(raise_shared_limit(function, entry, shared_bytes));
  KACHEL_ASSIGN(const int64_t params_bytes, parameter_bytes(api, function, entry));
  return std::unique_ptr<DeviceFunction>(
      std::make_unique<CudaFunction>(*context_, function, params_bytes, ResourceUsage{registers, local, shared}));
}

}  // namespace kachel::runtime::cuda
