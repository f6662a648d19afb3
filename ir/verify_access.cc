// Directions, atomics, 4-bit stores, overlapping copies, and tiles that are read before anything is written to them.
//
// "Before" is textual: a loop body is walked once, and a write in one branch counts for what follows. That accepts
// programs whose first iteration reads what only the second has written; it never rejects one that is right.
#include <fmt/format.h>

#include <unordered_set>
#include <vector>

#include "ir/print.h"
#include "ir/verify_rules.h"

namespace kachel::ir {
namespace {

bool may_be_four_bit(const Buffer& buffer) {
  for (DType type : possible_types(buffer.type))
    if (bits(type) == 4) return true;
  return false;
}

class Access {
 public:
  explicit Access(Diagnostics& out) : out_(out) {}

  void block(const Block& body) {
    for (const Stmt& stmt : body) statement(stmt);
  }

 private:
  struct Placed {
    const AssignStmt* assign;
    Loc loc;
  };
  using Assigned = std::vector<Placed>;

  void report(Loc loc, std::string message, std::string mend) {
    out_.push_back({loc, std::move(message), std::move(mend)});
  }

  // `of_others`: of elements that other iterations of the region write.
  void read(const Buffer& buffer, Loc loc, bool of_others = false) {
    if (buffer.scope == Scope::kGlobal) {
      if (buffer.direction == Direction::kOut)
        report(loc, fmt::format("`{}` is `out` and cannot be read", buffer.name),
               fmt::format("declare `{}: inout`", buffer.name));
    } else if (!written_.count(&buffer)) {
      report(loc, fmt::format("`{}` is read before anything is written to it", buffer.name),
             of_others ? "no iteration of `parallel` sees what another one writes: a recurrence is a `for` over "
                         "its steps, a sum of what stands before `sum[k <= i](...)`"
                       : "copy to it or fill it first, or declare it with `= 0`");
      written_.insert(&buffer);
    }
  }

  void write(const Buffer& buffer, AtomicOp atomic, Loc loc) {
    const bool global = buffer.scope == Scope::kGlobal;
    if (atomic != AtomicOp::kNone && buffer.scope == Scope::kFragment)
      report(loc, fmt::format("`atomic` on the fragment `{}`", buffer.name),
             fmt::format("declare it `shared`, where all threads of the block can combine elements, or reduce with "
                         "`sum[...]`"));
    else if (atomic != AtomicOp::kNone && !global)
      read(buffer, loc);
    written_.insert(&buffer);
    if (!global) return;
    if (buffer.direction == Direction::kIn)
      report(loc, fmt::format("`{}` is an input and cannot be written", buffer.name),
             fmt::format("declare `{0}: out` or `{0}: inout`", buffer.name));
    else if (atomic != AtomicOp::kNone && buffer.direction == Direction::kOut)
      report(loc, fmt::format("`atomic` reads `{}`, which is `out`", buffer.name),
             fmt::format("declare `{}: inout`; what it holds at first is the host's, or what another kernel of a "
                         "`program` writes, which has it as `out`",
                         buffer.name));
  }

  // Inside a region, a load of what this iteration has assigned is no read of the tile's former value.
  void reads(const ExprRef& expr, const Assigned& assigned, Loc loc) {
    if (!expr) return;
    visit(expr, [&](const ExprRef& node) {
      if (node->kind != ExprKind::kLoad) return;
      for (const Placed& placed : assigned)
        if (same_element(*placed.assign, node->buffer, node->args)) return;
      bool of_others = false;
      for (const AssignStmt* assign : region_) of_others |= assign->buffer == node->buffer;
      for (const AssignStmt* assign : region_) of_others &= !same_element(*assign, node->buffer, node->args);
      read(*node->buffer, node->loc.line > 0 ? node->loc : loc, of_others);
    });
  }

  static bool same_element(const AssignStmt& assign, const BufferRef& buffer, const std::vector<ExprRef>& indices) {
    if (assign.buffer != buffer || assign.indices.size() != indices.size()) return false;
    for (size_t i = 0; i < indices.size(); ++i)
      if (!same(assign.indices[i], indices[i])) return false;
    return true;
  }

  void tile_reads(const TileRef& tile, bool value) {
    if (value) read(*tile.buffer, tile.loc);
    for (const AxisSpec& axis : tile.axes) {
      reads(axis.start, {}, tile.loc);
      if (axis.gather) tile_reads(*axis.gather, true);
    }
    reads(tile.within_first, {}, tile.loc);
    reads(tile.within_length, {}, tile.loc);
  }

  void stored_tile(const TileRef& tile, AtomicOp atomic) {
    if (atomic != AtomicOp::kNone && tile.buffer->scope != Scope::kGlobal) {
      report(tile.loc, fmt::format("`atomic` on a slice of the tile `{}`", tile.buffer->name),
             fmt::format("combine elements, `parallel i < N {{ atomic {}[...] += x[i] }}`", tile.buffer->name));
      atomic = AtomicOp::kNone;
    }
    write(*tile.buffer, atomic, tile.loc);
    if (tile.buffer->scope == Scope::kGlobal && atomic == AtomicOp::kNone && may_be_four_bit(*tile.buffer))
      whole_bytes(tile);
  }

