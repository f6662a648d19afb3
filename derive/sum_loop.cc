#include "derive/sum_loop.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "derive/free_tunables.h"
#include "derive/lets.h"
#include "derive/parts.h"
#include "derive/region_sums.h"
#include "derive/uses.h"
#include "ir/tunable_role.h"
#include "ir/visit.h"

namespace kachel::derive {

using namespace ir;

namespace {

constexpr size_t kMostAxes = 5;
constexpr int64_t kMostUnit = 1024;  // along k

bool mentions_tunables(const ExprRef& expr) {
  bool found = false;
  visit(expr, [&](const ExprRef& node) { found |= is_tunable(node); });
  return found;
}

bool reads_memory(const ExprRef& expr) {
  bool found = false;
  visit(expr, [&](const ExprRef& node) { found |= node->kind == ExprKind::kLoad; });
  return found;
}

// Tiles that products in the block add to.
void note_sums(const Block& block, std::vector<BufferRef>* sums) {
  for_each_stmt(block, [&](const Stmt& stmt) {
    const auto* gemm = std::get_if<GemmStmt>(&stmt.node);
    if (gemm && gemm->accumulate && !std::count(sums->begin(), sums->end(), gemm->c.buffer))
      sums->push_back(gemm->c.buffer);
  });
}

class Finder {
 public:
  explicit Finder(const Kernel& kernel) : kernel_(kernel) {}

  std::optional<SumLoop> run() {
    std::vector<BufferRef> tiles;
    const int loops = find_loop(note_sums, &tiles);
    if (loops == 1) note_region_sums(body(), &tiles);
    if (loops > 1 || (loops == 0 && find_loop(note_region_sums, &tiles) != 1)) return {};
    for (const BufferRef& tile : tiles) sums_.insert(tile.get());
    if (!adds_only() || !carries_nothing() || !is_first() || !counts_alike()) return {};
    free_ = free_tunables(kernel_);
    for (const BufferRef& tile : tiles)
      if (!place(tile)) return {};
    return std::move(found_);
  }

 private:
  // How many loops of the body have sums, and these.
  template <class Note>
  int find_loop(const Note& note, std::vector<BufferRef>* tiles) {
    int loops = 0;
    for (size_t i = 0; i < kernel_.body.size(); ++i) {
      const auto* loop = std::get_if<ForStmt>(&kernel_.body[i].node);
      const size_t before = tiles->size();
      if (loop) note(loop->body, tiles);
      if (tiles->size() == before) continue;
      found_.at = i;
      ++loops;
    }
    return loops;
  }

  const Block& body() const { return std::get<ForStmt>(kernel_.body[found_.at].node).body; }
  static bool writes_tensors(const Uses& uses) {
    return std::any_of(uses.written.begin(), uses.written.end(),
                       [](const Buffer* buffer) { return buffer->scope == Scope::kGlobal; });
  }
  bool touches_sums(const std::set<const Buffer*>& buffers) const {
    return std::any_of(buffers.begin(), buffers.end(), [this](const Buffer* buffer) { return sums_.count(buffer); });
  }

  // Whether nothing in the loop touches the sums but products that add to all of one, and regions that add to elements.
  bool adds_only() const {
    bool only = true;
    for_each_stmt(body(), [&](const Stmt& stmt) {
      if (std::holds_alternative<ForStmt>(stmt.node) || std::holds_alternative<IfStmt>(stmt.node)) {
        for_each_expr(stmt, [&](const ExprRef& expr) {
          visit(expr, [&](const ExprRef& node) {
            only &= node->kind != ExprKind::kLoad || !sums_.count(node->buffer.get());
          });
        });
        return;
      }
      const auto* region = std::get_if<ParallelStmt>(&stmt.node);
      if (region) only &= derive::adds_only(*region, sums_);
      // What is within a region has been seen with it.
      if (region || std::holds_alternative<LetStmt>(stmt.node) || std::holds_alternative<AssignStmt>(stmt.node)) {
        const auto* let = std::get_if<LetStmt>(&stmt.node);
        only &= !let || !touches_sums(find_uses(stmt).read);
        return;
      }
      const auto* gemm = std::get_if<GemmStmt>(&stmt.node);
      if (gemm && gemm->accumulate) {
        GemmStmt alone = *gemm;  // reads operands, and what places of theirs are made of
        alone.accumulate = false;
        only &= is_whole(gemm->c) && !touches_sums(find_uses({stmt.loc, alone}).read);
        return;
      }
      const Uses uses = find_uses(stmt);
      only &= !touches_sums(uses.read) && !touches_sums(uses.written);
    });
    return only;
  }

  // Whether all other tiles that the loop writes are set anew in each iteration before anything reads them, and not
  // read behind it.
  bool carries_nothing() const {
    std::set<const Buffer*> behind, written;
    for (size_t i = found_.at + 1; i < kernel_.body.size(); ++i) behind.merge(find_uses(kernel_.body[i]).read);
    for (const Stmt& stmt : body()) {
      const Uses uses = find_uses(stmt);
      if (writes_tensors(uses)) return false;
      for (const Buffer* tile : uses.written)
        if (!sums_.count(tile)) written.insert(tile);
    }
    const bool left =
        std::any_of(written.begin(), written.end(), [&](const Buffer* tile) { return behind.count(tile); });
    return !left && reads_what_is_set(body(), written, {});
  }
  // `set`: tiles that hold what this iteration has given all of their elements.
  bool reads_what_is_set(const Block& block, const std::set<const Buffer*>& written,
                         std::set<const Buffer*> set) const {
    for (const Stmt& stmt : block) {
      const auto* loop = std::get_if<ForStmt>(&stmt.node);
      const auto* branch = std::get_if<IfStmt>(&stmt.node);
      if (loop || branch) {
        Uses bounds;
        for_each_expr(stmt, [&](const ExprRef& expr) {
          visit(expr, [&](const ExprRef& node) {
            if (node->kind == ExprKind::kLoad) bounds.read.insert(node->buffer.get());
          });
        });
        for (const Buffer* tile : bounds.read)
          if (written.count(tile) && !set.count(tile)) return false;
        if (loop && !reads_what_is_set(loop->body, written, set)) return false;
        if (branch && (!reads_what_is_set(branch->then_body, written, set) ||
                       !reads_what_is_set(branch->else_body, written, set)))
          return false;
        continue;
      }
      const Uses uses = find_uses(stmt);
      for (const Buffer* tile : uses.read)
        if (written.count(tile) && !set.count(tile)) return false;
      const auto* gemm = std::get_if<GemmStmt>(&stmt.node);
      for (const Buffer* tile : uses.written)
        if ((gemm && !gemm->accumulate && is_whole(gemm->c)) || defines(stmt, uses, *tile)) set.insert(tile);
    }
    return true;
  }

