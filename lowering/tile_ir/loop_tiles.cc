#include "lowering/tile_ir/loop_tiles.h"

#include <utility>
#include <vector>

#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

// Whether every iteration writes all of the tile before anything else touches it.
bool fills_anew(const ir::ForStmt& loop, const ir::Buffer* tile) {
  BufferSet read;
  note_loads(loop.begin, &read), note_loads(loop.end, &read);
  if (read.count(tile)) return false;
  for (const ir::Stmt& stmt : loop.body) {
    BufferSet used;
    note_uses(stmt, &used);
    if (!used.count(tile)) continue;
    const auto* copy = std::get_if<ir::CopyStmt>(&stmt.node);
    if (!copy || copy->dst.buffer.get() != tile || !has_whole_axes(copy->dst)) return false;
    note_uses(copy->src, &read);
    return !read.count(tile);
  }
  return true;
}

// The loops of the block that use the tile, as numbers of its statements; none if anything else does, or a loop that
// reads what it has not written.
std::vector<size_t> loops_of(const ir::Block& body, const ir::Buffer* tile) {
  std::vector<size_t> loops;
  for (size_t i = 0; i < body.size(); ++i) {
    BufferSet used;
    note_uses(body[i], &used);
    const auto* decl = std::get_if<ir::DeclStmt>(&body[i].node);
    if (!used.count(tile) || (decl && decl->buffer.get() == tile && !decl->init)) continue;
    const auto* loop = std::get_if<ir::ForStmt>(&body[i].node);
    if (!loop || !fills_anew(*loop, tile)) return {};
    loops.push_back(i);
  }
  return loops;
}

}  // namespace

ir::Kernel loop_tiles(const ir::Kernel& kernel) {
  ir::Kernel out = kernel;
  ir::Block declared;
  for (const ir::Stmt& stmt : kernel.body) {
    const auto* decl = std::get_if<ir::DeclStmt>(&stmt.node);
    if (!decl || decl->buffer->scope != ir::Scope::kShared) continue;
    const std::vector<size_t> loops = loops_of(kernel.body, decl->buffer.get());
    for (size_t i = 1; i < loops.size(); ++i) {
      const auto own = std::make_shared<const ir::Buffer>(*decl->buffer);
      declared.push_back({stmt.loc, ir::DeclStmt{own, nullptr}});
      replace_uses(decl->buffer, own, &out.body[loops[i]]);
    }
  }
  out.body.insert(out.body.begin(), declared.begin(), declared.end());
  return out;
}

}  // namespace kachel::lowering
