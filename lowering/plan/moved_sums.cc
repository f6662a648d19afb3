#include "lowering/plan/moved_sums.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "lowering/plan/placement.h"
#include "lowering/plan/spaces.h"
#include "lowering/planted.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

using ir::BufferRef;

// Whether products of the statement add to the tile.
bool multiplies_into(const ir::Buffer* tile, const ir::Stmt& stmt) {
  const auto any = [&](const ir::Block& body) {
    return std::any_of(body.begin(), body.end(), [&](const ir::Stmt& one) { return multiplies_into(tile, one); });
  };
  if (const auto* gemm = std::get_if<ir::GemmStmt>(&stmt.node)) return gemm->c.buffer.get() == tile;
  if (const auto* loop = std::get_if<ir::ForStmt>(&stmt.node)) return any(loop->body);
  const auto* branch = std::get_if<ir::IfStmt>(&stmt.node);
  return branch && (any(branch->then_body) || any(branch->else_body));
}

// Whether the statement sets all of the tile, whatever that held.
bool defines(const ir::Buffer* tile, const ir::Stmt& stmt) {
  if (const auto* fill = std::get_if<ir::FillStmt>(&stmt.node))
    return fill->dst.buffer.get() == tile && is_whole(fill->dst);
  const auto* gemm = std::get_if<ir::GemmStmt>(&stmt.node);
  return gemm && gemm->c.buffer.get() == tile && !gemm->accumulate && is_whole(gemm->c);
}

class Mover {
 public:
  explicit Mover(const ir::Kernel& kernel) : kernel_(kernel) {}

  ir::Kernel run() {
    std::set<const ir::Buffer*> tried;
    while (const BufferRef sum = next(&tried)) {
      std::optional<ir::Kernel> moved = move(sum);
      if (moved && !SpaceCollector(*moved).memory_tiles().count(sum.get())) kernel_ = *std::move(moved);
    }
    return std::move(kernel_);
  }

 private:
  BufferRef next(std::set<const ir::Buffer*>* tried) const {
    const SpaceCollector collected(kernel_);
    for (const ir::GemmStmt* gemm : collected.gemms()) {
      const BufferRef& sum = gemm->c.buffer;
      if (collected.memory_tiles().count(sum.get()) && tried->insert(sum.get()).second) return sum;
    }
    return nullptr;
  }

  // Nothing where no place behind all products has what follows use the tile.
  std::optional<ir::Kernel> move(const BufferRef& sum) const {
    ir::Kernel out = kernel_;
    auto copy = std::make_shared<ir::Buffer>(*sum);
    copy->name += "_moved";
    const BufferRef to = copy;
    if (!move_in(sum, to, &out.body)) return std::nullopt;
    const auto declared = std::find_if(out.body.begin(), out.body.end(), [&](const ir::Stmt& stmt) {
      const auto* decl = std::get_if<ir::DeclStmt>(&stmt.node);
      return decl && decl->buffer == sum;
    });
    out.body.insert(declared, {sum->loc, ir::DeclStmt{to, nullptr}});
    return out;
  }

  bool move_in(const BufferRef& sum, const BufferRef& to, ir::Block* body) const {
    const auto last = std::find_if(body->rbegin(), body->rend(),
                                   [&](const ir::Stmt& stmt) { return multiplies_into(sum.get(), stmt); });
    const auto behind = last.base();
    if (uses_of(sum.get(), {behind, body->end()}) == 0) {
      auto* loop = std::get_if<ir::ForStmt>(&last->node);
      return loop && starts_anew(sum.get(), loop->body) && move_in(sum, to, &loop->body);
    }
    for (auto stmt = behind; stmt != body->end(); ++stmt) replace_uses(sum, to, &*stmt);
    const ir::Loc loc = last->loc;
    body->insert(planted(Planted::kMovedEarly) ? behind - 1 : behind,
                 {loc, ir::CopyStmt{whole_tile(to), whole_tile(sum)}});
    return true;
  }

  // No iteration sees what another one, or anything outside, has left in the tile.
  bool starts_anew(const ir::Buffer* tile, const ir::Block& body) const {
    const auto first =
        std::find_if(body.begin(), body.end(), [&](const ir::Stmt& stmt) { return uses_of(tile, {stmt}) != 0; });
    return first != body.end() && defines(tile, *first) && uses_of(tile, kernel_.body) == uses_of(tile, body);
  }

  ir::Kernel kernel_;
};

}  // namespace

ir::Kernel moved_sums(const ir::Kernel& kernel) {
  return Mover(kernel).run();
}

}  // namespace kachel::lowering
