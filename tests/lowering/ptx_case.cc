#include "tests/lowering/ptx_case.h"

#include <algorithm>
#include <bit>

#include "tests/lowering/simulated_case.h"

namespace kachel::lowering {

Result<PtxCase> lower_for_ptx(const conformance::Prepared& prepared) {
  Target target = kSimulatedGpu;
  const conformance::Case& test = prepared.test();
  target.architecture = std::max(test.architecture, target.architecture);
  target.threads = test.threads;
  target.cluster = test.cluster;
  target.one_tile = test.one_tile;
  if (test.shared_limit) target.shared_limit = test.shared_limit;
  target.group_products = target.bulk_copies = target.bulk_stores = false;
  PtxCase out;
  KACHEL_ASSIGN(out.lowered, lower(prepared.kernel(), target, prepared.facts()));
  const std::string_view body = ptx_of(out.lowered.text);
  if (body.empty()) return unsupported("the kernel is CUDA C++");
  KACHEL_ASSIGN(out.program, parse_ptx(body));
  return out;
}

conformance::Report ptx_case(const conformance::Prepared& prepared, const PtxCase& lowered, ThreadOrder order) {
  conformance::Report report;
  std::vector<conformance::OwnedTensor> tensors = prepared.arguments();
  std::vector<void*> pointers;
  PtxLaunch launch;
  for (size_t i = 0; i < tensors.size(); ++i) {
    pointers.push_back(nullptr);
    if (!prepared.kernel().params[i].tensor) continue;
    pointers.back() = tensors[i].bytes().data() + tensors[i].offset();
    launch.memory.push_back({pointers.back(), tensors[i].element_bytes()});
  }
  // Fewer blocks than tiles, so that blocks go on to further tiles.
  constexpr uint32_t kBlocks = 3;
  constexpr int64_t kLine = 256;
  const auto bytes = static_cast<size_t>(lowered.lowered.workspace_bytes);
  std::vector<uint8_t> workspace;
  const auto grid = [&](void* scratch) {
    return prepared.launch(lowered.lowered.slots, lowered.lowered.cluster, pointers, scratch);
  };
  auto made = grid(nullptr);
  if (!made.ok()) {
    report.status = made.status();
    return report;
  }
  launch.blocks =
      lowered.lowered.one_tile ? static_cast<uint32_t>(made->tiles) : std::min(prepared.blocks(made->tiles), kBlocks);
  launch.cluster = static_cast<uint32_t>(lowered.lowered.tile_blocks);
  if (bytes) {
    workspace.assign(bytes * launch.blocks + kLine, 0xA5);
    uint8_t* first = workspace.data() + (kLine - std::bit_cast<int64_t>(workspace.data()) % kLine) % kLine;
    launch.memory.push_back({first, bytes * launch.blocks});
    made = grid(first);
  }
  // Of each tile.
  launch.budget *= std::max<int64_t>(made->tiles / std::max(launch.blocks, 1u), 1);
  launch.blocks *= launch.cluster;
  launch.params = made->params;
  launch.threads = static_cast<uint32_t>(lowered.lowered.threads);
  launch.shared_bytes = lowered.lowered.shared_bytes;
  launch.order = order;
  Status status = run_ptx(lowered.program, launch);
  report = prepared.judge(tensors);
  report.status = std::move(status);
  return report;
}

}  // namespace kachel::lowering
