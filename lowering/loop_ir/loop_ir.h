// Loop IR: what one thread of one block does. Structured loops, typed scalars (ir::Expr), flat addressed buffers and
// barriers; nothing knows tiles any more. A loop kernel is printed by loop_print.cc, judged by loop_verify.cc, and
// turned into text by emit_cuda.cc and emit_llvm.cc.
//
// Expressions are ir::Expr with these restrictions: all typed; no reductions; kLoad has exactly one index, the element
// offset (I32 or I64) in a buffer of this kernel. kSelect, kAnd and kOr are lazy: an operand that is not needed is not
// evaluated, so select(in_bounds, load, pad) is how a guarded load is written. Index operands of loads and stores are
// evaluated without regard to overflow (they are guarded); all other integer arithmetic wraps.
#pragma once
#include <array>
#include <concepts>
#include <optional>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "ir/kernel.h"
#include "lowering/loop_ir/range.h"
#include "lowering/lower.h"

namespace kachel::lowering {

struct LoopStmt;
using LoopBlock = std::vector<LoopStmt>;

// A named value of the thread; immutable.
struct LoopLet {
  ir::VarRef var;
  ir::ExprRef value;
};
// buffer[index] = value, converted from its compute type to the element type as the language defines.
struct LoopStore {
  ir::BufferRef buffer;
  ir::ExprRef index, value;
};
// buffer[index] = op(buffer[index], value) on a global buffer, indivisible among all blocks.
struct LoopAtomic {
  ir::BufferRef buffer;
  ir::ExprRef index;
  ir::AtomicOp op;
  ir::ExprRef value;
};
// for var in [begin, end): the same trip count in every thread of the block. `unroll`: the body needs var to be a
// constant (register arrays are indexed by it). `reassociate`: f32 sums in the body may be reordered and contracted.
// `apart`: all lanes of a warp come here, and the compiler is to keep what so many iterations load out of the ones
// before them: where registers are short, it would load ahead until they do not suffice. 0: it may do so.
struct LoopFor {
  ir::VarRef var;
  ir::ExprRef begin, end;
  bool unroll = false;
  bool reassociate = false;
  LoopBlock body;
  int64_t apart = 0;
  int64_t ahead = 0;  // serial loops: what it reads of inputs is to be loaded so many iterations before (loads_ahead.h)
  std::vector<ir::BufferRef> disjoint;  // of which no iteration touches an element that another one touches
};
// The iterations [0, extent) dealt out to the block's threads: thread t runs index = slot * threads + t for
// slot = 0, 1, ... while index < extent. Barriers cannot stand inside. `unroll`: slot is needed as a constant.
struct LoopThreads {
  ir::VarRef index, slot;  // I32 both
  int64_t extent;
  bool unroll = false;
  LoopBlock body;
};
struct LoopIf {
  ir::ExprRef condition;
  LoopBlock then_body, else_body;
};
// All threads of the block arrive; what they wrote to shared, workspace and global memory is visible to all after it.
struct LoopBarrier {};
// c[c_at + m*c_row + n] (+)= sum over k < depth of a[a_at + m*a_row + k*a_step] * b[b_at + k*b_step + n] for m < rows,
// n < columns, with the sums in registers: vectors of `lanes` elements, which divide `columns`. CPU only. All three
// f32; or, with `pairs`, all i32, where an element of a and of b is two i16 and a product the sum of the two.
struct LoopMicroKernel {
  ir::BufferRef c, a, b;
  ir::ExprRef c_at, a_at, b_at;  // I64
  int64_t rows, columns, depth, lanes;
  int64_t c_row, a_row, a_step, b_step;
  bool accumulate;  // else c is written without being read
  Target::Dot16 pairs = Target::Dot16::kNone;
};
// to[to_at + i] = from[from_at + i] for i < count, past the caches: for what is not read again soon. Elements of one
// type of whole bytes, which do not overlap. CPU only.
struct LoopStream {
  ir::BufferRef to, from;
  ir::ExprRef to_at, from_at, count;  // I64
};
// to[to_at + j * to_row + i] = from[from_at + i * from_row + j] for i, j < lanes: `to` is of f32, `from` of f32, f16 or
// bf16. Or `to` is of i32, `from` of i8 or u8, and what moves are pairs: elements 2j and 2j + 1 as i16. CPU only.
struct LoopTranspose {
  ir::BufferRef to, from;
  ir::ExprRef to_at, from_at, to_row, from_row;  // I64
  int64_t lanes;                                 // a power of two
};
// buffer[index] may be read soon, or written. A hint without effect: the element need not exist. CPU only.
struct LoopPrefetch {
  ir::BufferRef buffer;
  ir::ExprRef index;  // I64
  bool write = false;
};
// Text for the reader of the emitted code; one line.
struct LoopComment {
  std::string text;
};

// A named operation of the target, with its operands in memory or in register arrays. Those marked [warp] are executed
// by all lanes of a warp together, [warp group] by four warps, the first of a number divisible by 4: they stand where
// control flow is the same in all threads, never in a thread loop.
struct LoopIntrinsic {
  enum class Kind : uint8_t {
    // operands[0] = operands[1], `elements` neighbours of the same type, at an address aligned to all of them. Where
    // the guard is false nothing is read and zeros are written.
    kCopyVector,
    // The same from a tensor to shared memory, done at some time before the kAsyncWait that waits for its group.
    kCopyAsync,
    kAsyncCommit,  // the thread's asynchronous copies since the last commit become a group
    kAsyncWait,    // until at most `immediate` of the thread's groups are under way; they are visible to this thread
    // [warp] operands[0], registers of 32 bits, from rows of 16 bytes in shared memory: the row whose index the lane
    // gives. `elements` 8 x 16-byte matrices; `transpose` exchanges rows and columns of 16-bit elements.
    kLoadMatrix,
    // [warp] operands[0] (4 accumulators) += operands[1] (A, 4 registers of 32 bits) * operands[2] (B, 2 registers).
    kMma,
    // operands[0], 2 elements of a 16-bit or 8-bit float type, the first of them even, from 2 f32 in operands[1].
    kConvertPair,
    // [warp group] operands[0], accumulators of wgmma.m64nN, N = `immediate`, (+)= operands[1] (A, 64 x k, in shared
    // memory or 4 registers of 32 bits) * operands[2] (B, k x N, in shared memory). Runs on by itself: until a
    // kGroupWait waits for its group nobody may touch its registers or write to what it reads.
    kGroupMma,
    // [warp group] what the threads did to registers is done before the next kGroupMma. operands: registers that are
    // written as they are, so that the assembler keeps them.
    kGroupFence,
    kGroupCommit,  // [warp group] the kGroupMma since the last commit become a group
    kGroupWait,    // [warp group] until at most `immediate` groups are under way. operands: the registers waited for
    // What this thread wrote to shared memory is seen by kGroupMma that come after a barrier, and what it read there
    // has been read before the copy engine writes to it.
    kProxyFence,
    // operands[0], a box in shared memory, from the tensor operands[1] through map `immediate`, at `coordinates`,
    // innermost first; its bytes count towards the phase of barrier operands[2]. By the first thread that produces.
    kBulkCopy,
    // The current phase of barrier operands[0] awaits `immediate` bytes and this arrival. By the first thread that
    // produces.
    kPhaseExpect,
    kPhaseBytes,  // it awaits `immediate` bytes more. By the first thread that produces
    kPhaseWait,   // until the phase of barrier operands[0] with parity `coordinates[0]` is over
    // Each warp arrives once at barrier operands[0], when all its lanes are there; with `by_group` [warp group] each
    // group does, in whose place its first warp stands: what was waited for by all was.
    kPhaseArrive,
    kPhaseCopied,  // this thread arrives at barrier operands[0] when its asynchronous copies so far are there
    // [warp] operands[0], four pairs of 16-bit elements: pair j of lane q of four neighbouring lanes becomes pair q of
    // lane j.
    kQuadExchange,
    // operands[0], an i32, += the sum of the four products of 8-bit integers in operands[1] and operands[2].
    kDot4,
    // [warp] the reverse of kLoadMatrix: operands[0], rows of 16 bytes in shared memory, the one whose index the lane
    // gives, from operands[1], four registers of 32 bits, which may be pairs of 16-bit elements.
    kStoreMatrix,
    // [warp] a box of the tensor operands[0], through map `immediate` at `coordinates`, innermost first, from
    // operands[1], which only this warp has written: read at some time before the kBulkStoreWait that waits for it.
    // Nothing else in the kernel touches the tensor.
    kBulkStore,
    kBulkStoreWait,  // [warp] until at most `immediate` of the warp's boxes are still to be read
    kInOrder,  // the compiler moves nothing across: it would wait for wgmma before work that needs no results of theirs
    // A copy of `elements` neighbours from any address of a tensor to 16 aligned bytes of shared memory, in two steps,
    // so that the loads of many are under way together. First what operands[1] names is loaded into operands[0], 32
    // bytes of registers that nothing but the second step may read, if the guard holds: then the 32 bytes from its
    // first one on exist.
    kLoadShifted,
    // Then operands[0] = those elements, from the registers operands[1]. Where the guard is false, from the tensor
    // operands[2], whose elements in [coordinates[0], coordinates[1]) exist; zeros are written for the others.
    kStoreShifted,
    // operands[0], `elements` neighbours of a 16-bit float type, = the elements of `type_b`, 4-bit integers in the bytes
    // of operands[1] or elements of 8 bits there, less operands[2], if there is one: an f32, for all, and the difference
    // rounded once. Without it every result is a number of the type. Of 4 bits: with `immediate`, of so many bytes that
    // as many neighbouring lanes hold alike the one of the lane's number; with `table` what that has for the bits,
    // counted without sign, in place of the integers. Of 32 bits: the `immediate` lowest bits of each element, as an
    // integer without sign, or with one, at most 10 where the results are f16 and 7 where they are bf16.
    kUnpack,
    // operands[0], `elements` neighbours of a 16-bit float type, = operands[1] `op` operands[2], rounded once. Operands
    // have as many elements, or are an f32 for all, which is a number of the type.
    kPackedMath,
    // operands[0], `elements` neighbours of a float type in a tensor, at an address aligned to all of them,
    // += operands[1], registers of the same type, each element atomically.
    kAddVector,
    // [warp] operands[0], eight elements of 8 bits, from eight in operands[1]. There they are two columns of two rows
    // of one tile of eight columns, then of the tile beside it, as accumulators lie: lane q of four neighbouring lanes
    // has columns 2q and 2q + 1 of either. Here columns 4q to 4q + 3 of both tiles together, of the first row and then
    // of the second, as left operands lie.
    kQuadJoin,
    // [warp] operands[0], two elements of 32 bits, from two in operands[1]: of 8 x 8 elements, of which lane 4 r + q
    // has columns 2 q and 2 q + 1 of row r, rows become columns.
    kTurnMatrix,
    // operands[0], a row of a tensor of a 16-bit type, at any address, from the thread's element on, = `immediate`
    // vectors of kRowVector elements in the registers operands[1], each kRowStep registers behind the one before and
    // kRowColumns elements further in the row. Four neighbouring lanes have vectors beside each other in one row; all
    // lanes of a warp store. Only what comes before coordinates[0], counted from the thread's first element, is
    // written; below 0 it says so of what the lanes before have, too.
    kStoreRow,
  } kind;
  static constexpr int64_t kRowStep = 16, kRowVector = 8, kRowColumns = 32;
  struct Operand {
    ir::BufferRef buffer;
    ir::ExprRef index;     // of the first element
    int64_t elements = 0;  // as far as synchronisation and bounds are concerned
    bool write = false;
  };
  // How wgmma walks a matrix in shared memory, in bytes: slabs of `swizzle` bytes a row (Layout::slabs) with the chunks
  // exchanged. With k along the rows, eight rows are `stride` apart; with k down the rows, eight of them are, and the
  // slabs are `slab` apart.
  struct MatrixView {
    int64_t swizzle = 0, stride = 0, slab = 0;
    bool transpose = false;  // k goes down the rows
  };
  std::vector<Operand> operands;
  ir::ExprRef guard;                     // copies; null: true
  std::vector<ir::ExprRef> coordinates;  // kBulkCopy, kBulkStore, kStoreShifted, kStoreRow: I32
  // kAsyncWait, kGroupWait: groups; kLoadMatrix: matrices; kGroupMma: N; kUnpack: 0, 4 or bits; kStoreRow: vectors
  int64_t immediate = 0;
  bool transpose = false;  // kLoadMatrix
  ir::ExprRef l2_policy;   // kBulkCopy: I64, how the L2 keeps the lines, as createpolicy encodes it
  // kBulkCopy, kPhaseArrive in clusters. Byte r: the blocks, as bits, to the same place in which block r copies, each
  // of whose barriers counts the bytes; at whose barriers it arrives. 0: its own alone.
  uint64_t peers = 0;
  bool by_group = false;   // kPhaseArrive
  bool accumulate = true;  // kGroupMma
  bool widened = false;    // kMma: of 8-bit floats by way of f16, else as the tensor cores add them up
  bool adds = false;       // kBulkStore: to what the tensor holds, each element atomically
  // Of mma, kDot4: of A and B; kUnpack: of results and sources; otherwise of the elements.
  ir::DType type = ir::DType::F32, type_b = ir::DType::F32;
  ir::Op op = ir::Op::kMul;   // kPackedMath: kAdd, kSub or kMul
  MatrixView view_a, view_b;  // kGroupMma: of what is in shared memory
  std::vector<double> table;  // kUnpack: 16 numbers of `type`, or none
};
// [warp] `var` = the value of `value` in the lane whose number differs by the bits of `lane_mask`; with kAnyLane,
// whether `value` is true in any lane.
inline constexpr int kAnyLane = 0;
struct LoopShuffle {
  ir::VarRef var;
  ir::ExprRef value;
  int lane_mask;
};
// A loop over [begin, end) whose loads run ahead: `produce` fills stage `into` of the multi-stage buffers for iteration
// `ahead`, by kCopyAsync, `depth` - 1 iterations before `consume` reads stage `from` for iteration `var`. What consume
// writes, produce does not touch. synchronise() turns it into loops with commits, waits and barriers.
struct LoopPipeline {
  ir::VarRef var, from, ahead, into;  // I64, I32, I64, I32
  ir::ExprRef begin, end;
  int64_t depth = 1;
  bool may_skew = true;  // registers suffice for what two iterations hold
  bool compact = false;  // iterations without masks get no loop of their own
  std::vector<ir::BufferRef> buffers;
  // That consume itself fills and then reads, and of which an iteration uses the other half than the one before.
  std::vector<ir::BufferRef> alternating;
  LoopBlock produce, consume;
  // Filled by kBulkCopy instead, by a warp of its own that runs as far ahead as there are stages. Producer and consumer
  // each keep the stage that is next and its parity in registers.
  struct Bulk {
    // Buffers that are waited for and released together. `full` and `empty` hold a barrier a stage.
    struct Ring {
      ir::BufferRef full, empty;
      std::vector<ir::BufferRef> buffers;
      int64_t bytes = 0;  // of a stage, that come by kBulkCopy
      // And those that come besides where `guard`, whose names are those of `produce`, holds, and where it does not.
      ir::ExprRef guard;
      std::array<int64_t, 2> guarded_bytes = {0, 0};
      bool by_threads = false;  // the producer's threads fill some of it, by kCopyAsync
      bool stored = false;      // and not so, but by kStoreShifted
      uint64_t peers = 0;       // of a cluster, who fills it, as in LoopIntrinsic: who releases it tells all of them
      bool by_group = false;    // nothing but products of warp groups reads it: a group releases it as one
    };
    std::vector<Ring> rings;
    struct State {
      ir::BufferRef stage, parity;
    } producer, consumer;
    // Where warp groups issue products in turn: a barrier a group, whose phases are the turns of the group before it.
    struct Turns {
      ir::BufferRef over, parity;
      ir::ExprRef group;  // I32, the thread's
      int64_t groups = 0;
      bool whole = false;  // a turn is the whole loop, not an iteration
    };
    std::optional<Turns> turns;
  };
  std::optional<Bulk> bulk;
};

struct LoopStmt {
  std::variant<LoopLet, LoopStore, LoopAtomic, LoopFor, LoopThreads, LoopIf, LoopBarrier, LoopComment, LoopIntrinsic,
               LoopShuffle, LoopPipeline, LoopMicroKernel, LoopStream, LoopTranspose, LoopPrefetch>
      node;
};

// A parameter of the emitted kernel: exactly one of var (an integer, f32 or bool value) and buffer (a pointer) is set.
struct LoopParam {
  Slot slot;
  ir::VarRef var;
  ir::BufferRef buffer;
};

// A buffer that lives in the block or the thread.
struct LoopBuffer {
  ir::BufferRef buffer;     // kShared or kRegister; never a 4-bit type
  int64_t elements = 0;     // of the whole block, or of one thread for kRegister
  int64_t alignment = 128;  // in bytes
  int64_t byte_offset = 0;  // into the arena or the block's slice of the workspace
  bool spilled = false;     // a kShared buffer that plan_memory() moved to the workspace
  bool zeroed = false;      // a kRegister buffer that is 0 when the kernel begins
  bool raw = false;         // a kRegister buffer of narrow floats, each in a register of its own, as it was loaded
  bool of_warps = false;    // a kShared buffer of which each warp has a part of its own, and touches no other
};

// Barriers of phases in shared memory (mbarrier), one an element of the buffer; a phase ends with `arrivals` arrivals
// and when the bytes that were announced are there.
struct LoopPhases {
  ir::BufferRef buffer;
  int64_t count = 0, arrivals = 0;
  // Barrier i is waited for by warp group i alone, once a turn, and arrived at by the group before it alone, once a
  // turn too; the first group's first wait is for no one. Barriers of the hardware's do for that, and are quicker.
  bool turns = false;
};

// A name whose value the threads that compute hand to the producer, each time that they come to it: in a place in
// shared memory, with barriers of phases that say when it is there and when it is free again.
struct LoopHanded {
  ir::VarRef var;
  ir::BufferRef place;           // kShared, one I64
  ir::BufferRef given, taken;    // barriers
  ir::BufferRef giving, taking;  // kRegister, one I32: the parity of the next phase, for either side
};

struct LoopKernel {
  int threads = 1;  // of a team; 1 on the CPU, where no LoopThreads and no LoopBarrier occur
  // Teams that compute a block's tiles in turn, so that what one does behind its products runs beside another one's.
  // They share the pipelines' stages and each warp's memory is its own: no LoopBarrier occurs, and no other shared
  // memory.
  int teams = 1;
  // Blocks of a cluster that compute each tile together: an equal part of `threads` is in each of them, the first part
  // in the first. Each has all of the shared memory: a store goes to all of them, a load is from the thread's own, and
  // a barrier is of all. Neither teams nor a producer.
  int tile_blocks = 1;
  int block_threads() const { return teams * threads / tile_blocks; }  // of a block, those that compute
  std::vector<LoopParam> params;
  std::vector<LoopBuffer> buffers;
  int64_t shared_bytes = 0, workspace_bytes = 0;
  // Blocks of it on a multiprocessor that the compiler has to leave registers for; 1: it need save none for a second
  // one; 0: as it likes.
  int blocks = 0;
  // Runs once for every tile in [0, tiles): `tile` is the linear tile index, the walk over tiles is the emitter's
  // (grid-stride on a GPU, a contiguous share on the CPU). Shared memory is not preserved between tiles.
  // `back_and_forth`: every second round of the blocks walks its tiles from the last one, so that a block whose tile
  // was among the longest of a round has one of the shortest of the next.
  bool back_and_forth = false;
  // A block computes the tile of its own number only. What stages were in is free behind the last pipeline.
  bool one_tile = false;
  ir::VarRef tile, tiles;  // `tiles` is the parameter with Slot kBlocks
  ir::VarRef thread;       // I32, the thread's number in its team; null on the CPU
  ir::VarRef team;         // I32, the team's number; null where there is one
  // Blocks that copy for each other and walk tiles side by side. No block begins before all have made their barriers,
  // and none ends before the others. Tiles are numbered cluster by cluster, with each axis of the grid filled up.
  ClusterShape cluster;
  ir::VarRef rank;  // I32, the block's number in its cluster; null where there is one
  ir::VarRef real;  // Bool, named in the body: the tile is one of the grid's, and not there to fill a cluster up
  LoopBlock body;
  LoopBlock passed_over;  // what a team does for a tile that another one computes
  // What further threads do meanwhile: `copiers` of them, tile by tile; thread loops are dealt out to those. Empty:
  // there are none.
  LoopBlock producer;
  int producer_threads = 0;  // a warp, or warp groups where registers are handed on or its threads copy
  int copiers = 1;           // the first one, or all
  // Of a thread that computes and of one of the producer's, once the roles part; 0: as many as the compiler likes.
  int registers = 0, producer_registers = 0;
  std::vector<LoopPhases> phases;
  std::vector<LoopHanded> handed;
  std::vector<TensorMap> maps;
  Ranges ranges;  // of variables; what is absent is unbounded
  bool float_atomics = false;
};

std::string print(const LoopKernel& kernel);
// Empty if the kernel keeps the rules above; else what is broken. A broken kernel is a defect of a pass.
std::string verify(const LoopKernel& kernel);

// Calls fn(expr) on each expression that a statement evaluates itself, not those of nested blocks. Of a statement that
// is not const, fn may put others in their places.
template <class Stmt, class Fn>
requires std::same_as<std::remove_const_t<Stmt>, LoopStmt>
void for_each_expr(Stmt& stmt, const Fn& fn) {
  if (auto* let = std::get_if<LoopLet>(&stmt.node)) {
    fn(let->value);
  } else if (auto* store = std::get_if<LoopStore>(&stmt.node)) {
    fn(store->index);
    fn(store->value);
  } else if (auto* atomic = std::get_if<LoopAtomic>(&stmt.node)) {
    fn(atomic->index);
    fn(atomic->value);
  } else if (auto* loop = std::get_if<LoopFor>(&stmt.node)) {
    fn(loop->begin);
    fn(loop->end);
  } else if (auto* branch = std::get_if<LoopIf>(&stmt.node)) {
    fn(branch->condition);
  } else if (auto* intrinsic = std::get_if<LoopIntrinsic>(&stmt.node)) {
    for (auto& operand : intrinsic->operands) fn(operand.index);
    for (auto& coordinate : intrinsic->coordinates) fn(coordinate);
    if (intrinsic->guard) fn(intrinsic->guard);
    if (intrinsic->l2_policy) fn(intrinsic->l2_policy);
  } else if (auto* shuffle = std::get_if<LoopShuffle>(&stmt.node)) {
    fn(shuffle->value);
  } else if (auto* pipeline = std::get_if<LoopPipeline>(&stmt.node)) {
    fn(pipeline->begin);
    fn(pipeline->end);
  } else if (auto* micro = std::get_if<LoopMicroKernel>(&stmt.node)) {
    fn(micro->c_at);
    fn(micro->a_at);
    fn(micro->b_at);
  } else if (auto* stream = std::get_if<LoopStream>(&stmt.node)) {
    fn(stream->to_at);
    fn(stream->from_at);
    fn(stream->count);
  } else if (auto* transpose = std::get_if<LoopTranspose>(&stmt.node)) {
    fn(transpose->to_at);
    fn(transpose->from_at);
    fn(transpose->to_row);
    fn(transpose->from_row);
  } else if (auto* prefetch = std::get_if<LoopPrefetch>(&stmt.node)) {
    fn(prefetch->index);
  }
}

}  // namespace kachel::lowering
