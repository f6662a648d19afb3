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
    note_multiples(kernel, &multiples_);
    note_sums(kernel.body);
  }

  // What the region reads beside sums of products.
  std::vector<TensorRead> reads_of(const ir::ParallelStmt& region) const {
    BufferSet used;
    note_uses({{}, region}, &used);
    const bool meets =
        std::any_of(used.begin(), used.end(), [&](const ir::Buffer* buffer) { return sums_.count(buffer) != 0; });
    if (!meets || region.iters.size() != 2) return {};
    std::vector<TensorRead> reads = tensor_reads(region, false);
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

// Whether the loop's own copies could fetch it ahead: its place follows the loop, and is known before an iteration.
bool fetchable(const TensorRead& read, const ir::ForStmt& loop) {
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
  return follows && known;
}

// Of whole words, each of which lies where cp.async finds it.
bool in_words(const TensorRead& read, const ir::Kernel& kernel, const Ranges& multiples, uint64_t fact_mask) {
  const ir::BufferRef& tensor = read.copy.src.buffer;
  const ir::AxisSpec& last = read.copy.src.axes.back();
  const int64_t bits = ir::bits(tensor->type.dtype);
  const int64_t granule = kAsyncBytes * 8 / std::min<int64_t>(bits, kAsyncBytes * 8);  // elements
  return vector_bytes(kernel, fact_mask, tensor) >= kAsyncBytes && last.extent->int_value % granule == 0 &&
         multiples.multiple_of(last.start) % granule == 0;
}

// Calls fn(region, location) on the regions of an iteration, those under conditions included.
template <class Block, class Fn>
void for_each_region(Block& body, const Fn& fn) {
  for (auto& stmt : body) {
    if (auto* region = std::get_if<ir::ParallelStmt>(&stmt.node)) fn(*region, stmt.loc);
    if (auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) {
      for_each_region(branch->then_body, fn);
      for_each_region(branch->else_body, fn);
    }
  }
}

bool reads(const ir::Block& body, const ir::ExprRef& load) {
  bool found = false;
  const auto note = [&](const ir::ExprRef& node) { found |= ir::same(node, load); };
  for_each_region(body, [&](const ir::ParallelStmt& region, ir::Loc) {
    for (const ir::Stmt& stmt : region.body) {
      if (const auto* let = std::get_if<ir::LetStmt>(&stmt.node)) ir::visit(let->value, note);
      if (const auto* assign = std::get_if<ir::AssignStmt>(&stmt.node)) ir::visit(assign->value, note);
    }
  });
  return found;
}

// Those of regions that every iteration comes to: with a mask evaluated or without, a matrix is read either way.
std::vector<TensorRead> reads_of(const ir::Block& body) {
  std::vector<TensorRead> found;
  for (const ir::Stmt& stmt : body) {
    if (const auto* region = std::get_if<ir::ParallelStmt>(&stmt.node))
      for (TensorRead& read : tensor_reads(*region, true)) found.push_back(std::move(read));
    if (const auto* branch = std::get_if<ir::IfStmt>(&stmt.node))
      for (TensorRead& read : reads_of(branch->then_body))
        if (reads(branch->else_body, read.load)) found.push_back(std::move(read));
  }
  return found;
}

bool copies_ahead(const ir::ForStmt& loop) {
  return loop.pipelined && loop.stages && loop.stages->int_value > 1;
}

}  // namespace

std::optional<ir::Kernel> staged_tiles(const ir::Kernel& kernel, const Target& target, uint64_t fact_mask) {
  Ranges multiples;
  note_multiples(kernel, &multiples);
  // Rows that begin anywhere are a producer's.
  const bool producers = target.bulk_copies && has_group_mma(target.architecture);
  ir::Block declarations, body = kernel.body;
  for (ir::Stmt& stmt : body) {
    auto* loop = std::get_if<ir::ForStmt>(&stmt.node);
    if (!loop || !copies_ahead(*loop)) continue;
    std::vector<TensorRead> staged;
    for (TensorRead& read : reads_of(loop->body)) {
      const bool known = std::any_of(staged.begin(), staged.end(),
                                     [&](const TensorRead& other) { return ir::same(other.load, read.load); });
      const bool copied = read.copy.src.axes.back().kind == ir::AxisSpec::Kind::kRange &&
                          ir::bits(read.tile->type.dtype) >= 8 &&
                          (read.place.size() == 1 ? in_words(read, kernel, multiples, fact_mask) : producers);
      if (known || !copied || !fetchable(read, *loop)) continue;
      declarations.push_back({stmt.loc, ir::DeclStmt{read.tile, nullptr}});
      staged.push_back(std::move(read));
    }
    // What is read under a condition as well: a copy reads nothing beyond the tensor.
    for_each_region(loop->body, [&](ir::ParallelStmt& region, ir::Loc) { region = with_tiles(region, staged); });
    ir::Block copies;
    for (TensorRead& read : staged) copies.push_back({stmt.loc, std::move(read.copy)});
    loop->body.insert(loop->body.begin(), copies.begin(), copies.end());
  }
  if (declarations.empty()) return std::nullopt;
  return with_declarations(kernel, std::move(declarations), body);
}

}  // namespace kachel::lowering
