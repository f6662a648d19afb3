// What the passes know of a GPU architecture, in one table. Sources: the CUDA C++ Programming Guide's table of
// technical specifications per compute capability, and the PTX ISA's tables of mma shapes and of dp4a's types.
#pragma once
#include <cstdint>

#include "ir/kernel.h"

namespace kachel::lowering {

// One multiplication by tensor cores, C (m x n) += A (m x k) B (k x n), with `k` elements of A's type, always 32 bytes
// of a row: mma.m16n8 of a warp or, if `group`, wgmma.m64nN of a warp group.
struct MmaShape {
  ir::DType a, b, c;
  int k;
  int since;             // first architecture
  bool needs_tf32;       // only where the program allows to cut f32 operands to tf32
  bool load_transposed;  // ldmatrix reads operands with k down their rows: 16-bit elements only
  bool short_sums;       // sums keep 13 bits behind the leading one of their largest term (GRAMMAR.md, "Gemm")
};

// One multiplication by dp4a, C += a row of four times a column of four.
struct DotShape {
  ir::DType a, b, c;
  int since;
};

struct Machine {
  int architecture;          // 10 * major + minor, the first that this row describes
  int registers_per_sm;      // of 32 bits
  int registers_per_thread;  // most
  int64_t shared_per_sm;     // bytes
  int64_t shared_per_block;  // bytes, most, opted in
  int threads_per_sm;
  int blocks_per_sm;
  int64_t l2_bytes;     // of the smallest data-centre or, where there is none, desktop part
  int multiprocessors;  // of the largest part that is sold; what is not there is asked about with it
};

// The row for an architecture: the last one not above it. REQUIRES: architecture >= 80.
const Machine& machine_of(int architecture);

// The most registers that a thread of a block of so many threads can have. The four schedulers of a multiprocessor have
// a quarter of the registers and of the warps each, and warps are given eights of registers a thread. Source: CUDA
// occupancy calculator.
int64_t most_registers(int threads, int architecture);

// How many blocks of so many bytes of shared memory a multiprocessor has room for.
int64_t resident_by_shared(int64_t bytes, int architecture);

// Null, and why in `reason`, if no tensor core instruction of the architecture multiplies these types.
const MmaShape* find_mma(int architecture, ir::DType a, ir::DType b, ir::DType c, ir::Precision precision,
                         const char** reason);

// Whether an instruction adds four products of 8-bit integers to a 32-bit sum.
bool has_dot4(int architecture, ir::DType a, ir::DType b, ir::DType c);

// Whether the architecture has wgmma. Only 9.0 does; it multiplies all types of the table.
constexpr bool has_group_mma(int architecture) {
  return architecture == 90;
}

// Whether mma of 8-bit floats is an instruction. On 9.0 and 10.x compilers make products of f16 of it.
constexpr bool has_float8_mma(int architecture) {
  return architecture == 89 || architecture >= 120;
}

// Neighbours of whole bytes that one instruction stores or, each atomically, combines with memory at most. Source: PTX
// ISA, "red": vectors of additions from sm_90 on.
constexpr int64_t most_stored(ir::AtomicOp op, ir::DType type, int architecture) {
  const bool adds = op == ir::AtomicOp::kAdd && architecture >= 90 &&
                    (type == ir::DType::F32 || type == ir::DType::F16 || type == ir::DType::BF16);
  return op == ir::AtomicOp::kNone || adds ? 128 / ir::bits(type) : 1;
}

// Whether a warp stores fragments to shared memory as matrices (stmatrix).
constexpr bool has_store_matrix(int architecture) {
  return architecture >= 90;
}

inline constexpr int kMmaRows = 16, kMmaColumns = 8, kMmaBytes = 32;  // of one instruction: m, n, bytes of k
inline constexpr int kGroupWarps = 4, kGroupThreads = 32 * kGroupWarps;
inline constexpr int kGroupRows = 64, kGroupMostColumns = 256;  // of wgmma: m, the largest n
inline constexpr int kRunColumns = 128;                         // n of wgmma, most, where its sums are added to others
inline constexpr int64_t kLeastAsyncBytes = 4;                  // of a cp.async
inline constexpr int kSlabBytes = 128;                          // of a row in one swizzle pattern, most

}  // namespace kachel::lowering
