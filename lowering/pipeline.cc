// The order of the passes, in one place.
//
//   tile IR  concrete kernel (ir::instantiate)
//            -> tile blocks       of a cluster, that compute each tile together, where its rows are long
//            -> declared first    tiles that are declared behind other statements
//            -> joined copies     of fragments, whose elements lie beside each other in a tensor
//            -> column tiles      fragments of which regions name columns by numbers
//            -> written-out args  where the largest of a few elements of tensors stands
//            -> arg reductions    as a maximum and the least number of what equals it
//            -> one-axis views    of tensors whose last axes are counted as one
//            -> transposed views  read along the axis of stride 1
//            -> scattered copies  of elements that lie apart, as regions
//            -> stored parts      of fragments, as regions
//            -> unpacked copies   of 4-bit integers to tiles of other types, and of 8 bits to operands, as regions
//            -> operand regions   that take several operands out of integers, one for each
//            -> woven stores      of several elements of an operand by one iteration, by one each
//            -> summed operands   of 32 bits that are another product's sums, by way of copies
//            -> unchanging loads  that serial loops repeat, in front of them
//            -> join loops        that follow each other over tiles of one kind
//            -> region results    of sums and of turned tensors, that regions write to tensors themselves
//            -> long rows         read from tensors, and written, where they are used
//            -> split branches    in pipelined loops: what they copy, and what they do
//            -> split slices      of tiles of which products use matrices
//            -> loop tiles        of tiles that several loops fill
//            -> renamed copies    of tiles that pipelined loops change in place
//            -> padded reads      of tiles that pipelined loops copy with another padding than zero
//            -> named rows        that pipelined loops copy by numbers in tiles
//            -> hoist scans       each a region of its own
//            -> exchanges         of elements whose places differ in bits, each a region of its own
//            -> parted operands   of which products read columns
//            -> turned operands   that regions make with k down their rows, where tensor cores read along k, or
//            gather
//            -> grown products    by the next two, in the order that leaves fewer to fma
//            -> padded depth      of products whose k is no multiple of the instruction's
//            -> shared results    of products, by way of fragments; padded axes, of those whose rows or columns are
//            none
//            -> part regions      over groups of columns
//            -> equal parts       of axes that other regions access in parts
//            -> split tiles       of which regions access equal parts together
//            -> direct reads      of tensors whose copies regions read at others' places
//            -> turned tiles      of which regions read columns along their rows
//            -> scalar tiles      what a block names of its fragments
//            -> carried sums      of what products read, in a layout of their own
//            -> hoist reductions  each a region of its own
//            -> sum steps         each a region of its own, too
//            -> unswitch masks    tiles that no mask touches
//            -> turned sums       of products whose right operand a region unpacks, which makes it their left one
//            -> packed tiles      of 4-bit elements, as bytes
//            -> operands in registers   that the block computes
//            -> staged operands   right ones mostly, by way of fragments
//            -> parted sums       of products of few rows, whose warps may share k
//            -> moved sums        that regions behind their products read in another order
//            -> equal parts, split tiles   of these
//            -> narrow tiles      in memory, that hold copies of 16-bit floats
//            -> staged tiles      what regions in pipelined loops read in every iteration
//            -> fetched tiles     what regions behind the products read, for the copy engine
//            -> pipeline tiles    what a block loads once, for the copy engine
//            -> bounded boxes     rows that `within` bounds, for it where none lies beyond
//            -> schedule          roles and pipelines
//            -> placement         where each tile lives, by which layout; instructions
//            -> shared stages     of loops that follow each other
//            -> fit pipelines     depths that shared memory has room for
//            -> bulk copies       pipelines that the copy engine fills, for a producer
//            -> teams             of consumers, which compute tiles in turn
//            -> clusters          blocks that copy for each other
//            -> L2 priorities     which of what the copy engine reads is to leave the L2 first, and last
//            -> box stores        accumulators that it writes to tensors, or adds to them
//            -> TileLowering      loop IR with guarded accesses
//   loop IR  -> simplify
//            -> handed values     that only those know who compute, to who copies ahead
//            -> memory plan -> synchronise (emits waits and barriers, and parts roles)
//            -> spare tiles       what those must not store that fill a cluster up
//            -> neighbour accesses   elements beside each other by one access
//            -> narrow
//            -> hoist invariants -> wide accesses -> early loads -> single bounds -> simplify
//            -> divide by invariants   on the CPU
//            -> loads ahead       of serial loops
//            -> pass places       of tiles, from who copies ahead to who computes, by barriers of phases of its own
//            -> integer quotients by what loops do not change
//            -> sums by loop      places and conditions, what unrolled loops change last
//            -> first writes      arrays that a branch may write first begin as zeros
//   text     -> CUDA C++ or LLVM IR
#include "lowering/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ir/visit.h"
#include "lowering/lower/tile_lowering.h"
#include "lowering/machine/register_room.h"
#include "lowering/machine/work.h"
#include "lowering/passes/divide_by_invariants.h"
#include "lowering/passes/drop_unused.h"
#include "lowering/passes/early_loads.h"
#include "lowering/passes/first_writes.h"
#include "lowering/passes/handed_values.h"
#include "lowering/passes/held_places.h"
#include "lowering/passes/hoist_invariants.h"
#include "lowering/passes/integer_quotients.h"
#include "lowering/passes/kept_operands.h"
#include "lowering/passes/loads_ahead.h"
#include "lowering/passes/memory_plan.h"
#include "lowering/passes/narrow.h"
#include "lowering/passes/neighbour_accesses.h"
#include "lowering/passes/pass_places.h"
#include "lowering/passes/simplify.h"
#include "lowering/passes/single_bounds.h"
#include "lowering/passes/spare_tiles.h"
#include "lowering/passes/sums_by_loop.h"
#include "lowering/passes/synchronise.h"
#include "lowering/passes/teams.h"
#include "lowering/passes/wide_accesses.h"
#include "lowering/plan/alternating.h"
#include "lowering/plan/bounded_boxes.h"
#include "lowering/plan/box_stores.h"
#include "lowering/plan/clusters.h"
#include "lowering/plan/fetched_tiles.h"
#include "lowering/plan/gemm_choice.h"
#include "lowering/plan/grown_products.h"
#include "lowering/plan/l2_priority.h"
#include "lowering/plan/moved_sums.h"
#include "lowering/plan/narrow_tiles.h"
#include "lowering/plan/operands_in_registers.h"
#include "lowering/plan/packed_tiles.h"
#include "lowering/plan/parted_sums.h"
#include "lowering/plan/pipeline_tiles.h"
#include "lowering/plan/placed_rows.h"
#include "lowering/plan/region_vectors.h"
#include "lowering/plan/renamed_copies.h"
#include "lowering/plan/shared_stages.h"
#include "lowering/plan/staged_operands.h"
#include "lowering/plan/tile_blocks.h"
#include "lowering/plan/turned_sums.h"
#include "lowering/plan/wishes.h"
#include "lowering/tile_ir/arg_reductions.h"
#include "lowering/tile_ir/branch_copies.h"
#include "lowering/tile_ir/carried_sums.h"
#include "lowering/tile_ir/column_tiles.h"
#include "lowering/tile_ir/declared_first.h"
#include "lowering/tile_ir/direct_reads.h"
#include "lowering/tile_ir/equal_parts.h"
#include "lowering/tile_ir/exact_parts.h"
#include "lowering/tile_ir/exchanges.h"
#include "lowering/tile_ir/hoist_reductions.h"
#include "lowering/tile_ir/hoist_scans.h"
#include "lowering/tile_ir/join_loops.h"
#include "lowering/tile_ir/joined_copies.h"
#include "lowering/tile_ir/long_rows.h"
#include "lowering/tile_ir/loop_tiles.h"
#include "lowering/tile_ir/named_rows.h"
#include "lowering/tile_ir/one_axis_views.h"
#include "lowering/tile_ir/operand_regions.h"
#include "lowering/tile_ir/padded_reads.h"
#include "lowering/tile_ir/part_regions.h"
#include "lowering/tile_ir/parted_operands.h"
#include "lowering/tile_ir/region_results.h"
#include "lowering/tile_ir/scalar_tiles.h"
#include "lowering/tile_ir/scattered_copies.h"
#include "lowering/tile_ir/split_slices.h"
#include "lowering/tile_ir/split_tiles.h"
#include "lowering/tile_ir/stored_parts.h"
#include "lowering/tile_ir/sum_steps.h"
#include "lowering/tile_ir/summed_operands.h"
#include "lowering/tile_ir/transposed_views.h"
#include "lowering/tile_ir/turned_operands.h"
#include "lowering/tile_ir/turned_tiles.h"
#include "lowering/tile_ir/unchanging_loads.h"
#include "lowering/tile_ir/unpacked_copies.h"
#include "lowering/tile_ir/unswitch.h"
#include "lowering/tile_ir/woven_stores.h"
#include "lowering/tile_ir/written_out_args.h"

