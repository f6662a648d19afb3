#include "tests/lowering/simulated_case.h"

#include <fmt/format.h>

#include "lowering/pipeline.h"

namespace kachel::lowering {

namespace {

Target target_of(const conformance::Prepared& prepared) {
  Target target = kSimulatedGpu;
  target.architecture = prepared.test().architecture;
  target.threads = prepared.test().threads;
  target.teams = prepared.test().teams;
  target.cluster = prepared.test().cluster;
  target.cluster_columns = prepared.test().cluster_columns;
  target.one_tile = prepared.test().one_tile;
  if (prepared.test().shared_limit) target.shared_limit = prepared.test().shared_limit;
  return target;
}

}  // namespace

Result<std::string> lower_text(const conformance::Prepared& prepared) {
  Target target = target_of(prepared);
  target.architecture = kSimulatedGpu.architecture;
  KACHEL_ASSIGN(Lowered lowered, lower(prepared.kernel(), target, prepared.facts()));
  return std::move(lowered.text);
}

Result<LoopKernel> lower_case(const conformance::Prepared& prepared, bool generic) {
  Target target = target_of(prepared);
  target.generic = generic;
  KACHEL_ASSIGN(Lowering lowering, lower_to_loops(prepared.kernel(), target, prepared.facts()));
  return std::move(lowering.loops);
}

conformance::Report simulate_case(const conformance::Prepared& prepared, const LoopKernel& kernel, ThreadOrder order,
                                  Simulation* counted) {
  conformance::Report report;
  std::vector<conformance::OwnedTensor> tensors = prepared.arguments();
  std::vector<void*> pointers;
  std::vector<Allocation> memory;
  for (size_t i = 0; i < tensors.size(); ++i) {
    pointers.push_back(nullptr);
    if (!prepared.kernel().params[i].tensor) continue;
    pointers.back() = tensors[i].bytes().data() + tensors[i].offset();
    memory.push_back({pointers.back(), tensors[i].element_bytes()});
  }
  std::vector<MappedTensor> maps;
  for (const TensorMap& map : kernel.maps) {
    const ir::HostTensor tensor = conformance::view_of(map, tensors[static_cast<size_t>(map.param)].view());
    MappedTensor mapped{tensor.data, tensor.type, tensor.shape, tensor.strides};
    if (ir::bits(tensor.type) == 4) {  // by bytes
      mapped.type = ir::DType::U8;
      mapped.shape.back() /= 2;
      for (int64_t& stride : mapped.strides) stride = std::max<int64_t>(stride / 2, 1);
    }
    maps.push_back(std::move(mapped));
  }
  std::vector<Slot> slots;
  for (const LoopParam& param : kernel.params) slots.push_back(param.slot);
  auto launch = prepared.launch(slots, kernel.cluster, pointers, nullptr);
  if (!launch.ok()) {
    report.status = launch.status();
    return report;
  }
  // Fewer blocks than tiles, so that blocks go on to further tiles.
  const auto cluster = static_cast<uint32_t>(blocks_of(kernel.cluster));
  const uint32_t wanted =
      kernel.one_tile ? static_cast<uint32_t>(launch->tiles) : std::min(prepared.blocks(launch->tiles), 3u);
  const uint32_t blocks = (wanted + cluster - 1) / cluster * cluster;
  Simulation simulation = simulate(kernel, launch->params, memory, blocks, order, maps);
  if (counted) *counted = simulation;
  report = prepared.judge(tensors);
  report.status = std::move(simulation.status);
  if (report.status.ok() && simulation.races)
    report.status = internal(fmt::format("{} races; {}", simulation.races, simulation.first_race));
  return report;
}

}  // namespace kachel::lowering
