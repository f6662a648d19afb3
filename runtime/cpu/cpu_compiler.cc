// The CPU's compiler as the engine sees it: finds libkachel_llvm.so, opens it when the first kernel is compiled, and
// checks that what comes back can be loaded before anybody stores it.
#include <dlfcn.h>
#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/cpu/cpu_features.h"
#include "runtime/cpu/object_loader.h"
#include "runtime/device.h"
#include "runtime/llvm/llvm_module.h"
#include "runtime/own_folder.h"

namespace kachel::runtime {
namespace {

constexpr char kModuleName[] = "libkachel_llvm.so";
constexpr int32_t kOptimizationLevel = 3;

// The documented search: KACHEL_LLVM alone, else the option alone, else next to this library, in the lib folder beside
// its own, and where the dynamic linker looks.
std::vector<std::string> candidate_paths(const std::string& option) {
  const char* variable = std::getenv("KACHEL_LLVM");
  std::string given = variable && *variable ? variable : option;
  if (!given.empty()) {
    std::error_code ignored;
    return {std::filesystem::is_directory(given, ignored) ? given + "/" + kModuleName : given};
  }
  std::string own = own_folder();
  return {own + "/" + kModuleName, own + "/../lib/" + kModuleName, kModuleName};
}

// The module's functions. Never closed: LLVM has no safe way back.
struct LlvmModule {
  decltype(&kachel_llvm_interface) interface = nullptr;
  decltype(&kachel_llvm_version) version = nullptr;
  decltype(&kachel_llvm_compile) compile = nullptr;
  decltype(&kachel_llvm_release) release = nullptr;
};

template <class Function>
bool find_symbol(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

Result<LlvmModule> open_module(const std::string& option) {
  std::string tried;
  for (const std::string& path : candidate_paths(option)) {
    // RTLD_LOCAL: the symbols of our LLVM must not meet those of another in the process.
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library) {
      const char* why = dlerror();
      tried += fmt::format("\n  {}", why ? why : path.c_str());
      continue;
    }
    LlvmModule module;
    if (!find_symbol(library, "kachel_llvm_interface", module.interface) ||
        !find_symbol(library, "kachel_llvm_version", module.version) ||
        !find_symbol(library, "kachel_llvm_compile", module.compile) ||
        !find_symbol(library, "kachel_llvm_release", module.release)) {
      tried += fmt::format("\n  {}: not the CPU compiler of Kachel", path);
      continue;
    }
    if (module.interface() != KACHEL_LLVM_INTERFACE) {
      tried += fmt::format("\n  {}: of another version of Kachel", path);
      continue;
    }
    return module;
  }
  return Status(Code::kNoDevice,
                fmt::format("the CPU compiler is not available; install {} next to the library together with LLVM 19 "
                            "(Debian: libllvm19), or set KACHEL_LLVM to its path. Tried:{}",
                            kModuleName, tried));
}

class CpuCompiler : public Compiler {
 public:
  explicit CpuCompiler(const DeviceOptions& options) : path_(options.cpu_compiler_path) {}

  Result<CompileResult> compile(const CompileRequest& request) override;
  std::string version() const override { return opened() ? std::string("llvm ") + module_.version() : std::string(); }
  bool opened() const override { return opened_.load(std::memory_order_acquire); }

 private:
  Status open();

  const std::string path_;
  std::mutex mutex_;
  std::atomic<bool> opened_{false};
  LlvmModule module_;  // constant once opened_
};

Status CpuCompiler::open() {
  if (opened()) return {};
  std::lock_guard lock(mutex_);
  if (opened()) return {};
  KACHEL_ASSIGN(module_, open_module(path_));
  opened_.store(true, std::memory_order_release);
  return {};
}

Status failure(int32_t status, const KachelLlvmResult& result, const CompileRequest& request) {
  std::string log = result.log ? result.log : "";
  switch (status) {
    case KACHEL_LLVM_NO_MEMORY:
      return {Code::kNoMemory, "no memory to compile a CPU kernel"};
    case KACHEL_LLVM_TIME_LIMIT:
      return {Code::kCompile,
              fmt::format("compiling '{}' took longer than {} ms", request.entry, request.time_limit_ns / 1'000'000),
              log};
    default:
      break;
  }
  std::string first_line = log.substr(0, log.find('\n'));
  return {Code::kCompile, fmt::format("LLVM refused '{}': {}", request.entry, first_line), log};
}

Result<CompileResult> CpuCompiler::compile(const CompileRequest& request) {
  KACHEL_ASSIGN(CpuArchitecture architecture, parse_cpu_architecture(request.architecture));
  KACHEL_TRY(open());
  auto begin = std::chrono::steady_clock::now();
  std::string entry(request.entry);
  KachelLlvmRequest call{};
  call.text = request.text.data();
  call.text_size = request.text.size();
  call.entry = entry.c_str();
  call.cpu = architecture.cpu.c_str();
  call.features = architecture.features.c_str();
  call.vector_bits = architecture.vector_bits;
  call.optimization_level = kOptimizationLevel;
  call.time_limit_ns = request.time_limit_ns;

  KachelLlvmResult answer{};
  int32_t status = module_.compile(&call, &answer);
  if (status != KACHEL_LLVM_OK) {
    Status error = failure(status, answer, request);
    module_.release(&answer);
    return error;
  }
  CompileResult result;
  result.binary.assign(answer.object, answer.object_size);
  result.log = answer.log ? answer.log : "";
  module_.release(&answer);
  if (Status loadable = LoadedObject::check(result.binary); !loadable.ok())
    return Status(Code::kCompile, fmt::format("'{}' cannot be used: {}", request.entry, loadable.message()),
                  result.log);
  result.compile_ns =
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

}  // namespace

std::unique_ptr<Compiler> make_cpu_compiler(const DeviceOptions& options) {
  return std::make_unique<CpuCompiler>(options);
}

}  // namespace kachel::runtime
