#include "lowering/passes/unswitch_copies.h"

#include <algorithm>
#include <set>

#include "lowering/loop_ir/loop_build.h"
#include "lowering/planted.h"

namespace kachel::lowering {
namespace {

constexpr int kMostConditions = 2;  // of a loop, which then is there four times

bool copies(const LoopBlock& body) {
  bool found = false;
  for_each_statement(body, [&](const LoopStmt& stmt) {
    const auto* intrinsic = std::get_if<LoopIntrinsic>(&stmt.node);
    found |= intrinsic && intrinsic->kind == LoopIntrinsic::Kind::kBulkCopy;
  });
  return found;
}

bool is_innermost(const LoopFor& loop) {
  return std::none_of(loop.body.begin(), loop.body.end(),
                      [](const LoopStmt& stmt) { return std::holds_alternative<LoopFor>(stmt.node); });
}

// Whether nothing in the loop gives the value another meaning from one iteration to the next.
bool is_invariant(const ir::ExprRef& value, const LoopFor& loop) {
  std::set<const ir::Var*> made = {loop.var.get()};
  for_each_statement(loop.body, [&](const LoopStmt& stmt) {
    if (const auto* let = std::get_if<LoopLet>(&stmt.node)) made.insert(let->var.get());
    if (const auto* inner = std::get_if<LoopFor>(&stmt.node)) made.insert(inner->var.get());
    if (const auto* threads = std::get_if<LoopThreads>(&stmt.node))
      made.insert({threads->index.get(), threads->slot.get()});
  });
  bool invariant = true;
  ir::visit(value, [&](const ir::ExprRef& node) {
    invariant &=
        node->kind != ir::ExprKind::kLoad && (node->kind != ir::ExprKind::kVar || !made.count(node->var.get()));
  });
  return invariant;
}

const LoopIf* choice_in(const LoopFor& loop) {
  for (const LoopStmt& stmt : loop.body) {
    const auto* branch = std::get_if<LoopIf>(&stmt.node);
    if (branch && (copies(branch->then_body) || copies(branch->else_body)) && is_invariant(branch->condition, loop))
      return branch;
  }
  return nullptr;
}

LoopBlock unswitched(LoopFor loop, int conditions) {
  const LoopIf* choice = conditions < kMostConditions && is_innermost(loop) ? choice_in(loop) : nullptr;
  LoopBlock out;
  if (!choice) {
    out.push_back({std::move(loop)});
    return out;
  }
  auto decided = [&](bool holds) {
    LoopFor copy = loop;
    copy.body.clear();
    for (const LoopStmt& stmt : loop.body) {
      const auto* branch = std::get_if<LoopIf>(&stmt.node);
      if (!branch || (!ir::same(branch->condition, choice->condition) && !planted(Planted::kChoicesMixed))) {
        copy.body.push_back(stmt);
        continue;
      }
      const LoopBlock& part = holds ? branch->then_body : branch->else_body;
      copy.body.insert(copy.body.end(), part.begin(), part.end());
    }
    return unswitched(std::move(copy), conditions + 1);
  };
  out.push_back({LoopIf{choice->condition, decided(true), decided(false)}});
  return out;
}

LoopBlock block(const LoopBlock& body) {
  LoopBlock out;
  for (const LoopStmt& stmt : body) {
    LoopStmt copy = stmt;
    if (auto* branch = std::get_if<LoopIf>(&copy.node)) {
      branch->then_body = block(branch->then_body);
      branch->else_body = block(branch->else_body);
    } else if (auto* threads = std::get_if<LoopThreads>(&copy.node)) {
      threads->body = block(threads->body);
    } else if (auto* loop = std::get_if<LoopFor>(&copy.node)) {
      loop->body = block(loop->body);
      for (LoopStmt& part : unswitched(*loop, 0)) out.push_back(std::move(part));
      continue;
    }
    out.push_back(std::move(copy));
  }
  return out;
}

}  // namespace

void unswitch_copies(LoopKernel* kernel) {
  kernel->producer = block(kernel->producer);
}

}  // namespace kachel::lowering
