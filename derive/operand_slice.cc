#include "derive/operand_slice.h"

#include <algorithm>
#include <optional>
#include <set>

#include "derive/coordinates.h"
#include "derive/uses.h"
#include "ir/print.h"
#include "ir/query.h"
#include "ir/visit.h"

namespace kachel::derive {
namespace {

using namespace ir;

bool contains(const std::vector<size_t>& list, size_t value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

constexpr size_t kMostOperands = 64;  // that are looked at

// A copy or fill of parts of tiles makes values depend on where the parts lie.
bool is_plain(const Stmt& stmt) {
  if (const auto* copy = std::get_if<CopyStmt>(&stmt.node))
    return copy->atomic == AtomicOp::kNone && is_whole(copy->dst) &&
           (copy->src.buffer->scope == Scope::kGlobal || is_whole(copy->src));
  if (const auto* fill = std::get_if<FillStmt>(&stmt.node)) return is_whole(fill->dst);
  return std::holds_alternative<LetStmt>(stmt.node) || std::holds_alternative<ParallelStmt>(stmt.node);
}

class Slicer {
 public:
  Slicer(const Kernel& kernel, const std::string& fresh, KnownUses& uses, BufferRef tile)
      : kernel_(kernel), fresh_(fresh), uses_(uses) {
    slice_.tile = std::move(tile);
  }

  std::optional<OperandSlice> run() {
    if (!find_home() || !gather() || !stands_alone()) return {};
    statements_ = slice_.statements_of(kernel_);
    const auto works = std::count_if(statements_.begin(), statements_.end(),
                                     [](const Stmt* stmt) { return !std::holds_alternative<LetStmt>(stmt->node); });
    const auto* copy = std::get_if<CopyStmt>(&statements_.back()->node);
    slice_.computed = works > 1 || !copy || copy->src.axes.back().kind == AxisSpec::Kind::kIndex;
    if (!slice_.computed && slice_.loops.empty()) return {};  // each block copies it once
    if (!place()) return {};
    slice_.k_down = slice_.tf32 = slice_.tile->shape.size() == 2;
    note_readers(kernel_.body);
    return std::move(slice_);
  }

 private:
  const Uses& uses_of(const Stmt& stmt) const { return uses_.of(stmt); }
  const Block& block_of(size_t level) const { return slice_.block_of(kernel_, level); }

  // The one block whose own statements write the tile, within the loops that it stands in.
  bool find_home() {
    for (const Block* block = &kernel_.body;;) {
      std::optional<size_t> loop;
      int homes = 0;
      bool directly = false;
      for (size_t i = 0; i < block->size(); ++i) {
        const Stmt& stmt = (*block)[i];
        if (!uses_of(stmt).written.count(slice_.tile.get())) continue;
        const bool in_loop = std::holds_alternative<ForStmt>(stmt.node);
        if (in_loop) loop = i;
        homes += in_loop || !directly;
        directly |= !in_loop;
      }
      if (homes != 1 || !loop) return homes == 1;
      slice_.loops.push_back(*loop);
      block = &std::get<ForStmt>((*block)[*loop].node).body;
    }
  }

  // From the last statement that writes the tile back to tensors: first within its block, then in front of each loop
  // around that.
  bool gather() {
    needed_ = {slice_.tile.get()};
    slice_.statements.resize(slice_.loops.size() + 1);
    for (size_t level = slice_.statements.size(); level-- > 0;) {
      const Block& block = block_of(level);
      size_t end = 0;
      if (level < slice_.loops.size()) {
        end = slice_.loops[level];
      } else {
        for (size_t i = 0; i < block.size(); ++i)
          if (uses_of(block[i]).written.count(slice_.tile.get())) end = i + 1;
        if (end == 0) return false;
      }
      // What a loop defines anew in each iteration is not needed from outside.
      std::set<const Buffer*> made;
      if (!collect(block, end, slice_.statements[level]) ||
          !starts_defined(block, slice_.statements[level], level > 0 ? &made : nullptr))
        return false;
      for (const Buffer* tile : made) needed_.erase(tile);
    }
    return true;
  }

  bool collect(const Block& block, size_t end, std::vector<size_t>& out) {
    for (size_t i = end; i-- > 0;) {
      const Stmt& stmt = block[i];
      if (std::holds_alternative<DeclStmt>(stmt.node)) continue;
      const Uses& uses = uses_of(stmt);
      const auto* let = std::get_if<LetStmt>(&stmt.node);
      const bool writes = std::any_of(uses.written.begin(), uses.written.end(),
                                      [&](const Buffer* buffer) { return needed_.count(buffer) > 0; });
      if (!writes && !(let && vars_.count(let->var.get()))) continue;
      if (!is_plain(stmt)) return false;
      for (const Buffer* buffer : uses.written) needed_.insert(buffer);
      for (const Buffer* buffer : uses.read)
        if (buffer->scope != Scope::kGlobal) needed_.insert(buffer);
      vars_.insert(uses.vars.begin(), uses.vars.end());
      out.insert(out.begin(), i);
    }
    return true;
  }

  // Whether every needed tile that these statements write is defined by the first of them that touches it. Those go to
  // `made`; without it there must be no other.
  bool starts_defined(const Block& block, const std::vector<size_t>& statements, std::set<const Buffer*>* made) const {
    for (const Buffer* tile : needed_) {
      const Stmt* first = nullptr;
      bool written = false;
      for (size_t at : statements) {
        const Uses& uses = uses_of(block[at]);
        written |= uses.written.count(tile) > 0;
        if (!first && (uses.written.count(tile) || uses.read.count(tile))) first = &block[at];
      }
      if (written ? !defines(*first, uses_of(*first), *tile) : !made) return false;
      if (written && made) made->insert(tile);
    }
    return true;
  }

  // Nothing else writes the tiles of the slice, the operand itself and what is written with it serve only what comes
  // behind, or nothing, and tensors are inputs.
  bool stands_alone() {
    std::set<const Buffer*> own, beside;  // written; by the statements that write the operand
    for (const Stmt* stmt : slice_.statements_of(kernel_)) {
      const Uses& uses = uses_of(*stmt);
      own.insert(uses.written.begin(), uses.written.end());
      if (uses.written.count(slice_.tile.get())) beside.insert(uses.written.begin(), uses.written.end());
      for (const auto* set : {&uses.read, &uses.written})
        for (const Buffer* buffer : *set)
          if (buffer->scope == Scope::kGlobal) tensors_.insert(buffer);
    }
    auto touches = [&](const Stmt& stmt, bool after) {
      if (std::holds_alternative<DeclStmt>(stmt.node)) return false;
      const Uses& uses = uses_of(stmt);
      return std::any_of(own.begin(), own.end(), [&](const Buffer* tile) {
        const bool is_free = tile == slice_.tile.get() ? after : !beside.count(tile);
        return uses.written.count(tile) > 0 || (!is_free && uses.read.count(tile) > 0);
      });
    };
    for (size_t level = 0; level < slice_.statements.size(); ++level) {
      const Block& block = block_of(level);
      const std::vector<size_t>& statements = slice_.statements[level];
      const bool around = level < slice_.loops.size();
      for (size_t i = 0; i < block.size(); ++i) {
        if ((around && i == slice_.loops[level]) || contains(statements, i)) continue;
        if (touches(block[i], !around && i > statements.back())) return false;
      }
    }
    for (const Stmt& stmt : kernel_.body)
      if (const auto* decl = std::get_if<DeclStmt>(&stmt.node); decl && own.count(decl->buffer.get()) && decl->init)
        return false;
    for (const Param& param : kernel_.params) {
      if (!param.tensor || !tensors_.count(param.tensor.get())) continue;
      if (param.tensor->direction != Direction::kIn) return false;
      slice_.tensors.push_back(param.tensor);
    }
    return !slice_.tensors.empty();
  }

  void note_readers(const Block& block) {
    for (const Stmt& stmt : block) {
      if (std::count(statements_.begin(), statements_.end(), &stmt) || !uses_of(stmt).read.count(slice_.tile.get()))
        continue;
      for_each_expr(stmt, [this](const ExprRef& expr) {  // conditions, bounds, places
        visit(expr, [this](const ExprRef& node) {
          slice_.k_down &= node->kind != ExprKind::kLoad || node->buffer != slice_.tile;
        });
      });
      if (const auto* loop = std::get_if<ForStmt>(&stmt.node)) {
        note_readers(loop->body);
      } else if (const auto* branch = std::get_if<IfStmt>(&stmt.node)) {
        note_readers(branch->then_body);
        note_readers(branch->else_body);
      } else if (const auto* gemm = std::get_if<GemmStmt>(&stmt.node)) {
        const auto along = [&](const TileRef& operand, bool transposed) {
          return operand.buffer == slice_.tile && (!transposed || !is_whole(operand));
        };
        slice_.k_down &= !along(gemm->a, gemm->transpose_a) && !along(gemm->b, !gemm->transpose_b);
        slice_.tf32 &= gemm->precision == Precision::kTf32;
      } else {
        slice_.k_down = false;
      }
    }
  }

  // Which variables count the tiles of which axes, and that nothing else depends on how the tensor is cut.
  bool place() {
    std::vector<IterVar> vars;
    Lets lets(kernel_, statements_);
    size_t axes_used = 0;
    for (const IterVar& axis : kernel_.grid)
      if (vars_.count(axis.var.get())) axes_used += count_by(axis, lets, vars);
    if (axes_used == kernel_.grid.size()) return false;  // every block has its own
    for (size_t level = 0; level < slice_.loops.size(); ++level) {
      const auto& loop = std::get<ForStmt>(block_of(level)[slice_.loops[level]].node);
      if (!vars_.count(loop.var.get())) continue;
      if (!is_natural(lets.expanded(loop.begin))) return false;
      count_by({loop.var, loop.end}, lets, vars);
    }
    Coordinates coordinates(kernel_, statements_, slice_.digits, slice_.tile);
    for (size_t axis = 0; axis < slice_.tile->shape.size(); ++axis) {
      slice_.axes.push_back({nullptr, slice_.tile->shape[axis]});
      for (size_t i = 0; i < vars.size(); ++i) {
        const ExprRef all = coordinates.covered(vars[i].extent, slice_.tile->shape[axis]);
        if (!all || !coordinates.counts_tiles(vars[i].var, axis)) continue;
        slice_.axes.back() = {vars[i].var, all};
        coordinates.bind(vars[i].var, axis);
        vars.erase(vars.begin() + static_cast<int64_t>(i));
        break;
      }
    }
    slice_.free = std::move(vars);
    if (slice_.free.size() + slice_.axes.size() > 5) return false;
    for (const IterVar& var : slice_.free)
      if (!coordinates.is_host_value(var.extent)) return false;
    for (const OperandSlice::Axis& axis : slice_.axes)
      if (!coordinates.is_host_value(axis.all)) return false;
    if (!coordinates.independent_of_tiles()) return false;
    for (size_t axis = 0; axis < slice_.axes.size(); ++axis) slice_.axes[axis].multiple = coordinates.multiple_of(axis);
    return true;
  }

  // Adds a counter to `vars`, or the digits of it that the slice depends on. Whether these are all of it.
  bool count_by(const IterVar& counter, Lets& lets, std::vector<IterVar>& vars) {
    const auto digits = digits_of(counter, statements_, lets, fresh_ + counter.var->name);
    if (!digits) {
      vars.push_back(counter);
      return true;
    }
    for (const IterVar& digit : {digits->quotient, digits->remainder})
      if (digit.var) vars.push_back(digit);
    slice_.digits.push_back(*digits);
    return digits->quotient.var && digits->remainder.var;
  }

  const Kernel& kernel_;
  const std::string& fresh_;  // what names may begin with
  KnownUses& uses_;
  OperandSlice slice_;
  std::set<const Buffer*> needed_, tensors_;
  std::set<const Var*> vars_;
  std::vector<const Stmt*> statements_;
};

bool may_be_prepared(const Buffer& tile) {
  if (tile.type.accumulator) return false;
  const std::vector<DType> types = tile.type.symbol ? tile.type.symbol->options : std::vector<DType>{tile.type.dtype};
  return std::all_of(types.begin(), types.end(), [](DType type) { return bits(type) >= 8; });
}

// Which operands regions make of a tile, and whether anything else reads it, or one of them is not `made` ahead.
struct Fed {
  std::vector<const Buffer*> operands;
  bool stays = false;
};
void note_fed(const Block& block, const Buffer& tile, const std::set<const Buffer*>& operands,
              const std::set<const Buffer*>& made, KnownUses& uses, Fed* fed) {
  for (const Stmt& stmt : block) {
    if (!uses.of(stmt).read.count(&tile)) continue;
    if (const auto* loop = std::get_if<ForStmt>(&stmt.node)) {
      note_fed(loop->body, tile, operands, made, uses, fed);
      continue;
    }
    const Buffer* operand = nullptr;
    if (std::holds_alternative<ParallelStmt>(stmt.node))
      for (const Buffer* written : uses.of(stmt).written)
        if (operands.count(written)) operand = written;
    if (operand) fed->operands.push_back(operand);
    fed->stays |= !operand || !made.count(operand);
  }
}

}  // namespace

std::vector<OperandSlice> operand_slices(const Kernel& kernel) {
  std::vector<OperandSlice> slices;
  KnownUses uses;
  std::string fresh;
  for (const std::string text = print(kernel); text.find(fresh + "part_") != text.npos;) fresh += "part_";
  std::set<const Buffer*> seen, made;
  const auto slice_of = [&](const BufferRef& tile) -> std::optional<OperandSlice> {
    if (seen.size() == kMostOperands || !seen.insert(tile.get()).second || !may_be_prepared(*tile)) return {};
    return Slicer(kernel, fresh, uses, tile).run();
  };
  for_each_stmt(kernel.body, [&](const Stmt& stmt) {
    const auto* gemm = std::get_if<GemmStmt>(&stmt.node);
    if (!gemm) return;
    for (const TileRef* operand : {&gemm->a, &gemm->b})
      if (auto slice = slice_of(operand->buffer)) {
        made.insert(slice->tile.get());
        slices.push_back(*std::move(slice));
      }
  });
  const std::set<const Buffer*> operands = seen;
  for_each_stmt(kernel.body, [&](const Stmt& stmt) {
    const auto* copy = std::get_if<CopyStmt>(&stmt.node);
    if (!copy || copy->dst.buffer->scope == Scope::kGlobal) return;
    Fed fed;
    note_fed(kernel.body, *copy->dst.buffer, operands, made, uses, &fed);
    if (fed.operands.empty() || !fed.stays) return;
    auto slice = slice_of(copy->dst.buffer);
    if (!slice || slice->computed) return;
    slice->fed = std::move(fed.operands);
    slices.push_back(*std::move(slice));
  });
  return slices;
}

}  // namespace kachel::derive
