#include "lowering/tile_ir/exact_parts.h"

#include <fmt/format.h>

#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

using ir::BufferRef;
using ir::DType;
using ir::ExprRef;
using ir::Op;

constexpr int kWithBf16 = 80;             // the first architecture whose tensor cores multiply bf16
constexpr double kMostBf16 = 0x1.fep127;  // the largest finite one
constexpr int64_t kFewest = 3;            // rows and columns, of which fewer are no matrix for tensor cores
constexpr size_t kMostTogether = 2;       // parts i and j are multiplied where i + j is no more

int parts_of(DType type) {
  return type == DType::F32 ? 3 : type == DType::F16 ? 2 : 1;
}

class Rewriter {
 public:
  ir::Block block(const ir::Block& body) {
    ir::Block out;
    for (ir::Stmt stmt : body) {
      replace_blocks(&stmt, [this](const ir::Block& inner) { return block(inner); });
      const auto* gemm = std::get_if<ir::GemmStmt>(&stmt.node);
      if (gemm && suits(*gemm))
        products(*gemm, stmt.loc, &out);
      else
        out.push_back(std::move(stmt));
    }
    return out;
  }
  const std::vector<BufferRef>& made() const { return made_; }

 private:
  static bool suits(const ir::GemmStmt& gemm) {
    const DType a = gemm.a.buffer->type.dtype, b = gemm.b.buffer->type.dtype;
    const auto narrow = [](DType type) { return type == DType::BF16 || type == DType::F16; };
    const auto is_matrix = [](const ir::TileRef& tile) {
      return has_whole_axes(tile) && tile.buffer->shape.size() == 2 && tile.buffer->shape[0]->int_value >= kFewest &&
             tile.buffer->shape[1]->int_value >= kFewest;
    };
    return gemm.c.buffer->type.dtype == DType::F32 &&
           ((a == DType::F32 && narrow(b)) || (b == DType::F32 && narrow(a))) && is_matrix(gemm.a) && is_matrix(gemm.b);
  }

  void products(const ir::GemmStmt& gemm, ir::Loc loc, ir::Block* out) {
    const std::vector<BufferRef> a = parted(gemm.a.buffer, loc, out), b = parted(gemm.b.buffer, loc, out);
    // The small ones first.
    ir::GemmStmt one = gemm;
    for (size_t sum = kMostTogether + 1; sum-- > 0;)
      for (size_t i = 0; i < a.size(); ++i) {
        if (i > sum || sum - i >= b.size()) continue;
        one.a = whole_tile(a[i]), one.b = whole_tile(b[sum - i]);
        out->push_back({loc, one});
        one.accumulate = true;
      }
  }

  std::vector<BufferRef> parted(const BufferRef& tile, ir::Loc loc, ir::Block* out) {
    const int count = parts_of(tile->type.dtype);
    if (count == 1) return {tile};
    std::vector<BufferRef> parts;
    std::vector<ExprRef> places;
    ir::ParallelStmt region = region_over(tile->shape, &places);
    const auto name = [&](ExprRef value) {
      auto var = std::make_shared<ir::Var>(ir::Var{ir::VarKind::kLet, "rest", {DType::F32, nullptr}, {}});
      region.body.push_back({loc, ir::LetStmt{var, std::move(value)}});
      return ir::make_var(var);
    };
    ExprRef rest = name(ir::make_load(tile, places));
    const bool wide = tile->type.dtype == DType::F32;
    const ExprRef finite = ir::make_typed(
        Op::kLt, {ir::make_typed(Op::kAbs, {rest}), ir::make_float(std::numeric_limits<double>::infinity())});
    for (int i = 0; i < count; ++i) {
      auto part = std::make_shared<ir::Buffer>(*tile);
      part->name = fmt::format("{}_{}", tile->name, i);
      part->scope = ir::Scope::kShared;
      part->type = {DType::BF16, nullptr};
      // What would be rounded to infinity is not.
      ExprRef value = rest;
      if (wide && i == 0) {
        const ExprRef most = ir::make_float(kMostBf16), least = ir::make_float(-kMostBf16);
        const ExprRef within = ir::make_typed(Op::kMax, {ir::make_typed(Op::kMin, {rest, most}), least});
        value = name(ir::make_typed(Op::kSelect, {finite, within, rest}));
      }
      const ExprRef rounded = ir::make_cast({DType::BF16, nullptr}, value);
      ir::AssignStmt assign{part, places};
      assign.value = rounded;
      region.body.push_back({loc, std::move(assign)});
      parts.push_back(part);
      made_.push_back(part);
      if (i + 1 == count) break;
      const ExprRef left = ir::make_typed(Op::kSub, {rest, rounded});
      rest = name(i == 0 ? ir::make_typed(Op::kSelect, {finite, left, ir::make_float(0)}) : left);
    }
    out->push_back({loc, std::move(region)});
    return parts;
  }

  std::vector<BufferRef> made_;
};

}  // namespace

ir::Kernel exact_parts(const ir::Kernel& kernel, const Target& target) {
  if (target.architecture < kWithBf16) return kernel;
  Rewriter rewriter;
  ir::Block body = rewriter.block(kernel.body);
  return rewriter.made().empty() ? kernel : with_declared(kernel, rewriter.made(), std::move(body));
}

}  // namespace kachel::lowering
