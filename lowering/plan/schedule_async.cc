// Dependences of pipelined loops. See schedule.h.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <set>

#include "lowering/machine/machine.h"
#include "lowering/plan/pipeline_tiles.h"
#include "lowering/plan/placement.h"
#include "lowering/plan/schedule.h"
#include "lowering/plan/shared_stages.h"
#include "lowering/tile_ir/branch_copies.h"
#include "lowering/tile_ir/live_ranges.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

// Calls fn(buffer, written) for each tile or tensor that a statement touches, nested statements included.
template <class Fn>
void for_each_buffer(const ir::Stmt& stmt, const Fn& fn) {
  auto reads = [&](const ir::ExprRef& expr) {
    ir::visit(expr, [&](const ir::ExprRef& node) {
      if (node->kind == ir::ExprKind::kLoad) fn(node->buffer, false);
    });
  };
  std::function<void(const ir::TileRef&, bool)> tile = [&](const ir::TileRef& ref, bool written) {
    fn(ref.buffer, written);
    for (const ir::AxisSpec& axis : ref.axes) {
      reads(axis.start);
      if (axis.gather) tile(*axis.gather, false);
    }
    reads(ref.within_first);
    reads(ref.within_length);
  };
  auto nested = [&](const ir::Block& body) {
    for (const ir::Stmt& inner : body) for_each_buffer(inner, fn);
  };
  if (const auto* let = std::get_if<ir::LetStmt>(&stmt.node)) reads(let->value);
  if (const auto* copy = std::get_if<ir::CopyStmt>(&stmt.node)) tile(copy->dst, true), tile(copy->src, false);
  if (const auto* fill = std::get_if<ir::FillStmt>(&stmt.node)) tile(fill->dst, true), reads(fill->value);
  if (const auto* decl = std::get_if<ir::DeclStmt>(&stmt.node); decl && decl->init) fn(decl->buffer, true);
  if (const auto* gemm = std::get_if<ir::GemmStmt>(&stmt.node))
    tile(gemm->c, true), tile(gemm->a, false), tile(gemm->b, false);
  if (const auto* region = std::get_if<ir::ParallelStmt>(&stmt.node)) nested(region->body);
  if (const auto* assign = std::get_if<ir::AssignStmt>(&stmt.node)) {
    fn(assign->buffer, true);
    for (const ir::ExprRef& index : assign->indices) reads(index);
    reads(assign->value);
  }
  if (const auto* loop = std::get_if<ir::ForStmt>(&stmt.node)) {
    reads(loop->begin), reads(loop->end);
    nested(loop->body);
  }
  if (const auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) {
    reads(branch->condition);
    nested(branch->then_body), nested(branch->else_body);
  }
}

class Scheduler {
 public:
  Scheduler(const ir::Kernel& kernel, const Target& target, uint64_t fact_mask)
      : kernel_(kernel), may_store_(target.bulk_copies && has_group_mma(target.architecture)), fact_mask_(fact_mask) {
    for (const ir::Stmt& stmt : kernel.body)
      for_each_buffer(stmt, [&](const ir::BufferRef& buffer, bool) { ++uses_[buffer.get()]; });
  }

  void block(const ir::Block& body, Schedule* schedule) {
    for (const ir::Stmt& stmt : body) {
      if (const auto* loop = std::get_if<ir::ForStmt>(&stmt.node)) {
        if (loop->pipelined) schedule->pipelines.push_back(pipeline(*loop));
        block(loop->body, schedule);
      } else if (const auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) {
        block(branch->then_body, schedule);
        block(branch->else_body, schedule);
      }
    }
  }

 private:
  Pipeline pipeline(const ir::ForStmt& loop) {
    Pipeline result;
    result.loop = &loop;
    const int64_t wanted = loop.stages ? loop.stages->int_value : 1;
    std::map<const ir::Buffer*, int64_t> inside;  // uses within the loop
    for (const ir::Stmt& stmt : loop.body)
      for_each_buffer(stmt, [&](const ir::BufferRef& buffer, bool) { ++inside[buffer.get()]; });
    std::set<const ir::Buffer*> touched;             // by the statements so far
    std::set<const ir::Var*> inner;                  // lets of the body that cannot be known ahead
    std::map<const ir::Var*, const ir::Stmt*> lets;  // those that can
    std::vector<const ir::Stmt*> copies;
    for (const ir::Stmt& stmt : loop.body) {
      if (const auto* let = std::get_if<ir::LetStmt>(&stmt.node)) {
        if (known_ahead(let->value, inner))
          lets[let->var.get()] = &stmt;
        else
          inner.insert(let->var.get());
      }
      if (const std::string why = fill(stmt, {loop, inside, touched, inner, copies}, &result); why.empty())
        copies.push_back(&stmt);
      else if (result.reason.empty() && why != kNoCopy)
        result.reason = why;
      for_each_buffer(stmt, [&](const ir::BufferRef& buffer, bool) { touched.insert(buffer.get()); });
    }
    if (copies.empty() || wanted < 2) {
      if (result.reason.empty()) result.reason = wanted < 2 ? "one stage is asked for" : "nothing is copied ahead";
      result.buffers.clear();
      return result;
    }
    for (const auto& [var, stmt] : lets) result.producers.push_back(stmt);
    std::sort(result.producers.begin(), result.producers.end());  // in program order
    result.producers.insert(result.producers.end(), copies.begin(), copies.end());
    result.realisation = Pipeline::Realisation::kAsyncCopies;
    result.depth = wanted;
    return result;
  }

