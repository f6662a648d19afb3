// What lowering knows of a CPU. Every number about vectors, registers and caches stands here and nowhere else.
#pragma once
#include <algorithm>

#include "lowering/lower.h"

namespace kachel::lowering {

struct CpuMachine {
  int64_t lanes;      // of 32 bits in the widest vector
  int64_t registers;  // vector registers: 32 from AVX-512 on, 16 in AVX2 and SSE
};

inline CpuMachine cpu_machine(const Target& target) {
  return {target.vector_bits / 32, target.vector_bits >= 512 ? 32 : 16};
}

// A tensor of this many bytes leaves nothing of itself in the caches that is still there when it is read.
inline constexpr int64_t kStreamBytes = int64_t{32} << 20;
// Rows shorter than this are not worth the call.
inline constexpr int64_t kStreamRowBytes = 512;
inline constexpr int64_t kCacheLine = 64;
// What is asked for ahead of its use must still be in the second-level cache then.
inline constexpr int64_t kAheadBytes = int64_t{256} << 10;

// The part of C that a micro-kernel holds in registers: `rows` times `vectors` accumulators.
struct RegisterBlock {
  int64_t rows = 1, vectors = 1;
};

// Wide blocks need the fewest loads for a product: one broadcast of A serves `vectors` products. Beside the
// accumulators live a row of B and the broadcast; an eighth of the registers is left to the compiler, which spills
// otherwise. Rows and vectors are spread evenly, so that no block at the edge is much smaller than the rest.
inline RegisterBlock register_block(const CpuMachine& machine, int64_t rows, int64_t columns) {
  constexpr int64_t kMostRows = 16;  // more only lengthens the code
  auto up = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  const int64_t widest = machine.registers / 8, vectors = up(columns, machine.lanes);
  RegisterBlock block;
  block.vectors = up(vectors, up(vectors, widest));
  const int64_t most =
      std::clamp((machine.registers - machine.registers / 8 - block.vectors) / block.vectors, int64_t{1}, kMostRows);
  block.rows = up(rows, up(rows, most));
  return block;
}

// Distance of rows in a tile that vectors of whole width are loaded from and stored to, in 32-bit elements: a multiple
// of the width, and no multiple of 512 bytes, so that the rows of a block lie in different sets of the first-level
// cache.
inline int64_t vector_pitch(const CpuMachine& machine, int64_t columns) {
  int64_t pitch = (columns + machine.lanes - 1) / machine.lanes * machine.lanes;
  if (pitch * 4 % 512 == 0) pitch += machine.lanes;
  return pitch;
}

}  // namespace kachel::lowering
