// Scalar expressions, shared by tile IR and loop IR. Immutable and shared; build them with the make_* functions.
//
// A parsed expression is untyped where type symbols occur; after instantiate() (ir/instantiate.h) every node has its
// compute type (F32 I32 U32 I64 U64 Bool), operands agree with their operation and all conversions are explicit Casts.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ir/diagnostic.h"
#include "ir/dtype.h"

namespace kachel::ir {

struct TypeSymbol {
  std::string name;
  std::vector<DType> options;  // not empty
  Loc loc;
};
using TypeSymbolRef = std::shared_ptr<const TypeSymbol>;

// A concrete type, or a type symbol until instantiation.
struct TypeRef {
  DType dtype = DType::F32;
  TypeSymbolRef symbol;      // null when concrete
  bool accumulator = false;  // acc(T): accumulator_type() of the symbol's type; tiles only
  bool operator==(const TypeRef&) const = default;
};

enum class VarKind : uint8_t {
  kDim,       // bound by a tensor's shape; I64, >= 0
  kScalar,    // run-time scalar parameter
  kConst,     // `const` parameter, given by the caller, compile-time
  kTunable,   // I64, compile-time, chosen by the tuner
  kGrid,      // block index of a grid axis; I64
  kLoop,      // `for` and `pipelined`; I64
  kParallel,  // index of a parallel region; I64
  kReduce,    // index of a reduction; I64
  kLet,       // named value
  kThread,    // loop IR only: thread index within the block
};

// Identity is the address: two Vars of one name are two variables.
struct Var {
  VarKind kind;
  std::string name;
  TypeRef type;
  Loc loc;
};
using VarRef = std::shared_ptr<const Var>;

enum class Scope : uint8_t {
  kGlobal,    // a tensor parameter
  kShared,    // tile level: `shared`; loop level: memory of the block
  kFragment,  // tile level only
  kRegister,  // loop level only: an array of the thread
};
enum class Direction : uint8_t { kIn, kOut, kInOut };

struct Expr;
using ExprRef = std::shared_ptr<const Expr>;

// A tensor parameter or a tile. Identity is the address.
struct Buffer {
  std::string name;
  Scope scope = Scope::kGlobal;
  Direction direction = Direction::kIn;  // kGlobal only
  TypeRef type;
  std::vector<ExprRef> shape;  // rank 1..5; tiles: compile-time; loop level: one flat extent, in elements
  Loc loc;
  std::shared_ptr<const Buffer> packed;  // made by lowering: the tensor of 4-bit elements whose bytes, as u8, this is
  bool transposed = false;  // made by lowering: the last two axes are exchanged with those of the parameter
  bool as_one = false;      // made by lowering: the last axis holds the parameter's last two, the one before is of one
  bool parted = false;      // made by lowering: sums of products, of which each warp may hold a part
};
using BufferRef = std::shared_ptr<const Buffer>;

// Operations of Apply nodes. The table in expr.cc holds the spelling, arity and class of each.
enum class Op : uint8_t {
  // unary operators
  kNeg,
  kNot,
  kBitNot,
  // binary operators
  kAdd,
  kSub,
  kMul,
  kDiv,
  kMod,
  kBitAnd,
  kBitOr,
  kBitXor,
  kShl,
  kShr,
  kAnd,
  kOr,
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  // c ? a : b, also spelt select(c, a, b)
  kSelect,
  // functions of numbers
  kMin,
  kMax,
  kAbs,
  kClamp,
  kCeilDiv,
  kFma,
  kPopcount,
  // functions of f32
  kExp,
  kExp2,
  kLog,
  kLog2,
  kRsqrt,
  kRcp,
  kSqrt,
  kTanh,
  kErf,
  kSin,
  kCos,
  kFloor,
  kCeil,
  kTrunc,
  kRound,
  // host-evaluated only (key): next power of two >= x
  kBucket,
  // made by instantiate() of sums (raised.h): k (1 + tanh(x)), k (1 + erf(x)), where the second operand, k, is a
  // constant
  kRaisedTanh,
  kRaisedErf,
};
inline constexpr int kOpCount = static_cast<int>(Op::kRaisedErf) + 1;
// The operations that a program's text can name come first.
inline constexpr int kTextOpCount = static_cast<int>(Op::kBucket) + 1;

struct OpInfo {
  const char* spelling;  // "+" or "exp2"
  int arity;
  int precedence;  // of infix and prefix operators, higher binds tighter; 0 for functions
};
const OpInfo& info(Op op);
bool is_comparison(Op op);

// kArgMax, kArgMin: where the first of the largest or smallest stands, a number of I64, with the last index fastest.
enum class ReduceOp : uint8_t { kSum, kMax, kMin, kProd, kArgMax, kArgMin };
const char* spelling(ReduceOp op);  // "sum"
bool is_arg(ReduceOp op);
bool is_extreme(ReduceOp op);  // the largest or the smallest

struct IterVar {
  VarRef var;
  ExprRef extent;  // compile-time
};

enum class ExprKind : uint8_t { kInt, kFloat, kBool, kVar, kApply, kCast, kLoad, kReduce, kScan };

struct Expr {
  ExprKind kind;
  bool typed = false;
  bool approx = false;               // kApply: the fast variant of a function
  bool of_rounded = false;           // kApply: an exp whose argument, arithmetic on floats, may be rounded once more
  DType type = DType::I64;           // compute type; meaningful where typed
  Op op = Op::kAdd;                  // kApply
  ReduceOp reduce = ReduceOp::kSum;  // kReduce, kScan
  bool inclusive = false;            // kScan: the element at args[1] is one of them
  int64_t int_value = 0;             // kInt; kBool as 0 or 1. U64 constants are stored as their bit pattern
  double float_value = 0;            // kFloat
  VarRef var;                        // kVar
  BufferRef buffer;                  // kLoad
  TypeRef cast_type;                 // kCast: the value is rounded to it, then held in its compute type
  std::vector<IterVar> iters;        // kReduce; kScan: one, with the extent of the region's index
  // kApply: the operands; kCast, kReduce: the one; kLoad: one index an axis; kScan: the operand, and the region's index
  // up to which it is reduced.
  std::vector<ExprRef> args;
  Loc loc;
};

ExprRef make_int(int64_t value, DType type = DType::I64, Loc loc = {});
ExprRef make_float(double value, Loc loc = {});
ExprRef make_bool(bool value, Loc loc = {});
ExprRef make_var(VarRef var, Loc loc = {});
// The same before types are known: a `let` has the type of its value, which typing finds out.
ExprRef make_untyped_var(VarRef var, Loc loc = {});
// Untyped: the type is left to instantiate().
ExprRef make_apply(Op op, std::vector<ExprRef> args, Loc loc = {}, bool approx = false);
// Typed, for passes: REQUIRES args of one type (kSelect: args[0] Bool, shifts: any integer amount).
ExprRef make_typed(Op op, std::vector<ExprRef> args, bool approx = false);
ExprRef make_cast(TypeRef type, ExprRef arg, Loc loc = {});  // typed when arg is typed and `type` concrete
ExprRef make_load(BufferRef buffer, std::vector<ExprRef> indices, Loc loc = {});  // typed when the buffer is concrete
ExprRef make_reduce(ReduceOp op, std::vector<IterVar> iters, ExprRef body, Loc loc = {});
// `sum[k <= j](body)`, without `inclusive` `sum[k < j](body)`. The body does not depend on j, a kVar.
ExprRef make_scan(ReduceOp op, IterVar iter, ExprRef body, ExprRef index, bool inclusive, Loc loc = {});

bool is_reduction(const Expr& expr);              // kReduce or kScan
bool is_const(const ExprRef& expr);               // kInt, kFloat or kBool
bool is_int(const ExprRef& expr, int64_t value);  // the integer constant `value`
bool is_zero_constant(const ExprRef& expr);       // 0, of integers or floats
// Equal structure, same variables and buffers; Loc is ignored.
bool same(const ExprRef& a, const ExprRef& b);

// Rebuilds an expression bottom-up: `fn` gets each node with its children already rebuilt and returns its replacement
// (the same pointer to keep it). Variables bound by kReduce and kScan are passed through untouched.
template <class Fn>
ExprRef rewrite(const ExprRef& expr, const Fn& fn);
// Calls fn on every node, parents first.
template <class Fn>
void visit(const ExprRef& expr, const Fn& fn);

template <class Fn>
ExprRef rewrite(const ExprRef& expr, const Fn& fn) {
  if (!expr) return expr;
  bool changed = false;
  std::vector<ExprRef> args;
  args.reserve(expr->args.size());
  for (const ExprRef& arg : expr->args) {
    args.push_back(rewrite(arg, fn));
    changed |= args.back() != arg;
  }
  std::vector<IterVar> iters = expr->iters;
  for (IterVar& iter : iters) {
    ExprRef extent = rewrite(iter.extent, fn);
    changed |= extent != iter.extent;
    iter.extent = extent;
  }
  if (!changed) return fn(expr);
  auto copy = std::make_shared<Expr>(*expr);
  copy->args = std::move(args);
  copy->iters = std::move(iters);
  return fn(ExprRef(copy));
}

template <class Fn>
void visit(const ExprRef& expr, const Fn& fn) {
  if (!expr) return;
  fn(expr);
  for (const IterVar& iter : expr->iters) visit(iter.extent, fn);
  for (const ExprRef& arg : expr->args) visit(arg, fn);
}

}  // namespace kachel::ir
