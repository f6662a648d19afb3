#include "ir/builder.h"

#include <algorithm>

namespace kachel::ir {
namespace {

VarRef new_var(VarKind kind, const std::string& name, TypeRef type = {DType::I64, nullptr}) {
  return std::make_shared<const Var>(Var{kind, name, std::move(type), {}});
}

std::vector<ExprRef> refs(const std::vector<Ex>& exprs) {
  std::vector<ExprRef> out;
  for (const Ex& expr : exprs) out.push_back(expr.ref());
  return out;
}

}  // namespace

Ex apply(Op op, const std::vector<Ex>& args, bool approx) {
  return make_apply(op, refs(args), {}, approx);
}

Ex operator-(const Ex& a) {
  // As the parser reads it: the sign belongs to a constant.
  const Expr& expr = *a.ref();
  if (expr.kind == ExprKind::kFloat && expr.float_value == expr.float_value) return make_float(-expr.float_value);
  if (expr.kind == ExprKind::kInt && expr.int_value > 0) return make_int(-expr.int_value);
  return apply(Op::kNeg, {a});
}
Ex operator!(const Ex& a) {
  return apply(Op::kNot, {a});
}
Ex operator~(const Ex& a) {
  return apply(Op::kBitNot, {a});
}
Ex operator+(const Ex& a, const Ex& b) {
  return apply(Op::kAdd, {a, b});
}
Ex operator-(const Ex& a, const Ex& b) {
  return apply(Op::kSub, {a, b});
}
Ex operator*(const Ex& a, const Ex& b) {
  return apply(Op::kMul, {a, b});
}
Ex operator/(const Ex& a, const Ex& b) {
  return apply(Op::kDiv, {a, b});
}
Ex operator%(const Ex& a, const Ex& b) {
  return apply(Op::kMod, {a, b});
}
Ex operator&(const Ex& a, const Ex& b) {
  return apply(Op::kBitAnd, {a, b});
}
Ex operator|(const Ex& a, const Ex& b) {
  return apply(Op::kBitOr, {a, b});
}
Ex operator^(const Ex& a, const Ex& b) {
  return apply(Op::kBitXor, {a, b});
}
Ex operator<<(const Ex& a, const Ex& b) {
  return apply(Op::kShl, {a, b});
}
Ex operator>>(const Ex& a, const Ex& b) {
  return apply(Op::kShr, {a, b});
}
Ex operator&&(const Ex& a, const Ex& b) {
  return apply(Op::kAnd, {a, b});
}
Ex operator||(const Ex& a, const Ex& b) {
  return apply(Op::kOr, {a, b});
}
Ex operator==(const Ex& a, const Ex& b) {
  return apply(Op::kEq, {a, b});
}
Ex operator!=(const Ex& a, const Ex& b) {
  return apply(Op::kNe, {a, b});
}
Ex operator<(const Ex& a, const Ex& b) {
  return apply(Op::kLt, {a, b});
}
Ex operator<=(const Ex& a, const Ex& b) {
  return apply(Op::kLe, {a, b});
}
Ex operator>(const Ex& a, const Ex& b) {
  return apply(Op::kGt, {a, b});
}
Ex operator>=(const Ex& a, const Ex& b) {
  return apply(Op::kGe, {a, b});
}
Ex min(const Ex& a, const Ex& b) {
  return apply(Op::kMin, {a, b});
}
Ex max(const Ex& a, const Ex& b) {
  return apply(Op::kMax, {a, b});
}
Ex ceildiv(const Ex& a, const Ex& b) {
  return apply(Op::kCeilDiv, {a, b});
}
Ex select(const Ex& condition, const Ex& yes, const Ex& no) {
  return apply(Op::kSelect, {condition, yes, no});
}
Ex cast(TypeRef type, const Ex& value) {
  return make_cast(std::move(type), value.ref());
}
Ex cast(DType type, const Ex& value) {
  return make_cast({type, nullptr}, value.ref());
}

Ex reduce(ReduceOp op, const Extents& extents, const std::function<Ex(const std::vector<Ex>&)>& body) {
  std::vector<IterVar> iters;
  std::vector<Ex> vars;
  for (const auto& [name, extent] : extents) {
    iters.push_back({new_var(VarKind::kReduce, name), extent.ref()});
    vars.push_back(iters.back().var);
  }
  return make_reduce(op, std::move(iters), body(vars).ref());
}

Ex sum(const std::string& name, const Ex& extent, const std::function<Ex(Ex)>& body) {
  return reduce(ReduceOp::kSum, {{name, extent}}, [&](const std::vector<Ex>& j) { return body(j[0]); });
}
Ex max(const std::string& name, const Ex& extent, const std::function<Ex(Ex)>& body) {
  return reduce(ReduceOp::kMax, {{name, extent}}, [&](const std::vector<Ex>& j) { return body(j[0]); });
}
Ex min(const std::string& name, const Ex& extent, const std::function<Ex(Ex)>& body) {
  return reduce(ReduceOp::kMin, {{name, extent}}, [&](const std::vector<Ex>& j) { return body(j[0]); });
}

Ex scan(ReduceOp op, const std::string& name, const Ex& j, const Ex& extent, bool inclusive,
        const std::function<Ex(Ex)>& body) {
  const VarRef var = new_var(VarKind::kReduce, name);
  return make_scan(op, {var, extent.ref()}, body(Ex(var)).ref(), j.ref(), inclusive);
}

Axis range(const Ex& first, const Ex& length) {
  Axis axis;
  axis.kind = AxisSpec::Kind::kRange;
  axis.start = first.ref();
  axis.extent = length.ref();
  return axis;
}

Axis whole() {
  return {};
}

Axis gather(const Tile& indices) {
  Axis axis;
  axis.kind = AxisSpec::Kind::kGather;
  axis.gather = std::make_shared<TileRef>(indices);
  return axis;
}

Tile::Tile(const Buf& buffer) : Tile(buffer.ref(), std::vector<Axis>(buffer.ref()->shape.size())) {}

Tile::Tile(BufferRef buffer, const std::vector<Axis>& axes) {
  this->buffer = std::move(buffer);
  this->axes.assign(axes.begin(), axes.end());
}

Tile Tile::within(const Ex& first, const Ex& length) const {
  Tile copy = *this;
  copy.within_first = first.ref();
  copy.within_length = length.ref();
  return copy;
}

Tile Tile::padded(const Ex& value) const {
  Tile copy = *this;
  copy.pad = value.ref();
  return copy;
}

Ex Buf::at(const std::vector<Ex>& indices) const {
  return make_load(buffer_, refs(indices));
}

KernelBuilder::KernelBuilder(std::string name) {
  kernel_.name = std::move(name);
  open_.push_back(&kernel_.body);
}

TypeRef KernelBuilder::type(const std::string& name, std::vector<DType> options) {
  auto symbol = std::make_shared<const TypeSymbol>(TypeSymbol{name, std::move(options), {}});
  kernel_.type_symbols.push_back(symbol);
  return {DType::F32, symbol};
}

Ex KernelBuilder::constant(const std::string& name, DType type) {
  kernel_.consts.push_back(new_var(VarKind::kConst, name, {type, nullptr}));
  return kernel_.consts.back();
}

Ex KernelBuilder::dim(const std::string& name) {
  dims_.push_back(new_var(VarKind::kDim, name));
  return dims_.back();
}

Ex KernelBuilder::tunable(const std::string& name, std::vector<int64_t> values) {
  kernel_.tunables.push_back({new_var(VarKind::kTunable, name), std::move(values)});
  return kernel_.tunables.back().var;
}

Ex KernelBuilder::automatic(const std::string& name) {
  kernel_.tunables.push_back({new_var(VarKind::kTunable, name), {}, true});
  return kernel_.tunables.back().var;
}

Buf KernelBuilder::tensor(const std::string& name, const AnyType& type, const std::vector<Ex>& shape,
                          Direction direction) {
  auto buffer = std::make_shared<const Buffer>(Buffer{name, Scope::kGlobal, direction, type, refs(shape), {}});
  kernel_.params.push_back({buffer, nullptr});
  return Buf(buffer);
}

Ex KernelBuilder::scalar(const std::string& name, DType type) {
  VarRef var = new_var(VarKind::kScalar, name, {type, nullptr});
  kernel_.params.push_back({nullptr, var});
  return var;
}

void KernelBuilder::where(const Ex& condition) {
  kernel_.where.push_back(condition.ref());
}
void KernelBuilder::key(const Ex& value) {
  kernel_.key.push_back(value.ref());
}

Ex KernelBuilder::grid(const std::string& name, const Ex& extent) {
  kernel_.grid.push_back({new_var(VarKind::kGrid, name), extent.ref()});
  return kernel_.grid.back().var;
}

Buf KernelBuilder::tile(Scope scope, const std::string& name, const AnyType& type, const std::vector<Ex>& shape,
                        ExprRef init) {
  auto buffer = std::make_shared<const Buffer>(Buffer{name, scope, Direction::kIn, type, refs(shape), {}});
  add({{}, DeclStmt{buffer, std::move(init)}});
  return Buf(buffer);
}

Buf KernelBuilder::shared(const std::string& name, const AnyType& type, const std::vector<Ex>& shape) {
  return tile(Scope::kShared, name, type, shape, nullptr);
}
Buf KernelBuilder::fragment(const std::string& name, const AnyType& type, const std::vector<Ex>& shape) {
  return tile(Scope::kFragment, name, type, shape, nullptr);
}
Buf KernelBuilder::fragment(const std::string& name, const AnyType& type, const std::vector<Ex>& shape,
                            const Ex& init) {
  return tile(Scope::kFragment, name, type, shape, init.ref());
}

Ex KernelBuilder::let(const std::string& name, const Ex& value) {
  VarRef var = new_var(VarKind::kLet, name, {});
  add({{}, LetStmt{var, value.ref()}});
  return var;
}

void KernelBuilder::copy(const Tile& dst, const Tile& src) {
  add({{}, CopyStmt{dst, src}});
}
void KernelBuilder::fill(const Tile& dst, const Ex& value) {
  add({{}, FillStmt{dst, value.ref()}});
}

void KernelBuilder::gemm(const Tile& c, const Tile& a, const Tile& b, const GemmOptions& options) {
  add({{}, GemmStmt{c, a, b, options.transpose_a, options.transpose_b, options.accumulate, options.precision}});
}

void KernelBuilder::assign(const Buf& buffer, const std::vector<Ex>& indices, const Ex& value, AssignOp op) {
  add({{}, AssignStmt{buffer.ref(), refs(indices), op, AtomicOp::kNone, value.ref()}});
}

void KernelBuilder::atomic(AtomicOp op, const Buf& buffer, const std::vector<Ex>& indices, const Ex& value) {
  AssignOp assign = op == AtomicOp::kAdd ? AssignOp::kAdd : AssignOp::kSet;
  add({{}, AssignStmt{buffer.ref(), refs(indices), assign, op, value.ref()}});
}

void KernelBuilder::atomic(AtomicOp op, const Tile& dst, const Tile& src) {
  add({{}, CopyStmt{dst, src, op}});
}

template <class Fn>
Block KernelBuilder::inside(const Fn& fn) {
  Block body;
  open_.push_back(&body);
  fn();
  open_.pop_back();
  return body;
}

void KernelBuilder::parallel(const Extents& extents, const std::function<void(const std::vector<Ex>&)>& body) {
  ParallelStmt stmt;
  std::vector<Ex> vars;
  for (const auto& [name, extent] : extents) {
    stmt.iters.push_back({new_var(VarKind::kParallel, name), extent.ref()});
    vars.push_back(stmt.iters.back().var);
  }
  stmt.body = inside([&] { body(vars); });
  add({{}, std::move(stmt)});
}

void KernelBuilder::parallel(const std::string& i, const Ex& ni, const std::function<void(Ex)>& body) {
  parallel({{i, ni}}, [&](const std::vector<Ex>& vars) { body(vars[0]); });
}

void KernelBuilder::parallel(const std::string& i, const Ex& ni, const std::string& j, const Ex& nj,
                             const std::function<void(Ex, Ex)>& body) {
  parallel({{i, ni}, {j, nj}}, [&](const std::vector<Ex>& vars) { body(vars[0], vars[1]); });
}

void KernelBuilder::loop(const std::string& name, const Ex& begin, const Ex& end, const std::function<void(Ex)>& body) {
  VarRef var = new_var(VarKind::kLoop, name);
  add({{}, ForStmt{var, begin.ref(), end.ref(), false, nullptr, inside([&] { body(var); })}});
}

void KernelBuilder::pipelined(const std::string& name, const Ex& begin, const Ex& end, const Ex* stages,
                              const std::function<void(Ex)>& body) {
  VarRef var = new_var(VarKind::kLoop, name);
  ExprRef depth = stages ? stages->ref() : nullptr;
  add({{}, ForStmt{var, begin.ref(), end.ref(), true, depth, inside([&] { body(var); })}});
}

void KernelBuilder::branch(const Ex& condition, const Body& yes, const Body& no) {
  IfStmt stmt{condition.ref(), inside(yes), {}};
  if (no) stmt.else_body = inside(no);
  add({{}, std::move(stmt)});
}

// Dimensions in the order in which shapes first name them, as the parser finds them.
Kernel KernelBuilder::take() {
  for (const Param& param : kernel_.params) {
    if (!param.tensor) continue;
    for (const ExprRef& extent : param.tensor->shape) {
      auto found = std::find_if(dims_.begin(), dims_.end(), [&](const VarRef& dim) {
        return extent->kind == ExprKind::kVar && extent->var == dim;
      });
      if (found == dims_.end()) continue;
      kernel_.dims.push_back(*found);
      dims_.erase(found);
    }
  }
  kernel_.dims.insert(kernel_.dims.end(), dims_.begin(), dims_.end());
  dims_.clear();
  return std::exchange(kernel_, {});
}

}  // namespace kachel::ir
