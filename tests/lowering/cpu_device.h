// The CPU device, for tests that run what they lower.
#pragma once
#include <doctest/doctest.h>

#include <memory>

#include "runtime/device.h"

namespace kachel::lowering {

// Null, and a message, where nothing compiles for it: without LLVM.
inline std::unique_ptr<runtime::Device> compiling_cpu() {
  auto cpu = runtime::open_cpu_device({});
  REQUIRE(cpu.ok());
  const char* const probe = "define void @f(ptr %p, i64 %b, i64 %n, i64 %s, ptr %w) {\n  ret void\n}\n";
  if ((*cpu)->compiler().compile({probe, "f", (*cpu)->properties().architecture, 0}).ok()) return std::move(*cpu);
  MESSAGE("no CPU compiler here");
  return nullptr;
}

}  // namespace kachel::lowering
