// From loop IR to what a launch needs: the text, and what is to be known of it.
#include <fmt/format.h>

#include <utility>

#include "ir/print.h"
#include "lowering/emit/emit.h"
#include "lowering/notes.h"
#include "lowering/pipeline.h"
#include "lowering/plan/gemm_choice.h"

namespace kachel::lowering {
namespace {

// A tile that is too large for its place is a matter of the configuration; what no configuration has is none.
std::string flaw_of(const Lowering& lowering) {
  if (std::string flaw = flaw_of_products(lowering.placements, lowering.schedule.roles[0].registers); !flaw.empty())
    return flaw;
  const int64_t bytes = lowering.loops.workspace_bytes;
  return bytes ? fmt::format("{} bytes of tiles in global memory", bytes) : "";
}

// PTX where that has code for all of the kernel. The plain lowering stays CUDA C++: what candidates are compared with
// shares as little with them as it can.
std::string emit_gpu(const LoopKernel& loops, const Target& target, std::string* missing) {
  const bool overlaps = target.architecture >= 90;
  std::string text;
  if (target.ptx && target.architecture == 90 && !is_plain(target))
    text = emit_ptx(loops, overlaps, target.bounded_waits, missing);
  if (!text.empty()) return text;
  return emit_cuda(loops, overlaps, target.bounded_waits);
}

Result<Lowered> lowered_text(const ir::Kernel& concrete, const Target& target, uint64_t fact_mask,
                             const LowerOptions& options) {
  KACHEL_ASSIGN(const Lowering lowering, lower_to_loops(concrete, target, fact_mask));
  const LoopKernel& loops = lowering.loops;
  Lowered lowered;
  const bool cpu = target.kind == Target::Kind::kCpu;
  if (!cpu && !target.generic) lowered.flaw = flaw_of(lowering);
  std::string missing;
  lowered.text = cpu ? emit_llvm(loops) : emit_gpu(loops, target, &missing);
  if (!missing.empty() && loops.tile_blocks > 1) {
    Target alone = target;
    alone.tile_blocks = 1;
    return lowered_text(concrete, alone, fact_mask, options);
  }
  lowered.entry = kEntry;
  for (const LoopParam& param : loops.params) lowered.slots.push_back(param.slot);
  lowered.threads = loops.block_threads() + (loops.producer.empty() ? 0 : loops.producer_threads);
  lowered.maps = loops.maps;
  // The producer runs ahead into the next tile. Tiles of unequal length whose numbers say nothing of it are better
  // dealt out by the hardware.
  const Schedule& schedule = lowering.schedule;
  const bool foreseen = schedule.is_even() ? !tiles_by_chance(lowering.kernel) : tiles_by_length(schedule);
  lowered.resident = !loops.producer.empty() && !loops.one_tile && foreseen;
  lowered.cluster = loops.cluster;
  lowered.tile_blocks = loops.tile_blocks;
  lowered.one_tile = loops.one_tile;
  lowered.shared_bytes = loops.shared_bytes;
  lowered.workspace_bytes = loops.workspace_bytes;
  lowered.deterministic = !loops.float_atomics;
  lowered.blocks = loops.blocks;
  if (!cpu) {
    WorkProfile work = lowering.work;
    work.resident = lowered.resident;
    lowered.work = std::make_shared<const WorkProfile>(std::move(work));
  }
  if (options.keep_stages) {
    lowered.tile_ir = ir::print(concrete);
    lowered.loop_ir = print(loops);
    lowered.notes = notes_of(lowering.schedule, lowering.placements, lowering.kernel, loops);
    if (!missing.empty()) lowered.notes += fmt::format("compiled as CUDA C++: PTX has no code for {}\n", missing);
  }
  return lowered;
}

}  // namespace

Result<Lowered> lower(const ir::Kernel& concrete, const Target& target, uint64_t fact_mask,
                      const LowerOptions& options) {
  return contained(concrete, [&] { return lowered_text(concrete, target, fact_mask, options); });
}

}  // namespace kachel::lowering
