#include "lowering/tile_ir/direct_reads.h"

#include <algorithm>
#include <map>
#include <optional>

#include "ir/visit.h"
#include "lowering/loop_ir/loop_build.h"
#include "lowering/loop_ir/range.h"
#include "lowering/loop_ir/region_index.h"
#include "lowering/planted.h"
#include "lowering/tile_ir/open_windows.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

using ir::AxisSpec;
using ir::ExprKind;
using ir::ExprRef;

// Windows that share most of their elements are read from memory of the block, where a thread finds them for several
// iterations: of a filter of four taps, or of 3 x 3, each element is wanted four and nine times.
constexpr int64_t kMostReads = 2;

// A copy that says no more than where the fragment's elements are in the tensor.
bool is_plain(const ir::CopyStmt& copy, bool of_rows) {
  const ir::Buffer &from = *copy.src.buffer, &to = *copy.dst.buffer;
  if (to.scope != ir::Scope::kFragment || !is_unwritten(from) || ir::bits(from.type.dtype) < 8 ||
      copy.atomic != ir::AtomicOp::kNone || !has_whole_axes(copy.dst))
    return false;
  if (copy.src.within_first || (of_rows && copy.src.axes.back().kind == AxisSpec::Kind::kIndex)) return false;
  return std::all_of(copy.src.axes.begin(), copy.src.axes.end(), [](const AxisSpec& axis) {
    bool loads = false;
    if (axis.start) ir::visit(axis.start, [&](const ExprRef& node) { loads |= node->kind == ExprKind::kLoad; });
    return !loads && axis.kind != AxisSpec::Kind::kGather;
  });
}

// Whether it is a row that each iteration of a loop copies and one region behind it reads, an element at a time.
bool is_read_once(const ir::CopyStmt& copy, const ir::Block& behind) {
  const ir::Buffer* tile = copy.dst.buffer.get();
  if (tile->shape.size() != 1) return false;
  int64_t reads = 0, others = 0;
  for (const ir::Stmt& stmt : behind) {
    const auto* region = std::get_if<ir::ParallelStmt>(&stmt.node);
    if (!region) {
      others += uses_of(tile, {stmt});
      continue;
    }
    BufferSet written;
    note_writes(stmt, &written);
    others += written.count(tile) != 0;
    for_each_node(region->body, [&](const ExprRef& node) {
      if (ir::is_reduction(*node)) {
        BufferSet within;
        note_loads(node, &within);
        others += within.count(tile) != 0;
      }
      if (node->kind != ExprKind::kLoad || node->buffer.get() != tile) return;
      const auto its = [&](const ir::IterVar& iter) {
        return node->args[0]->kind == ExprKind::kVar && node->args[0]->var == iter.var;
      };
      ++(std::any_of(region->iters.begin(), region->iters.end(), its) && region->iters.size() > 1 ? reads : others);
    });
  }
  return reads == 1 && others == 0;
}

// How the regions behind the copy use the fragment.
class Uses {
 public:
  explicit Uses(const ir::Buffer* tile) : tile_(tile) {}

  void block(const ir::Block& body) {
    for (const ir::Stmt& stmt : body) {
      if (const auto* region = std::get_if<ir::ParallelStmt>(&stmt.node)) {
        this->region(*region);
        continue;
      }
      if (std::holds_alternative<ir::ForStmt>(stmt.node)) {
        suits_ &= uses_of(tile_, {stmt}) == 0;  // else it would be read again and again
        continue;
      }
      if (const auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) {
        if (loads(branch->condition)) suits_ = false;
        block(branch->then_body), block(branch->else_body);
        continue;
      }
      BufferSet used;
      note_uses(stmt, &used);
      suits_ &= !used.count(tile_);
    }
  }
  // All can be read from the tensor, and some have to be read from memory of the block otherwise.
  bool suit() const { return suits_ && foreign_; }
  int64_t reads() const { return reads_; }

 private:
  bool loads(const ExprRef& expr) const {
    BufferSet used;
    note_loads(expr, &used);
    return used.count(tile_) != 0;
  }

