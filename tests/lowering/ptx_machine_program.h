// PTX, decoded. A thread has one file of 64-bit words for everything that operands name: its registers, the special
// ones, and a word for each literal.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "ir/dtype.h"
#include "support/status.h"

namespace kachel::lowering {

// Of an instruction, behind its result, as raw bits: of narrow ones the lowest count.
struct PtxOperands {
  const uint64_t* file;
  const int32_t* words;
  uint64_t operator[](size_t i) const { return file[words[i]]; }
};
using PtxFunction = uint64_t (*)(PtxOperands operands);

enum class PtxKind : uint8_t {
  kNothing,
  kFunction,
  kPack,    // of a vector's elements, the first lowest
  kUnpack,  // to them
  kBranch,
  kExit,
  kTrap,
  kLoad,
  kStore,
  kReduce,
  kCompareSwap,
  kCopyAsync,
  kAsyncCommit,
  kAsyncWait,
  kBarrier,
  kClusterBarrier,
  // From here on of a warp.
  kWarpBarrier,
  kShuffle,
  kShuffleIndex,
  kVoteAny,
  kLoadMatrix,
  kStoreMatrix,
  kMma,
};
constexpr bool stops(PtxKind kind) {
  return kind >= PtxKind::kBarrier;
}

// kCluster: the shared memory of the cluster's blocks, each in a window of its own.
enum class PtxSpace : uint8_t { kParam, kShared, kCluster, kGlobal };
inline constexpr uint64_t kPtxClusterWindow = uint64_t{1} << 24;

// Words that special registers have in every file; kPtxNone holds 0.
enum PtxSpecial : int32_t { kPtxNone, kPtxThread, kPtxBlock, kPtxBlocks, kPtxRows, kPtxShared, kPtxSpecials };

// Most operands: those of mma.
inline constexpr size_t kPtxOperands = 14;

struct PtxInstruction {
  PtxFunction function = nullptr;
  uint64_t mask = 0;     // the bits that the first operand has
  int32_t guard = -1;    // a word; -1: none
  bool negated = false;  // the guard
  PtxKind kind = PtxKind::kNothing;
  PtxSpace space = PtxSpace::kGlobal;
  bool is_signed = false;
  bool transposed = false;
  ir::DType type = ir::DType::F32, type_b = ir::DType::F32;
  // Operands in the order of the text, vectors spread out; addresses by their base.
  std::array<int32_t, kPtxOperands> words{};
  uint32_t operands = 0;
  uint32_t addresses = 0;
  uint32_t results = 1;              // elements of the first operand
  std::array<int64_t, 2> offsets{};  // of the addresses, in that order
  int64_t bytes = 0;                 // of an element
  int64_t count = 0;                 // the number that the instruction's name or first operand is
  size_t target = 0;                 // of a branch
  size_t line = 0;

  int32_t last() const { return words[operands - 1]; }
};

struct PtxProgram {
  std::vector<PtxInstruction> code;  // the last one ends the thread
  std::vector<std::string> lines;
  std::vector<uint64_t> masks;                         // of words: the bits that they have
  std::vector<std::pair<int32_t, uint64_t>> literals;  // their words
};

// By name, modifiers included.
using PtxFunctions = std::unordered_map<std::string, PtxFunction>;
const PtxFunctions& ptx_functions();

// What the instruction's name says; kUnsupported: the machine does not have it. Operands are the parser's.
Result<PtxInstruction> decode_ptx(const std::string& name);

}  // namespace kachel::lowering
