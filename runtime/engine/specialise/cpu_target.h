// What the architecture string of a CPU device means to lowering.
#pragma once
#include "lowering/lower.h"
#include "runtime/cpu/cpu_features.h"

namespace kachel::runtime {

// Leaves the target of any other device as it is.
inline void describe_cpu(std::string_view architecture, lowering::Target* target) {
  auto cpu = parse_cpu_architecture(architecture);
  if (!cpu.ok()) return;
  using Dot16 = lowering::Target::Dot16;
  target->vector_bits = cpu->vector_bits;
  // The first AVX-512 had no instructions on 16-bit elements, nor had the first AVX.
  const bool narrow = cpu->vector_bits == 512   ? cpu->has("avx512bw") || cpu->cpu == "x86-64-v4"
                      : cpu->vector_bits == 256 ? cpu->has("avx2") || cpu->cpu == "x86-64-v3"
                                                : true;
  target->dot16 = !narrow ? Dot16::kNone : cpu->has("avx512vnni") ? Dot16::kFused : Dot16::kMultiplyAdd;
}

}  // namespace kachel::runtime
