#include "lowering/plan/operands_in_registers.h"

#include <map>

#include "ir/parallel.h"
#include "lowering/plan/gemm_choice.h"
#include "lowering/plan/placement.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

using ir::BufferRef;
using ir::ExprRef;

// Which tiles are used in no other way.
class Uses {
 public:
  Uses(bool left, const GatheredAxis& gathered) : left_(left), gathered_(gathered) {}

  void block(const ir::Block& body) {
    for (const ir::Stmt& stmt : body) std::visit([this](const auto& node) { statement(node); }, stmt.node);
  }
  bool qualifies(const ir::Buffer* tile) const {
    if (!computed_.count(tile) || !multiplied_.count(tile) || otherwise_.count(tile)) return false;
    const auto left = left_at_.find(tile);
    return left == left_at_.end() || (left->second == computed_.at(tile) && left->second != kSeveral);
  }

 private:
  void reads(const ExprRef& expr) { note_loads(expr, &otherwise_); }
  void other(const ir::TileRef& tile) { note_uses(tile, &otherwise_); }
  void note(const ir::Buffer* tile, std::map<const ir::Buffer*, int>* at) const {
    const auto [known, fresh] = at->try_emplace(tile, loops_);
    if (!fresh && known->second != loops_) known->second = kSeveral;
  }
  void compute(const ir::Buffer* tile) { note(tile, &computed_); }
  void multiply(const ir::TileRef& left) {
    note(left.buffer.get(), &left_at_);
    multiplied_.insert(left.buffer.get());
  }

  void statement(const ir::DeclStmt& decl) {
    if (decl.init) otherwise_.insert(decl.buffer.get());
  }
  void statement(const ir::LetStmt& let) { reads(let.value); }
  void statement(const ir::CopyStmt& copy) {
    other(copy.src);
    if (copy.src.buffer->scope == ir::Scope::kFragment && is_whole(copy.dst) && is_whole(copy.src))
      compute(copy.dst.buffer.get());
    else
      other(copy.dst);
  }
  void statement(const ir::FillStmt& fill) {
    other(fill.dst);
    reads(fill.value);
  }
  void statement(const ir::GemmStmt& gemm) {
    other(gemm.c);
    const bool right = tile_shape(gemm.c.buffer)[0] <= kMostRowsOfColumns;
    if (left_ && !gemm.transpose_a && is_whole(gemm.a))
      multiply(gemm.a);
    else
      other(gemm.a);
    if (right && is_whole(gemm.b))
      multiplied_.insert(gemm.b.buffer.get());
    else
      other(gemm.b);
  }
  // An element for each iteration, all of them.
  void statement(const ir::ParallelStmt& region) {
    const std::optional<size_t> gathered = gathered_(region);
    for (const ir::Stmt& stmt : region.body) {
      const auto* assign = std::get_if<ir::AssignStmt>(&stmt.node);
      const bool across =
          assign && gathered && !ir::same(assign->indices.back(), ir::make_var(region.iters[*gathered].var));
      if (assign && !across && ir::sets_all(region, *assign)) {
        compute(assign->buffer.get());
        reads(assign->value);
      } else {
        std::visit([this](const auto& node) { statement(node); }, stmt.node);
      }
    }
  }
  void statement(const ir::AssignStmt& assign) {
    otherwise_.insert(assign.buffer.get());
    for (const ExprRef& index : assign.indices) reads(index);
    reads(assign.value);
  }
  void statement(const ir::ForStmt& loop) {
    reads(loop.begin);
    reads(loop.end);
    ++loops_;
    block(loop.body);
    --loops_;
  }
  void statement(const ir::IfStmt& branch) {
    reads(branch.condition);
    block(branch.then_body);
    block(branch.else_body);
  }

  const bool left_;
  const GatheredAxis& gathered_;
  static constexpr int kSeveral = -1;
  int loops_ = 0;                                        // around what is looked at
  std::map<const ir::Buffer*, int> computed_, left_at_;  // within so many
  BufferSet multiplied_, otherwise_;
};

class Mover {
 public:
  explicit Mover(const Uses& uses) : uses_(uses) {}

  ir::Block block(ir::Block body) {
    for (ir::Stmt& stmt : body) {
      if (auto* decl = std::get_if<ir::DeclStmt>(&stmt.node)) move(&decl->buffer);
      if (auto* copy = std::get_if<ir::CopyStmt>(&stmt.node)) move(&copy->dst.buffer);
      if (auto* gemm = std::get_if<ir::GemmStmt>(&stmt.node)) move(&gemm->a.buffer), move(&gemm->b.buffer);
      if (auto* assign = std::get_if<ir::AssignStmt>(&stmt.node)) move(&assign->buffer);
      if (auto* region = std::get_if<ir::ParallelStmt>(&stmt.node)) region->body = block(std::move(region->body));
      if (auto* loop = std::get_if<ir::ForStmt>(&stmt.node)) loop->body = block(std::move(loop->body));
      if (auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) {
        branch->then_body = block(std::move(branch->then_body));
        branch->else_body = block(std::move(branch->else_body));
      }
    }
    return body;
  }

 private:
  void move(BufferRef* buffer) {
    if ((*buffer)->scope != ir::Scope::kShared || ir::bits((*buffer)->type.dtype) != 16 ||
        !ir::is_float((*buffer)->type.dtype) || !uses_.qualifies(buffer->get()))
      return;
    BufferRef& moved = moved_[buffer->get()];
    if (!moved) {
      ir::Buffer fragment = **buffer;
      fragment.scope = ir::Scope::kFragment;
      moved = std::make_shared<const ir::Buffer>(std::move(fragment));
    }
    *buffer = moved;
  }

  const Uses& uses_;
  std::map<const ir::Buffer*, BufferRef> moved_;
};

}  // namespace

ir::Kernel operands_in_registers(const ir::Kernel& kernel, bool left, const GatheredAxis& gathered) {
  Uses uses(left, gathered);
  uses.block(kernel.body);
  ir::Kernel out = kernel;
  out.body = Mover(uses).block(kernel.body);
  return out;
}

}  // namespace kachel::lowering
