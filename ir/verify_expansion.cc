// How much a reduction comes to. It is evaluated for each of its elements, with the names of the region around it written
// out; names that use a name several times multiply, so a short text can stand for more than a computer can do.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "ir/verify_rules.h"

namespace kachel::ir {
namespace {

constexpr uint64_t kMostOperations = 10000;

class Expansion {
 public:
  explicit Expansion(Diagnostics& out) : out_(out) {}

  void block(const Block& body, bool in_region) {
    for (const Stmt& stmt : body) {
      if (const auto* region = std::get_if<ParallelStmt>(&stmt.node)) {
        sizes_.clear();
        block(region->body, true);
      } else if (const auto* let = std::get_if<LetStmt>(&stmt.node)) {
        if (!in_region) continue;
        reductions(let->value);
        sizes_[let->var.get()] = expanded(let->value);
      } else if (const auto* assign = std::get_if<AssignStmt>(&stmt.node)) {
        for (const ExprRef& index : assign->indices) reductions(index);
        reductions(assign->value);
      } else if (const auto* loop = std::get_if<ForStmt>(&stmt.node)) {
        block(loop->body, in_region);
      } else if (const auto* branch = std::get_if<IfStmt>(&stmt.node)) {
        if (in_region) reductions(branch->condition);
        block(branch->then_body, in_region);
        block(branch->else_body, in_region);
      }
    }
  }

 private:
  // Nodes of the value with the region's names written out; no more than kMostOperations + 1.
  uint64_t expanded(const ExprRef& value) const {
    uint64_t size = 0;
    visit(value, [&](const ExprRef& node) {
      const auto named = node->kind == ExprKind::kVar ? sizes_.find(node->var.get()) : sizes_.end();
      size = std::min(size + (named == sizes_.end() ? 1 : named->second), kMostOperations + 1);
    });
    return size;
  }
  void reductions(const ExprRef& value) {
    visit(value, [&](const ExprRef& node) {
      if (node->kind != ExprKind::kReduce || expanded(node) <= kMostOperations) return;
      out_.push_back({node->loc,
                      fmt::format("with its names written out, this reduction is more than {} operations", kMostOperations),
                      "assign an intermediate value to a tile in a region before, and read that"});
    });
  }

  Diagnostics& out_;
  std::unordered_map<const Var*, uint64_t> sizes_;
};

}  // namespace

void check_expansion(const Kernel& kernel, Diagnostics& out) {
  Expansion(out).block(kernel.body, false);
}

}  // namespace kachel::ir
