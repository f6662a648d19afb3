#include "lowering/plan/renamed_copies.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "lowering/loop_ir/region_index.h"
#include "lowering/machine/machine.h"
#include "lowering/planted.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

using ir::ExprKind;
using ir::ExprRef;

int64_t bytes_of(const ir::Buffer& tile) {
  return elements_of(tile) * ir::bits(tile.type.dtype) / 8;
}

bool is_ahead(const ir::ForStmt& loop) {
  return loop.pipelined && (!loop.stages || loop.stages->int_value > 1);
}

// A copy of a tensor's slice to all of a shared tile; null: it is something else.
const ir::CopyStmt* fill_of(const ir::Stmt& stmt) {
  const auto* copy = std::get_if<ir::CopyStmt>(&stmt.node);
  const bool fills = copy && copy->atomic == ir::AtomicOp::kNone && copy->src.buffer->scope == ir::Scope::kGlobal &&
                     copy->dst.buffer->scope == ir::Scope::kShared && has_whole_axes(copy->dst) &&
                     !copy->dst.within_first;
  return fills ? copy : nullptr;
}

// Bytes of the shared tiles, as many times as stages are asked for of those that a loop copies ahead.
int64_t shared_bytes(const ir::Block& body, int64_t stages) {
  int64_t bytes = 0;
  for (const ir::Stmt& stmt : body) {
    if (const auto* decl = std::get_if<ir::DeclStmt>(&stmt.node); decl && decl->buffer->scope == ir::Scope::kShared)
      bytes += bytes_of(*decl->buffer);
    if (const ir::CopyStmt* copy = fill_of(stmt)) bytes += (stages - 1) * bytes_of(*copy->dst.buffer);
    if (const auto* loop = std::get_if<ir::ForStmt>(&stmt.node))
      bytes += shared_bytes(loop->body, is_ahead(*loop) && loop->stages ? loop->stages->int_value : 1);
    if (const auto* branch = std::get_if<ir::IfStmt>(&stmt.node))
      bytes += shared_bytes(branch->then_body, 1) + shared_bytes(branch->else_body, 1);
  }
  return bytes;
}

// Elements of one axis of a tile that an index runs through: stride * i + first, `extent` of them.
struct Run {
  int64_t stride = 1, first = 0, extent = 0;
  ir::VarRef along;  // i
};

// Where an assignment's elements lie: its own for each iteration, and all along every axis but the last one.
std::optional<Run> run_of(const ir::ParallelStmt& region, const ir::AssignStmt& assign) {
  if (assign.atomic != ir::AtomicOp::kNone || assign.indices.size() != region.iters.size()) return std::nullopt;
  RegionIndexes indexes(region.iters);
  std::vector<bool> seen(region.iters.size());
  Run run;
  for (size_t axis = 0; axis < assign.indices.size(); ++axis) {
    const std::optional<ScaledIndex> index = indexes.scaled(assign.indices[axis]);
    if (!index || index->base || index->axis >= seen.size() || seen[index->axis] || index->scale < 1)
      return std::nullopt;
    seen[index->axis] = true;
    const ir::IterVar& iter = region.iters[index->axis];
    run = {index->scale, index->constant, iter.extent->int_value, iter.var};
    const bool last = axis + 1 == assign.indices.size();
    const int64_t all = assign.buffer->shape[axis]->int_value;
    if (!last && (run.stride != 1 || run.first != 0 || run.extent != all)) return std::nullopt;
  }
  return run;
}

// Whether the runs are all elements of the axis, each once, in parts behind each other.
bool cover(std::vector<Run> runs, int64_t all) {
  std::sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) { return a.first < b.first; });
  int64_t covered = 0;
  for (const Run& run : runs) {
    if (run.stride != 1 || run.first != covered) return false;
    covered += run.extent;
  }
  return covered == all;
}

// A statement that writes all of `tile`, as others that read `raw`. Of a tile that is written in parts, each is a
// fragment first, so that threads have neighbours and copy them together.
struct Change {
  ir::Block statements;
  std::vector<ir::BufferRef> parts;
};

// Whether the runs are the even and the odd elements of the axis.
bool are_pairs(const std::vector<Run>& runs, int64_t all) {
  return runs.size() == 2 && runs[0].first + runs[1].first == 1 && runs[0].first * runs[1].first == 0 &&
         std::all_of(runs.begin(), runs.end(),
                     [&](const Run& run) { return run.stride == 2 && 2 * run.extent == all; });
}

ir::BufferRef part_of(const ir::BufferRef& tile, int64_t extent) {
  auto part = std::make_shared<ir::Buffer>(*tile);
  part->name += "_part";
  part->scope = ir::Scope::kFragment;
  part->shape.back() = ir::make_int(extent);
  return part;
}

ir::CopyStmt copy_of(const ir::BufferRef& tile, const ir::BufferRef& part, const Run& run) {
  ir::CopyStmt copy{whole_tile(tile), whole_tile(part)};
  copy.dst.axes.back() = {ir::AxisSpec::Kind::kRange, ir::make_int(run.first), ir::make_int(run.extent), nullptr};
  return copy;
}

ir::Block reading(ir::Block body, const ir::BufferRef& tile, const ir::BufferRef& raw) {
  rewrite_region(&body, [&](const ExprRef& root) {
    return ir::rewrite(root, [&](const ExprRef& node) {
      return node->kind == ExprKind::kLoad && node->buffer == tile ? ir::make_load(raw, node->args) : node;
    });
  });
  return body;
}

bool is_plain_copy(const ir::CopyStmt& copy, const ir::BufferRef& tile) {
  BufferSet read;
  note_uses(copy.src, &read);
  return copy.src.buffer->scope != ir::Scope::kGlobal && copy.atomic == ir::AtomicOp::kNone &&
         !read.count(tile.get()) && has_whole_axes(copy.dst);
}