  static constexpr const char* kNoCopy = "no copy";

  // What is known of a statement's place in a loop.
  struct Place {
    const ir::ForStmt& loop;
    std::map<const ir::Buffer*, int64_t>& inside;
    const std::set<const ir::Buffer*>& touched;
    const std::set<const ir::Var*>& inner;
    const std::vector<const ir::Stmt*>& producers;  // so far
  };

  // Adds what a copy, or a branch of copies, fills ahead; else why it does not, or kNoCopy.
  std::string fill(const ir::Stmt& stmt, const Place& place, Pipeline* pipeline) const {
    const std::vector<const ir::CopyStmt*> copies = copies_of(stmt);
    const auto* branch = std::get_if<ir::IfStmt>(&stmt.node);
    const std::optional<BranchTiles> tiles = branch ? branch_tiles(*branch) : std::nullopt;
    if (copies.empty() || (branch && !tiles)) return kNoCopy;
    std::map<const ir::Buffer*, int64_t> writes;
    for (const ir::CopyStmt* copy : copies) ++writes[copy->dst.buffer.get()];
    for (const ir::CopyStmt* copy : copies) {
      const ir::Buffer* tile = copy->dst.buffer.get();
      std::string why = refuses(*copy, place.inner, branch);
      if (place.touched.count(tile))
        why = "it is read before that";
      else if (why.empty() && place.inside[tile] != uses_.at(tile))
        why = "it is used elsewhere too";
      else if (why.empty() && writes_of(place.loop, tile) != writes[tile])
        why = "it is written elsewhere too";
      if (why.empty()) continue;
      return copy->src.buffer->scope == ir::Scope::kGlobal
                 ? fmt::format("{} is not copied ahead: {}", copy->dst.buffer->name, why)
                 : kNoCopy;
    }
    if (branch) {
      const std::string name = copies[0]->dst.buffer->name;
      if (!conditions_known(*branch, place.inner))
        return fmt::format("{} is not copied ahead: its condition is known in its iteration only", name);
      if (!read_in_its_case(place.loop.body, *branch, *tiles))
        return fmt::format("{} is not copied ahead: it is read where its condition does not hold", name);
      if (tiles->depend() && guard_of(place.producers))
        return fmt::format("{} is not copied ahead: another condition decides about other tiles", name);
    }
    for (const ir::CopyStmt* copy : copies)
      if (writes.erase(copy->dst.buffer.get())) pipeline->buffers.push_back(copy->dst.buffer);
    return "";
  }

  bool conditions_known(const ir::IfStmt& branch, const std::set<const ir::Var*>& inner) const {
    bool known = known_ahead(branch.condition, inner);
    for (const ir::Block* body : {&branch.then_body, &branch.else_body})
      for (const ir::Stmt& stmt : *body)
        if (const auto* nested = std::get_if<ir::IfStmt>(&stmt.node)) known &= conditions_known(*nested, inner);
    return known;
  }

  // Reads nothing but tensors that the kernel does not write.
  bool known_ahead(const ir::ExprRef& expr, const std::set<const ir::Var*>& inner) const {
    bool known = true;
    ir::visit(expr, [&](const ir::ExprRef& node) {
      if (node->kind == ir::ExprKind::kVar) known &= !inner.count(node->var.get());
      if (node->kind == ir::ExprKind::kLoad) known &= is_unwritten(*node->buffer);
    });
    return known;
  }
  bool tile_known_ahead(const ir::TileRef& ref, const std::set<const ir::Var*>& inner) const {
    bool known = known_ahead(ref.within_first, inner) && known_ahead(ref.within_length, inner);
    for (const ir::AxisSpec& axis : ref.axes) {
      known &= known_ahead(axis.start, inner) && known_ahead(axis.index, inner);
      if (axis.gather) known &= is_unwritten(*axis.gather->buffer) && tile_known_ahead(*axis.gather, inner);
    }
    return known;
  }

