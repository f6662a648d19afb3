#include "derive/parts.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "ir/visit.h"

namespace kachel::derive {

using namespace ir;

namespace {

// value_of: of a variable that counts tiles or tensors.
template <class Fn>
TileRef place(const BufferRef& tensor, const OperandSlice& slice, const Fn& value_of) {
  std::vector<AxisSpec> axes;
  for (const IterVar& var : slice.free) axes.push_back({AxisSpec::Kind::kIndex, value_of(var.var), nullptr, nullptr});
  for (size_t axis : order_of(slice)) {
    const ExprRef& extent = slice.tile->shape[axis];
    const VarRef& var = slice.axes[axis].var;
    axes.push_back({AxisSpec::Kind::kRange, var ? times(value_of(var), extent) : make_int(0), extent, nullptr});
  }
  return {tensor, std::move(axes), nullptr, nullptr, nullptr, {}};
}

}  // namespace

TileRef whole(const BufferRef& tile) {
  return {tile, std::vector<AxisSpec>(tile->shape.size()), nullptr, nullptr, nullptr, {}};
}

ParallelStmt added_up(Op op, const BufferRef& to, const BufferRef& from, const std::function<VarRef()>& variable) {
  ParallelStmt region;
  std::vector<ExprRef> places;
  for (const ExprRef& extent : to->shape) {
    region.iters.push_back({variable(), extent});
    places.push_back(make_var(region.iters.back().var));
  }
  ExprRef value = make_load(from, places);
  if (op != Op::kAdd) value = make_apply(op, {make_load(to, places), value});
  const AssignOp set = op == Op::kAdd ? AssignOp::kAdd : AssignOp::kSet;
  region.body.push_back({{}, AssignStmt{to, places, set, AtomicOp::kNone, value}});
  return region;
}

CopyStmt store_of(const OperandSlice& slice, const BufferRef& tensor, const BufferRef& tile) {
  return {place(tensor, slice, [](const VarRef& var) { return make_var(var); }), whole(tile)};
}
CopyStmt load_of(const OperandSlice& slice, const BufferRef& tensor, const BufferRef& tile) {
  const auto value_of = [&](const VarRef& var) {
    for (const Digits& digits : slice.digits)
      if (var == digits.quotient.var || var == digits.remainder.var) return digits.value_of(var);
    return make_var(var);
  };
  return {whole(tile), place(tensor, slice, value_of)};
}

std::vector<size_t> order_of(const OperandSlice& slice) {
  std::vector<size_t> order(slice.axes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (slice.turned) std::swap(order[0], order[1]);
  return order;
}

BufferRef ordered_tile(const OperandSlice& slice) {
  auto tile = std::make_shared<Buffer>(*slice.tile);
  for (size_t axis = 0; const size_t from : order_of(slice)) tile->shape[axis++] = slice.tile->shape[from];
  return tile;
}

void complete(const Kernel& kernel, const std::vector<BufferRef>& tensors, Kernel* made) {
  std::set<const Var*> vars;
  std::set<const Buffer*> buffers;
  auto note = [&](const ExprRef& expr) {
    visit(expr, [&](const ExprRef& node) {
      if (node->kind == ExprKind::kVar) vars.insert(node->var.get());
      if (node->kind == ExprKind::kLoad) buffers.insert(node->buffer.get());
    });
  };
  for_each_stmt(made->body, [&](const Stmt& stmt) {
    for_each_expr(stmt, note);
    for_each_tile(stmt, [&](const TileRef& tile, bool) { buffers.insert(tile.buffer.get()); });
    for_each_extent(stmt, note);
    if (const auto* assign = std::get_if<AssignStmt>(&stmt.node)) buffers.insert(assign->buffer.get());
  });
  for (const IterVar& axis : made->grid) note(axis.extent);
  for (const BufferRef& tensor : tensors)
    for (const ExprRef& extent : tensor->shape) note(extent);
  std::set<const Param*> taken;
  std::set<const Var*> bound, computed_with;  // by the kernel's parameters
  const auto take = [&](const Param& param) {
    if (!taken.insert(&param).second || !param.tensor) return;
    for (const ExprRef& extent : param.tensor->shape) {
      note(extent);
      visit(extent, [&](const ExprRef& node) {
        if (node->kind == ExprKind::kVar) (node == extent ? bound : computed_with).insert(node->var.get());
      });
    }
  };
  for (const Param& param : kernel.params)
    if (param.tensor ? buffers.count(param.tensor.get()) : vars.count(param.scalar.get())) take(param);
  std::set<const Var*> by_tensors;
  for (const BufferRef& tensor : tensors)
    for (const ExprRef& extent : tensor->shape)
      if (extent->kind == ExprKind::kVar) by_tensors.insert(extent->var.get());
  // A dimension that nothing binds takes a tensor along that does, and so does one that is computed with before the
  // last parameters bind it.
  const auto binds = [&](const Param& param) {
    return param.tensor && param.tensor->direction == Direction::kIn &&
           std::any_of(param.tensor->shape.begin(), param.tensor->shape.end(), [&](const ExprRef& extent) {
             if (extent->kind != ExprKind::kVar || extent->var->kind != VarKind::kDim) return false;
             const Var* dim = extent->var.get();
             return vars.count(dim) && !bound.count(dim) && (!by_tensors.count(dim) || computed_with.count(dim));
           });
  };
  for (const Param& param : kernel.params)
    if (binds(param)) take(param);
  std::set<const TypeSymbol*> types;
  for (const Param& param : kernel.params) {
    if (!taken.count(&param)) continue;
    made->params.push_back(param);
    if (param.tensor) types.insert(param.tensor->type.symbol.get());
  }
  for (const BufferRef& tensor : tensors) {
    made->params.push_back({tensor, nullptr});
    types.insert(tensor->type.symbol.get());
  }
  for (const TypeSymbolRef& symbol : kernel.type_symbols)
    if (types.count(symbol.get())) made->type_symbols.push_back(symbol);
  for (const VarRef& constant : kernel.consts)
    if (vars.count(constant.get())) made->consts.push_back(constant);
  for (const VarRef& dim : kernel.dims)
    if (vars.count(dim.get())) made->dims.push_back(dim);
}

std::set<const Buffer*> written_by(const Block& block) {
  std::set<const Buffer*> written;
  for_each_stmt(block, [&](const Stmt& stmt) {
    for_each_tile(stmt, [&](const TileRef& tile, bool writes) {
      if (writes) written.insert(tile.buffer.get());
    });
    if (const auto* assign = std::get_if<AssignStmt>(&stmt.node)) written.insert(assign->buffer.get());
  });
  return written;
}

Stmt declaration(const BufferRef& buffer, Scope scope) {
  auto copy = std::make_shared<Buffer>(*buffer);
  copy->scope = scope;
  return {{}, DeclStmt{copy, nullptr}};
}

BufferRef with_direction(const BufferRef& tensor, Direction direction) {
  auto copy = std::make_shared<Buffer>(*tensor);
  copy->direction = direction;
  return copy;
}

bool is_tunable(const ExprRef& expr) {
  return expr->kind == ExprKind::kVar && expr->var->kind == VarKind::kTunable;
}
ExprRef at_least_zero(const ExprRef& extent) {
  return extent->kind == ExprKind::kVar || extent->kind == ExprKind::kInt ? extent
                                                                          : make_apply(Op::kMax, {extent, make_int(0)});
}
ExprRef times(const ExprRef& a, const ExprRef& b) {
  return make_apply(Op::kMul, {a, b});
}
ExprRef ceil_div(const ExprRef& a, const ExprRef& b) {
  return make_apply(Op::kCeilDiv, {a, b});
}

}  // namespace kachel::derive
