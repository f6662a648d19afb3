// Judges a launch by the reference interpreter.
#pragma once
#include <span>
#include <string_view>

#include "ir/interpret.h"
#include "runtime/engine/bind/arguments.h"
#include "runtime/engine/bind/kernel_model.h"

namespace kachel::runtime {

struct CheckResult {
  uint64_t elements = 0, mismatches = 0, undecided = 0;
  double median_bound_ulps = 0;
  std::string first;  // mismatch, in words
};

// Interprets the kernel on `before` and compares with `after`; both in host memory. Without a configuration, the first
// that is admitted.
Result<CheckResult> check(const KernelModel& model, std::span<const Arg> before, std::span<const Arg> after,
                          const std::string_view* configuration);

}  // namespace kachel::runtime
