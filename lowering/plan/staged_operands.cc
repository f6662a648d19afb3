#include "lowering/plan/staged_operands.h"

#include <map>
#include <set>

#include "ir/parallel.h"
#include "lowering/plan/gemm_choice.h"
#include "lowering/plan/placement.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

using ir::BufferRef;

// Operands that are read from memory.
void collect(const ir::Block& body, std::set<const ir::Buffer*>* operands) {
  for (const ir::Stmt& stmt : body) {
    if (const auto* gemm = std::get_if<ir::GemmStmt>(&stmt.node)) {
      const BufferRef &a = gemm->a.buffer, &b = gemm->b.buffer;
      // From registers, as right operands beside left ones in memory.
      const bool few_rows = tile_shape(gemm->c.buffer)[0] <= kMostRowsOfColumns && ir::bits(b->type.dtype) == 16 &&
                            a->scope == ir::Scope::kShared;
      // Where wgmma has no rows for it, one of 8 bits will be in memory.
      const bool held = ir::bits(a->type.dtype) == 16 ||
                        (ir::bits(a->type.dtype) == 8 && tile_shape(gemm->c.buffer)[0] % kGroupRows == 0);
      if (a->scope == ir::Scope::kShared || !held) operands->insert(a.get());
      if (b->scope == ir::Scope::kShared || !few_rows) operands->insert(b.get());
    }
    if (const auto* loop = std::get_if<ir::ForStmt>(&stmt.node)) collect(loop->body, operands);
    if (const auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) {
      collect(branch->then_body, operands);
      collect(branch->else_body, operands);
    }
  }
}

class Stager {
 public:
  explicit Stager(std::set<const ir::Buffer*> operands) : operands_(std::move(operands)) {}

  ir::Block block(const ir::Block& body) {
    ir::Block out;
    for (ir::Stmt stmt : body) {
      if (auto* loop = std::get_if<ir::ForStmt>(&stmt.node)) loop->body = block(loop->body);
      if (auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) {
        branch->then_body = block(branch->then_body);
        branch->else_body = block(branch->else_body);
      }
      auto* region = std::get_if<ir::ParallelStmt>(&stmt.node);
      const std::vector<BufferRef> staged = region ? stage(region) : std::vector<BufferRef>{};
      const ir::Loc loc = stmt.loc;
      out.push_back(std::move(stmt));
      for (const BufferRef& tile : staged)
        out.push_back({loc, ir::CopyStmt{whole_tile(tile), whole_tile(parts_.at(tile.get()))}});
    }
    return out;
  }
  const std::vector<BufferRef>& made() const { return made_; }

 private:
  // Lets the region write fragments instead; the operands that are to be filled with them.
  std::vector<BufferRef> stage(ir::ParallelStmt* region) {
    std::vector<BufferRef> staged;
    for (ir::Stmt& stmt : region->body) {
      auto* assign = std::get_if<ir::AssignStmt>(&stmt.node);
      if (!assign || !operands_.count(assign->buffer.get()) || !ir::sets_all(*region, *assign)) continue;
      if (touches(region->body, assign->buffer.get()) != 1) continue;
      BufferRef& part = parts_[assign->buffer.get()];
      if (!part) {
        ir::Buffer fragment = *assign->buffer;
        fragment.scope = ir::Scope::kFragment;
        fragment.name += "_part";
        part = std::make_shared<const ir::Buffer>(std::move(fragment));
        made_.push_back(part);
      }
      staged.push_back(assign->buffer);
      assign->buffer = part;
    }
    return staged;
  }

  // How often a region's statements name a buffer.
  static int touches(const ir::Block& body, const ir::Buffer* buffer) {
    int found = 0;
    auto reads = [&](const ir::ExprRef& expr) {
      if (!expr) return;
      ir::visit(expr, [&](const ir::ExprRef& node) {
        found += node->kind == ir::ExprKind::kLoad && node->buffer.get() == buffer;
      });
    };
    for (const ir::Stmt& stmt : body) {
      if (const auto* let = std::get_if<ir::LetStmt>(&stmt.node)) reads(let->value);
      if (const auto* assign = std::get_if<ir::AssignStmt>(&stmt.node)) {
        found += assign->buffer.get() == buffer;
        for (const ir::ExprRef& index : assign->indices) reads(index);
        reads(assign->value);
      }
      if (const auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) {
        reads(branch->condition);
        found += touches(branch->then_body, buffer) + touches(branch->else_body, buffer);
      }
    }
    return found;
  }

  const std::set<const ir::Buffer*> operands_;
  std::map<const ir::Buffer*, BufferRef> parts_;
  std::vector<BufferRef> made_;
};

}  // namespace

ir::Kernel staged_operands(const ir::Kernel& kernel) {
  std::set<const ir::Buffer*> operands;
  collect(kernel.body, &operands);
  Stager stager(std::move(operands));
  ir::Block body = stager.block(kernel.body);
  return with_declared(kernel, stager.made(), std::move(body));
}

}  // namespace kachel::lowering
