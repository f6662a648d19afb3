#include "lowering/plan/narrow_tiles.h"

#include <map>
#include <optional>

#include "ir/numerics.h"
#include "ir/visit.h"
#include "lowering/plan/spaces.h"
#include "lowering/planted.h"
#include "lowering/tile_ir/long_rows.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

using ir::BufferRef;
using ir::DType;

// What is written to tiles: of each the type of its copies; none where it is something else.
class Writes {
 public:
  void block(const ir::Block& body) {
    for (const ir::Stmt& stmt : body) statement(stmt);
  }
  std::optional<DType> type_of(const ir::Buffer* tile) const {
    const auto found = types_.find(tile);
    if (found == types_.end() || !found->second) return std::nullopt;
    const auto values = fills_.find(tile);
    for (size_t i = 0; values != fills_.end() && i < values->second.size(); ++i)
      if (ir::round_float(*found->second, values->second[i]) != values->second[i]) return std::nullopt;
    return found->second;
  }

 private:
  void statement(const ir::Stmt& stmt) {
    if (const auto* decl = std::get_if<ir::DeclStmt>(&stmt.node)) {
      if (decl->init) fill(decl->buffer.get(), decl->init);
    } else if (const auto* filled = std::get_if<ir::FillStmt>(&stmt.node)) {
      fill(filled->dst.buffer.get(), filled->value);
    } else if (const auto* copy = std::get_if<ir::CopyStmt>(&stmt.node)) {
      const DType type = copy->src.buffer->type.dtype;
      const bool narrow = ir::is_float(type) && ir::bits(type) == 16 && copy->atomic == ir::AtomicOp::kNone;
      const auto [at, first] = types_.try_emplace(copy->dst.buffer.get(), type);
      if (!narrow || at->second != type) at->second = std::nullopt;
    } else if (const auto* gemm = std::get_if<ir::GemmStmt>(&stmt.node)) {
      for (const ir::TileRef* tile : {&gemm->a, &gemm->b, &gemm->c}) types_[tile->buffer.get()] = std::nullopt;
    } else if (std::holds_alternative<ir::ParallelStmt>(stmt.node)) {
      BufferSet written;
      note_writes(stmt, &written);
      for (const ir::Buffer* tile : written)
        if (!planted(Planted::kNarrowTile)) types_[tile] = std::nullopt;
    } else if (const auto* loop = std::get_if<ir::ForStmt>(&stmt.node)) {
      block(loop->body);
    } else if (const auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) {
      block(branch->then_body), block(branch->else_body);
    }
  }
  void fill(const ir::Buffer* tile, const ir::ExprRef& value) {
    if (value->kind == ir::ExprKind::kFloat)
      fills_[tile].push_back(value->float_value);
    else
      types_[tile] = std::nullopt;
  }

  std::map<const ir::Buffer*, std::optional<DType>> types_;
  std::map<const ir::Buffer*, std::vector<double>> fills_;
};

}  // namespace

ir::Kernel narrow_tiles(const ir::Kernel& kernel, int blocks) {
  Writes writes;
  writes.block(kernel.body);
  const SpaceCollector spaces(kernel);
  const bool everywhere = has_long_rows(kernel, blocks);
  std::vector<std::pair<BufferRef, BufferRef>> replaced;
  ir::Kernel out = kernel;
  for (ir::Stmt& stmt : out.body) {
    const auto* decl = std::get_if<ir::DeclStmt>(&stmt.node);
    if (!decl || decl->buffer->type.dtype != DType::F32) continue;
    const bool in_memory = decl->buffer->scope == ir::Scope::kShared || spaces.memory_tiles().count(decl->buffer.get());
    const std::optional<DType> type = writes.type_of(decl->buffer.get());
    if ((!in_memory && !everywhere) || !type) continue;
    ir::Buffer narrow = *decl->buffer;
    narrow.type.dtype = *type;
    replaced.emplace_back(decl->buffer, std::make_shared<const ir::Buffer>(std::move(narrow)));
    stmt.node = ir::DeclStmt{replaced.back().second, decl->init};
  }
  for (ir::Stmt& stmt : out.body)
    for (const auto& [tile, narrow] : replaced) replace_uses(tile, narrow, &stmt);
  return out;
}

}  // namespace kachel::lowering
