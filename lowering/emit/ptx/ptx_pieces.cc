// Straight code in pieces, for the assembler's sake, of two kinds.
//
// Long code. The assembler's time grows with the square of a block of straight code and worse: 128
// elements of a function of 100 instructions take it more than a minute, cut into pieces 2 s. What cuts is a branch
// over each piece that no launch takes, since none has so many tiles. The assembler cannot know that, and the condition
// is the same for all lanes.
//
// Iterations that are kept apart. Left alone the assembler takes the loads of all iterations to the front, and then a
// step of each after the other, as far as registers reach; beside 128 sums a few of them spill. It takes a barrier of
// the warp out where it knows the lanes to be together, and moves arithmetic across one in any case. What it does not
// look beyond is the end of a block of straight code: an exit that no launch takes, since none has so many blocks, with
// another number each time lest they become one. Beside products under way, or in their loop, that would have it wait
// for them; where no other team has products meanwhile, loads that begin together take less time.
#include <utility>

#include "lowering/emit/ptx/ptx_statements.h"
#include "lowering/loop_ir/loop_build.h"

namespace kachel::lowering::ptx {

bool Statements::multiplies(const LoopBlock& body) {
  bool found = false;
  for_each_statement(body, [&](const LoopStmt& stmt) {
    const auto* intrinsic = std::get_if<LoopIntrinsic>(&stmt.node);
    found |= intrinsic && intrinsic->kind == LoopIntrinsic::Kind::kGroupMma;
  });
  return found;
}

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

void Statements::keep_apart(const Value& at, int64_t apart, const char* type) {
  constexpr int64_t kMostBlocks = 0x7fffffff;
  if (at.constant && *at.constant % apart != 0) return;
  if (at.constant && kernel_.teams > 1 && !products_.in_loop && !products_.under_way) {
    const Value never = code_.fresh(Class::kPred);
    code_.line("setp.eq.u32 {}, {}, {};", never.text, blocks_.text, kMostBlocks + ++exits_);
    code_.line("@{} exit;", never.text);
    return;
  }
  Value due = Code::truth(true);
  if (!at.constant && apart > 1) {
    const int width = at.kind == Class::kB64 ? 64 : 32;
    const Value rest = code_.pure(at.kind, fmt::format("rem.{}", type).c_str(), {at, Code::integer(apart, width)});
    due = code_.compare("eq", type, rest, Code::integer(0, width));
  }
  when(due, [&] { code_.line("bar.warp.sync -1;"); });
}

void Statements::close_piece() {
  if (!pieces_.end.empty()) code_.label(std::exchange(pieces_.end, {}));
}

}  // namespace kachel::lowering::ptx
