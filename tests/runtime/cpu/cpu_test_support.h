// Shared by the tests of the CPU device.
#pragma once
#include <doctest/doctest.h>

#include <string>

#include "runtime/cpu/cpu_features.h"
#include "runtime/device.h"

namespace kachel::runtime {

inline DeviceOptions test_options(int32_t threads = 0) {
  DeviceOptions options;
  options.cpu_compiler_path = KACHEL_LLVM_MODULE;
  options.cpu_threads = threads;
  return options;
}

inline Result<CompileResult> compile_for(const std::string& text, const std::string& entry,
                                         const std::string& architecture) {
  return make_cpu_compiler(test_options())->compile({text, entry, architecture, 0});
}

inline std::string compile_or_fail(const std::string& text, const std::string& entry) {
  Result<CompileResult> result = compile_for(text, entry, host_cpu_architecture());
  INFO(result.status().message());
  INFO(result.status().log());
  REQUIRE(result.ok());
  return result->binary;
}

// A kernel whose body has %params and %arena and falls through to the end.
inline std::string kernel_text(const std::string& body, const std::string& declarations = "") {
  return "define void @kernel(ptr %params, i64 %begin, i64 %end, i64 %blocks, ptr %arena) {\n" + body +
         "\n  ret void\n}\n" + declarations;
}

using KernelPointer = void (*)(const void*, int64_t, int64_t, int64_t, void*);
inline KernelPointer as_kernel(const void* address) {
  return reinterpret_cast<KernelPointer>(const_cast<void*>(address));
}

}  // namespace kachel::runtime
