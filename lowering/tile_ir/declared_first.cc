#include "lowering/tile_ir/declared_first.h"

#include <utility>
#include <vector>

#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {

ir::Kernel declared_first(const ir::Kernel& kernel) {
  std::vector<ir::BufferRef> late;
  ir::Block body;
  bool behind = false;
  for (const ir::Stmt& stmt : kernel.body) {
    const auto* decl = std::get_if<ir::DeclStmt>(&stmt.node);
    if (!decl || !behind) {
      behind |= !decl && !std::holds_alternative<ir::LetStmt>(stmt.node);
      body.push_back(stmt);
      continue;
    }
    late.push_back(decl->buffer);
    if (decl->init) body.push_back({stmt.loc, ir::FillStmt{whole_tile(decl->buffer), decl->init}});
  }
  return late.empty() ? kernel : with_declared(kernel, late, std::move(body));
}

}  // namespace kachel::lowering
