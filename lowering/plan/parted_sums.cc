#include "lowering/plan/parted_sums.h"

#include <algorithm>
#include <utility>

#include "lowering/plan/gemm_choice.h"
#include "lowering/tile_ir/hoist_reductions.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

using ir::BufferRef;
using ir::ExprKind;
using ir::ExprRef;

// Sums of a thread that holds all of C with 31 others.
constexpr int64_t kMostSums = 64;

// `tile[i, j] = tile[i, j] * f`, where f has nothing of the tile. REQUIRES: from hoist_reductions().
bool scales(const ir::ParallelStmt& region, const ir::Buffer* tile) {
  const auto& [assign, value] = step_of(region);
  if (!assign || assign->buffer.get() != tile) return false;
  if (!is_own_element(ir::make_load(assign->buffer, assign->indices), region.iters)) return false;
  if (value->kind != ExprKind::kApply || value->op != ir::Op::kMul) return false;
  for (size_t side = 0; side < 2; ++side) {
    const ExprRef& own = value->args[side];
    BufferSet factors;
    note_loads(value->args[1 - side], &factors);
    if (is_own_element(own, region.iters) && own->buffer.get() == tile && !factors.count(tile)) return true;
  }
  return false;
}

class Parter {
 public:
  Parter(const ir::Kernel& kernel, const Target& target) : kernel_(kernel), target_(target) {}

  ir::Kernel run() {
    ir::Kernel out = kernel_;
    for (size_t at = 0; at < out.body.size(); ++at) {
      const auto* loop = std::get_if<ir::ForStmt>(&out.body[at].node);
      if (!loop) continue;
      for (const BufferRef& sum : candidates(*loop)) {
        if (!qualifies(sum.get(), out.body, at)) continue;
        at += part(sum, &out.body, at);
        loop = std::get_if<ir::ForStmt>(&out.body[at].node);
      }
    }
    return out;
  }

 private:
  // What products of the loop add to.
  static std::vector<BufferRef> candidates(const ir::ForStmt& loop) {
    std::vector<BufferRef> found;
    for (const ir::Stmt& stmt : loop.body) {
      const auto* gemm = std::get_if<ir::GemmStmt>(&stmt.node);
      if (gemm && gemm->accumulate && std::find(found.begin(), found.end(), gemm->c.buffer) == found.end())
        found.push_back(gemm->c.buffer);
    }
    return found;
  }

  bool suits(const ir::GemmStmt& gemm) const {
    if (gemm.a.buffer->scope != ir::Scope::kFragment || !gemm.accumulate) return false;
    const GemmChoice choice = choose_gemm(gemm, target_, {.a_in_registers = true});
    return choice.mma && !choice.group;
  }

  bool qualifies(const ir::Buffer* sum, const ir::Block& body, size_t at) const {
    const auto& loop = std::get<ir::ForStmt>(body[at].node);
    if (sum->scope != ir::Scope::kFragment || ir::bits(sum->type.dtype) != 32 || sum->shape.size() != 2) return false;
    const int64_t rows = sum->shape[0]->int_value, columns = sum->shape[1]->int_value;
    if (rows != kMmaRows || rows * columns > kMostSums * 32) return false;
    // It is zero until then.
    bool zero = false;
    for (size_t i = 0; i < at; ++i) {
      const auto* decl = std::get_if<ir::DeclStmt>(&body[i].node);
      if (decl && decl->buffer.get() == sum)
        zero = decl->init && ir::is_zero_constant(decl->init);
      else if (uses_of(sum, {body[i]}))
        return false;
    }
    if (!zero) return false;
    int64_t steps = 0;
    for (const ir::Stmt& stmt : loop.body) {
      const auto* gemm = std::get_if<ir::GemmStmt>(&stmt.node);
      const auto* region = std::get_if<ir::ParallelStmt>(&stmt.node);
      if (gemm && gemm->c.buffer.get() == sum)
        steps += suits(*gemm) && gemm->a.buffer.get() != sum && gemm->b.buffer.get() != sum;
      else if (region)
        steps += scales(*region, sum);
    }
    return steps == uses_of(sum, {body[at]});
  }

  // Returns how many statements come to stand in front of the loop.
  static size_t part(const BufferRef& sum, ir::Block* body, size_t at) {
    auto made = std::make_shared<ir::Buffer>(*sum);
    made->name += "_parts";
    made->parted = true;
    const BufferRef parts = made;
    auto& loop = std::get<ir::ForStmt>((*body)[at].node);
    for (ir::Stmt& stmt : loop.body) {
      auto* gemm = std::get_if<ir::GemmStmt>(&stmt.node);
      auto* region = std::get_if<ir::ParallelStmt>(&stmt.node);
      if (gemm && gemm->c.buffer == sum) gemm->c.buffer = parts;
      if (region && scales(*region, sum.get())) scale(region, sum, parts);
    }
    const ir::Loc loc = (*body)[at].loc;
    body->insert(body->begin() + static_cast<int64_t>(at) + 1, {loc, ir::CopyStmt{whole_tile(sum), whole_tile(parts)}});
    for (auto place = body->begin(); place != body->end(); ++place) {
      auto* decl = std::get_if<ir::DeclStmt>(&place->node);
      if (!decl || decl->buffer != sum) continue;
      ir::DeclStmt of_parts{parts, std::exchange(decl->init, nullptr)};
      body->insert(place, {place->loc, std::move(of_parts)});
      break;
    }
    return 1;
  }
  static void scale(ir::ParallelStmt* region, const BufferRef& sum, const BufferRef& parts) {
    auto& let = std::get<ir::LetStmt>(region->body[0].node);
    let.value = ir::rewrite(let.value, [&](const ExprRef& node) {
      return node->kind == ExprKind::kLoad && node->buffer == sum ? ir::make_load(parts, node->args) : node;
    });
    std::get<ir::AssignStmt>(region->body[1].node).buffer = parts;
  }

  const ir::Kernel& kernel_;
  const Target& target_;
};

}  // namespace

ir::Kernel parted_sums(const ir::Kernel& kernel, const Target& target) {
  return Parter(kernel, target).run();
}

}  // namespace kachel::lowering
