// Copies by the copy engine (TMA): boxes of a tensor to the slabs of a tile, described by maps that the launch makes.
// See tile_lowering.h. Source: PTX ISA, "cp.async.bulk.tensor" and "mbarrier".
#include <algorithm>
#include <bit>
#include <map>

#include "lowering/lower/tile_lowering.h"
#include "lowering/machine/machine.h"
#include "lowering/plan/shared_stages.h"
#include "lowering/planted.h"
#include "lowering/tile_ir/branch_copies.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {

using ir::AxisSpec;
using ir::DType;
using ir::ExprRef;
using ir::Op;

// Whether products of warp groups, and nothing else in the loop, read the tiles, and from where they are.
bool TileLowering::of_products(const Pipeline& pipeline, const BufferSet& tiles) const {
  bool any = false;
  for (const ir::Stmt& stmt : pipeline.loop->body) {
    if (std::find(pipeline.producers.begin(), pipeline.producers.end(), &stmt) != pipeline.producers.end()) continue;
    BufferSet used;
    note_uses(stmt, &used);
    if (std::none_of(used.begin(), used.end(), [&](const ir::Buffer* buffer) { return tiles.count(buffer); })) continue;
    const auto* gemm = std::get_if<ir::GemmStmt>(&stmt.node);
    if (!gemm) return false;
    const GemmChoice& choice = placements_.gemms.at(gemm);
    if (!choice.mma || !choice.group || (choice.a_in_registers && tiles.count(gemm->a.buffer.get()))) return false;
    any = true;
  }
  return any;
}

int64_t TileLowering::bytes_in_boxes(const ir::BufferRef& tile) const {
  return tile_shape(tile)[0] * placements_.at(tile.get()).layout.padded_columns() * ir::bits(tile->type.dtype) / 8;
}

LoopPipeline::Bulk TileLowering::bulk_state(const Pipeline& pipeline) {
  LoopPipeline::Bulk bulk;
  auto phases = [&](const char* name, int64_t count, int64_t arrivals) {
    ir::BufferRef buffer = temporary(name, DType::U64, ir::Scope::kShared, count);
    out_.phases.push_back({buffer, count, arrivals});
    return buffer;
  };
  auto state = [&](const char* name) {
    ir::BufferRef buffer = temporary(name, DType::I32, ir::Scope::kRegister, 1);
    out_.buffers.back().zeroed = true;
    return buffer;
  };
  const BufferSet late = late_tiles(pipeline, placements_);
  if (out_.teams > 1) {
    bulk.turns = {phases("turn", out_.teams, out_.threads / 32), state("turn_parity"), ir::make_var(out_.team),
                  out_.teams, true};
  } else if (const int64_t groups = out_.threads / kGroupThreads; groups > 1 && !late.empty()) {
    const ExprRef group = ir::make_typed(Op::kDiv, {ir::make_var(out_.thread), int32(kGroupThreads)});
    bulk.turns = {phases("turn", groups, kGroupWarps), state("turn_parity"), group, groups, false};
    out_.phases.back().turns = true;
  }
  if (pipeline.stages_of >= 0) {
    const LoopPipeline::Bulk& first = bulks_.at(&schedule_.pipelines[static_cast<size_t>(pipeline.stages_of)]);
    bulk.rings = first.rings;
    bulk.producer = first.producer;
    bulk.consumer = first.consumer;
    if (planted(Planted::kStagesAnew)) bulk.consumer = {state("consumed"), state("consumed_parity")};
    return bulk;
  }
  bulk.producer = {state("produced"), state("produced_parity")};
  bulk.consumer = {state("consumed"), state("consumed_parity")};
  BufferSet copied;
  for (const ir::CopyStmt* copy : pipeline.by_threads) copied.insert(copy->dst.buffer.get());
  std::map<const ir::Buffer*, size_t> cases;  // of the guard, in which a tile is filled
  if (const ir::IfStmt* guard = guard_of(pipeline.producers)) {
    const BranchTiles tiles = *branch_tiles(*guard);
    for (const ir::BufferRef& tile : tiles.if_true) cases[tile.get()] = 0;
    for (const ir::BufferRef& tile : tiles.if_false) cases[tile.get()] = 1;
  }
  for (const bool later : {false, true}) {
    LoopPipeline::Bulk::Ring ring;
    BufferSet tiles;
    for (const ir::BufferRef& buffer : pipeline.buffers) {
      if ((late.count(buffer.get()) != 0) != later) continue;
      ring.buffers.push_back(storage(buffer));
      tiles.insert(buffer.get());
      if (copied.count(buffer.get())) {
        ring.by_threads = true;
        continue;
      }
      const auto guarded = cases.find(buffer.get());
      (guarded == cases.end() ? ring.bytes : ring.guarded_bytes[guarded->second]) += bytes_in_boxes(buffer);
    }
    if (ring.buffers.empty()) continue;
    for (const auto& [copy, axes] : schedule_.shared)
      if (tiles.count(copy->dst.buffer.get())) ring.peers |= sharers(schedule_.cluster, axes);
    ring.stored = ring.by_threads && pipeline.stored;
    ring.full = phases("full", pipeline.depth,
                       1 + (ring.stored       ? out_.copiers / 32
                            : ring.by_threads ? out_.copiers
                                              : 0));
    ring.by_group = of_products(pipeline, tiles);
    for (const Pipeline& other : schedule_.pipelines) {
      if (other.stages_of < 0 || &schedule_.pipelines[static_cast<size_t>(other.stages_of)] != &pipeline) continue;
      BufferSet same;
      for (size_t i = 0; i < other.buffers.size(); ++i)
        if (tiles.count(pipeline.buffers[i].get())) same.insert(other.buffers[i].get());
      ring.by_group &= of_products(other, same);
    }
    const int64_t arrivals = out_.threads / (ring.by_group ? kGroupThreads : 32);
    ring.empty = phases("empty", pipeline.depth, arrivals * (ring.peers ? std::popcount(ring.peers & 0xff) : 1));
    bulk.rings.push_back(std::move(ring));
  }
  bulks_[&pipeline] = bulk;
  return bulk;
}

