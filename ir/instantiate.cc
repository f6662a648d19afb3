// Two passes over the kernel. type_kernel() makes types concrete, every conversion explicit and all objects new; the
// second pass, here, puts values for names, folds, drops the branches that a constant condition excludes and then
// checks what only numbers can show: extents, equal shapes, whole bytes of 4-bit types. Typing comes first so that a
// value does not change a type: a tunable is i64 even where its value would fit a narrower operand.
#include "ir/instantiate.h"

#include <fmt/format.h>

#include "ir/bound_values.h"
#include "ir/concrete.h"
#include "ir/raised.h"
#include "ir/typecheck.h"
#include "ir/verify.h"

namespace kachel::ir {
namespace {

constexpr int64_t kMaxExtent = int64_t{1} << 24;
constexpr int64_t kMaxTileElements = int64_t{1} << 28;
constexpr int64_t kMaxStages = 64;

std::string shown(const std::vector<int64_t>& extents) {
  return fmt::format("[{}]", fmt::join(extents, ", "));
}

// Divisible by two for every value of its variables.
bool is_even(const ExprRef& expr) {
  if (expr->kind == ExprKind::kInt) return expr->int_value % 2 == 0;
  if (expr->kind != ExprKind::kApply) return false;
  switch (expr->op) {
    case Op::kMul:
      return is_even(expr->args[0]) || is_even(expr->args[1]);
    case Op::kAdd:
    case Op::kSub:
      return is_even(expr->args[0]) && is_even(expr->args[1]);
    case Op::kSelect:
      return is_even(expr->args[1]) && is_even(expr->args[2]);
    case Op::kShl:
      return is_even(expr->args[0]) || (expr->args[1]->kind == ExprKind::kInt && expr->args[1]->int_value > 0);
    default:
      return false;
  }
}

class Instantiator {
 public:
  Instantiator(Kernel typed, BoundValues values) : typed_(std::move(typed)), values_(std::move(values)) {}

  Result<Kernel> run();

 private:
  void note(Loc loc, std::string message, std::string mend);

  ExprRef value(const ExprRef& expr);
  std::vector<ExprRef> values(const std::vector<ExprRef>& list);
  ExprRef extent(const ExprRef& expr, std::string_view what, Loc loc);
  BufferRef declare(const BufferRef& buffer);
  BufferRef find(const BufferRef& buffer) const;
  void block(const Block& body, Block& out);
  TileRef tile(const TileRef& ref);
  void check_same_shape(const TileRef& dst, const TileRef& src);
  void check_gemm(const GemmStmt& stmt);
  void check_whole_bytes(const TileRef& dst);

  void statement(const DeclStmt& stmt, Block& out);
  void statement(const LetStmt& stmt, Block& out);
  void statement(const CopyStmt& stmt, Block& out);
  void statement(const FillStmt& stmt, Block& out);
  void statement(const GemmStmt& stmt, Block& out);
  void statement(const ParallelStmt& stmt, Block& out);
  void statement(const AssignStmt& stmt, Block& out);
  void statement(const ForStmt& stmt, Block& out);
  void statement(const IfStmt& stmt, Block& out);

