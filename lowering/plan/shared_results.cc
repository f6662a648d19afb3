#include "lowering/plan/shared_results.h"

#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "lowering/plan/gemm_choice.h"
#include "lowering/plan/padded_axes.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

// Products by their number in the text.
using Numbers = std::set<size_t>;

class Rewriter {
 public:
  Rewriter(const Target& target, const Numbers& left_out) : target_(target), left_out_(left_out) {}

  ir::Block block(const ir::Block& body) {
    ir::Block out;
    for (ir::Stmt stmt : body) {
      replace_blocks(&stmt, [this](const ir::Block& inner) { return block(inner); });
      auto* gemm = std::get_if<ir::GemmStmt>(&stmt.node);
      if (gemm && suits(*gemm, number_++))
        by_fragment(std::move(stmt), &out);
      else
        out.push_back(std::move(stmt));
    }
    return out;
  }
  const Numbers& rewritten() const { return rewritten_; }
  const std::vector<ir::BufferRef>& made() const { return made_; }

 private:
  bool suits(const ir::GemmStmt& gemm, size_t number) {
    if (gemm.c.buffer->scope != ir::Scope::kShared || !has_whole_axes(gemm.c) || left_out_.count(number) ||
        !may_take_mma(gemm, target_))
      return false;
    rewritten_.insert(number);
    return true;
  }

  void by_fragment(ir::Stmt stmt, ir::Block* out) {
    auto& gemm = std::get<ir::GemmStmt>(stmt.node);
    auto sums = std::make_shared<ir::Buffer>(*gemm.c.buffer);
    sums->scope = ir::Scope::kFragment;
    sums->name += "_sums";
    made_.push_back(sums);
    const ir::TileRef result = std::exchange(gemm.c, whole_tile(sums));
    const bool adds = std::exchange(gemm.accumulate, false);
    const ir::Loc loc = stmt.loc;
    out->push_back(std::move(stmt));
    if (adds)
      out->push_back({loc, combined_into(ir::ReduceOp::kSum, result.buffer, sums, loc)});
    else
      out->push_back({loc, ir::CopyStmt{result, whole_tile(sums)}});
  }

  const Target& target_;
  const Numbers& left_out_;
  size_t number_ = 0;
  Numbers rewritten_;
  std::vector<ir::BufferRef> made_;
};

// Of the rewritten products, those that tensor cores do not multiply all the same.
Numbers without_mma(const ir::Kernel& kernel, const Numbers& rewritten, const Target& target) {
  Numbers found;
  size_t number = 0;
  ir::for_each_stmt(kernel.body, [&](const ir::Stmt& stmt) {
    const auto* gemm = std::get_if<ir::GemmStmt>(&stmt.node);
    if (gemm && rewritten.count(number++) && !choose_gemm(*gemm, target, {}).mma) found.insert(number - 1);
  });
  return found;
}

}  // namespace

ir::Kernel shared_results(const ir::Kernel& kernel, const Target& target, bool wide) {
  Numbers left_out;
  for (;;) {
    Rewriter rewriter(target, left_out);
    ir::Block body = rewriter.block(kernel.body);
    BufferSet results;
    for (const ir::BufferRef& made : rewriter.made()) results.insert(made.get());
    const ir::Kernel by_fragments = with_declared(kernel, rewriter.made(), std::move(body));
    ir::Kernel grown = padded_axes(by_fragments, target, results, wide);
    const Numbers failed = without_mma(grown, rewriter.rewritten(), target);
    if (failed.empty()) return grown;
    left_out.insert(failed.begin(), failed.end());
  }
}

}  // namespace kachel::lowering