// A coordinate of a box. Starts beyond this are outside of the tensor, whose offsets fit in 30 bits, and stay there.
ExprRef TileLowering::box_coordinate(const ExprRef& start) {
  constexpr int64_t kFar = int64_t{1} << 30;
  if (!start) return ir::make_int(0, DType::I32);
  const Interval range = out_.ranges.of(start);
  ExprRef at = start;
  if (range.lo < -kFar) at = ir::make_typed(Op::kMax, {at, ir::make_int(-kFar, at->type)});
  if (range.hi > kFar) at = ir::make_typed(Op::kMin, {at, ir::make_int(kFar, at->type)});
  return let("at", at->type == DType::I32 ? at : ir::make_cast({DType::I32, nullptr}, at));
}

// The number of the map by which boxes of `rows` times `columns` elements of a slice are moved.
int64_t TileLowering::map_of(const Slice& slice, int64_t rows, int64_t columns) {
  const ir::BufferRef& tensor = slice.ref->buffer;
  TensorMap map;
  map.swizzle = static_cast<int32_t>(columns * ir::bits(tensor->type.dtype) / 8);
  map.transposed = tensor->transposed;
  map.as_one = tensor->as_one;
  for (size_t axis = 0; axis < tensor->shape.size(); ++axis) {
    const bool last = axis + 1 == tensor->shape.size(), index = slice.ref->axes[axis].kind == AxisSpec::Kind::kIndex;
    map.box.push_back(static_cast<int32_t>(last ? columns : index ? 1 : rows));
  }
  for (size_t i = 0; i < kernel_.params.size(); ++i)
    if (kernel_.params[i].tensor == (tensor->packed ? tensor->packed : tensor)) map.param = static_cast<int>(i);
  size_t number = 0;
  auto same = [&](const TensorMap& other) {
    return other.param == map.param && other.box == map.box && other.swizzle == map.swizzle &&
           other.transposed == map.transposed && other.as_one == map.as_one;
  };
  while (number < out_.maps.size() && !same(out_.maps[number])) ++number;
  if (number == out_.maps.size()) out_.maps.push_back(map);
  return static_cast<int64_t>(number);
}

