#include "lowering/tile_ir/renamed_copies.h"

#include <algorithm>
#include <optional>
#include <utility>

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

// Whether each iteration of the region assigns its own element of the tile, and all elements have one.
bool sets_each(const ir::ParallelStmt& region, const ir::AssignStmt& assign) {
  if (assign.atomic != ir::AtomicOp::kNone || assign.indices.size() != region.iters.size()) return false;
  std::vector<const ir::Var*> seen;
  for (size_t axis = 0; axis < assign.indices.size(); ++axis) {
    const ExprRef& index = assign.indices[axis];
    if (index->kind != ExprKind::kVar || std::count(seen.begin(), seen.end(), index->var.get())) return false;
    const auto iter = std::find_if(region.iters.begin(), region.iters.end(),
                                   [&](const ir::IterVar& one) { return one.var == index->var; });
    if (iter == region.iters.end() || iter->extent->int_value != assign.buffer->shape[axis]->int_value) return false;
    seen.push_back(index->var.get());
  }
  return true;
}

// The same statement, which reads `raw` and writes all of `tile`; nothing if it does not write all of it, or reads what
// it has written.
std::optional<ir::Stmt> rewritten(const ir::Stmt& stmt, const ir::BufferRef& tile, const ir::BufferRef& raw) {
  if (const auto* copy = std::get_if<ir::CopyStmt>(&stmt.node)) {
    BufferSet read;
    note_uses(copy->src, &read);
    if (copy->src.buffer->scope == ir::Scope::kGlobal || copy->atomic != ir::AtomicOp::kNone ||
        read.count(tile.get()) || !has_whole_axes(copy->dst) || copy->dst.within_first)
      return std::nullopt;
    return stmt;
  }
  const auto* region = std::get_if<ir::ParallelStmt>(&stmt.node);
  if (!region) return std::nullopt;
  ir::ParallelStmt out{region->iters, {}};
  bool written = false;
  for (const ir::Stmt& inner : region->body) {
    BufferSet used, writes;
    note_uses(inner, &used);
    note_writes(inner, &writes);
    if (written && used.count(tile.get())) return std::nullopt;
    ir::Stmt copy = inner;
    if (writes.count(tile.get())) {
      const auto* branch = std::get_if<ir::IfStmt>(&inner.node);
      const bool masked = branch && branch->then_body.size() == 1 && branch->else_body.empty();
      const auto* assign = std::get_if<ir::AssignStmt>(masked ? &branch->then_body[0].node : &inner.node);
      if (!assign || !sets_each(*region, *assign)) return std::nullopt;
      ir::AssignStmt whole = *assign;
      if (masked)
        whole.value = ir::make_typed(ir::Op::kSelect, {branch->condition, ir::make_cast(tile->type, assign->value),
                                                       ir::make_load(tile, assign->indices)});
      copy.node = std::move(whole);
      written = true;
    }
    const auto from_raw = [&](const ExprRef& root) {
      return ir::rewrite(root, [&](const ExprRef& node) {
        return node->kind == ExprKind::kLoad && node->buffer == tile ? ir::make_load(raw, node->args) : node;
      });
    };
    ir::Block one{std::move(copy)};
    rewrite_region(&one, from_raw);
    out.body.push_back(std::move(one[0]));
  }
  return ir::Stmt{stmt.loc, std::move(out)};
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
      std::optional<ir::Stmt> made = rewritten(*writer, tile, raw);
      if (!made) continue;
      *writer = std::move(*made);
      if (!planted(Planted::kStaleCopy))
        for (auto reader = loop->body.begin() + static_cast<std::ptrdiff_t>(at) + 1; reader != writer; ++reader)
          replace_uses(tile, raw, &*reader);
      std::get<ir::CopyStmt>(loop->body[at].node).dst.buffer = raw;
      room_ -= bytes_of(*tile);
      tiles_.push_back(raw);
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
