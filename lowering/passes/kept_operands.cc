#include "lowering/passes/kept_operands.h"

#include <algorithm>
#include <set>
#include <utility>

#include "lowering/loop_ir/loop_build.h"

namespace kachel::lowering {
namespace {

using Kind = LoopIntrinsic::Kind;
using Buffers = std::set<const ir::Buffer*>;

const LoopIntrinsic* intrinsic(const LoopStmt& stmt, Kind kind) {
  const auto* found = std::get_if<LoopIntrinsic>(&stmt.node);
  return found && found->kind == kind ? found : nullptr;
}

bool is_serial(const LoopStmt& stmt) {
  const auto* loop = std::get_if<LoopFor>(&stmt.node);
  return loop && !loop->unroll;
}

// Arrivals at barriers are instructions under a predicate.
bool branches(const LoopStmt& stmt) {
  if (is_serial(stmt)) return true;
  const auto* branch = std::get_if<LoopIf>(&stmt.node);
  if (!branch) return false;
  const auto arrives = [](const LoopStmt& inner) { return intrinsic(inner, Kind::kPhaseArrive) != nullptr; };
  return !std::all_of(branch->then_body.begin(), branch->then_body.end(), arrives) ||
         !std::all_of(branch->else_body.begin(), branch->else_body.end(), arrives);
}

class Keeper {
 public:
  void block(LoopBlock* body) {
    for (LoopStmt& stmt : *body) {
      for_each_block(&stmt, [this](LoopBlock* inner) { block(inner); });
      if (is_serial(stmt)) loop(&std::get<LoopFor>(stmt.node));
    }
  }

 private:
  void loop(LoopFor* loop) {
    Buffers written;
    bool has_branch = false;
    pending_ = false;
    for (const LoopStmt& stmt : loop->body)
      for_each_statement(stmt, [&](const LoopStmt& inner) {
        has_branch |= branches(inner);
        const LoopIntrinsic* wait = intrinsic(inner, Kind::kGroupWait);
        pending_ |= wait && wait->immediate > 0;
        for_each_access(inner, [&](const ir::BufferRef& buffer, bool write) {
          if (write) written.insert(buffer.get());
        });
      });
    if (has_branch) keep(&loop->body, written);
  }

  // Of the loop itself: in loops within it they are kept already.
  void keep(LoopBlock* body, const Buffers& written) {
    LoopBlock out;
    std::optional<size_t> fence;
    for (LoopStmt& stmt : *body) {
      if (!is_serial(stmt)) for_each_block(&stmt, [&](LoopBlock* inner) { keep(inner, written); });
      const LoopIntrinsic* mma = intrinsic(stmt, Kind::kGroupMma);
      const ir::BufferRef left = mma ? mma->operands[1].buffer : nullptr;
      const bool kept = left && left->scope == ir::Scope::kRegister && !written.count(left.get());
      if (intrinsic(stmt, Kind::kGroupFence)) {
        fence = out.size();
      } else if (kept) {
        if (!fence) {
          fence = out.size();
          out.push_back({LoopIntrinsic{Kind::kGroupFence, {}}});
        }
        note(left, &std::get<LoopIntrinsic>(out[*fence].node));
      }
      out.push_back(std::move(stmt));
    }
    *body = std::move(out);
    if (!pending_) return;
    // What is still being read must not be written.
    for (size_t at = body->size(); at-- > 0;)
      if (const LoopIntrinsic* one = intrinsic((*body)[at], Kind::kGroupFence); one && !one->operands.empty())
        body->insert(body->begin() + static_cast<std::ptrdiff_t>(at), {LoopIntrinsic{Kind::kGroupWait, {}}});
  }

  static void note(const ir::BufferRef& left, LoopIntrinsic* fence) {
    const auto same = [&](const LoopIntrinsic::Operand& one) { return one.buffer == left; };
    if (std::none_of(fence->operands.begin(), fence->operands.end(), same))
      fence->operands.push_back({left, int32(0), left->shape[0]->int_value, true});
  }

  bool pending_ = false;
};

}  // namespace

void kept_operands(LoopKernel* kernel) {
  Keeper().block(&kernel->body);
}

}  // namespace kachel::lowering