void TileLowering::copy_bulk(const ir::CopyStmt& copy, const Slice& src) {
  const ir::BufferRef &to = copy.dst.buffer, &from = copy.src.buffer;
  const std::vector<int64_t> shape = tile_shape(to);
  const int64_t width = placements_.at(to.get()).layout.slab_columns();
  std::vector<ExprRef> starts;
  for (size_t axis = 0; axis < from->shape.size(); ++axis) starts.push_back(box_coordinate(src.starts[axis]));

  const ir::BufferRef tile = storage(to);
  const auto ring =
      std::find_if(bulk_.node->bulk->rings.begin(), bulk_.node->bulk->rings.end(), [&](const auto& candidate) {
        return std::find(candidate.buffers.begin(), candidate.buffers.end(), tile) != candidate.buffers.end();
      });
  const auto& cut = bulk_.plan->by_threads;
  const bool either = std::any_of(cut.begin(), cut.end(), [&](const auto* other) { return other->dst.buffer == to; });
  if (either && !planted(Planted::kBytesUnannounced)) {
    LoopIntrinsic more{
        LoopIntrinsic::Kind::kPhaseBytes, {{ring->full, ir::make_var(bulk_.node->into), 1, true}}, nullptr};
    more.immediate = bytes_in_boxes(to);
    emit({std::move(more)});
  }
  // `rows` of the tile from `first` (null: 0) on.
  auto boxes = [&](int64_t rows, const ExprRef& first, uint64_t peers) {
    const int64_t number = map_of(src, rows, width);
    for (int64_t slab = 0; slab * width < shape[1]; ++slab) {
      LoopIntrinsic box{LoopIntrinsic::Kind::kBulkCopy, {}, nullptr};
      box.immediate = number;
      box.peers = peers;
      box.l2_policy = l2_policies_.at(&copy);
      for (size_t axis = from->shape.size(); axis-- > 0;) {
        const bool of_rows = axis + 1 < from->shape.size() && copy.src.axes[axis].kind != AxisSpec::Kind::kIndex;
        box.coordinates.push_back(first && of_rows ? ir::make_typed(Op::kAdd, {starts[axis], first}) : starts[axis]);
      }
      if (slab && !planted(Planted::kBulkSlab))
        box.coordinates[0] = ir::make_typed(Op::kAdd, {starts.back(), ir::make_int(slab * width, DType::I32)});
      ExprRef at = matrix_at(whole_tile(to), nullptr, 0, slab * width, true);
      if (first) at = plus(at, times(first, width));
      box.operands = {{tile, at, width * rows, true},
                      {storage(from), ir::make_int(0, DType::I32), 1, false},
                      {ring->full, ir::make_var(bulk_.node->into), 1, true}};
      emit({std::move(box)});
    }
  };
  const auto shared = schedule_.shared.find(&copy);
  if (shared == schedule_.shared.end()) return boxes(shape[0], nullptr, 0);
  // Of so many parts the one that is this block's among those it shares with.
  int64_t parts = 1;
  ExprRef own;
  for (size_t axis : shared->second) {
    const int32_t along = schedule_.cluster[axis];
    own = own ? ir::make_typed(Op::kAdd, {times(own, along), rank_along(axis)}) : rank_along(axis);
    parts *= along;
  }
  if (planted(Planted::kClusterPart)) own = int32(0);
  std::vector<size_t> peers = shared->second;
  if (planted(Planted::kClusterPeers)) peers.clear();
  const int64_t rows = shape[0] / parts;
  boxes(rows, let("first", times(own, rows)), sharers(schedule_.cluster, peers));
}

}  // namespace kachel::lowering
