// Operands of mma.m16n8k8 word by word (GemmChoice::by_words). ldmatrix moves 16 bytes of a row to four lanes, so
// 32-bit elements have to lie along k, and a lane gets k = t and t + 4. What lies otherwise is loaded an element at a
// time, where the order of k within an instruction is free as long as A and B agree. Taken in pairs, 2 t and 2 t + 1, a
// lane's part of A is what it holds of an accumulator, and of four rows of a tile that are two apart eight neighbours
// lie in different banks, as the swizzle has them; of four rows one apart, which go with ldmatrix for A, two share
// banks.
#include "lowering/lower/tile_lowering.h"
#include "lowering/machine/machine.h"
#include "lowering/planted.h"

namespace kachel::lowering {

using ir::DType;
using ir::ExprRef;
using ir::Op;

// To `to` at `at` and `at + words.apart`: of the row, or column, `first` + lane / 4 of an operand the lane's two
// elements from `k` on.
void TileLowering::load_words(const ir::BufferRef& tile, const WordsOfK& words, const ExprRef& first, const ExprRef& k,
                              const ir::BufferRef& to, const ExprRef& at) {
  const ExprRef lane = ir::make_typed(Op::kMod, {ir::make_var(out_.thread), int32(32)});
  const ExprRef row = plus(first, ir::make_typed(Op::kDiv, {lane, int32(4)}));
  const ExprRef column = plus(k, times(ir::make_typed(Op::kMod, {lane, int32(4)}), words.in_pairs ? 2 : 1));
  const ir::BufferRef pair = temporary("pair", DType::F32, ir::Scope::kRegister, 2);
  if (words.k_down)
    for (int64_t i = 0; i < 2; ++i) {
      const ExprRef depth = plus(column, int32(words.in_pairs ? i : 4 * i));
      store(pair, int32(i), ir::make_load(storage(tile), {offset(tile, {depth, row}, nullptr)}), nullptr);
    }
  else
    move(LoopIntrinsic::Kind::kCopyVector, pair, int32(0), storage(tile), offset(tile, {row, column}, nullptr), 2,
         nullptr);
  for (int64_t i = 0; i < 2; ++i)
    store(to, plus(at, int32(i * words.apart)), ir::make_load(pair, {int32(planted(Planted::kPairOfK) ? 0 : i)}),
          nullptr);
}

// In pairs, of A the 16 rows from `m` on: from memory, or, of a fragment, its tile `number` of 16 x 8.
void TileLowering::load_left_words(const ir::GemmStmt& gemm, const GemmChoice& choice, const ExprRef& m,
                                   const ExprRef& k, const ExprRef& number, const ir::BufferRef& to,
                                   const ExprRef& at) {
  if (choice.a_in_registers) {
    // Held: two of a row, then two of the row eight further down. Wanted: rows first.
    for (int64_t i = 0; i < 4; ++i)
      store(to, plus(at, int32(i)),
            ir::make_load(storage(gemm.a.buffer), {plus(times(number, 4), int32(i % 2 * 2 + i / 2))}), nullptr);
    return;
  }
  for (int64_t half = 0; half < 2; ++half)
    load_words(gemm.a.buffer, {gemm.transpose_a, true, 2}, plus(m, int32(8 * half)), k, to, plus(at, int32(half)));
}

}  // namespace kachel::lowering