  // Whether nothing in front of the loop touches the sums or writes to tensors.
  bool is_first() const {
    for (size_t i = 0; i < found_.at; ++i) {
      const Stmt& stmt = kernel_.body[i];
      if (std::holds_alternative<DeclStmt>(stmt.node)) continue;
      const Uses uses = find_uses(stmt);
      if (writes_tensors(uses) || touches_sums(uses.read) || touches_sums(uses.written)) return false;
    }
    return true;
  }

  bool counts_alike() {
    const auto& loop = std::get<ForStmt>(kernel_.body[found_.at].node);
    Lets lets;
    lets.define_all(kernel_.body);
    const ExprRef begin = lets.expanded(loop.begin), end = lets.expanded(loop.end);
    if (!lets.complete() || mentions_tunables(begin)) return false;
    if (!mentions_tunables(end)) return true;
    if (!is_int(begin, 0) || end->kind != ExprKind::kApply || end->op != Op::kCeilDiv || !is_tunable(end->args[1]) ||
        mentions_tunables(end->args[0]) || reads_memory(end->args[0]))
      return false;
    found_.unit = unit_of(end->args[1]->var);
    if (!found_.unit) return false;
    found_.all = end->args[0];
    found_.each = end->args[1];
    return true;
  }

  // A multiple of all values of a tunable along k; 0: there is none, or a large one. Those that are derived are powers
  // of two along k of a product, and anything elsewhere.
  int64_t unit_of(const VarRef& tunable) const {
    const auto at = std::find_if(kernel_.tunables.begin(), kernel_.tunables.end(),
                                 [&](const Tunable& each) { return each.var == tunable; });
    if (at->automatic) return is_depth_alone(tunable) ? most_automatic(TunableRole::kProduct) : 0;
    int64_t unit = 1;
    for (int64_t value : at->values) {
      if (value <= 0) return 0;
      unit = std::lcm(unit, value);
      if (unit > kMostUnit) return 0;
    }
    return unit;
  }
  bool is_depth_alone(const VarRef& tunable) const {
    bool depth = false, other = false;
    const auto is_it = [&](const ExprRef& extent) { return is_tunable(extent) && extent->var == tunable; };
    for_each_stmt(kernel_.body, [&](const Stmt& stmt) {
      const auto* gemm = std::get_if<GemmStmt>(&stmt.node);
      if (!gemm) return;
      for (const auto& [tile, k] :
           {std::pair{&gemm->a, gemm->transpose_a ? 0 : 1}, {&gemm->b, gemm->transpose_b ? 1 : 0}})
        for (int axis = 0; axis < 2 && tile->buffer->shape.size() == 2; ++axis)
          (axis == k ? depth : other) |= is_it(tile->buffer->shape[static_cast<size_t>(axis)]);
    });
    return depth && !other;
  }

  ExprRef init_of(const Buffer& tile) const {
    for (const Stmt& stmt : kernel_.body)
      if (const auto* decl = std::get_if<DeclStmt>(&stmt.node); decl && decl->buffer.get() == &tile) return decl->init;
    return nullptr;
  }

  bool place(const BufferRef& tile) {
    const std::optional<Op> op = operation_of(body(), *tile);
    const ExprRef begin = init_of(*tile);
    if (tile->scope != Scope::kFragment || !op || !begin) return false;
    if (*op == Op::kAdd ? !is_zero_constant(begin) : !is_const(begin)) return false;
    SumLoop::Sum sum{tile, kernel_.grid, {}, *op, begin};
    for (const ExprRef& extent : tile->shape) {
      sum.axes.push_back({nullptr, extent});
      if (!is_tunable(extent)) {
        if (mentions_tunables(extent)) return false;
        continue;
      }
      const auto counts = std::find_if(sum.free.begin(), sum.free.end(), [&](const IterVar& axis) {
        const Expr& count = *axis.extent;
        return count.kind == ExprKind::kApply && count.op == Op::kCeilDiv && same(count.args[1], extent);
      });
      if (!free_.count(extent->var.get()) || counts == sum.free.end()) return false;
      sum.axes.back() = {counts->var, counts->extent->args[0]};
      sum.free.erase(counts);
    }
    for (const IterVar& axis : sum.free)
      if (mentions_tunables(axis.extent)) return false;
    if (1 + sum.free.size() + sum.axes.size() > kMostAxes) return false;
    found_.sums.push_back(std::move(sum));
    return true;
  }

  const Kernel& kernel_;
  SumLoop found_;
  std::set<const Buffer*> sums_;
  std::set<const Var*> free_;
};

}  // namespace

std::optional<SumLoop> sum_loop(const Kernel& kernel) {
  return Finder(kernel).run();
}

}  // namespace kachel::derive
