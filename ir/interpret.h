// The reference interpreter: executes a concrete kernel as written, one block after another, and links no lowering
// code. Every float carries a float64 value and a bound on how far a correct implementation may be from it.
#pragma once
#include <cstdint>
#include <vector>

#include "ir/kernel.h"

namespace kachel::ir {

// A tensor in host memory, in storage format (4-bit types packed). Strides in elements. Borrowed.
struct HostTensor {
  void* data = nullptr;
  DType type = DType::F32;
  std::vector<int64_t> shape, strides;
};

// What an element of an output may be.
struct Expected {
  double value = 0;        // of floats; NaN where a NaN is expected
  double bound = 0;        // |actual - value| <= bound
  int64_t bits = 0;        // of integers and bools, exact
  bool undecided = false;  // hangs on a comparison within the error, or on memory nothing has written: not judged
  bool written = false;    // false: must keep its former bytes
};

struct ScalarValue {
  double f = 0;   // f32 parameters
  int64_t i = 0;  // others
};

struct Argument {
  HostTensor tensor;
  ScalarValue scalar;
};

struct InterpretResult {
  // For each parameter that is an out or inout tensor: its elements in row-major logical order. Else empty.
  std::vector<std::vector<Expected>> outputs;
};

// `args` in the order of kernel.params; tensors are read, never written. Errors as at launch: rank, type, shape or
// `where` mismatch. kUnsupported past `step_limit` scalar operations, so that a test cannot hang.
Result<InterpretResult> interpret(const Kernel& concrete, const std::vector<Argument>& args,
                                  int64_t step_limit = int64_t{1} << 34);

// How many ulp of `type` `bound` is at `value`; to show that bounds mean something.
double ulps(DType type, double value, double bound);

// Counts the elements that violate their expectation and describes the first one. `actual` has the layout of the
// argument that the kernel was run on, `before` its bytes before the launch (for elements that must not change).
struct Mismatch {
  int64_t count = 0;
  int64_t undecided = 0;
  double median_bound_ulps = 0;
  std::string first;
};
Mismatch compare(const std::vector<Expected>& expected, const HostTensor& actual, const HostTensor& before);

}  // namespace kachel::ir