  void region(const ir::ParallelStmt& region) {
    iterations_ = 1;
    for (const ir::IterVar& iter : region.iters) iterations_ *= iter.extent->int_value;
    for (const ir::IterVar& iter : region.iters) ranges_.set(iter.var, {0, iter.extent->int_value - 1});
    RegionIndexes indexes(region.iters);
    body(region.body, region.iters.size(), &indexes);
  }
  void body(const ir::Block& block, size_t rank, RegionIndexes* indexes) {
    for (const ir::Stmt& stmt : block) {
      ir::for_each_expr(stmt, [&](const ExprRef& expr) { this->expr(expr, *indexes, rank); });
      if (const auto* let = std::get_if<ir::LetStmt>(&stmt.node)) indexes->name(*let);
      if (const auto* assign = std::get_if<ir::AssignStmt>(&stmt.node)) suits_ &= assign->buffer.get() != tile_;
      if (const auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) {
        body(branch->then_body, rank, indexes);
        body(branch->else_body, rank, indexes);
      }
    }
  }
  void expr(const ExprRef& expr, const RegionIndexes& indexes, size_t rank) {
    if (ir::is_reduction(*expr)) {
      suits_ &= !loads(expr);
      return;
    }
    if (expr->kind == ExprKind::kLoad && expr->buffer.get() == tile_) load(*expr, indexes, rank);
    for (const ExprRef& arg : expr->args) this->expr(arg, indexes, rank);
  }
  void load(const ir::Expr& load, const RegionIndexes& indexes, size_t rank) {
    reads_ += iterations_;
    bool held = true;  // by the iteration itself, or in registers that hold pairs
    for (size_t axis = 0; axis < load.args.size(); ++axis) {
      const ExprRef at = indexes.inlined(load.args[axis]);
      const bool last = axis + 1 == load.args.size();
      const Interval range = ranges_.of(at);
      suits_ &= range.lo >= 0 && range.hi < tile_->shape[axis]->int_value;
      held &= indexes.split(at).has_value() || (last && pair_index(at));
      const std::optional<ScaledIndex> scaled = indexes.scaled(at);
      if (scaled && (scaled->base || scaled->constant) && scaled->scale == 1) held = false;
      if (last) suits_ &= scaled && scaled->axis + 1 == rank && scaled->is_dense() && !scaled->base;
    }
    foreign_ |= !held;
  }
  const ir::Buffer* tile_;
  Ranges ranges_;
  int64_t iterations_ = 0, reads_ = 0;  // iterations: of the region that is looked at
  bool suits_ = true, foreign_ = false;
};

class Rewriter {
 public:
  explicit Rewriter(const ir::Kernel& kernel) : kernel_(kernel) {}

  // `pipelined`: of a loop that multiplies, whose regions can load an iteration ahead what they read of tensors.
  ir::Block block(ir::Block body, bool pipelined) {
    ir::Block out;
    for (size_t i = 0; i < body.size(); ++i) {
      ir::Stmt& stmt = body[i];
      const auto* row = pipelined ? std::get_if<ir::CopyStmt>(&stmt.node) : nullptr;
      if (row && is_plain(*row, false) && !row->src.pad &&
          stays_within(*row, {body.begin() + static_cast<std::ptrdiff_t>(i) + 1, body.end()})) {
        copies_.emplace(row->dst.buffer.get(), *row);
        continue;
      }
      if (const auto* copy = std::get_if<ir::CopyStmt>(&stmt.node); copy && is_plain(*copy, true)) {
        const auto behind = body.begin() + static_cast<std::ptrdiff_t>(i) + 1;
        const ir::Buffer* tile = copy->dst.buffer.get();
        const ir::Block as_it_is(behind, body.end());
        ir::Block opened = open_windows(as_it_is, [tile](const ir::Buffer& buffer) { return &buffer == tile; });
        const std::optional<int64_t> reads = direct_reads_of(*tile, opened);
        if (direct_reads_of(*tile, as_it_is) || (reads && *reads < kMostReads * elements_of(*tile))) {
          copies_.emplace(tile, *copy);
          std::move(opened.begin(), opened.end(), behind);
          continue;
        }
      }
      if (auto* region = std::get_if<ir::ParallelStmt>(&stmt.node))
        rewrite_region(&region->body, [this](const ExprRef& value) { return expr(value); });
      const auto* loop = std::get_if<ir::ForStmt>(&stmt.node);
      const bool multiplies =
          loop && loop->pipelined && std::any_of(loop->body.begin(), loop->body.end(), [](const ir::Stmt& inner) {
            return std::holds_alternative<ir::GemmStmt>(inner.node);
          });
      replace_blocks(&stmt, [&](const ir::Block& inner) { return block(inner, multiplies); });
      out.push_back(std::move(stmt));
    }
    return out;
  }
  bool reads_directly(const ir::Buffer* tile) const { return copies_.count(tile) != 0; }

