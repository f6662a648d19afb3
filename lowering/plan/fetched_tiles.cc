#include "lowering/plan/fetched_tiles.h"

#include <algorithm>

#include "lowering/plan/box_rules.h"
#include "lowering/plan/pipeline_tiles.h"
#include "lowering/plan/placement.h"
#include "lowering/tile_ir/tensor_reads.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

constexpr int kBits = 16;  // of an element: what there is room for

class Fetcher {
 public:
  Fetcher(const ir::Kernel& kernel, uint64_t fact_mask) : kernel_(kernel), fact_mask_(fact_mask) {
    note_multiples(kernel.body, &multiples_);
    note_sums(kernel.body);
  }

  // What the region reads beside sums of products.
  std::vector<TensorRead> reads_of(const ir::ParallelStmt& region) const {
    BufferSet used;
    note_uses({{}, region}, &used);
    const bool meets =
        std::any_of(used.begin(), used.end(), [&](const ir::Buffer* buffer) { return sums_.count(buffer) != 0; });
    if (!meets || region.iters.size() != 2) return {};
    std::vector<TensorRead> reads = tensor_reads(region);
    std::erase_if(reads, [&](const TensorRead& read) {
      return read.place.size() != 2 || ir::bits(read.tile->type.dtype) != kBits ||
             !refuses_boxes(kernel_, read.copy.src, multiples_, fact_mask_).empty();
    });
    return reads;
  }

 private:
  void note_sums(const ir::Block& body) {
    for (const ir::Stmt& stmt : body) {
      if (const auto* gemm = std::get_if<ir::GemmStmt>(&stmt.node)) sums_.insert(gemm->c.buffer.get());
      if (const auto* loop = std::get_if<ir::ForStmt>(&stmt.node)) note_sums(loop->body);
      if (const auto* branch = std::get_if<ir::IfStmt>(&stmt.node))
        note_sums(branch->then_body), note_sums(branch->else_body);
    }
  }

  const ir::Kernel& kernel_;
  const uint64_t fact_mask_;
  Ranges multiples_;
  BufferSet sums_;
};

ir::Stmt ahead(std::vector<TensorRead> reads, const ir::Stmt& stmt, const ir::ParallelStmt& region) {
  ir::ForStmt once = single_pipeline("fetched");
  ir::ParallelStmt reading = with_tiles(region, reads);
  for (TensorRead& read : reads) once.body.push_back({stmt.loc, std::move(read.copy)});
  once.body.push_back({stmt.loc, std::move(reading)});
  return {stmt.loc, std::move(once)};
}

ir::Kernel with_declarations(const ir::Kernel& kernel, ir::Block declarations, const ir::Block& body) {
  ir::Kernel out = kernel;
  out.body = std::move(declarations);
  out.body.insert(out.body.end(), body.begin(), body.end());
  return out;
}

}  // namespace

std::optional<ir::Kernel> fetched_tiles(const ir::Kernel& kernel, uint64_t fact_mask) {
  const Fetcher fetcher(kernel, fact_mask);
  ir::Block declarations, body;
  bool behind_products = false;
  for (const ir::Stmt& stmt : kernel.body) {
    const auto* loop = std::get_if<ir::ForStmt>(&stmt.node);
    behind_products |= loop && loop->pipelined;
    const auto* region = std::get_if<ir::ParallelStmt>(&stmt.node);
    std::vector<TensorRead> reads = region && behind_products ? fetcher.reads_of(*region) : std::vector<TensorRead>{};
    for (const TensorRead& read : reads) declarations.push_back({stmt.loc, ir::DeclStmt{read.tile, nullptr}});
    body.push_back(reads.empty() ? stmt : ahead(std::move(reads), stmt, *region));
  }
  if (declarations.empty()) return std::nullopt;
  return with_declarations(kernel, std::move(declarations), body);
}

namespace {

constexpr int64_t kAsyncBytes = 4;  // the least that cp.async copies

// Rows of one axis that a copy of the loop's own could fetch ahead, and that differ between its iterations.
std::vector<TensorRead> rows_of(const ir::ParallelStmt& region, const ir::ForStmt& loop, const ir::Kernel& kernel,
                                const Ranges& multiples, uint64_t fact_mask) {
  std::vector<TensorRead> reads = tensor_reads(region);
  std::erase_if(reads, [&](const TensorRead& read) {
    const ir::BufferRef& tensor = read.copy.src.buffer;
    const int64_t bits = ir::bits(tensor->type.dtype);
    const ir::AxisSpec& last = read.copy.src.axes.back();
    if (read.place.size() != 1 || last.kind != ir::AxisSpec::Kind::kRange || bits < 8) return true;
    const int64_t granule = kAsyncBytes * 8 / std::min<int64_t>(bits, kAsyncBytes * 8);  // elements
    if (vector_bytes(kernel, fact_mask, tensor) < kAsyncBytes || last.extent->int_value % granule ||
        multiples.multiple_of(last.start) % granule)
      return true;
    bool follows = false, known = true;
    for (const ir::AxisSpec& axis : read.copy.src.axes)
      ir::visit(axis.start, [&](const ir::ExprRef& node) {
        known &= node->kind != ir::ExprKind::kLoad;
        if (node->kind != ir::ExprKind::kVar) return;
        follows |= node->var == loop.var;
        known &= std::none_of(loop.body.begin(), loop.body.end(), [&](const ir::Stmt& stmt) {
          const auto* let = std::get_if<ir::LetStmt>(&stmt.node);
          return let && let->var == node->var;
        });
      });
    return !follows || !known;
  });
  return reads;
}

bool copies_ahead(const ir::ForStmt& loop) {
  if (!loop.pipelined || !loop.stages || loop.stages->int_value < 2) return false;
  return std::any_of(loop.body.begin(), loop.body.end(), [](const ir::Stmt& stmt) {
    const auto* copy = std::get_if<ir::CopyStmt>(&stmt.node);
    return copy && copy->src.buffer->scope == ir::Scope::kGlobal && copy->dst.buffer->scope == ir::Scope::kShared;
  });
}

}  // namespace

std::optional<ir::Kernel> staged_rows(const ir::Kernel& kernel, uint64_t fact_mask) {
  Ranges multiples;
  note_multiples(kernel.body, &multiples);
  ir::Block declarations, body = kernel.body;
  for (ir::Stmt& stmt : body) {
    auto* loop = std::get_if<ir::ForStmt>(&stmt.node);
    if (!loop || !copies_ahead(*loop)) continue;
    ir::Block copies;
    for (ir::Stmt& inner : loop->body) {
      auto* region = std::get_if<ir::ParallelStmt>(&inner.node);
      if (!region) continue;
      std::vector<TensorRead> reads = rows_of(*region, *loop, kernel, multiples, fact_mask);
      *region = with_tiles(*region, reads);
      for (TensorRead& read : reads) {
        declarations.push_back({inner.loc, ir::DeclStmt{read.tile, nullptr}});
        copies.push_back({inner.loc, std::move(read.copy)});
      }
    }
    loop->body.insert(loop->body.begin(), copies.begin(), copies.end());
  }
  if (declarations.empty()) return std::nullopt;
  return with_declarations(kernel, std::move(declarations), body);
}

}  // namespace kachel::lowering
