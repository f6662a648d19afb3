// Prefix reductions, `sum[k <= j](e)`: j is an index of the region, and e does not depend on it, so that the values for
// all j are one pass over e.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_map>

#include "ir/verify_rules.h"

namespace kachel::ir {
namespace {

class Scans {
 public:
  explicit Scans(Diagnostics& out) : out_(out) {}

  void block(const Block& body, const ParallelStmt* region) {
    for (const Stmt& stmt : body) {
      for_each_tile(stmt, [&](const TileRef& tile, bool) {
        for (const AxisSpec& axis : tile.axes) expr(axis.start, region, false);
        expr(tile.within_first, region, false);
        expr(tile.within_length, region, false);
      });
      if (const auto* inner = std::get_if<ParallelStmt>(&stmt.node)) {
        names_.clear();
        assigned_.clear();
        block(inner->body, inner);
      } else if (const auto* let = std::get_if<LetStmt>(&stmt.node)) {
        expr(let->value, region, false);
        if (region) names_[let->var.get()] = variables(let->value);
      } else if (const auto* assign = std::get_if<AssignStmt>(&stmt.node)) {
        for (const ExprRef& index : assign->indices) expr(index, region, false);
        expr(assign->value, region, false);
        note(*assign);
      } else if (const auto* fill = std::get_if<FillStmt>(&stmt.node)) {
        expr(fill->value, region, false);
      } else if (const auto* loop = std::get_if<ForStmt>(&stmt.node)) {
        expr(loop->begin, region, false);
        expr(loop->end, region, false);
        block(loop->body, region);
      } else if (const auto* branch = std::get_if<IfStmt>(&stmt.node)) {
        expr(branch->condition, region, false);
        conditions_.push_back(variables(branch->condition));
        block(branch->then_body, region);
        block(branch->else_body, region);
        conditions_.pop_back();
      }
    }
  }

 private:
  using Variables = std::set<const Var*>;

  Variables variables(const ExprRef& value) {
    Variables found;
    visit(value, [&](const ExprRef& node) {
      if (node->kind == ExprKind::kLoad) {
        if (const Assigned* its = find(*node->buffer, node->args))
          found.insert(its->depends.begin(), its->depends.end());
        return;
      }
      if (node->kind != ExprKind::kVar) return;
      found.insert(node->var.get());
      if (const auto name = names_.find(node->var.get()); name != names_.end())
        found.insert(name->second.begin(), name->second.end());
    });
    return found;
  }

  // An iteration sees what it has assigned to an element, where that is named by the same text.
  struct Assigned {
    const Buffer* buffer;
    std::vector<ExprRef> indices;
    Variables depends;
  };
  Assigned* find(const Buffer& buffer, const std::vector<ExprRef>& indices) {
    for (Assigned& one : assigned_)
      if (one.buffer == &buffer && std::equal(indices.begin(), indices.end(), one.indices.begin(), one.indices.end(),
                                              [](const ExprRef& a, const ExprRef& b) { return same(a, b); }))
        return &one;
    return nullptr;
  }
  void note(const AssignStmt& assign) {
    Variables depends = variables(assign.value);
    for (const Variables& condition : conditions_) depends.insert(condition.begin(), condition.end());
    Assigned* before = find(*assign.buffer, assign.indices);
    if (before) return before->depends.merge(depends);
    assigned_.push_back({assign.buffer.get(), assign.indices, std::move(depends)});
  }

  void expr(const ExprRef& root, const ParallelStmt* region, bool reduced) {
    if (!root) return;
    if (root->kind == ExprKind::kScan) scan(*root, region, reduced);
    for (const ExprRef& arg : root->args) expr(arg, region, reduced || is_reduction(*root));
  }

  void scan(const Expr& scan, const ParallelStmt* region, bool reduced) {
    if (reduced) {
      out_.push_back({scan.loc, "a prefix reduction inside a reduction",
                      "assign it to a tile in a region before, and reduce that"});
      return;
    }
    const ExprRef& index = scan.args[1];
    const IterVar* its = nullptr;
    for (size_t i = 0; region && i < region->iters.size(); ++i)
      if (index->kind == ExprKind::kVar && region->iters[i].var == index->var) its = &region->iters[i];
    if (!its || !same(its->extent, scan.iters[0].extent)) {
      out_.push_back({scan.loc, "a prefix reduction needs an index of the `parallel` around it, with its extent",
                      "write `sum[k <= j](...)` inside `parallel j < n { }`"});
      return;
    }
    if (variables(scan.args[0]).count(index->var.get()))
      out_.push_back(
          {scan.loc, fmt::format("what is reduced up to `{0}` depends on `{0}` itself", index->var->name),
           fmt::format("use `{}` in its place, or multiply outside of the reduction", scan.iters[0].var->name)});
  }

  Diagnostics& out_;
  std::unordered_map<const Var*, Variables> names_;  // of the region: what they depend on
  std::vector<Assigned> assigned_;                   // by the region so far
  std::vector<Variables> conditions_;                // around the statement at hand
};

}  // namespace

void check_scans(const Kernel& kernel, Diagnostics& out) {
  Scans(out).block(kernel.body, nullptr);
}

}  // namespace kachel::ir
