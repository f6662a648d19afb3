// A launch plan as the store keeps it: what was compiled and how to launch it. Needs neither program text nor lowering
// to be used. The bytes come from disk, so decoding trusts nothing.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lowering/lower.h"
#include "runtime/device.h"
#include "runtime/engine/bind/kernel_model.h"
#include "support/status.h"

namespace kachel::runtime {

// One launch. `slots` index the generic kernel: parameters, dimensions and grid axes by their position in it.
struct PlanStep {
  std::string entry;
  int32_t threads = 1;
  int64_t shared_bytes = 0;
  int64_t workspace_bytes = 0;  // per launched block
  std::vector<lowering::Slot> slots;
  std::vector<lowering::TensorMap> maps;
  bool resident = false;         // see lowering::Lowered
  std::vector<int32_t> cluster;  // the same
  int32_t tile_blocks = 1;       // the same
  ResourceUsage usage;
  std::string flaw;  // what the compiler holds against it, for the tuner (tuner/runner.h)
  std::string binary;
};

struct PlanRecord {
  // For people and listings; not part of what the plan does.
  std::string kernel, configuration, architecture, compiler;
  bool deterministic = true;
  int64_t compile_ns = 0;
  std::vector<PlanStep> steps;  // one, in this version
};

std::string encode_plan(const PlanRecord& plan);

// Accepts what encode_plan() wrote for a kernel of this shape: every slot refers to something that `model` has, and all
// sizes are within what a device could take. kStore with what is wrong otherwise.
Result<PlanRecord> decode_plan(std::string_view bytes, const KernelModel& model);

// The names alone, from any version that is understood, for listings.
struct PlanSummary {
  std::string kernel, configuration, architecture;
};
Result<PlanSummary> summarise_plan(std::string_view bytes);

}  // namespace kachel::runtime
