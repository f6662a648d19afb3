#include "lowering/tile_ir/join_loops.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "ir/instantiate.h"
#include "lowering/loop_ir/range.h"
#include "lowering/planted.h"
#include "lowering/tile_ir/same_work.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

using ir::ExprRef;
using ir::Op;

using Range = std::pair<size_t, size_t>;  // statements of a block

ExprRef apply(Op op, const ExprRef& a, const ExprRef& b) {
  return ir::fold(ir::make_typed(op, {a, b}));
}

bool is_product(const ir::Stmt& stmt) {
  return std::holds_alternative<ir::GemmStmt>(stmt.node);
}

// What both loops have to have alike: products, copies of tensors into tiles, and control flow.
bool is_fixed(const ir::Stmt& stmt) {
  const auto* copy = std::get_if<ir::CopyStmt>(&stmt.node);
  return is_product(stmt) || std::holds_alternative<ir::ForStmt>(stmt.node) ||
         std::holds_alternative<ir::IfStmt>(stmt.node) ||
         (copy && copy->src.buffer->scope == ir::Scope::kGlobal && copy->dst.buffer->scope == ir::Scope::kShared);
}

// The statements between those, the fixed ones left out.
std::vector<Range> segments_of(const ir::Block& body) {
  std::vector<Range> segments;
  size_t begin = 0;
  for (size_t i = 0; i <= body.size(); ++i)
    if (i == body.size() || is_fixed(body[i])) segments.push_back({begin, i}), begin = i + 1;
  return segments;
}

class Joiner {
 public:
  Joiner(const ir::ForStmt& first, const ir::ForStmt& second) : first_(first), second_(second) {}

  // The body of both, under the condition that it is the first loop's turn; nothing: they do not fit.
  std::optional<ir::Block> body(const ExprRef& is_first, const ExprRef& second_var) {
    work_.bind(second_.var, second_var);
    const std::vector<Range> a = segments_of(first_.body), b = segments_of(second_.body);
    if (a.size() != b.size()) return std::nullopt;
    const auto last = std::find_if(first_.body.rbegin(), first_.body.rend(), is_product);
    const size_t last_product = static_cast<size_t>(first_.body.rend() - last);
    bool behind_product = false;
    ir::Block out;
    for (size_t i = 0; i < a.size(); ++i) {
      const bool between = behind_product && a[i].second < last_product;
      if (!segment(a[i], b[i], is_first, between, &out)) return std::nullopt;
      if (i + 1 == a.size()) break;
      const ir::Stmt& fixed = first_.body[a[i].second];
      if (!work_.same(fixed, second_.body[b[i].second])) return std::nullopt;
      behind_product |= is_product(fixed);
      out.push_back(fixed);
    }
    return out;
  }

 private:
  // Statements at both ends that are alike stay as they are. What differs lies between products, or it would be in the
  // way of those that run by themselves.
  bool segment(Range a, Range b, const ExprRef& is_first, bool between, ir::Block* out) {
    for (; a.first < a.second && b.first < b.second; ++a.first, ++b.first) {
      SameWork next = work_;
      if (!next.same(first_.body[a.first], second_.body[b.first])) break;
      work_ = std::move(next);
      out->push_back(first_.body[a.first]);
    }
    size_t alike = std::min(a.second - a.first, b.second - b.first);
    while (alike > 0 && !ends_alike(a.second - alike, b.second - alike, alike)) --alike;
    const size_t a_end = a.second - alike, b_end = b.second - alike;
    if (a.first < a_end || b.first < b_end) {
      if (!between) return false;
      const ir::Block own = part(first_.body, {a.first, a_end}), other = part(second_.body, {b.first, b_end});
      ir::IfStmt branch{is_first, own, copy_of(other, work_.values())};
      if (planted(Planted::kLoopsExchanged)) std::swap(branch.then_body, branch.else_body);
      const ir::Loc loc = (own.empty() ? other : own).front().loc;
      out->push_back({loc, std::move(branch)});
    }
    for (const ir::Stmt& stmt : part(first_.body, {a_end, a.second})) out->push_back(stmt);
    return true;
  }
  bool ends_alike(size_t a, size_t b, size_t count) {
    SameWork next = work_;
    for (size_t i = 0; i < count; ++i)
      if (!next.same(first_.body[a + i], second_.body[b + i])) return false;
    work_ = std::move(next);
    return true;
  }
  static ir::Block part(const ir::Block& body, Range range) {
    return {body.begin() + static_cast<std::ptrdiff_t>(range.first),
            body.begin() + static_cast<std::ptrdiff_t>(range.second)};
  }