// Nothing where the statement does not write all of the tile, or reads what it has written.
std::optional<Change> changed(const ir::Stmt& stmt, const ir::BufferRef& tile, const ir::BufferRef& raw) {
  if (const auto* copy = std::get_if<ir::CopyStmt>(&stmt.node))
    return is_plain_copy(*copy, tile) ? std::optional(Change{{stmt}, {}}) : std::nullopt;
  const auto* region = std::get_if<ir::ParallelStmt>(&stmt.node);
  if (!region) return std::nullopt;
  ir::Block body;
  std::vector<Run> runs;
  std::vector<size_t> places;  // in the body
  for (const ir::Stmt& inner : region->body) {
    BufferSet read, writes;
    ir::for_each_stmt({inner}, [&](const ir::Stmt& each) {
      ir::for_each_expr(each, [&](const ExprRef& expr) { note_loads(expr, &read); });
    });
    note_writes(inner, &writes);
    if (!runs.empty() && read.count(tile.get())) return std::nullopt;
    body.push_back(inner);
    if (!writes.count(tile.get())) continue;
    const auto* branch = std::get_if<ir::IfStmt>(&inner.node);
    const bool masked = branch && branch->then_body.size() == 1 && branch->else_body.empty();
    const auto* assign = std::get_if<ir::AssignStmt>(masked ? &branch->then_body[0].node : &inner.node);
    const std::optional<Run> run = assign ? run_of(*region, *assign) : std::nullopt;
    if (!run || (masked && !runs.empty())) return std::nullopt;
    ir::AssignStmt whole = *assign;
    if (masked)
      whole.value = ir::make_typed(ir::Op::kSelect, {branch->condition, ir::make_cast(tile->type, assign->value),
                                                     ir::make_load(tile, assign->indices)});
    body.back().node = std::move(whole);
    places.push_back(body.size() - 1);
    runs.push_back(*run);
  }
  const int64_t all = tile->shape.back()->int_value;
  const bool pairs = are_pairs(runs, all);
  if (!pairs && !cover(runs, all)) return std::nullopt;
  Change change{{{stmt.loc, ir::ParallelStmt{region->iters, reading(std::move(body), tile, raw)}}}, {}};
  for (size_t i = 0; runs.size() > 1 && i < runs.size(); ++i) {
    if (i == 0 || !pairs) change.parts.push_back(part_of(tile, pairs ? all : runs[i].extent));
    auto& made = std::get<ir::ParallelStmt>(change.statements[0].node);
    auto& assign = std::get<ir::AssignStmt>(made.body[places[i]].node);
    assign.buffer = change.parts.back();
    if (pairs) continue;
    assign.indices.back() = ir::make_var(runs[i].along);
    change.statements.push_back({stmt.loc, copy_of(tile, change.parts.back(), runs[i])});
  }
  if (pairs) change.statements.push_back({stmt.loc, ir::CopyStmt{whole_tile(tile), whole_tile(change.parts[0])}});
  return change;
}

class Renamer {
 public:
  explicit Renamer(int64_t room) : room_(room) {}

  ir::Kernel run(const ir::Kernel& kernel) {
    room_ -= shared_bytes(kernel.body, 1);
    ir::Block body = block(kernel.body);
    return tiles_.empty() ? kernel : with_declared(kernel, tiles_, std::move(body));
  }

 private:
  ir::Block block(ir::Block body) {
    for (ir::Stmt& stmt : body) {
      replace_blocks(&stmt, [&](const ir::Block& inner) { return block(inner); });
      if (auto* loop = std::get_if<ir::ForStmt>(&stmt.node); loop && is_ahead(*loop)) rename(loop);
    }
    return body;
  }

  void rename(ir::ForStmt* loop) {
    for (size_t at = 0; at < loop->body.size(); ++at) {
      const ir::CopyStmt* fill = fill_of(loop->body[at]);
      if (!fill) continue;
      const ir::BufferRef tile = fill->dst.buffer;
      const auto writer = std::find_if(loop->body.begin() + static_cast<std::ptrdiff_t>(at) + 1, loop->body.end(),
                                       [&](const ir::Stmt& stmt) {
                                         BufferSet writes;
                                         note_writes(stmt, &writes);
                                         return writes.count(tile.get()) != 0;
                                       });
      if (writer == loop->body.end() || bytes_of(*tile) > room_) continue;
      ir::Buffer copied = *tile;
      copied.name += "_copy";
      const auto raw = std::make_shared<const ir::Buffer>(std::move(copied));
      std::optional<Change> change = changed(*writer, tile, raw);
      if (!change) continue;
      if (!planted(Planted::kStaleCopy))
        for (auto reader = loop->body.begin() + static_cast<std::ptrdiff_t>(at) + 1; reader != writer; ++reader)
          replace_uses(tile, raw, &*reader);
      std::get<ir::CopyStmt>(loop->body[at].node).dst.buffer = raw;
      const auto behind = loop->body.erase(writer);
      loop->body.insert(behind, change->statements.begin(), change->statements.end());
      room_ -= bytes_of(*tile);
      tiles_.push_back(raw);
      tiles_.insert(tiles_.end(), change->parts.begin(), change->parts.end());
    }
  }

  int64_t room_;  // bytes of shared memory
  std::vector<ir::BufferRef> tiles_;
};

}  // namespace

ir::Kernel renamed_copies(const ir::Kernel& kernel, const Target& target) {
  return Renamer(machine_of(target.architecture).shared_per_block).run(kernel);
}

}  // namespace kachel::lowering
