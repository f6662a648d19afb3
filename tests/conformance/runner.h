// Runs one program on one device and compares with the reference interpreter: every element within its bound, unwritten
// elements, guards and gaps untouched.
#pragma once
#include "ir/instantiate.h"
#include "lowering/lower.h"
#include "runtime/device.h"
#include "tests/conformance/host_tensor.h"

namespace kachel::conformance {

struct ArgumentSpec {
  TensorSpec tensor;       // used where the parameter is a tensor
  ir::ScalarValue scalar;  // else
};

struct Case {
  std::string name;
  ir::Kernel kernel;      // generic
  ir::Bindings bindings;  // types, consts, tunables; static dimensions are taken from the shapes
  std::vector<ArgumentSpec> args;
  uint64_t seed = 1;
  int threads = 128;                     // a block, on a GPU; 0: the lowering's choice
  uint64_t fact_mask = ~uint64_t{0};     // facts that may be used where they hold
  int64_t shared_limit = 0;              // 0: the device's
  uint32_t most_blocks = 0;              // launch fewer blocks than tiles; 0: one a tile
  int architecture = 90;                 // of a simulated GPU
  int teams = 0;                         // lowering::Target::teams
  int cluster = 1, cluster_columns = 0;  // of lowering::Target
  bool one_tile = false;                 // lowering::Target::one_tile
};

struct Report {
  Status status;  // not ok: it did not run
  int64_t mismatches = 0, damaged = 0, undecided = 0, elements = 0;
  double median_bound_ulps = 0;
  std::string first;  // what the first mismatch was
  bool passed() const { return status.ok() && mismatches == 0 && damaged == 0; }
  std::string describe() const;
};

// The kernel that a case runs: bindings and static dimensions put in.
Result<ir::Kernel> concrete_kernel(const Case& test);

// Types, values, shapes, strides and launch: what a failure needs to be repeated.
std::string describe(const Case& test);

Report run_case(runtime::Device& device, const Case& test);

// The steps of run_case() after the interpreter's.
class Prepared;  // prepared.h
lowering::Target target_of(const runtime::DeviceProperties& properties, const Case& test);
Report run_lowered(runtime::Device& device, const Prepared& prepared, const lowering::Lowered& lowered);

}  // namespace kachel::conformance
