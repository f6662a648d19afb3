// Tile IR: kernels and their statements. Plain values; parse.h makes them from text, builder.h from C++,
// verify.h judges them, print.h writes them, instantiate.h makes them concrete. ir/GRAMMAR.md defines what they mean.
#pragma once
#include <optional>
#include <variant>

#include "ir/expr.h"

namespace kachel::ir {

struct TileRef;

// One axis of a slice `A[b, s*BM +: BM, :, index[m +: n]]`.
struct AxisSpec {
  enum class Kind : uint8_t { kIndex, kRange, kWhole, kGather } kind = Kind::kWhole;
  ExprRef start;                    // kIndex: the index; kRange: the first element
  ExprRef extent;                   // kRange: compile-time
  std::shared_ptr<TileRef> gather;  // kGather: an integer slice with exactly one range axis; its elements are indices
  // kGather, made by lowering: `index` is named in place of `element`, which the slice holds, also where it is padded.
  VarRef element = {};
  ExprRef index = {};
};

// A buffer with one AxisSpec an axis (never empty: a bare name is all kWhole). Its tile shape is the list of its range,
// whole and gather axes. Elements outside a tensor read as `pad` and are not written.
struct TileRef {
  BufferRef buffer;
  std::vector<AxisSpec> axes;
  ExprRef within_first, within_length;  // `within first +: length` bounds the first axis that is not kIndex; or null
  ExprRef pad;                          // `pad -inf`: compile-time scalar; null means 0
  Loc loc;
};

struct Stmt;
using Block = std::vector<Stmt>;

// `shared As: T[BM, BK]`, `fragment acc: f32[BM, BN] = 0`. Only at the top level of a kernel.
struct DeclStmt {
  BufferRef buffer;
  ExprRef init;  // null: uninitialised
};
struct LetStmt {
  VarRef var;
  ExprRef value;
};
enum class AtomicOp : uint8_t { kNone, kAdd, kMax, kMin };
// `dst = src` between any two scopes, with conversion; with `atomic`, dst is a tensor and elements are combined.
struct CopyStmt {
  TileRef dst, src;
  AtomicOp atomic = AtomicOp::kNone;
};
// `acc = 0`.
struct FillStmt {
  TileRef dst;
  ExprRef value;
};
// What a gemm may lose beyond its default (GRAMMAR.md, section 5): the low bits of f32 operands, those of sums of 8-bit
// floats.
enum class Precision : uint8_t { kDefault, kTf32, kFast };
// `c += a @ b`, `c = a @ b^T`. Tiles of rank 2: c [M, N], a [M, K] or [K, M]^T, b [K, N] or [N, K]^T.
struct GemmStmt {
  TileRef c, a, b;
  bool transpose_a = false, transpose_b = false;
  bool accumulate = true;
  Precision precision = Precision::kDefault;
};
// `parallel i < BM, j < BN { ... }`: body holds LetStmt, AssignStmt and IfStmt only. Every read sees the value from
// before the region, except that an iteration sees what it itself has written to the same element.
struct ParallelStmt {
  std::vector<IterVar> iters;
  Block body;
};
enum class AssignOp : uint8_t { kSet, kAdd, kSub, kMul, kDiv };
// `S[i, j] = e`, `S[i, j] += e`; `atomic C[i, j] += e`, `atomic max C[i, j] = e`. Inside ParallelStmt only.
struct AssignStmt {
  BufferRef buffer;
  std::vector<ExprRef> indices;
  AssignOp op = AssignOp::kSet;
  AtomicOp atomic = AtomicOp::kNone;
  ExprRef value;
};
// `for k < n`, `for k in a .. b`, `pipelined k < n, stages`.
struct ForStmt {
  VarRef var;
  ExprRef begin, end;
  bool pipelined = false;
  ExprRef stages;  // compile-time; null unless pipelined with a depth
  Block body;
};
struct IfStmt {
  ExprRef condition;  // uniform over the block, except inside ParallelStmt
  Block then_body, else_body;
};

struct Stmt {
  Loc loc;
  std::variant<DeclStmt, LetStmt, CopyStmt, FillStmt, GemmStmt, ParallelStmt, AssignStmt, ForStmt, IfStmt> node;
};

// A tensor, a run-time scalar or (in the angle brackets) a compile-time constant.
struct Param {
  BufferRef tensor;       // or
  VarRef scalar;          // kScalar
  bool divides = false;   // an integer scalar that the kernel's text divides by
  bool one_axis = false;  // a tensor whose last two axes are counted as one (one_axis.h)
  const std::string& name() const { return tensor ? tensor->name : scalar->name; }
};

struct Tunable {
  VarRef var;
  std::vector<int64_t> values;  // in declared order; not empty, but for `tune auto`
  bool automatic = false;       // `tune auto`: any value of 1 to most_automatic() (tunable_role.h)
};

struct Kernel {
  std::string name;
  Loc loc;
  std::vector<TypeSymbolRef> type_symbols;
  std::vector<VarRef> consts;  // in declared order; the caller gives their values by name
  std::vector<Param> params;   // in declared order: the launch arguments
  std::vector<VarRef> dims;    // in the order in which shapes first name them
  std::vector<ExprRef> where;
  std::vector<ExprRef> key;  // host-evaluated
  std::vector<Tunable> tunables;
  std::vector<IterVar> grid;  // slowest first; extents are host-evaluated
  Block body;
};

}  // namespace kachel::ir
