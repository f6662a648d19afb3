#include "runtime/engine/specialise/plan_record.h"

#include <fmt/format.h>

#include "support/bytes.h"

namespace kachel::runtime {
namespace {

constexpr uint32_t kVersion = 9;
constexpr int64_t kMaxShared = int64_t{1} << 30;
constexpr int64_t kMaxWorkspace = int64_t{1} << 36;
constexpr uint64_t kMaxSlots = 512;  // 4096 bytes of kernel parameters

Status damaged(std::string_view what) {
  return {Code::kStore, fmt::format("not a plan of this kernel: {}", what)};
}

bool slot_is_valid(const lowering::Slot& slot, const KernelModel& model) {
  using Kind = lowering::Slot::Kind;
  auto is_param = [&](bool tensor) {
    return slot.index >= 0 && slot.index < static_cast<int>(model.params.size()) &&
           model.params[slot.index].is_tensor == tensor;
  };
  switch (slot.kind) {
    case Kind::kPointer:
      return is_param(true);
    case Kind::kStride:
      return is_param(true) && slot.axis >= 0 && slot.axis < static_cast<int>(model.params[slot.index].axes.size());
    case Kind::kDim:
      return slot.index >= 0 && slot.index < static_cast<int>(model.dims.size());
    case Kind::kScalar:
      return is_param(false);
    case Kind::kGrid:
      return slot.index >= 0 && slot.index < static_cast<int>(model.kernel.grid.size());
    case Kind::kBlocks:
    case Kind::kWorkspace:
      return true;
  }
  return false;
}

bool map_is_valid(const lowering::TensorMap& map, const KernelModel& model) {
  if (map.param < 0 || map.param >= static_cast<int>(model.params.size())) return false;
  const ParamModel& param = model.params[map.param];
  if (!param.is_tensor || map.box.size() != param.axes.size() || map.box.size() < 2) return false;
  for (int32_t extent : map.box)
    if (extent < 1 || extent > 256) return false;
  return map.swizzle == 32 || map.swizzle == 64 || map.swizzle == 128;
}

bool is_cluster(const std::vector<int32_t>& cluster, const KernelModel& model) {
  if (cluster.empty()) return true;
  int64_t blocks = 1;
  for (int32_t along : cluster) {
    if (along < 1 || along > lowering::kMostCluster || (along & (along - 1))) return false;
    blocks *= along;
  }
  return cluster.size() == model.grid.size() && blocks > 1 && blocks <= lowering::kMostCluster;
}

bool are_tile_blocks(const PlanStep& step) {
  const int32_t blocks = step.tile_blocks;
  if (blocks == 1) return true;
  return blocks > 1 && blocks <= lowering::kMostCluster && (blocks & (blocks - 1)) == 0 && step.cluster.empty() &&
         !step.resident && !step.workspace_bytes;
}

void put_step(ByteWriter& out, const PlanStep& step) {
  out.put_bytes(step.entry);
  out.put(step.threads);
  out.put(step.shared_bytes);
  out.put(step.workspace_bytes);
  out.put<uint64_t>(step.slots.size());
  for (const lowering::Slot& slot : step.slots) {
    out.put(static_cast<uint8_t>(slot.kind));
    out.put<int32_t>(slot.index);
    out.put<int32_t>(slot.axis);
  }
  out.put<uint64_t>(step.maps.size());
  for (const lowering::TensorMap& map : step.maps) {
    out.put<int32_t>(map.param);
    out.put<int32_t>(map.swizzle);
    out.put<uint8_t>(static_cast<uint8_t>(map.transposed | map.as_one << 1));
    out.put<uint64_t>(map.box.size());
    for (int32_t extent : map.box) out.put<int32_t>(extent);
  }
  out.put<uint8_t>(step.resident);
  out.put<uint64_t>(step.cluster.size());
  for (int32_t along : step.cluster) out.put(along);
  out.put(step.tile_blocks);
  out.put(step.usage.registers);
  out.put(step.usage.spill_bytes);
  out.put(step.usage.shared_bytes);
  out.put_bytes(step.flaw);
  out.put_bytes(step.binary);
}

Result<PlanStep> get_step(ByteReader& in, const KernelModel& model) {
  PlanStep step;
  step.entry = in.get_bytes();
  step.threads = in.get<int32_t>();
  step.shared_bytes = in.get<int64_t>();
  step.workspace_bytes = in.get<int64_t>();
  const uint64_t count = in.get_count(9);
  if (count > kMaxSlots) return damaged("more slots than a kernel can take");
  for (uint64_t i = 0; i < count && in.ok(); ++i) {
    lowering::Slot slot;
    slot.kind = static_cast<lowering::Slot::Kind>(in.get<uint8_t>());
    slot.index = in.get<int32_t>();
    slot.axis = in.get<int32_t>();
    if (in.ok() && !slot_is_valid(slot, model)) return damaged("a slot refers to nothing");
    step.slots.push_back(slot);
  }
  const uint64_t maps = in.get_count(16);
  if ((count + 15) / 16 * 16 + kTensorMapWords * maps > kMaxSlots)
    return damaged("more tensor maps than a kernel can take");
  for (uint64_t i = 0; i < maps && in.ok(); ++i) {
    lowering::TensorMap map;
    map.param = in.get<int32_t>();
    map.swizzle = in.get<int32_t>();
    const auto view = in.get<uint8_t>();
    if (view > 2) return damaged("a tensor map describes nothing");
    map.transposed = view == 1;
    map.as_one = view == 2;
    map.box.resize(in.get_count(4));
    for (int32_t& extent : map.box) extent = in.get<int32_t>();
    if (in.ok() && !map_is_valid(map, model)) return damaged("a tensor map describes nothing");
    step.maps.push_back(std::move(map));
  }
  const auto resident = in.get<uint8_t>();
  if (resident > 1) return damaged("whether its blocks are resident");
  step.resident = resident == 1;
  step.cluster.resize(in.get_count(4));
  for (int32_t& along : step.cluster) along = in.get<int32_t>();
  if (in.ok() && !is_cluster(step.cluster, model)) return damaged("the shape of its clusters");
  step.tile_blocks = in.get<int32_t>();
  if (in.ok() && !are_tile_blocks(step)) return damaged("how many blocks compute a tile");
  step.usage.registers = in.get<int32_t>();
  step.usage.spill_bytes = in.get<int64_t>();
  step.usage.shared_bytes = in.get<int64_t>();
  step.flaw = in.get_bytes();
  step.binary = in.get_bytes();
  if (!in.ok()) return damaged("it ends early");
  if (step.entry.empty() || step.entry.find('\0') != std::string::npos) return damaged("its entry has no name");
  if (step.threads < 1 || step.threads > 1024) return damaged("its number of threads");
  if (step.shared_bytes < 0 || step.shared_bytes > kMaxShared) return damaged("its shared memory");
  if (step.workspace_bytes < 0 || step.workspace_bytes > kMaxWorkspace) return damaged("its workspace");
  return step;
}

bool get_names(ByteReader& in, PlanRecord& plan) {
  if (in.get<uint32_t>() != kVersion) return false;
  plan.kernel = in.get_bytes();
  plan.configuration = in.get_bytes();
  plan.architecture = in.get_bytes();
  plan.compiler = in.get_bytes();
  return in.ok();
}

}  // namespace

std::string encode_plan(const PlanRecord& plan) {
  ByteWriter out;
  out.put(kVersion);
  out.put_bytes(plan.kernel);
  out.put_bytes(plan.configuration);
  out.put_bytes(plan.architecture);
  out.put_bytes(plan.compiler);
  out.put<uint8_t>(plan.deterministic ? 1 : 0);
  out.put(plan.compile_ns);
  out.put<uint64_t>(plan.steps.size());
  for (const PlanStep& step : plan.steps) put_step(out, step);
  return out.take();
}

Result<PlanRecord> decode_plan(std::string_view bytes, const KernelModel& model) {
  ByteReader in(bytes);
  PlanRecord plan;
  if (!get_names(in, plan)) return damaged("unknown version");
  const uint8_t deterministic = in.get<uint8_t>();
  if (deterministic > 1) return damaged("a flag that is neither 0 nor 1");
  plan.deterministic = deterministic == 1;
  plan.compile_ns = in.get<int64_t>();
  const uint64_t steps = in.get_count(1);
  if (steps != 1) return damaged(fmt::format("it has {} steps", steps));
  KACHEL_ASSIGN(PlanStep step, get_step(in, model));
  plan.steps.push_back(std::move(step));
  if (!in.at_end()) return damaged("bytes follow its end");
  return plan;
}

Result<PlanSummary> summarise_plan(std::string_view bytes) {
  ByteReader in(bytes);
  PlanRecord plan;
  if (!get_names(in, plan)) return damaged("unknown version");
  return PlanSummary{std::move(plan.kernel), std::move(plan.configuration), std::move(plan.architecture)};
}

}  // namespace kachel::runtime
