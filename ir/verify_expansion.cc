// How much a reduction comes to: it is evaluated for each of its elements, with the names of the region around it
// written out.
#include <fmt/format.h>

#include "ir/expansion.h"
#include "ir/verify_rules.h"

namespace kachel::ir {
namespace {

constexpr uint64_t kMostOperations = 10000;

class Reductions {
 public:
  explicit Reductions(Diagnostics& out) : out_(out) {}

  void block(const Block& body, bool in_region) {
    for (const Stmt& stmt : body) {
      if (const auto* region = std::get_if<ParallelStmt>(&stmt.node)) {
        names_.clear();
        block(region->body, true);
      } else if (const auto* let = std::get_if<LetStmt>(&stmt.node)) {
        if (!in_region) continue;
        reductions(let->value);
        names_.define(let->var.get(), let->value);
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
  void reductions(const ExprRef& value) {
    visit(value, [&](const ExprRef& node) {
      if (!is_reduction(*node) || names_.size(node) <= kMostOperations) return;
      out_.push_back(
          {node->loc,
           fmt::format("with its names written out, this reduction is more than {} operations", kMostOperations),
           "assign an intermediate value to a tile in a region before, and read that"});
    });
  }

  Diagnostics& out_;
  Expansion names_;  // of the region
};

}  // namespace

void check_expansion(const Kernel& kernel, Diagnostics& out) {
  Reductions(out).block(kernel.body, false);
}

}  // namespace kachel::ir
