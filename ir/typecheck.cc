#include "ir/typecheck.h"
#include "ir/verify_rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/typer.h"

namespace kachel::ir {
namespace {

class KernelTyper {
 public:
  KernelTyper(const Kernel& kernel, const TypeAssignment& types, std::vector<Diagnostic>& diagnostics)
      : kernel_(kernel), typer_(types, diagnostics) {}

  Kernel run();

 private:
  void header(Kernel& out);
  Block block(const Block& body);
  void statement(const Stmt& stmt, Block& out);
  TileRef tile(const TileRef& ref);
  DeclStmt typed(const DeclStmt& stmt);
  LetStmt typed(const LetStmt& stmt);
  CopyStmt typed(const CopyStmt& stmt);
  FillStmt typed(const FillStmt& stmt);
  GemmStmt typed(const GemmStmt& stmt);
  ParallelStmt typed(const ParallelStmt& stmt);
  AssignStmt typed(const AssignStmt& stmt);
  ForStmt typed(const ForStmt& stmt);
  IfStmt typed(const IfStmt& stmt);
  void check_atomic(AtomicOp op, const Buffer& to);

  const Kernel& kernel_;
  Typer typer_;
  Loc loc_;  // of the statement in hand
};

std::string_view spelling(AtomicOp op) {
  return op == AtomicOp::kAdd ? "+=" : op == AtomicOp::kMax ? "max" : "min";
}

bool atomic_supported(AtomicOp op, DType type) {
  switch (type) {
    case DType::F32:
    case DType::I32:
    case DType::U32:
    case DType::I64:
    case DType::U64:
      return true;
    case DType::F16:
    case DType::BF16:
      return op == AtomicOp::kAdd;
    default:
      return false;
  }
}

// Scalars and consts live in their compute type; a narrow one would lose what the caller gave.
bool is_scalar_type(DType type) {
  return compute_type(type) == type;
}

Kernel KernelTyper::run() {
  Kernel out;
  out.name = kernel_.name;
  out.loc = kernel_.loc;
  header(out);
  out.body = block(kernel_.body);
  return out;
}

void KernelTyper::header(Kernel& out) {
  for (const VarRef& var : kernel_.dims) out.dims.push_back(typer_.declare(var, DType::I64));
  for (const VarRef& var : kernel_.consts)
    out.consts.push_back(typer_.declare(var, compute_type(typer_.resolve(var->type))));
  for (const Tunable& tunable : kernel_.tunables)
    out.tunables.push_back({typer_.declare(tunable.var, DType::I64), tunable.values, tunable.automatic});
  for (const Param& param : kernel_.params) {
    if (param.tensor) {
      out.params.push_back({typer_.declare(param.tensor), nullptr, false, param.one_axis});
      continue;
    }
    DType type = typer_.resolve(param.scalar->type);
    if (param.scalar->type.symbol && !is_scalar_type(type))
      typer_.report(param.scalar->loc, fmt::format("the scalar `{}` cannot be {}", param.scalar->name, name(type)),
                    "make it f32 and convert it in the kernel");
    out.params.push_back({nullptr, typer_.declare(param.scalar, compute_type(type)), param.divides});
  }
  for (const ExprRef& expr : kernel_.where) out.where.push_back(typer_.condition(expr));
  typer_.allow_bucket(true);
  for (const ExprRef& expr : kernel_.key) out.key.push_back(typer_.type(expr));
  typer_.allow_bucket(false);
  std::vector<ExprRef> extents;  // an extent cannot name a grid axis
  for (const IterVar& axis : kernel_.grid) extents.push_back(typer_.index(axis.extent));
  for (size_t i = 0; i < extents.size(); ++i)
    out.grid.push_back({typer_.declare(kernel_.grid[i].var, DType::I64), extents[i]});
}

Block KernelTyper::block(const Block& body) {
  Block out;
  out.reserve(body.size());
  for (const Stmt& stmt : body) statement(stmt, out);
  return out;
}

void KernelTyper::statement(const Stmt& stmt, Block& out) {
  Loc outer = loc_;
  loc_ = stmt.loc;
  std::visit([&](const auto& node) { out.push_back({stmt.loc, typed(node)}); }, stmt.node);
  loc_ = outer;
}

TileRef KernelTyper::tile(const TileRef& ref) {
  TileRef out;
  out.buffer = typer_.find(ref.buffer);
  out.loc = ref.loc;
  for (const AxisSpec& axis : ref.axes) {
    AxisSpec copy;
    copy.kind = axis.kind;
    if (axis.start) copy.start = typer_.index(axis.start);
    if (axis.extent) copy.extent = typer_.index(axis.extent);
    if (axis.gather) {
      copy.gather = std::make_shared<TileRef>(tile(*axis.gather));
      DType type = copy.gather->buffer->type.dtype;
      if (!is_integer(type))
        typer_.report(axis.gather->loc,
                      fmt::format("`{}` selects elements, so it must hold integers, not {}", axis.gather->buffer->name,
                                  name(type)),
                      "use an i32 or i64 buffer of indices");
    }
    out.axes.push_back(std::move(copy));
  }
  if (ref.within_first) out.within_first = typer_.index(ref.within_first);
  if (ref.within_length) out.within_length = typer_.index(ref.within_length);
  if (ref.pad) out.pad = typer_.stored(ref.pad, out.buffer->type.dtype);
  return out;
}

DeclStmt KernelTyper::typed(const DeclStmt& stmt) {
  BufferRef buffer = typer_.declare(stmt.buffer);
  return {buffer, stmt.init ? typer_.stored(stmt.init, buffer->type.dtype) : nullptr};
}

LetStmt KernelTyper::typed(const LetStmt& stmt) {
  ExprRef value = typer_.type(stmt.value);
  return {typer_.declare(stmt.var, value->type), value};
}

void KernelTyper::check_atomic(AtomicOp op, const Buffer& to) {
  const DType type = to.type.dtype;
  const bool tile = to.scope != Scope::kGlobal;
  if (op == AtomicOp::kNone || (atomic_supported(op, type) && !(tile && bits(type) < 32))) return;
  const char* kind = tile ? "tile" : "tensor";
  typer_.report(loc_, fmt::format("there is no `atomic {}` on {}{}", spelling(op), tile ? "tiles of " : "", name(type)),
                is_float(type) ? fmt::format("accumulate in an f32 {}", kind)
                               : fmt::format("use an i32, u32, i64 or u64 {}", kind));
}

CopyStmt KernelTyper::typed(const CopyStmt& stmt) {
  CopyStmt out{tile(stmt.dst), tile(stmt.src), stmt.atomic};
  check_atomic(stmt.atomic, *out.dst.buffer);
  return out;
}

FillStmt KernelTyper::typed(const FillStmt& stmt) {
  TileRef dst = tile(stmt.dst);
  DType type = dst.buffer->type.dtype;
  return {std::move(dst), typer_.stored(stmt.value, type)};
}

bool takes(Precision precision, DType operand) {
  return precision == Precision::kTf32 ? operand == DType::F32 : is_float8(operand);
}

GemmStmt KernelTyper::typed(const GemmStmt& stmt) {
  GemmStmt out = stmt;
  out.c = tile(stmt.c);
  out.a = tile(stmt.a);
  out.b = tile(stmt.b);
  DType a = out.a.buffer->type.dtype, b = out.b.buffer->type.dtype, c = out.c.buffer->type.dtype;
  const std::string& c_name = stmt.c.buffer->name;
  if (a == DType::Bool || b == DType::Bool) {
    typer_.report(loc_, "a gemm needs numbers, an operand is bool", "copy it to an i8 tile first");
  } else if (is_float(a) != is_float(b)) {
    typer_.report(loc_, fmt::format("a gemm cannot mix {} and {}", name(a), name(b)),
                  "declare one operand's tile with the other's type: a copy from a tensor converts");
  } else if (is_float(a) && c != DType::F32) {
    typer_.report(loc_, fmt::format("a gemm of {} accumulates in f32, `{}` is {}", name(a), c_name, name(c)),
                  fmt::format("declare `{}` as f32 and copy it to a {} tile afterwards", c_name, name(c)));
  } else if (!is_float(a) && c != DType::I32 && c != DType::I64) {
    typer_.report(loc_, fmt::format("a gemm of {} accumulates in i32 or i64, `{}` is {}", name(a), c_name, name(c)),
                  fmt::format("declare `{}` as i32 and copy it to a {} tile afterwards", c_name, name(c)));
  } else if (stmt.precision != Precision::kDefault && !(takes(stmt.precision, a) && takes(stmt.precision, b))) {
    // A type symbol that may be of such a type has it for that case.
    auto never = [&](const TileRef& ref) {
      const std::vector<DType> types = possible_types(ref.buffer->type);
      return std::none_of(types.begin(), types.end(), [&](DType type) { return takes(stmt.precision, type); });
    };
    if (never(stmt.a) || never(stmt.b))
      typer_.report(loc_,
                    fmt::format("`precision {}` is for {} operands, these are {} and {}",
                                stmt.precision == Precision::kTf32 ? "tf32" : "fast",
                                stmt.precision == Precision::kTf32 ? "f32" : "8-bit float", name(a), name(b)),
                    "leave it out");
    out.precision = Precision::kDefault;
  }
  return out;
}

ParallelStmt KernelTyper::typed(const ParallelStmt& stmt) {
  ParallelStmt out;
  for (const IterVar& iter : stmt.iters) out.iters.push_back(typer_.iteration(iter));
  out.body = block(stmt.body);
  return out;
}

AssignStmt KernelTyper::typed(const AssignStmt& stmt) {
  AssignStmt out;
  out.buffer = typer_.find(stmt.buffer);
  out.indices = typer_.indices(stmt.indices);
  out.atomic = stmt.atomic;
  DType type = out.buffer->type.dtype;
  check_atomic(stmt.atomic, *out.buffer);
  if (bits(type) == 4 && out.buffer->scope == Scope::kGlobal && stmt.atomic == AtomicOp::kNone)
    typer_.report(loc_,
                  fmt::format("elements of `{}` cannot be written one by one, two {} share a byte", stmt.buffer->name,
                              name(type)),
                  "write them to a tile and copy it");
  ExprRef value = typer_.type(stmt.value);
  if (stmt.atomic != AtomicOp::kNone) {
    out.op = stmt.op;
  } else if (stmt.op != AssignOp::kSet) {
    static constexpr Op kOps[] = {Op::kAdd, Op::kAdd, Op::kSub, Op::kMul, Op::kDiv};
    ExprRef old = make_load(out.buffer, out.indices, loc_);
    value = typer_.arithmetic(kOps[static_cast<int>(stmt.op)], old, value, loc_);
  }
  out.value = typer_.stored_typed(value, type);
  return out;
}

ForStmt KernelTyper::typed(const ForStmt& stmt) {
  ForStmt out;
  out.begin = stmt.begin ? typer_.index(stmt.begin) : make_int(0);
  out.end = typer_.index(stmt.end);
  out.pipelined = stmt.pipelined;
  if (stmt.stages) out.stages = typer_.index(stmt.stages);
  out.var = typer_.declare(stmt.var, DType::I64);
  out.body = block(stmt.body);
  return out;
}

IfStmt KernelTyper::typed(const IfStmt& stmt) {
  return {typer_.condition(stmt.condition), block(stmt.then_body), block(stmt.else_body)};
}

}  // namespace

Kernel type_kernel(const Kernel& kernel, const TypeAssignment& types, std::vector<Diagnostic>& diagnostics) {
  return KernelTyper(kernel, types, diagnostics).run();
}

std::vector<Diagnostic> check_types(const Kernel& kernel, const TypeAssignment& types) {
  std::vector<Diagnostic> diagnostics;
  type_kernel(kernel, types, diagnostics);
  return diagnostics;
}

}  // namespace kachel::ir