  // Two elements share a byte: a store must begin and end between bytes. What only numbers can show is left to
  // instantiate().
  void whole_bytes(const TileRef& tile) {
    const AxisSpec& last = tile.axes.back();
    bool only = tile_shape(tile).size() == 1;
    if (only && tile.within_first)
      report(tile.loc, fmt::format("`within` on the last axis of the 4-bit tensor `{}`", tile.buffer->name),
             "store whole bytes: leave `within` out, or keep one value in a byte with u8");
    if (last.kind == AxisSpec::Kind::kWhole) return;
    std::string mend = "end the slice with `:` or an even range as in `2*i +: 2*n`";
    if (last.kind != AxisSpec::Kind::kRange) {
      report(tile.loc, fmt::format("single elements of the 4-bit tensor `{}` cannot be stored", tile.buffer->name),
             mend);
    } else if (!may_be_even(last.extent) || !may_be_even(last.start)) {
      report(tile.loc,
             fmt::format("the range of the last axis of the 4-bit tensor `{}` is not even", tile.buffer->name), mend);
    }
  }
  // False unless every term has an even factor or one that is known at compile time.
  bool may_be_even(const ExprRef& expr) {
    for (const auto& [product, coefficient] : polys_.of(expr).terms) {
      bool even = coefficient % 2 == 0;
      for (int atom : product) {
        const Var* var = polys_.variable(atom);
        even |= var && (var->kind == VarKind::kTunable || var->kind == VarKind::kConst || var->kind == VarKind::kDim);
      }
      if (!even) return false;
    }
    return true;
  }

  void region(const Block& body, Assigned& assigned) {
    for (const Stmt& stmt : body) {
      if (const auto* let = std::get_if<LetStmt>(&stmt.node)) {
        reads(let->value, assigned, stmt.loc);
      } else if (const auto* branch = std::get_if<IfStmt>(&stmt.node)) {
        reads(branch->condition, assigned, stmt.loc);
        region(branch->then_body, assigned);
        region(branch->else_body, assigned);
      } else if (const auto* assign = std::get_if<AssignStmt>(&stmt.node)) {
        for (const ExprRef& index : assign->indices) reads(index, assigned, stmt.loc);
        reads(assign->value, assigned, stmt.loc);
        if (assign->atomic == AtomicOp::kNone && assign->op != AssignOp::kSet)
          reads(make_load(assign->buffer, assign->indices, stmt.loc), assigned, stmt.loc);
        assigned.push_back({assign, stmt.loc});
      }
    }
  }

  void statement(const Stmt& stmt) {
    if (const auto* decl = std::get_if<DeclStmt>(&stmt.node)) {
      if (decl->init) written_.insert(decl->buffer.get());
    } else if (const auto* let = std::get_if<LetStmt>(&stmt.node)) {
      reads(let->value, {}, stmt.loc);
      polys_.define(let->var, let->value);
    } else if (const auto* copy = std::get_if<CopyStmt>(&stmt.node)) {
      tile_reads(copy->src, true);
      tile_reads(copy->dst, false);
      stored_tile(copy->dst, copy->atomic);
      if (copy->dst.buffer == copy->src.buffer)
        report(copy->src.loc, fmt::format("`{}` is copied to itself", copy->src.buffer->name),
               "copy through another tile, or write `parallel`, which reads before it writes");
    } else if (const auto* fill = std::get_if<FillStmt>(&stmt.node)) {
      reads(fill->value, {}, stmt.loc);
      tile_reads(fill->dst, false);
      stored_tile(fill->dst, AtomicOp::kNone);
    } else if (const auto* gemm = std::get_if<GemmStmt>(&stmt.node)) {
      tile_reads(gemm->a, true);
      tile_reads(gemm->b, true);
      tile_reads(gemm->c, gemm->accumulate);
      stored_tile(gemm->c, AtomicOp::kNone);
    } else if (const auto* region = std::get_if<ParallelStmt>(&stmt.node)) {
      Assigned assigned;
      for_each_stmt(region->body, [this](const Stmt& inner) {
        if (const auto* assign = std::get_if<AssignStmt>(&inner.node)) region_.push_back(assign);
      });
      this->region(region->body, assigned);
      region_.clear();
      for (const Placed& placed : assigned) write(*placed.assign->buffer, placed.assign->atomic, placed.loc);
    } else if (const auto* loop = std::get_if<ForStmt>(&stmt.node)) {
      reads(loop->begin, {}, stmt.loc);
      reads(loop->end, {}, stmt.loc);
      block(loop->body);
    } else if (const auto* branch = std::get_if<IfStmt>(&stmt.node)) {
      reads(branch->condition, {}, stmt.loc);
      block(branch->then_body);
      block(branch->else_body);
    }
  }

  Diagnostics& out_;
  PolyContext polys_;
  std::unordered_set<const Buffer*> written_;
  std::vector<const AssignStmt*> region_;  // of the region that is looked at
};

}  // namespace

void check_access(const Kernel& kernel, Diagnostics& out) {
  Access(out).block(kernel.body);
}

}  // namespace kachel::ir