  Kernel typed_;
  BoundValues values_;  // and of `let`s that name a constant
  std::unordered_map<const Buffer*, BufferRef> buffers_;
  int64_t tile_elements_ = 0;
  Loc loc_;
  Status status_;  // the first mistake
};

void Instantiator::note(Loc loc, std::string message, std::string mend) {
  if (status_.ok()) status_ = cannot_instantiate(typed_, loc, message, mend);
}

ExprRef Instantiator::value(const ExprRef& expr) {
  if (!expr) return expr;
  ExprRef replaced = rewrite(expr, [this](const ExprRef& node) -> ExprRef {
    if (node->kind == ExprKind::kVar) {
      auto found = values_.find(node->var.get());
      return found != values_.end() ? found->second : node;
    }
    if (node->kind == ExprKind::kLoad) return make_load(find(node->buffer), node->args, node->loc);
    if (is_reduction(*node))
      for (const IterVar& iter : node->iters) extent(iter.extent, "a reduction", node->loc);
    return node;
  });
  return fold(replaced);
}

std::vector<ExprRef> Instantiator::values(const std::vector<ExprRef>& list) {
  std::vector<ExprRef> result;
  result.reserve(list.size());
  for (const ExprRef& expr : list) result.push_back(value(expr));
  return result;
}

ExprRef Instantiator::extent(const ExprRef& expr, std::string_view what, Loc loc) {
  ExprRef result = value(expr);
  if (result->kind != ExprKind::kInt)
    note(loc, fmt::format("the extent of {} is not known when the kernel is compiled", what),
         "build extents from integers, tunables, consts and dimensions");
  else if (result->int_value < 1 || result->int_value > kMaxExtent)
    note(loc, fmt::format("the extent of {} is {}", what, result->int_value), "extents are 1 to 16777216");
  return result;
}

BufferRef Instantiator::declare(const BufferRef& buffer) {
  auto fresh = std::make_shared<Buffer>(*buffer);
  fresh->shape = values(buffer->shape);
  buffers_[buffer.get()] = fresh;
  return fresh;
}

BufferRef Instantiator::find(const BufferRef& buffer) const {
  auto found = buffers_.find(buffer.get());
  return found != buffers_.end() ? found->second : buffer;
}

void Instantiator::block(const Block& body, Block& out) {
  for (const Stmt& stmt : body) {
    loc_ = stmt.loc;
    size_t first = out.size();
    std::visit([&](const auto& node) { statement(node, out); }, stmt.node);
    for (size_t i = first; i < out.size(); ++i)
      if (out[i].loc.line == 0) out[i].loc = stmt.loc;
  }
}

TileRef Instantiator::tile(const TileRef& ref) {
  TileRef out;
  out.buffer = find(ref.buffer);
  out.loc = ref.loc;
  for (const AxisSpec& axis : ref.axes) {
    AxisSpec copy;
    copy.kind = axis.kind;
    copy.start = value(axis.start);
    copy.extent = value(axis.extent);
    if (axis.gather) copy.gather = std::make_shared<TileRef>(tile(*axis.gather));
    out.axes.push_back(std::move(copy));
  }
  for (size_t i = 0; i < out.axes.size(); ++i)
    if (is_tile_axis(out.axes[i]))
      extent(axis_extent(out, i), fmt::format("axis {} of `{}`", i, out.buffer->name), ref.loc);
  out.within_first = value(ref.within_first);
  out.within_length = value(ref.within_length);
  out.pad = value(ref.pad);
  if (out.pad && !is_const(out.pad))
    note(ref.loc, fmt::format("the padding of `{}` is not known when the kernel is compiled", out.buffer->name),
         "build it from constants, consts and tunables");
  return out;
}

void Instantiator::check_same_shape(const TileRef& dst, const TileRef& src) {
  if (!status_.ok()) return;
  std::vector<int64_t> to = tile_extents(dst), from = tile_extents(src);
  if (to != from)
    note(loc_,
         fmt::format("`{}` is {}, the source `{}` is {}", dst.buffer->name, shown(to), src.buffer->name, shown(from)),
         "make the extents equal for every configuration, or exclude this one with `where`");
}

void Instantiator::check_gemm(const GemmStmt& stmt) {
  if (!status_.ok()) return;
  std::vector<int64_t> c = tile_extents(stmt.c), a = tile_extents(stmt.a), b = tile_extents(stmt.b);
  if (c.size() != 2 || a.size() != 2 || b.size() != 2) {
    note(loc_, fmt::format("a gemm needs tiles of rank 2, these are {} += {} @ {}", shown(c), shown(a), shown(b)),
         "slice or declare them with two axes");
    return;
  }
  if (stmt.transpose_a) std::swap(a[0], a[1]);
  if (stmt.transpose_b) std::swap(b[0], b[1]);
  if (c[0] != a[0] || c[1] != b[1] || a[1] != b[0])
    note(loc_, fmt::format("the gemm is {} += {} @ {}", shown(c), shown(a), shown(b)),
         "it needs [M, N] += [M, K] @ [K, N]; transpose an operand with ^T or exclude this configuration with `where`");
}

void Instantiator::check_whole_bytes(const TileRef& dst) {
  if (bits(dst.buffer->type.dtype) != 4 || dst.buffer->scope != Scope::kGlobal) return;
  const AxisSpec& last = dst.axes.back();
  if (last.kind == AxisSpec::Kind::kWhole) return;
  if (last.kind == AxisSpec::Kind::kRange && is_even(last.start) && is_even(last.extent)) return;
  note(loc_, fmt::format("the last axis of `{}` may begin or end within a byte", dst.buffer->name),
       "two 4-bit elements share one: write `a +: n` with even a and n, or `:`");
}

void Instantiator::statement(const DeclStmt& stmt, Block& out) {
  BufferRef buffer = declare(stmt.buffer);
  int64_t elements = 1;
  for (const ExprRef& axis : buffer->shape) {
    extent(axis, fmt::format("`{}`", buffer->name), buffer->loc);
    if (!status_.ok()) return;
    elements *= axis->int_value;
    if (elements > kMaxTileElements) break;
  }
  tile_elements_ += elements;
  if (tile_elements_ > kMaxTileElements)
    note(buffer->loc, fmt::format("the tiles up to `{}` have more than 2^28 elements", buffer->name),
         "make tiles smaller");
  out.push_back({loc_, DeclStmt{buffer, value(stmt.init)}});
}

void Instantiator::statement(const LetStmt& stmt, Block& out) {
  ExprRef bound = value(stmt.value);
  if (is_const(bound))
    values_[stmt.var.get()] = bound;  // a name for a constant is that constant
  else
    out.push_back({loc_, LetStmt{stmt.var, bound}});
}

void Instantiator::statement(const CopyStmt& stmt, Block& out) {
  CopyStmt copy{tile(stmt.dst), tile(stmt.src), stmt.atomic};
  check_same_shape(copy.dst, copy.src);
  check_whole_bytes(copy.dst);
  out.push_back({loc_, std::move(copy)});
}

void Instantiator::statement(const FillStmt& stmt, Block& out) {
  FillStmt copy{tile(stmt.dst), value(stmt.value)};
  check_whole_bytes(copy.dst);
  out.push_back({loc_, std::move(copy)});
}

void Instantiator::statement(const GemmStmt& stmt, Block& out) {
  GemmStmt copy = stmt;
  copy.c = tile(stmt.c);
  copy.a = tile(stmt.a);
  copy.b = tile(stmt.b);
  check_gemm(copy);
  out.push_back({loc_, std::move(copy)});
}

void Instantiator::statement(const ParallelStmt& stmt, Block& out) {
  ParallelStmt copy;
  Loc loc = loc_;
  int64_t iterations = 1;
  for (const IterVar& iter : stmt.iters) {
    copy.iters.push_back({iter.var, extent(iter.extent, fmt::format("`{}`", iter.var->name), loc)});
    if (!status_.ok()) return;
    iterations *= copy.iters.back().extent->int_value;
    if (iterations > kMaxTileElements) {
      note(loc, "the region has more than 2^28 iterations", "make it smaller");
      return;
    }
  }
  block(stmt.body, copy.body);
  out.push_back({loc, std::move(copy)});
}

void Instantiator::statement(const AssignStmt& stmt, Block& out) {
  AssignStmt copy = stmt;
  copy.buffer = find(stmt.buffer);
  copy.indices = values(stmt.indices);
  copy.value = value(stmt.value);
  out.push_back({loc_, std::move(copy)});
}

void Instantiator::statement(const ForStmt& stmt, Block& out) {
  ForStmt copy;
  Loc loc = loc_;
  copy.var = stmt.var;
  copy.begin = value(stmt.begin);
  copy.end = value(stmt.end);
  copy.pipelined = stmt.pipelined;
  copy.stages = value(stmt.stages);
  if (copy.stages &&
      (copy.stages->kind != ExprKind::kInt || copy.stages->int_value < 1 || copy.stages->int_value > kMaxStages))
    note(loc, "the number of stages is not an integer from 1 to 64", "name a tunable or write a number");
  block(stmt.body, copy.body);
  out.push_back({loc, std::move(copy)});
}

void Instantiator::statement(const IfStmt& stmt, Block& out) {
  ExprRef condition = value(stmt.condition);
  if (condition->kind == ExprKind::kBool) {
    block(condition->int_value != 0 ? stmt.then_body : stmt.else_body, out);
    return;
  }
  IfStmt copy{condition, {}, {}};
  Loc loc = loc_;
  block(stmt.then_body, copy.then_body);
  block(stmt.else_body, copy.else_body);
  out.push_back({loc, std::move(copy)});
}

Result<Kernel> Instantiator::run() {
  Kernel out;
  out.name = typed_.name;
  out.loc = typed_.loc;
  for (const VarRef& dim : typed_.dims)
    if (!values_.count(dim.get())) out.dims.push_back(dim);
  for (const Param& param : typed_.params)
    out.params.push_back({param.tensor ? declare(param.tensor) : nullptr, param.scalar, param.divides, param.one_axis});
  for (const ExprRef& expr : typed_.where) {
    ExprRef condition = value(expr);
    if (condition->kind != ExprKind::kBool) {
      out.where.push_back(condition);
    } else if (condition->int_value == 0) {
      std::string chosen;
      for (const Tunable& tunable : typed_.tunables)
        chosen += fmt::format("{}{} = {}", chosen.empty() ? "" : ", ", tunable.var->name,
                              values_[tunable.var.get()]->int_value);
      return cannot_instantiate(
          typed_, expr->loc,
          fmt::format("a `where` condition does not hold{}{}", chosen.empty() ? "" : " for ", chosen),
          "choose other values");
    }
  }
  out.key = values(typed_.key);
  for (const IterVar& axis : typed_.grid) out.grid.push_back({axis.var, value(axis.extent)});
  block(typed_.body, out.body);
  raise_functions(&out.body);
  if (!status_.ok()) return status_;
  return out;
}

}  // namespace

Result<Kernel> instantiate(const Kernel& kernel, const Bindings& bindings) {
  KACHEL_ASSIGN(TypeAssignment types, choose_types(kernel, bindings));
  std::vector<Diagnostic> diagnostics;
  Kernel typed = type_kernel(kernel, types, diagnostics);
  if (!diagnostics.empty()) return to_status(diagnostics, kernel.name, "");
  std::vector<VarRef> dims = static_dims(typed);
  KACHEL_ASSIGN(BoundValues values, bind_values(typed, bindings, dims));
  return Instantiator(std::move(typed), std::move(values)).run();
}

}  // namespace kachel::ir
