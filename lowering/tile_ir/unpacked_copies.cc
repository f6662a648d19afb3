#include "lowering/tile_ir/unpacked_copies.h"

#include <utility>

#include "ir/visit.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

bool is_packed(const ir::BufferRef& buffer) {
  return ir::bits(buffer->type.dtype) == 4;
}

class Rewriter {
 public:
  explicit Rewriter(const ir::Block& body) {
    ir::for_each_stmt(body, [this](const ir::Stmt& stmt) {
      if (const auto* gemm = std::get_if<ir::GemmStmt>(&stmt.node))
        operands_.insert({gemm->a.buffer.get(), gemm->b.buffer.get()});
    });
  }

  ir::Block block(const ir::Block& body) {
    ir::Block out;
    for (ir::Stmt stmt : body) {
      if (const auto* copy = std::get_if<ir::CopyStmt>(&stmt.node); copy && unpacks(*copy)) {
        rewrite(*copy, stmt.loc, &out);
        continue;
      }
      replace_blocks(&stmt, [this](const ir::Block& inner) { return block(inner); });
      out.push_back(std::move(stmt));
    }
    return out;
  }
  const std::vector<ir::BufferRef>& made() const { return made_; }

 private:
  bool unpacks(const ir::CopyStmt& copy) const {
    const ir::BufferRef &to = copy.dst.buffer, &from = copy.src.buffer;
    const bool wider = operands_.count(to.get()) && ir::bits(from->type.dtype) == 8 &&
                       from->type.dtype != ir::DType::Bool && ir::bits(to->type.dtype) == 16;
    if ((!is_packed(from) && !wider) || is_packed(to) || to->scope == ir::Scope::kGlobal || !has_whole_axes(copy.dst) ||
        copy.atomic != ir::AtomicOp::kNone)
      return false;
    if (from->scope == ir::Scope::kGlobal) return !copy.src.pad && kept_axes(copy.src).size() == to->shape.size();
    return has_whole_axes(copy.src);
  }

  void rewrite(const ir::CopyStmt& copy, ir::Loc loc, ir::Block* out) {
    const ir::BufferRef& to = copy.dst.buffer;
    ir::BufferRef from = copy.src.buffer;
    if (from->scope == ir::Scope::kGlobal) {
      ir::Buffer packed = *to;
      packed.name += "_packed";
      packed.scope = ir::Scope::kShared;
      packed.type = from->type;
      from = std::make_shared<const ir::Buffer>(std::move(packed));
      made_.push_back(from);
      out->push_back({loc, ir::CopyStmt{whole_tile(from), copy.src}});
    }
    std::vector<ir::ExprRef> places;
    ir::ParallelStmt region = region_over(to->shape, &places);
    ir::AssignStmt assign{to, places};
    const ir::ExprRef integer = ir::make_load(from, places);
    assign.value = ir::make_cast({ir::compute_type(to->type.dtype), nullptr}, integer);
    region.body.push_back({loc, std::move(assign)});
    out->push_back({loc, std::move(region)});
  }

  BufferSet operands_;  // of products
  std::vector<ir::BufferRef> made_;
};

}  // namespace

ir::Kernel unpacked_copies(const ir::Kernel& kernel) {
  Rewriter rewriter(kernel.body);
  ir::Block body = rewriter.block(kernel.body);
  return with_declared(kernel, rewriter.made(), std::move(body));
}

}  // namespace kachel::lowering