 private:
  // How often elements of the fragment would be read behind its copy; nothing: it stays.
  std::optional<int64_t> direct_reads_of(const ir::Buffer& tile, const ir::Block& behind) const {
    if (uses_of(&tile, kernel_.body) != uses_of(&tile, behind) + 1) return std::nullopt;
    for (const ir::Stmt& stmt : kernel_.body)
      if (const auto* decl = std::get_if<ir::DeclStmt>(&stmt.node); decl && decl->buffer.get() == &tile && decl->init)
        return std::nullopt;
    Uses uses(&tile);
    uses.block(behind);
    return uses.suit() ? std::optional(uses.reads()) : std::nullopt;
  }
  // Whether a row serves one region behind its copy and nothing else.
  bool stays_within(const ir::CopyStmt& copy, const ir::Block& behind) const {
    const ir::Buffer* tile = copy.dst.buffer.get();
    for (const ir::Stmt& stmt : kernel_.body)
      if (const auto* decl = std::get_if<ir::DeclStmt>(&stmt.node); decl && decl->buffer.get() == tile && decl->init)
        return false;
    return uses_of(tile, kernel_.body) == uses_of(tile, behind) + 1 && is_read_once(copy, behind);
  }
  ExprRef expr(const ExprRef& root) const {
    return ir::rewrite(root, [this](const ExprRef& node) {
      if (node->kind != ExprKind::kLoad) return node;
      const auto found = copies_.find(node->buffer.get());
      return found == copies_.end() ? node : read(found->second, node->args);
    });
  }
  // The tensor's element that lies in the fragment at `place`.
  static ExprRef read(const ir::CopyStmt& copy, const std::vector<ExprRef>& place) {
    const ir::BufferRef &from = copy.src.buffer, &to = copy.dst.buffer;
    std::vector<ExprRef> indices;
    size_t next = 0;
    for (const AxisSpec& axis : copy.src.axes) {
      const bool index = axis.kind == AxisSpec::Kind::kIndex;
      ExprRef at = index ? axis.start : place[next++];
      if (at->type != ir::DType::I64) at = ir::make_cast({ir::DType::I64, nullptr}, at);
      if (!index && axis.start && !(next == 1 && planted(Planted::kDirectPlace))) at = plus(axis.start, at);
      indices.push_back(std::move(at));
    }
    ExprRef value = ir::make_load(from, indices);
    ExprRef inside;  // where something else than 0 lies around the tensor
    const auto require = [&](const ExprRef& condition) {
      inside = inside ? ir::make_typed(ir::Op::kAnd, {inside, condition}) : condition;
    };
    for (size_t axis = 0; copy.src.pad && axis < indices.size(); ++axis) {
      require(ir::make_typed(ir::Op::kGe, {indices[axis], ir::make_int(0, ir::DType::I64)}));
      require(ir::make_typed(ir::Op::kLt, {indices[axis], from->shape[axis]}));
    }
    if (inside)  // rounded as if it were stored there
      value =
          ir::make_typed(ir::Op::kSelect, {inside, value, ir::make_cast({from->type.dtype, nullptr}, copy.src.pad)});
    return from->type.dtype == to->type.dtype ? value : ir::make_cast({to->type.dtype, nullptr}, value);
  }

  const ir::Kernel& kernel_;
  std::map<const ir::Buffer*, ir::CopyStmt> copies_;  // that are gone
};

}  // namespace

ir::Kernel direct_reads(const ir::Kernel& kernel) {
  Rewriter rewriter(kernel);
  ir::Kernel out = kernel;
  out.body = rewriter.block(open_windows(kernel.body, is_unwritten), false);
  out.body.erase(std::remove_if(out.body.begin(), out.body.end(),
                                [&](const ir::Stmt& stmt) {
                                  const auto* decl = std::get_if<ir::DeclStmt>(&stmt.node);
                                  return decl && rewriter.reads_directly(decl->buffer.get());
                                }),
                 out.body.end());
  return out;
}

}  // namespace kachel::lowering