namespace kachel::lowering {
namespace {

Status check_target(const Target& target) {
  if (target.kind == Target::Kind::kCpu) return {};
  if (target.architecture < 80)
    return unsupported(
        fmt::format("compute capability {}.{} is below 8.0; use the CPU or a GPU of the Ampere generation "
                    "or later",
                    target.architecture / 10, target.architecture % 10));
  if (target.threads && (target.threads < 32 || target.threads > 1024 || target.threads % 32))
    return invalid(fmt::format("{} threads a block; give a multiple of 32 from 32 to 1024", target.threads));
  return {};
}

Target without_teams(Target target) {
  if (target.teams > 1) target.threads = 0;
  target.teams = 1;
  return target;
}

// Whether a product has no tensor cores since its sums have no registers.
bool crowds_out(const Placements& placements) {
  return std::any_of(placements.gemms.begin(), placements.gemms.end(),
                     [](const auto& one) { return one.second.crowded_out; });
}

Result<Lowering> lower_to_loops(const ir::Kernel& concrete, const Target& target, uint64_t fact_mask,
                                const Wishes& wishes) {
  Lowering lowering;
  const bool plain = is_plain(target);
  KACHEL_ASSIGN(lowering.kernel,
                expand_arg_reductions(plain ? concrete : written_out_args(column_tiles(joined_copies(concrete)))));
  if (!plain) {
    const int blocks = std::max(target.tile_blocks, 1);
    const ir::Kernel results = region_results(join_loops(unchanging_loads(summed_operands(
        woven_stores(operand_regions(unpacked_copies(stored_parts(scattered_copies(lowering.kernel)))))))));
    const ir::Kernel joined = split_branches(long_rows(results, blocks));
    const ir::Kernel ahead = named_rows(padded_reads(renamed_copies(loop_tiles(split_slices(joined)), target)));
    const ir::Kernel scanned = hoist_exchanges(hoist_scans(ahead), target.threads);
    const ir::Kernel operands = parted_operands(exact_parts(scanned, target));
    const auto gathered = [&](const ir::ParallelStmt& region) {
      return gathered_axis(operands, target, fact_mask, region);
    };
    const ir::Kernel padded = grown_products(turned_operands(operands, gathered), target, wishes.wide_sums);
    const ir::Kernel parted = split_tiles(equal_parts(part_regions(padded)));
    const ir::Kernel reduced =
        sum_steps(hoist_reductions(carried_sums(scalar_tiles(turned_tiles(direct_reads(parted))))));
    const bool left = target.group_products && has_group_mma(target.architecture);
    const ir::Kernel turned = left && wishes.turned_sums ? turned_sums(reduced) : reduced;
    lowering.kernel = placed_rows(packed_tiles(unswitch_masks(turned), fact_mask), fact_mask);
    lowering.kernel = parted_sums(staged_operands(operands_in_registers(lowering.kernel, left, gathered)), target);
    lowering.kernel = narrow_tiles(split_tiles(equal_parts(moved_sums(lowering.kernel))), blocks);
  }
  Fetches fetches = Fetches::kNothing;  // what there is of those wished for
  auto fetch = [&](Fetches kind, std::optional<ir::Kernel> ahead) {
    if (ahead) lowering.kernel = std::move(*ahead), fetches = kind;
  };
  if (!plain && wishes.fetches >= Fetches::kRows)
    fetch(Fetches::kRows, staged_tiles(lowering.kernel, target, fact_mask));
  if (!plain && target.bulk_copies && has_group_mma(target.architecture)) {
    if (wishes.fetches == Fetches::kTiles) fetch(Fetches::kTiles, fetched_tiles(lowering.kernel, fact_mask));
    lowering.kernel = bounded_boxes(pipeline_tiles(lowering.kernel), fact_mask, wishes.bounded);
  }
  const ir::Kernel& kernel = lowering.kernel;
  lowering.schedule = plain ? make_generic_schedule(kernel, target) : make_async_schedule(kernel, target, fact_mask);
  lowering.placements = infer_placements(kernel, target, lowering.schedule, fact_mask);
  if (!plain && wishes.turned_sums && !turn_as_wished(kernel, lowering.placements))
    return lower_to_loops(concrete, target, fact_mask, wishes.changed([](auto* all) { all->turned_sums = false; }));
  if (!plain && !wishes.wide_sums && crowds_out(lowering.placements)) {
    auto other = lower_to_loops(concrete, target, fact_mask, wishes.changed([](auto* all) { all->wide_sums = true; }));
    if (other.ok() && !crowds_out(other->placements)) return other;
  }
  if (wishes.shared_stages && target.bulk_copies && has_group_mma(target.architecture))
    share_stages(kernel, &lowering.schedule, lowering.placements);
  const int64_t boxes = !plain && target.bulk_stores ? added_bytes(kernel, lowering.placements, target, fact_mask) : 0;
  fit_pipelines(kernel, &lowering.schedule, &lowering.placements, target, boxes);
  if (target.bulk_copies) choose_bulk_copies(kernel, &lowering.schedule, &lowering.placements, target, fact_mask);
  choose_alternating(kernel, &lowering.schedule, &lowering.placements, target);
  if (wishes.bounded.operands && !operands_in_boxes(kernel, lowering.schedule))
    return lower_to_loops(concrete, target, fact_mask,
                          wishes.changed([](auto* all) { all->bounded.operands = false; }));
  if (fetches != Fetches::kNothing && !has_room(lowering.schedule, fetches, boxes > 0))
    return lower_to_loops(concrete, target, fact_mask,
                          wishes.with(fetches == Fetches::kTiles ? Fetches::kRows : Fetches::kNothing));
  const int teams = choose_teams(kernel, lowering.schedule, lowering.placements, target);
  if (teams > 1 && target.threads != kGroupThreads) {
    Target of_groups = target;
    of_groups.teams = teams;
    of_groups.threads = kGroupThreads;
    return lower_to_loops(concrete, of_groups, fact_mask, wishes.with(fetches));
  }
  part_roles(&lowering.schedule, lowering.placements, teams);
  const bool one_tile = target.one_tile && has_bulk_copies(lowering.schedule);
  if (!plain && target.cluster > 1) choose_clusters(kernel, target, &lowering.schedule);
  if (!stages_agree(lowering.schedule, lowering.placements))
    return lower_to_loops(concrete, target, fact_mask, wishes.changed([](auto* all) { all->shared_stages = false; }));
  choose_l2_priorities(kernel, &lowering.schedule);
  if (!plain && target.bulk_stores)
    choose_box_stores(kernel, lowering.schedule, &lowering.placements, target, fact_mask);
  if (wishes.bounded.stores && !stores_in_boxes(kernel, lowering.placements))
    return lower_to_loops(concrete, target, fact_mask, wishes.changed([](auto* all) { all->bounded.stores = false; }));
  KACHEL_ASSIGN(lowering.loops, TileLowering(kernel, target, lowering.schedule, lowering.placements, fact_mask).run());
  lowering.loops.one_tile = one_tile || lowering.loops.tile_blocks > 1;
  simplify(&lowering.loops);
  if (lowering.schedule.roles.size() > 1) {
    lowering.loops.registers = lowering.schedule.roles[0].registers;
    lowering.loops.producer_threads = lowering.schedule.roles[1].threads;
    lowering.loops.producer_registers = lowering.schedule.roles[1].registers;
  }
  choose_handed(&lowering.loops);
  if (!plan_memory(&lowering.loops, target)) {
    Target less = without_teams(target);
    less.generic = !target.bulk_stores;  // needs no shared memory that could not be elsewhere
    less.bulk_stores = false;
    return lower_to_loops(concrete, less, fact_mask, wishes.with(Fetches::kNothing));
  }
  if (one_tile && lowering.loops.workspace_bytes) {  // of which there is a slice for each block that runs at once
    Target further = target;
    further.one_tile = false;
    return lower_to_loops(concrete, further, fact_mask, wishes.with(fetches));
  }
  const bool parted = synchronise(&lowering.loops);
  if (target.teams > 1 && !(parted && teams > 1 && keeps_to_teams(lowering.loops)))
    return lower_to_loops(concrete, without_teams(target), fact_mask, wishes.with(fetches));
  if (!parted) {
    Target together = target;
    together.bulk_copies = false;
    return lower_to_loops(concrete, together, fact_mask, wishes.with(Fetches::kNothing));
  }
  if (lowering.loops.tile_blocks > 1 && !can_part_tiles(lowering.loops)) {
    Target alone = target;
    alone.tile_blocks = 1;
    return lower_to_loops(concrete, alone, fact_mask, wishes);
  }
  hand_over(&lowering.loops);
  if (!lowering.loops.cluster.empty()) spare_tiles(&lowering.loops);
  lowering.loops.back_and_forth = !one_tile && !lowering.loops.producer.empty() && !lowering.schedule.is_even();
  if (!plain) {
    neighbour_accesses(&lowering.loops, vector_bytes(kernel, fact_mask, lowering.loops));
    narrow(&lowering.loops);
    hoist_invariants(&lowering.loops);
    wide_accesses(&lowering.loops);
    early_loads(&lowering.loops);
    if (target.kind == Target::Kind::kCuda) held_places(&lowering.loops);
    if (target.kind == Target::Kind::kCuda) choose_loads_ahead(&lowering.loops);
    single_bounds(&lowering.loops);
    simplify(&lowering.loops);
  }
  if (target.kind == Target::Kind::kCpu) divide_by_invariants(&lowering.loops);
  if (target.kind == Target::Kind::kCuda)
    lowering.loops.blocks = target.roomy ? 1 : blocks_with_registers(lowering.loops, target.architecture);
  return lowering;
}

Result<Lowering> lowered_loops(const ir::Kernel& concrete, const Target& target, uint64_t fact_mask) {
  KACHEL_TRY(check_target(target));
  const bool plain = is_plain(target);
  uint64_t facts = fact_mask;
  const ir::Kernel kernel =
      plain ? concrete : transposed_views(one_axis_views(declared_first(concrete), &facts), &facts);
  const int asked = plain ? 1 : asked_tile_blocks(kernel, target);
  Target of_tile = target;
  of_tile.tile_blocks = std::max(asked, 1);
  KACHEL_ASSIGN(Lowering lowering, lower_to_loops(kernel, of_tile, facts, Wishes()));
  if (!asked) {
    of_tile.tile_blocks = needed_tile_blocks(kernel, lowering.loops);
    if (of_tile.tile_blocks > 1) {
      KACHEL_ASSIGN(Lowering together, lower_to_loops(kernel, of_tile, facts, Wishes()));
      if (together.loops.tile_blocks > 1) lowering = std::move(together);
    }
  }
  if (target.kind == Target::Kind::kCuda) lowering.work = profile_of(lowering.loops, concrete);
  // Behind the profile, for which a tile's place is a matter of its number and trips of loops are what the program
  // says.
  if (!plain && target.kind == Target::Kind::kCuda) loads_ahead(&lowering.loops);
  if (!plain) pass_places(&lowering.loops, target);
  if (!plain && target.kind == Target::Kind::kCuda) {
    integer_quotients(&lowering.loops);
    sums_by_loop(&lowering.loops);
  }
  drop_unused(&lowering.loops);
  if (target.kind == Target::Kind::kCuda) zero_before_branches(&lowering.loops);
  if (!plain && target.kind == Target::Kind::kCuda) kept_operands(&lowering.loops);
  if (std::string broken = verify(lowering.loops); !broken.empty())
    return internal(fmt::format("lowering of `{}` broke a rule of the loop IR: {}", concrete.name, broken));
  return lowering;
}

}  // namespace

Result<Lowering> lower_to_loops(const ir::Kernel& concrete, const Target& target, uint64_t fact_mask) {
  return contained(concrete, [&] { return lowered_loops(concrete, target, fact_mask); });
}

}  // namespace kachel::lowering
