// Loop IR made ready to execute: variables and buffers numbered, expressions in one array. Private to the simulator.
#pragma once
#include "ir/numerics.h"
#include "lowering/loop_ir/loop_ir.h"

namespace kachel::lowering {

struct SimNode {
  ir::ExprKind kind;
  ir::Op op = ir::Op::kAdd;
  ir::DType type = ir::DType::I64, cast = ir::DType::I64;
  int arity = 0, args[3] = {};
  int slot = -1;    // kVar
  int buffer = -1;  // kLoad
  ir::Scalar constant;
};

struct SimBuffer {
  enum class Kind : uint8_t { kGlobal, kShared, kWorkspace, kRegister } kind = Kind::kGlobal;
  std::string name;
  ir::DType type = ir::DType::F32;
  int param = -1;        // kGlobal
  int64_t offset = 0;    // bytes, within the arena, the workspace's slice or the thread's registers
  int64_t elements = 0;  // not for kGlobal
  bool zeroed = false;
  bool handed = false;  // barriers of phases order those who write to it and those who read
};

// What no program may rely on: memory and registers at the start, the target of a copy under way.
inline constexpr uint8_t kPoison = 0x7F;

struct SimStmt;
using SimBlock = std::vector<SimStmt>;
struct SimStmt {
  enum class Kind : uint8_t {
    kLet,
    kStore,
    kAtomic,
    kFor,
    kThreads,
    kIf,
    kBarrier,
    kCopy,
    kCopyAsync,
    kCommit,
    kWait,
    kLoadMatrix,
    kMma,
    kConvertPair,
    kGroupMma,
    kGroupFence,
    kGroupCommit,
    kGroupWait,
    kProxyFence,
    kBulkCopy,
    kPhaseExpect,
    kPhaseBytes,
    kPhaseWait,
    kPhaseArrive,
    kPhaseCopied,
    kQuadExchange,
    kDot4,
    kStoreMatrix,
    kBulkStore,
    kBulkStoreWait,
    kAddVector,
    kQuadJoin,
    kTurnMatrix,
    kStoreRow,
    kInOrder,
    kLoadShifted,
    kStoreShifted,
    kUnpack,
    kPackedMath,
    kShuffle
  } kind;
  struct Operand {
    int buffer = -1, index = -1;
    int64_t elements = 0;
  };
  int a = -1, b = -1;  // let, if, shuffle: value; store, atomic: index and value; for: begin and end; copy: guard
  int slot = -1, second = -1;  // variables: let, for, shuffle; threads: index and slot
  int buffer = -1;
  ir::AtomicOp atomic = ir::AtomicOp::kNone;
  ir::Op op = ir::Op::kMul;
  std::vector<double> table;                                 // unpack
  ir::DType type = ir::DType::I64, type_b = ir::DType::I64;  // for: of its variable; mma: of A and B; pair: of elements
  int64_t extent = 0, step = 1;                              // threads; for
  int64_t immediate = 0;                                     // wait: groups; load matrix: matrices; shuffle: the mask
  bool transpose = false, accumulate = true, widened = false, by_group = false, adds = false;
  uint64_t peers = 0;
  LoopIntrinsic::MatrixView view_a, view_b;
  bool stops = false;  // it waits for other threads, or something in it does
  std::vector<Operand> operands;
  std::vector<int> coordinates;
  SimBlock body, otherwise;
};

struct SimProgram {
  std::vector<SimNode> nodes;
  std::vector<SimBuffer> buffers;
  std::vector<int> param_slots;  // by parameter; -1: a pointer
  int slots = 0;
  // Variables set at the start: the block's number, also in its cluster, and the thread's in its team.
  int first_tile = -1, rank = -1, thread = -1, team = -1;
  int64_t register_bytes = 0;
  std::vector<std::pair<int, LoopPhases>> phases;  // with the number of their buffer
  SimBlock body, producer;                         // with the walk over tiles around them
};

SimProgram compile(const LoopKernel& kernel, uint32_t blocks);

}  // namespace kachel::lowering
