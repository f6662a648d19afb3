// A concrete kernel compiled for the reference interpreter: every variable and intermediate value has a slot in one
// flat frame, expressions are straight-line instructions over slots, buffers are numbers. Private to the interpreter.
#pragma once
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "ir/interval.h"
#include "ir/kernel.h"

namespace kachel::ir {

struct Instruction {
  enum class Kind : uint8_t {
    kFloat,         // op on float cells
    kInteger,       // op on integer cells of `type`
    kCompareFloat,  // op
    kLogic,         // kAnd kOr kNot on bool cells, short-circuiting what is undecided
    kSelectFloat,   // a ? b : c
    kSelectInteger,
    kCast,    // from compute type `type` to `to`
    kLoad,    // a is a number in InterpretedKernel::loads
    kReduce,  // a is a number in InterpretedKernel::reduces
    kScan,    // the same
    kMove,
  } kind;
  Op op = Op::kAdd;
  bool approx = false, of_rounded = false;  // as in Expr
  DType type = DType::I64, to = DType::I64;
  int dst = 0, a = 0, b = 0, c = 0;
};
using Code = std::vector<Instruction>;

// Evaluates `code`; the value is then in `slot`.
struct Value {
  Code code;
  int slot = -1;
};

struct LoadInfo {
  int memory = 0;
  int rank = 0;
  int index[5] = {};
  int forward = -1;  // a number in InterpretedKernel::forwards: sees what this iteration assigned
};

// What an iteration has assigned to an element that it reads later. Set at run time.
struct Forward {
  int slot = 0;
  int element = 0;  // in InterpretedKernel::elements: the same element in memory
};

struct SlotExtent {
  int slot;
  int64_t extent;
};

struct ReduceInfo {
  ReduceOp op;
  DType type;  // of what is reduced
  std::vector<SlotExtent> iters;
  Value body;
  // kScan: of the region's index, which has the extent of the one variable.
  int index = -1;
  bool inclusive = false;
  // Where the value depends on some of the region's variables only, one value for each of their combinations; of kScan
  // the region's index comes last.
  bool memoised = false;
  std::vector<SlotExtent> depends;
  size_t table = 0;  // in InterpretedKernel::table_sizes
};

struct TileAxis {
  AxisSpec::Kind kind;
  int start = -1;      // kIndex, kRange: slot
  int64_t extent = 0;  // tile axes
  int gather = -1;     // kGather: a number in InterpretedKernel::tiles
};

struct TileInfo {
  int memory = 0;
  std::vector<TileAxis> axes;
  Code code;  // computes starts, bounds and padding
  int within_first = -1, within_length = -1, pad = -1;
  std::vector<int64_t> extents;
};

struct Node;
using Nodes = std::vector<Node>;

struct Node {
  enum class Kind : uint8_t { kDecl, kLet, kCopy, kFill, kGemm, kParallel, kAssign, kFor, kIf } kind;
  Value value;      // kDecl (slot -1: none), kLet, kFill, kAssign: the value; kIf: the condition; kFor: the end
  Value begin;      // kFor
  int slot = -1;    // kLet, kFor: the variable
  int memory = -1;  // kDecl, kAssign
  int tiles[3] = {-1, -1, -1};  // kCopy: dst, src; kFill: dst; kGemm: c, a, b
  AtomicOp atomic = AtomicOp::kNone;
  bool transpose_a = false, transpose_b = false, accumulate = true;
  Precision precision = Precision::kDefault;
  // kParallel
  std::vector<SlotExtent> iters;
  std::vector<int> region_forwards;
  std::vector<int> deferred;  // memories that the region both reads and writes
  // kAssign
  int element = -1;  // in InterpretedKernel::elements
  int forward = -1;  // in InterpretedKernel::forwards
  Nodes body, otherwise;
  std::vector<int> written;  // kFor, kIf outside regions: memories written within
};

struct InterpretedKernel {
  int slots = 0;
  std::vector<std::pair<int, Cell>> constants;  // slot and value
  std::vector<LoadInfo> loads;
  std::vector<LoadInfo> elements;  // that assignments write
  std::vector<Forward> forwards;
  std::vector<ReduceInfo> reduces;
  std::vector<size_t> table_sizes;
  std::vector<TileInfo> tiles;
  std::vector<BufferRef> buffers;                 // by memory number; the tensor parameters first, in order
  std::vector<int> grid;                          // slots
  std::unordered_map<const Var*, int> variables;  // slots of dimensions and scalars
  Nodes body;
};

// REQUIRES: from instantiate().
InterpretedKernel compile(const Kernel& kernel);

}  // namespace kachel::ir
