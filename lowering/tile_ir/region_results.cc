#include "lowering/tile_ir/region_results.h"

#include <algorithm>
#include <optional>

#include "ir/parallel.h"
#include "ir/tunable_role.h"
#include "ir/visit.h"
#include "lowering/loop_ir/region_index.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

constexpr int64_t kMostBytes = 48 * 1024;  // of a region's tiles in shared memory

using ir::AxisSpec;
using ir::ExprKind;
using ir::ExprRef;

// What all iterations of a region access of a tensor, an element each.
struct Access {
  ir::TileRef slice;
  std::vector<size_t> iters;  // of the region, by the axes that the slice keeps
};

class Region {
 public:
  explicit Region(const ir::ParallelStmt& region) : forwarded_(ir::forward_stores(region)), indexes_(forwarded_.iters) {
    for (const ir::LetStmt& let : forwarded_.lets) indexes_.name(let);
  }
  Region(const Region&) = delete;

  const ir::ForwardedRegion& forwarded() const { return forwarded_; }
  // Whether the store's condition says nothing but that it is inside of its tensor, as a copy asks anyway.
  bool is_bounded(const ir::GuardedStore& guarded) const {
    std::vector<ExprRef> indices;
    for (const ExprRef& at : guarded.store.indices) indices.push_back(indexes_.inlined(at));
    return !guarded.guard || !beyond_bounds(indexes_.inlined(guarded.guard), *guarded.store.buffer, indices);
  }

  // Each axis of the tensor is a place that they share, or begins at one and follows an iteration of its own.
  std::optional<Access> access(const ir::BufferRef& tensor, const std::vector<ExprRef>& indices) const {
    if (tensor->scope != ir::Scope::kGlobal || ir::bits(tensor->type.dtype) < 8) return std::nullopt;
    Access found{{tensor, {}}, {}};
    std::vector<bool> followed(forwarded_.iters.size());
    for (const ExprRef& at : indices) {
      const ExprRef place = indexes_.inlined(at);
      const std::optional<RegionIndex> index = indexes_.split(place);
      if (!index || reads_memory(place)) return std::nullopt;
      AxisSpec axis;
      axis.start = index->base ? index->base : ir::make_int(0, ir::DType::I64);
      if (index->axis != RegionIndex::kNone) {
        if (followed[index->axis]) return std::nullopt;
        followed[index->axis] = true;
        axis.kind = AxisSpec::Kind::kRange;
        axis.extent = forwarded_.iters[index->axis].extent;
        found.iters.push_back(index->axis);
      } else {
        axis.kind = AxisSpec::Kind::kIndex;
      }
      found.slice.axes.push_back(std::move(axis));
    }
    for (size_t i = 0; i < followed.size(); ++i)
      if (!followed[i] && !ir::is_int(forwarded_.iters[i].extent, 1)) return std::nullopt;
    return found.iters.empty() ? std::nullopt : std::optional(std::move(found));
  }

 private:
  static bool reads_memory(const ExprRef& expr) {
    bool reads = false;
    ir::visit(expr, [&](const ExprRef& node) { reads |= node->kind == ExprKind::kLoad || ir::is_reduction(*node); });
    return reads;
  }

  const ir::ForwardedRegion forwarded_;
  RegionIndexes indexes_;
};

class Rewriter {
 public:
  explicit Rewriter(const ir::Kernel& kernel) {
    ir::for_each_stmt(kernel.body, [this](const ir::Stmt& stmt) {
      if (const auto* gemm = std::get_if<ir::GemmStmt>(&stmt.node)) sums_.insert(gemm->c.buffer.get());
    });
  }

  ir::Block block(const ir::Block& body) {
    ir::Block out;
    for (ir::Stmt stmt : body) {
      if (const auto* region = std::get_if<ir::ParallelStmt>(&stmt.node); region && rewrite(*region, stmt.loc, &out))
        continue;
      replace_blocks(&stmt, [this](const ir::Block& inner) { return block(inner); });
      out.push_back(std::move(stmt));
    }
    return out;
  }
  const std::vector<ir::BufferRef>& made() const { return made_; }

 private:
  struct Load {
    ExprRef load;
    Access access;
  };

  bool reads_sums(const ir::ForwardedRegion& region) const {
    bool found = false;
    for (const ir::LetStmt& let : region.lets)
      ir::visit(let.value, [&](const ExprRef& node) {
        found |= node->kind == ExprKind::kLoad && sums_.count(node->buffer.get()) && is_own_element(node, region.iters);
      });
    return found;
  }

  // Loads whose neighbours are not those of the results; nothing where the region touches any tile.
  static std::vector<Load> turned_loads(const Region& region, size_t last) {
    std::vector<Load> turned;
    bool tensors_only = true;
    for (const ir::LetStmt& let : region.forwarded().lets)
      ir::visit(let.value, [&](const ExprRef& node) {
        tensors_only &= !ir::is_reduction(*node);
        if (node->kind != ExprKind::kLoad) return;
        tensors_only &= node->buffer->scope == ir::Scope::kGlobal;
        std::optional<Access> access = region.access(node->buffer, node->args);
        if (access && is_unwritten(*node->buffer) && access->iters.back() != last &&
            access->slice.axes.back().kind != AxisSpec::Kind::kIndex)
          turned.push_back({node, std::move(*access)});
      });
    return tensors_only ? turned : std::vector<Load>{};
  }