  const ir::ForStmt &first_, &second_;
  SameWork work_;
};

class Rewriter {
 public:
  explicit Rewriter(const ir::Kernel& kernel) {
    for (const ir::VarRef& dim : kernel.dims) ranges_.set(dim, {0, kMaxDim});
    for (const ir::IterVar& axis : kernel.grid) ranges_.set(axis.var, {0, kMaxDim - 1});
  }

  ir::Block block(const ir::Block& in) {
    ir::Block out;
    for (const ir::Stmt& stmt : in) {
      ir::Stmt copy = stmt;
      if (const auto* let = std::get_if<ir::LetStmt>(&copy.node); let && !ir::is_float(let->value->type))
        ranges_.set(let->var, ranges_.of(let->value));
      if (const auto* loop = std::get_if<ir::ForStmt>(&copy.node)) {
        if (join(*loop, stmt.loc, &out)) continue;
        ranges_.set(loop->var,
                    {ranges_.of(loop->begin).lo, std::max(ranges_.of(loop->end).hi, ranges_.of(loop->begin).lo)});
      }
      replace_blocks(&copy, [this](const ir::Block& inner) { return block(inner); });
      out.push_back(std::move(copy));
    }
    return out;
  }

 private:
  // Puts the loop into the last one of the block, over names that are not made of anything that changes.
  bool join(const ir::ForStmt& second, ir::Loc loc, ir::Block* out) {
    size_t at = out->size();
    while (at > 0 && is_name((*out)[at - 1])) --at;
    if (at == 0) return false;
    const auto* first = std::get_if<ir::ForStmt>(&(*out)[at - 1].node);
    if (!first || !first->pipelined || !second.pipelined || !ir::same(first->stages, second.stages)) return false;
    if (!is_unchanging(first->end) || !is_unchanging(second.begin) || !is_unchanging(second.end)) return false;
    // Iteration t is the second loop's iteration t - before.
    ir::PolyContext polys;
    const ExprRef var = ir::make_var(first->var);
    const bool goes_on = polys.equal(first->end, second.begin);
    const ExprRef before = ir::is_int(second.begin, 0) ? first->end : apply(Op::kSub, first->end, second.begin);
    const ExprRef end = goes_on ? second.end : apply(Op::kAdd, before, second.end);
    if (!ranges_.cannot_wrap(end) || !ranges_.cannot_wrap(before)) return false;
    Joiner joiner(*first, second);
    std::optional<ir::Block> body =
        joiner.body(apply(Op::kLt, var, first->end), goes_on ? var : apply(Op::kSub, var, before));
    if (!body) return false;
    ir::ForStmt joined = *first;
    // Either may have no iteration, and then end before it begins.
    if (!at_least(first->end, first->begin)) joined.begin = apply(Op::kMin, first->begin, first->end);
    joined.end = at_least(end, first->end) ? end : apply(Op::kMax, first->end, end);
    joined.body = std::move(*body);
    ir::Block names(out->begin() + static_cast<std::ptrdiff_t>(at), out->end());
    out->resize(at - 1);
    for (ir::Stmt& name : names) out->push_back(std::move(name));
    out->push_back({loc, std::move(joined)});
    return true;
  }

  static bool is_name(const ir::Stmt& stmt) {
    const auto* let = std::get_if<ir::LetStmt>(&stmt.node);
    return let && is_unchanging(let->value);
  }
  bool at_least(const ExprRef& value, const ExprRef& least) const {
    return ranges_.of(value).lo >= ranges_.of(least).hi;
  }

  Ranges ranges_;
};

}  // namespace

ir::Kernel join_loops(const ir::Kernel& kernel) {
  ir::Kernel out = kernel;
  out.body = Rewriter(kernel).block(kernel.body);
  return out;
}

}  // namespace kachel::lowering
