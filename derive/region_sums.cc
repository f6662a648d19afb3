#include "derive/region_sums.h"

#include <algorithm>

#include "ir/visit.h"

namespace kachel::derive {

using namespace ir;

namespace {

bool reads(const ExprRef& expr, const std::set<const Buffer*>& buffers) {
  bool found = false;
  visit(expr,
        [&](const ExprRef& node) { found |= node->kind == ExprKind::kLoad && buffers.count(node->buffer.get()); });
  return found;
}

struct Step {
  Op op;
  ExprRef value;  // that the element is added to, or compared with
};
// Of an assignment that does such a thing with its element.
std::optional<Step> step_of(const AssignStmt& assign) {
  if (assign.atomic != AtomicOp::kNone) return {};
  if (assign.op == AssignOp::kAdd) return Step{Op::kAdd, assign.value};
  const ExprRef& value = assign.value;
  if (assign.op != AssignOp::kSet || value->kind != ExprKind::kApply) return {};
  if (value->op != Op::kAdd && value->op != Op::kMax && value->op != Op::kMin) return {};
  for (size_t side = 0; side < 2; ++side) {
    const ExprRef& own = value->args[side];
    const bool is_own = own->kind == ExprKind::kLoad && own->buffer == assign.buffer &&
                        std::equal(own->args.begin(), own->args.end(), assign.indices.begin(), assign.indices.end(),
                                   [](const ExprRef& a, const ExprRef& b) { return same(a, b); });
    if (is_own) return Step{value->op, value->args[1 - side]};
  }
  return {};
}

bool is_wide(const TypeRef& type) {
  return type.symbol ? type.accumulator : type.dtype == DType::F32 || (!is_float(type.dtype) && bits(type.dtype) >= 32);
}

bool adds_only(const Block& body, const std::set<const Buffer*>& sums) {
  return std::all_of(body.begin(), body.end(), [&](const Stmt& stmt) {
    if (const auto* let = std::get_if<LetStmt>(&stmt.node)) return !reads(let->value, sums);
    if (const auto* branch = std::get_if<IfStmt>(&stmt.node))
      return !reads(branch->condition, sums) && adds_only(branch->then_body, sums) &&
             adds_only(branch->else_body, sums);
    const auto* assign = std::get_if<AssignStmt>(&stmt.node);
    if (!assign) return false;
    const bool places = std::none_of(assign->indices.begin(), assign->indices.end(),
                                     [&](const ExprRef& index) { return reads(index, sums); });
    if (!sums.count(assign->buffer.get())) return places && !reads(assign->value, sums);
    const std::optional<Step> step = step_of(*assign);
    return places && step && !reads(step->value, sums);
  });
}

}  // namespace

void note_region_sums(const Block& block, std::vector<BufferRef>* sums) {
  for_each_stmt(block, [&](const Stmt& stmt) {
    const auto* assign = std::get_if<AssignStmt>(&stmt.node);
    if (!assign || assign->buffer->scope != Scope::kFragment) return;
    const std::optional<Step> step = step_of(*assign);
    if (!step || (step->op == Op::kAdd && !is_wide(assign->buffer->type))) return;
    if (!reads(step->value, {assign->buffer.get()}) && !std::count(sums->begin(), sums->end(), assign->buffer))
      sums->push_back(assign->buffer);
  });
}

std::optional<Op> operation_of(const Block& block, const Buffer& sum) {
  std::optional<Op> found;
  bool one = true;
  for_each_stmt(block, [&](const Stmt& stmt) {
    const auto* assign = std::get_if<AssignStmt>(&stmt.node);
    const auto* gemm = std::get_if<GemmStmt>(&stmt.node);
    if (!(assign && assign->buffer.get() == &sum) && !(gemm && gemm->c.buffer.get() == &sum)) return;
    const std::optional<Step> step = assign ? step_of(*assign) : Step{Op::kAdd, nullptr};
    one &= step && (!found || *found == step->op);
    if (step) found = step->op;
  });
  return one ? found : std::nullopt;
}

bool adds_only(const ParallelStmt& region, const std::set<const Buffer*>& sums) {
  return adds_only(region.body, sums);
}

}  // namespace kachel::derive
