#include "lowering/tile_ir/unroll_matrices.h"

#include <set>
#include <utility>

#include "ir/visit.h"
#include "lowering/tile_ir/block_copy.h"

namespace kachel::lowering {
namespace {

class Unroller {
 public:
  explicit Unroller(const ir::Kernel& kernel) {
    ir::for_each_stmt(kernel.body, [this](const ir::Stmt& stmt) {
      const auto* gemm = std::get_if<ir::GemmStmt>(&stmt.node);
      if (!gemm) return;
      for (const ir::TileRef* tile : {&gemm->c, &gemm->a, &gemm->b})
        for (const ir::AxisSpec& axis : tile->axes)
          if (axis.kind == ir::AxisSpec::Kind::kIndex && axis.start->kind == ir::ExprKind::kVar)
            counters_.insert(axis.start->var.get());
    });
  }

  ir::Block block(const ir::Block& body) const {
    ir::Block out;
    for (ir::Stmt stmt : body) {
      if (auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) {
        branch->then_body = block(branch->then_body);
        branch->else_body = block(branch->else_body);
      }
      auto* loop = std::get_if<ir::ForStmt>(&stmt.node);
      if (loop) loop->body = block(loop->body);
      if (!loop || !counts(*loop)) {
        out.push_back(std::move(stmt));
        continue;
      }
      for (int64_t i = 0; i < loop->end->int_value; ++i)
        for (ir::Stmt& one : copy_of(loop->body, {{loop->var.get(), ir::make_int(i, ir::DType::I64)}}))
          out.push_back(std::move(one));
    }
    return out;
  }

 private:
  bool counts(const ir::ForStmt& loop) const {
    return counters_.count(loop.var.get()) && !loop.pipelined && ir::is_int(loop.begin, 0) &&
           loop.end->kind == ir::ExprKind::kInt && loop.end->int_value <= kMostMatrices;
  }

  std::set<const ir::Var*> counters_;
};

}  // namespace

ir::Kernel unroll_matrices(const ir::Kernel& kernel) {
  ir::Kernel out = kernel;
  out.body = Unroller(kernel).block(kernel.body);
  return out;
}

}  // namespace kachel::lowering