  bool rewrite(const ir::ParallelStmt& stmt, ir::Loc loc, ir::Block* out) {
    const Region region(stmt);
    const ir::ForwardedRegion& from = region.forwarded();
    std::vector<Access> results;
    for (const ir::GuardedStore& guarded : from.stores) {
      std::optional<Access> access = region.access(guarded.store.buffer, guarded.store.indices);
      if (!access || !region.is_bounded(guarded)) return false;
      if (!results.empty() && access->iters != results[0].iters) return false;
      results.push_back(std::move(*access));
    }
    if (results.empty()) return false;
    std::vector<Load> turned;
    if (!reads_sums(from)) {
      turned = turned_loads(region, results[0].iters.back());
      int64_t bytes = 0;
      for (const Load& one : turned) bytes += bytes_of(one.access, from);
      if (turned.empty() || bytes > kMostBytes) return false;
    }

    // In the order of the results' axes, so that each iteration has its own element.
    ir::ParallelStmt made;
    for (const size_t iter : results[0].iters) made.iters.push_back(from.iters[iter]);
    for (size_t iter = 0; iter < from.iters.size(); ++iter)
      if (std::find(results[0].iters.begin(), results[0].iters.end(), iter) == results[0].iters.end())
        made.iters.push_back(from.iters[iter]);
    std::unordered_map<const ir::Expr*, ExprRef> instead;
    for (const Load& one : turned) {
      const ir::BufferRef tile = tile_of(one.access, ir::Scope::kShared, one.load->buffer->type.dtype, from, loc);
      out->push_back({loc, ir::CopyStmt{whole_tile(tile), one.access.slice}});
      instead[one.load.get()] = ir::make_load(tile, indices_of(one.access, from));
    }
    const auto replaced = [&](const ExprRef& expr) {
      return ir::rewrite(expr, [&](const ExprRef& node) {
        const auto found = instead.find(node.get());
        return found == instead.end() ? node : found->second;
      });
    };
    for (const ir::LetStmt& let : from.lets) made.body.push_back({loc, ir::LetStmt{let.var, replaced(let.value)}});
    ir::Block copies;
    for (size_t i = 0; i < results.size(); ++i) {
      const ir::AssignStmt& store = from.stores[i].store;
      const ir::DType type = store.buffer->type.dtype;
      // Sums are rounded by the copy, two at a time.
      const bool rounds = turned.empty() && ir::is_float(type);
      const ir::BufferRef tile =
          tile_of(results[i], ir::Scope::kFragment, rounds ? ir::compute_type(type) : type, from, loc);
      ir::AssignStmt assign{tile, indices_of(results[i], from)};
      const ir::LetStmt* rounding = rounds ? ir::rounding_of(from, store) : nullptr;
      assign.value = rounding ? rounding->value->args[0] : store.value;
      made.body.push_back({loc, std::move(assign)});
      ir::CopyStmt copy{results[i].slice, whole_tile(tile)};
      copy.atomic = store.atomic;
      copies.push_back({loc, std::move(copy)});
    }
    out->push_back({loc, std::move(made)});
    for (ir::Stmt& copy : copies) out->push_back(std::move(copy));
    return true;
  }

  ir::BufferRef tile_of(const Access& access, ir::Scope scope, ir::DType type, const ir::ForwardedRegion& region,
                        ir::Loc loc) {
    auto tile = std::make_shared<ir::Buffer>();
    tile->name = access.slice.buffer->name + "_tile";
    tile->scope = scope;
    tile->type = {type, nullptr};
    for (const size_t iter : access.iters) tile->shape.push_back(region.iters[iter].extent);
    tile->loc = loc;
    made_.push_back(tile);
    return tile;
  }
  static int64_t bytes_of(const Access& access, const ir::ForwardedRegion& region) {
    int64_t bytes = ir::bits(access.slice.buffer->type.dtype) / 8;
    for (const size_t iter : access.iters) bytes *= region.iters[iter].extent->int_value;
    return bytes;
  }
  static std::vector<ExprRef> indices_of(const Access& access, const ir::ForwardedRegion& region) {
    std::vector<ExprRef> indices;
    for (const size_t iter : access.iters) indices.push_back(ir::make_var(region.iters[iter].var));
    return indices;
  }

  BufferSet sums_;  // of products
  std::vector<ir::BufferRef> made_;
};

}  // namespace

ir::Kernel region_results(const ir::Kernel& kernel) {
  Rewriter rewriter(kernel);
  ir::Block body = rewriter.block(kernel.body);
  return with_declared(kernel, rewriter.made(), std::move(body));
}

}  // namespace kachel::lowering
