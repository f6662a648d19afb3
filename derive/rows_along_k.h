// Tensors of which products read other rows than they have: images with channels first,
//
//   parallel c < BK, j < BP { x[c, j] = X[n, k*BK + c, j / W + r, j % W + s] }   acc += f @ x
//
// whose elements for one pixel and neighbouring k lie far apart. With that axis as the last one, a pixel has a row of
// them, which whatever copies rows ahead can move: a kernel of its own lays the tensor out so. Where the tensor has
// such rows, of a length at which copies of 16 bytes cannot begin (131 channels of 16 bits), it fills them up.
//
// Columns that a loop copies one behind the other, `g = scale[n*BN +: BN, k]`, become rows of another tensor likewise. And
// rows that several loops copy to one tile, or that are copied under a condition, are filled up: such a tile is no
// operand slice (operand_slice.h).
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "ir/kernel.h"

namespace kachel::derive {

// Rows are filled up with zeros to a multiple of so many elements: 16 bytes of the narrowest type.
inline constexpr int64_t kRowMultiple = 16;

struct CrossedTensor {
  ir::BufferRef tensor;
  size_t axis = 0;       // that becomes the last one, or is it and is filled up
  enum class Read : uint8_t { kElements, kColumns, kRows } read = Read::kElements;  // for operands; kColumns: any tile
  bool has_rows() const { return axis + 1 == tensor->shape.size(); }
};

// Of which some region reads elements for a tile that is an operand of products, `base + i` along one axis for the
// index i along the products' k, and nothing else with i in it; and along another axis than the last not by vectors of
// the rows that there are, along the last one by vectors if rows allow them. And those of which a loop copies columns, or
// several copies rows. REQUIRES: verify() has passed the kernel.
std::vector<CrossedTensor> crossed_tensors(const ir::Kernel& kernel);

// What the laid-out tensor's axes extend to, in their order.
std::vector<ir::ExprRef> shape_of_rows(const CrossedTensor& crossed);
// The kernel with these reads from `rows`, one for each of `crossed`, in their place.
ir::Kernel with_rows(const ir::Kernel& kernel, const std::vector<CrossedTensor>& crossed,
                     const std::vector<ir::BufferRef>& rows);
// The kernel `name` that fills `rows`. `fresh` makes names that no kernel of the program has.
ir::Kernel layer_of(const ir::Kernel& kernel, const CrossedTensor& crossed, const ir::BufferRef& rows, std::string name,
                    const std::function<std::string(std::string)>& fresh);

}  // namespace kachel::derive
