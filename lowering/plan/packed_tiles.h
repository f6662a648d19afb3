// Tile IR to tile IR: a tile or fragment of 4-bit elements that is filled with parts of a 4-bit tensor and then read
// element by element,
//
//   q = W[n*BN +: BN, k*BK +: BK];  parallel i < BN, j < BK { ... q[i, j] ... }
//
// becomes a tile of bytes, filled with the bytes that the tensor is stored in: whole vectors of them can be copied, by
// the copy engine too, and the tile takes half as much memory or registers. A read takes its nibble out of the byte.
// What regions read of such a tensor itself is a byte likewise.
#pragma once
#include <optional>
#include <set>

#include "ir/kernel.h"

namespace kachel::lowering {

// REQUIRES: a concrete kernel for a GPU, not the generic lowering. Where the facts promise no whole bytes nothing
// changes. The result shares variables and the other buffers; tensors whose bytes are read stand in it as
// ir::Buffer::packed.
ir::Kernel packed_tiles(const ir::Kernel& kernel, uint64_t fact_mask);

// The element in a byte, of two of which the first is in the low half.
ir::ExprRef nibble(const ir::ExprRef& byte, const ir::ExprRef& column, ir::DType type);
// What such a read has become.
struct NibbleRead {
  const ir::Expr* byte;  // the load
  ir::ExprRef column;    // of the element
  ir::DType type;        // of the element, U4 or I4
};
std::optional<NibbleRead> nibble_read(const ir::Expr& expr);

// Types of 4 and 8 bits, of which LoopIntrinsic::kUnpack makes floats of 16.
bool is_unpacked(ir::DType type);

// The tensors of bytes that stand in it.
std::set<ir::BufferRef> byte_tensors(const ir::Kernel& kernel);

}  // namespace kachel::lowering
