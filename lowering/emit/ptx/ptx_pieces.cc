// Straight code in pieces. The assembler's time grows with the square of a block of straight code and worse: 128
// elements of a function of 100 instructions take it more than a minute, cut into pieces 2 s. What cuts is a branch
// over each piece that no launch takes, since none has so many tiles. The assembler cannot know that, and the condition
// is the same for all lanes.
#include <utility>

#include "lowering/emit/ptx/ptx_statements.h"

namespace kachel::lowering::ptx {

bool Statements::multiplies_alone(const LoopBlock& body) {
  const auto any = [](const LoopBlock& inner) { return multiplies_alone(inner); };
  for (const LoopStmt& stmt : body) {
    if (const auto* intrinsic = std::get_if<LoopIntrinsic>(&stmt.node);
        intrinsic && intrinsic->kind == LoopIntrinsic::Kind::kGroupMma)
      return true;
    if (const auto* loop = std::get_if<LoopFor>(&stmt.node); loop && loop->unroll && any(loop->body)) return true;
    if (const auto* threads = std::get_if<LoopThreads>(&stmt.node); threads && any(threads->body)) return true;
    if (const auto* branch = std::get_if<LoopIf>(&stmt.node);
        branch && (any(branch->then_body) || any(branch->else_body)))
      return true;
  }
  return false;
}

void Statements::cut_here() {
  constexpr size_t kFirst = 4000, kPiece = 1500;  // lines
  constexpr int64_t kNoTiles = (int64_t{1} << 62) + 1;
  if (!pieces_.allowed || code_.lines() - pieces_.begin < (pieces_.first ? kFirst : kPiece)) return;
  close_piece();
  pieces_.begin = code_.lines();
  pieces_.first = false;
  pieces_.end = code_.new_label();
  const Value never = code_.fresh(Class::kPred), tiles = expressions_.of(ir::make_var(kernel_.tiles));
  code_.line("setp.eq.b64 {}, {}, {};", never.text, tiles.text, kNoTiles);
  code_.line("@{} bra {};", never.text, pieces_.end);
}

void Statements::close_piece() {
  if (!pieces_.end.empty()) code_.label(std::exchange(pieces_.end, {}));
}

}  // namespace kachel::lowering::ptx
