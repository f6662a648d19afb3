#include "lowering/fetched_tiles.h"

#include <algorithm>

#include "lowering/box_rules.h"
#include "lowering/pipeline_tiles.h"
#include "lowering/planted.h"
#include "lowering/region_index.h"
#include "lowering/tile_uses.h"

namespace kachel::lowering {
namespace {

using ir::ExprKind;
using ir::ExprRef;

constexpr int kBits = 16;  // of an element: what there is room for

struct Fetched {
  ExprRef load;
  ir::BufferRef tile;
  ir::CopyStmt copy;
};

class Fetcher {
 public:
  Fetcher(const ir::Kernel& kernel, uint64_t fact_mask) : kernel_(kernel), fact_mask_(fact_mask) {
    note_multiples(kernel.body, &multiples_);
    note_sums(kernel.body);
  }

  // What the region reads beside sums of products.
  std::vector<Fetched> reads_of(const ir::ParallelStmt& region) {
    std::vector<Fetched> found;
    BufferSet used;
    note_uses({{}, region}, &used);
    const bool meets = std::any_of(used.begin(), used.end(), [&](const ir::Buffer* buffer) { return sums_.count(buffer) != 0; });
    if (!meets || region.iters.size() != 2) return found;
    std::unordered_map<const ir::Var*, ExprRef> lets;
    const RegionIndexes indexes(region.iters, lets);
    for (const ir::Stmt& stmt : region.body) {
      const auto* let = std::get_if<ir::LetStmt>(&stmt.node);
      const auto* assign = std::get_if<ir::AssignStmt>(&stmt.node);
      if (!let && !assign) continue;
      const ExprRef& value = let ? let->value : assign->value;
      for_each_certain_load(value, [&](const ExprRef& load) {
        if (std::any_of(found.begin(), found.end(), [&](const Fetched& other) { return ir::same(other.load, load); })) return;
        if (std::optional<Fetched> fetched = fetch(region, indexes, load)) found.push_back(std::move(*fetched));
      });
      if (let) lets[let->var.get()] = indexes.inlined(let->value);
    }
    return found;
  }

 private:
  void note_sums(const ir::Block& body) {
    for (const ir::Stmt& stmt : body) {
      if (const auto* gemm = std::get_if<ir::GemmStmt>(&stmt.node)) sums_.insert(gemm->c.buffer.get());
      if (const auto* loop = std::get_if<ir::ForStmt>(&stmt.node)) note_sums(loop->body);
      if (const auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) note_sums(branch->then_body), note_sums(branch->else_body);
    }
  }

  std::optional<Fetched> fetch(const ir::ParallelStmt& region, const RegionIndexes& indexes, const ExprRef& load) const {
    const ir::BufferRef& tensor = load->buffer;
    if (tensor->scope != ir::Scope::kGlobal || tensor->direction != ir::Direction::kIn || ir::bits(tensor->type.dtype) != kBits)
      return std::nullopt;
    ir::Buffer tile{tensor->name + "_tile", ir::Scope::kShared, ir::Direction::kInOut, tensor->type, {}, tensor->loc};
    Fetched fetched{load, nullptr, {}};
    fetched.copy.src.buffer = tensor;
    size_t next = 0;
    for (const ExprRef& arg : load->args) {
      const std::optional<RegionIndex> index = indexes.split(indexes.inlined(arg));
      if (!index) return std::nullopt;
      ir::AxisSpec axis;
      axis.start = index->base ? index->base : ir::make_int(0, ir::DType::I64);
      axis.kind = index->axis == RegionIndex::kNone ? ir::AxisSpec::Kind::kIndex : ir::AxisSpec::Kind::kRange;
      if (index->axis != RegionIndex::kNone) {
        if (index->axis != next) return std::nullopt;  // rows first, then columns
        if (next == 0 && planted(Planted::kFetchedPlace)) axis.start = ir::make_typed(ir::Op::kSub, {axis.start, ir::make_int(1, axis.start->type)});
        axis.extent = region.iters[next++].extent;
        tile.shape.push_back(axis.extent);
      }
      fetched.copy.src.axes.push_back(std::move(axis));
    }
    if (next != region.iters.size() || !refuses_boxes(kernel_, fetched.copy.src, multiples_, fact_mask_).empty()) return std::nullopt;
    fetched.tile = std::make_shared<const ir::Buffer>(std::move(tile));
    fetched.copy.dst.buffer = fetched.tile;
    fetched.copy.dst.axes.resize(next);
    return fetched;
  }

  const ir::Kernel& kernel_;
  const uint64_t fact_mask_;
  Ranges multiples_;
  BufferSet sums_;
};

// The region with tiles in the place of tensors.
class Reader {
 public:
  Reader(const std::vector<Fetched>& fetched, const std::vector<ir::IterVar>& iters) : fetched_(fetched) {
    for (const ir::IterVar& iter : iters) place_.push_back(ir::make_var(iter.var));
  }
  ir::Block block(ir::Block body) const {
    for (ir::Stmt& stmt : body) {
      if (auto* let = std::get_if<ir::LetStmt>(&stmt.node)) let->value = expr(let->value);
      if (auto* assign = std::get_if<ir::AssignStmt>(&stmt.node)) assign->value = expr(assign->value);
      if (auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) {
        branch->condition = expr(branch->condition);
        branch->then_body = block(std::move(branch->then_body));
        branch->else_body = block(std::move(branch->else_body));
      }
    }
    return body;
  }

 private:
  ExprRef expr(const ExprRef& root) const {
    return ir::rewrite(root, [&](const ExprRef& node) {
      if (node->kind != ExprKind::kLoad) return node;
      for (const Fetched& fetched : fetched_)
        if (ir::same(node, fetched.load)) return ir::make_load(fetched.tile, place_);
      return node;
    });
  }

  const std::vector<Fetched>& fetched_;
  std::vector<ExprRef> place_;
};

ir::Stmt ahead(std::vector<Fetched> fetched, const ir::Stmt& stmt, const ir::ParallelStmt& region) {
  ir::ForStmt once = single_pipeline("fetched");
  ir::ParallelStmt reading{region.iters, Reader(fetched, region.iters).block(region.body)};
  for (Fetched& one : fetched) once.body.push_back({stmt.loc, std::move(one.copy)});
  once.body.push_back({stmt.loc, std::move(reading)});
  return {stmt.loc, std::move(once)};
}

}  // namespace

std::optional<ir::Kernel> fetched_tiles(const ir::Kernel& kernel, uint64_t fact_mask) {
  Fetcher fetcher(kernel, fact_mask);
  ir::Block declarations, body;
  bool behind_products = false;
  for (const ir::Stmt& stmt : kernel.body) {
    const auto* loop = std::get_if<ir::ForStmt>(&stmt.node);
    behind_products |= loop && loop->pipelined;
    const auto* region = std::get_if<ir::ParallelStmt>(&stmt.node);
    std::vector<Fetched> fetched = region && behind_products ? fetcher.reads_of(*region) : std::vector<Fetched>{};
    for (const Fetched& one : fetched) declarations.push_back({stmt.loc, ir::DeclStmt{one.tile, nullptr}});
    body.push_back(fetched.empty() ? stmt : ahead(std::move(fetched), stmt, *region));
  }
  if (declarations.empty()) return std::nullopt;
  ir::Kernel out = kernel;
  out.body = std::move(declarations);
  out.body.insert(out.body.end(), body.begin(), body.end());
  return out;
}

}  // namespace kachel::lowering
