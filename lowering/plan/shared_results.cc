#include "lowering/plan/shared_results.h"

#include <memory>
#include <utility>
#include <vector>

#include "lowering/plan/gemm_choice.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

class Rewriter {
 public:
  explicit Rewriter(const Target& target) : target_(target) {}

  ir::Block block(const ir::Block& body) {
    ir::Block out;
    for (ir::Stmt stmt : body) {
      auto* gemm = std::get_if<ir::GemmStmt>(&stmt.node);
      if (!gemm || !suits(*gemm)) {
        replace_blocks(&stmt, [this](const ir::Block& inner) { return block(inner); });
        out.push_back(std::move(stmt));
        continue;
      }
      auto sums = std::make_shared<ir::Buffer>(*gemm->c.buffer);
      sums->scope = ir::Scope::kFragment;
      sums->name += "_sums";
      made_.push_back(sums);
      const ir::CopyStmt copy{std::exchange(gemm->c, whole_tile(sums)), whole_tile(sums)};
      const ir::Loc loc = stmt.loc;
      out.push_back(std::move(stmt));
      out.push_back({loc, copy});
    }
    return out;
  }
  const std::vector<ir::BufferRef>& made() const { return made_; }

 private:
  bool suits(const ir::GemmStmt& gemm) const {
    return gemm.c.buffer->scope == ir::Scope::kShared && gemm.c.buffer->shape.size() == 2 && !gemm.accumulate &&
           has_whole_axes(gemm.c) && choose_gemm(gemm, target_, {}).mma;
  }

  const Target& target_;
  std::vector<ir::BufferRef> made_;
};

}  // namespace

ir::Kernel shared_results(const ir::Kernel& kernel, const Target& target) {
  Rewriter rewriter(target);
  ir::Block body = rewriter.block(kernel.body);
  return with_declared(kernel, rewriter.made(), std::move(body));
}

}  // namespace kachel::lowering
