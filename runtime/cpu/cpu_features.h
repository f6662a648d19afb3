// What of x86-64 this machine has, in LLVM's names, found without LLVM: a store hit must not open the compiler.
//
// The architecture string is everything a CPU binary depends on: "x86-64/x86-64-v4/+avx,+avx2,...". Its middle part is
// the LLVM processor whose scheduling model and baseline apply, its last the features in alphabetical order, of which
// only those are listed that code generation for numeric kernels can use.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "support/status.h"

namespace kachel::runtime {

// Sorted. Features that the operating system does not save and restore are absent. Empty on other processors.
std::vector<std::string> detect_cpu_features();

// "x86-64-v4", "x86-64-v3", "x86-64-v2" or "x86-64": the highest level whose every feature is in `features`.
std::string cpu_level(const std::vector<std::string>& features);

// Empty where the host is not an x86-64.
std::string host_cpu_architecture();

struct CpuArchitecture {
  std::string cpu;       // "x86-64-v4"
  std::string features;  // "+avx,+avx2"
  int32_t vector_bits = 128;
  bool has(std::string_view feature) const;
};

// kUnsupported for anything but "x86-64/<cpu>/<features>".
Result<CpuArchitecture> parse_cpu_architecture(std::string_view architecture);

}  // namespace kachel::runtime