  // Why a copy cannot be asynchronous; "" if it can.
  std::string refuses(const ir::CopyStmt& copy, const std::set<const ir::Var*>& inner, bool in_branch) const {
    const ir::BufferRef &to = copy.dst.buffer, &from = copy.src.buffer;
    if (from->scope != ir::Scope::kGlobal || to->scope != ir::Scope::kShared)
      return "it does not go from a tensor to a shared tile";
    if (copy.atomic != ir::AtomicOp::kNone || !is_unwritten(*from)) return "the kernel writes its source";
    if (from->type.dtype != to->type.dtype || ir::bits(from->type.dtype) < 8) return "its elements are converted";
    if (copy.src.pad) return "it is padded with another value than 0";
    if (!is_whole(copy.dst)) return "it fills a part of the tile";
    if (copy.src.axes.back().kind == ir::AxisSpec::Kind::kIndex ||
        copy.src.axes.back().kind == ir::AxisSpec::Kind::kGather)
      return "its rows are not contiguous";
    const int64_t row = tile_shape(to).back() * std::max(1, ir::bits(from->type.dtype) / 8);
    const bool aligned = vector_bytes(kernel_, fact_mask_, from) >= kLeastAsyncBytes;
    const bool stored = may_store_ && !in_branch && suits_registers(kernel_, fact_mask_, from, to);
    if (!aligned && !stored) return fmt::format("the facts allow no access of 4 bytes or more to {}", from->name);
    if (row % 4 != 0) return "its rows are not multiples of 4 bytes";
    if (!tile_known_ahead(copy.src, inner)) return "where it begins is known in its iteration only";
    return "";
  }
  static int64_t writes_of(const ir::ForStmt& loop, const ir::Buffer* tile) {
    int64_t writes = 0;
    for (const ir::Stmt& stmt : loop.body)
      for_each_buffer(stmt,
                      [&](const ir::BufferRef& buffer, bool written) { writes += written && buffer.get() == tile; });
    return writes;
  }

  const ir::Kernel& kernel_;
  const bool may_store_;  // a producer's threads may, from any address
  const uint64_t fact_mask_;
  std::map<const ir::Buffer*, int64_t> uses_;
};

int64_t tile_bytes(const Placement& placement) {
  return placement.stage_elements() * std::max(1, ir::bits(placement.storage) / 8) * placement.stages;
}

}  // namespace

Schedule make_async_schedule(const ir::Kernel& kernel, const Target& target, uint64_t fact_mask) {
  Schedule schedule;
  schedule.roles.push_back({"all", 0, target.threads, 0});
  Scheduler(kernel, target, fact_mask).block(kernel.body, &schedule);
  note_uneven_axes(kernel, &schedule);
  order_grid(kernel, &schedule);
  return schedule;
}

int64_t peak_bytes(const ir::Kernel& kernel, const Schedule& schedule, const Placements& placements,
                   const Target& target, size_t from) {
  LiveRanges ranges = live_ranges(kernel);
  // What the copy engine may come to fill lives from the beginning on, throughout if it goes on to further tiles.
  if (target.bulk_copies && has_group_mma(target.architecture))
    for (const Pipeline& pipeline : schedule.pipelines)
      for (const ir::BufferRef& buffer : pipeline.buffers)
        ranges[buffer.get()] = {0, target.one_tile ? ranges[buffer.get()].last : kernel.body.size()};
  for (const auto& [tile, first] : tiles_in_stages_of(schedule)) {
    ranges[first].last = std::max(ranges[first].last, ranges[tile].last);
    ranges.erase(tile);
  }
  int64_t most = 0;
  for (size_t at = from; at <= kernel.body.size(); ++at) {
    int64_t bytes = 0;
    for (const auto& [tile, placement] : placements.tiles)
      if (placement.scope == ir::Scope::kShared && ranges.count(tile) && ranges.at(tile).meets({at, at}))
        bytes += tile_bytes(placement);
    most = std::max(most, bytes);
  }
  return most;
}

void fit_pipelines(const ir::Kernel& kernel, Schedule* schedule, Placements* placements, const Target& target,
                   int64_t reserved) {
  for (Role& role : schedule->roles) role.threads = placements->threads;
  auto apply = [&] {
    for (const Pipeline& pipeline : schedule->pipelines)
      for (const ir::BufferRef& buffer : pipeline.buffers) placements->tiles.at(buffer.get()).stages = pipeline.depth;
  };
  apply();
  while (peak_bytes(kernel, *schedule, *placements, target) > target.shared_limit - reserved) {
    // A pipeline around another one runs ahead less often.
    Pipeline* deepest = nullptr;
    for (Pipeline& pipeline : schedule->pipelines) {
      if (pipeline.depth == 1 || pipeline.stages_of >= 0) continue;
      if (deepest && encloses_pipeline(deepest->loop->body)) continue;
      if (!deepest || pipeline.depth > deepest->depth || encloses_pipeline(pipeline.loop->body)) deepest = &pipeline;
    }
    if (reserved && !(deepest && encloses_pipeline(deepest->loop->body))) {
      reserved = 0;
      continue;
    }
    if (!deepest) return;
    const auto number = deepest - schedule->pipelines.data();
    for (Pipeline& pipeline : schedule->pipelines) {
      if (&pipeline != deepest && pipeline.stages_of != number) continue;
      if (--pipeline.depth == 1) pipeline.realisation = Pipeline::Realisation::kInOrder;
      pipeline.reason = "shared memory holds no more stages";
    }
    apply();
    for (Pipeline& pipeline : schedule->pipelines)
      if (pipeline.depth == 1 && (&pipeline == deepest || pipeline.stages_of == number))
        pipeline.buffers.clear(), pipeline.producers.clear(), pipeline.stages_of = -1;
  }
}

}  // namespace kachel::lowering
