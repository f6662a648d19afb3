// Gemm on the CPU: which statements the register-blocked micro-kernel takes, and how tiles are laid out for it. An
// operand A is read an element at a time and may have any strides; B is read a vector of columns at a time, so a tile
// that is only B of products is held in panels: [N / width][K][width]; C has rows of whole vectors. Operands narrower
// than f32 are held as f32, rounded to their type when they are stored.
//
// Integers of up to 16 bits with sums in i32 are held as i16 in pairs along k, which is how processors multiply them:
// one instruction adds the products of a pair to a sum. That holds for tiles that are nothing but operands; other
// integer products are done element by element.
#pragma once
#include "lowering/plan/placement.h"

namespace kachel::lowering {

bool takes_micro_kernel(const ir::GemmStmt& gemm, const Placements& placements);

void place_cpu_operands(const ir::Kernel& kernel, const Target& target, Placements* placements);

// A gemm operand as a matrix in its tile: element (i, j) at offset first + i * stride[0] + j * stride[1].
// REQUIRES: an operand of a gemm that takes_micro_kernel(), not held in panels.
struct OperandMatrix {
  int64_t extent[2] = {1, 1}, stride[2] = {0, 0}, first = 0;
};
OperandMatrix operand_matrix(const ir::TileRef& ref, const Placement& placement);

}  // namespace kachel::lowering
