// What the passes know of a GPU architecture, in one table. Sources: the CUDA C++ Programming Guide's table of
// technical specifications per compute capability, and the PTX ISA's tables of mma shapes.
#pragma once
#include <cstdint>

#include "ir/dtype.h"

namespace kachel::lowering {

// One warp-level mma.m16n8: C (m x n) += A (m x k) B (k x n), `k` elements of A's type, always 32 bytes of a row.
struct MmaShape {
  ir::DType a, b, c;
  int k;
  int since;            // first architecture
  bool needs_tf32;      // only where the program allows to round f32 operands to tf32
  bool load_transposed; // ldmatrix can exchange rows and columns: 16-bit elements only
};

struct Machine {
  int architecture;           // 10 * major + minor, the first that this row describes
  int registers_per_sm;       // of 32 bits
  int registers_per_thread;   // most
  int64_t shared_per_sm;      // bytes
  int64_t shared_per_block;   // bytes, most, opted in
  int threads_per_sm;
};

// The row for an architecture: the last one not above it. REQUIRES: architecture >= 80.
const Machine& machine_of(int architecture);

// Null, and why in `reason`, if no tensor core instruction of the architecture multiplies these types.
const MmaShape* find_mma(int architecture, ir::DType a, ir::DType b, ir::DType c, bool tf32, const char** reason);

inline constexpr int kMmaRows = 16, kMmaColumns = 8, kMmaBytes = 32;  // of one instruction: m, n, bytes of k

}  // namespace kachel::lowering
