// gemm by the tensor cores: mma.m16n8, operands by ldmatrix from shared memory or from registers. See tile_lowering.h.
//
// ldmatrix reads 8 x 16-byte matrices; lane l gives the row l % 8 of matrix l / 8, and register j holds matrix j. For
// k contiguous in memory the matrices of A are (rows 0-7, bytes 0-15), (8-15, 0-15), (0-7, 16-31), (8-15, 16-31), those
// of B two neighbouring tiles of 8 columns with their two halves of k. Where k goes down the rows the same 8 x 8
// elements are loaded transposed. Source: PTX ISA, ldmatrix and "Matrix Fragments for mma.m16n8k16".
#include "ir/print.h"
#include "lowering/lower/tile_lowering.h"
#include "lowering/machine/machine.h"
#include "lowering/plan/operand_slices.h"
#include "lowering/planted.h"

namespace kachel::lowering {

using ir::DType;
using ir::ExprRef;
using ir::Op;
using Kind = LoopIntrinsic::Kind;

// The left operand as instructions take it from registers. Of 16 bits it lies as accumulators do; of 8 bits a thread is
// to have four neighbours along k, of which its own are two.
ir::BufferRef TileLowering::left_registers(const ir::GemmStmt& gemm) {
  const ir::BufferRef& held = storage(gemm.a.buffer);
  if (ir::bits(held->type.dtype) != 8) return held;
  constexpr int64_t kJoined = 8;
  const int64_t elements = placements_.at(gemm.a.buffer.get()).fragment->registers();
  const ir::BufferRef joined = temporary("joined", held->type.dtype, ir::Scope::kRegister, elements);
  unrolled("quad", elements / kJoined, [&](const ExprRef& number) {
    const ExprRef first = times(number, kJoined);
    LoopIntrinsic join{planted(Planted::kNotJoined) ? Kind::kCopyVector : Kind::kQuadJoin, {}, nullptr};
    join.type = held->type.dtype;
    join.operands = {{joined, first, kJoined, true}, {held, first, kJoined, false}};
    emit({std::move(join)});
  });
  return joined;
}

void TileLowering::gemm_mma(const ir::GemmStmt& gemm, const GemmChoice& choice) {
  const ir::BufferRef &a = gemm.a.buffer, &b = gemm.b.buffer, &c = gemm.c.buffer;
  const std::vector<int64_t> shape = tile_shape(c);
  const OperandSlice left = *operand_slice(gemm.a), right = *operand_slice(gemm.b);
  const int64_t k_extent = left.shape[gemm.transpose_a ? 0 : 1];
  const int64_t step = choice.mma->k, half = step / 2;  // elements of 32 and of 16 bytes
  const int64_t rows = shape[0] / choice.warps_m, columns = shape[1] / choice.warps_n;  // of a warp
  const int64_t down = rows / kMmaRows, across = columns / kMmaColumns;
  const int64_t steps_of_k = k_extent / (step * choice.warps_k);  // of a warp
  const int64_t steps = steps_of_k - (planted(Planted::kGemmShortK) && k_extent > step ? 1 : 0);

  if (!gemm.accumulate || planted(Planted::kGemmNoAccumulate))
    unrolled("r", 4 * down * across, [&](ExprRef number) {
      store(storage(c), number, ir::is_float(choice.mma->c) ? ir::make_float(0) : ir::make_int(0, choice.mma->c),
            nullptr);
    });
  const ExprRef thread = ir::make_var(out_.thread);
  auto part = [&](const ExprRef& value, int64_t divisor, int64_t modulus) {
    ExprRef quotient = divisor == 1 ? value : ir::make_typed(Op::kDiv, {value, int32(divisor)});
    return modulus ? ir::make_typed(Op::kMod, {quotient, int32(modulus)}) : quotient;
  };
  const ExprRef lane = let("lane", part(thread, 1, 32)), warp = let("warp", part(thread, 32, 0));
  const ExprRef row_warp = planted(Planted::kWarpRow) ? plus(warp, int32(1)) : warp;
  const bool by_depth = choice.warps_k > 1;  // each warp has all of C
  const ExprRef first_row = by_depth ? int32(0) : let("warp_row", times(part(row_warp, 1, choice.warps_m), rows));
  const int64_t warps_n = choice.copies > 1 && !planted(Planted::kCopiedWarps) ? choice.warps_n : 0;  // 0: all others
  const ExprRef first_column =
      by_depth ? int32(0) : let("warp_column", times(part(warp, choice.warps_m, warps_n), columns));
  const ExprRef first_k =
      by_depth && !planted(Planted::kSameDepth) ? let("warp_k", times(warp, steps_of_k * step)) : nullptr;
  const ExprRef within = let("matrix_row", part(lane, 1, 8)), low = let("matrix_low", part(lane, 8, 2)),
                high = let("matrix_high", part(lane, 16, 0));

  const bool a_as_held = choice.a_in_registers && !choice.in_pairs;
  const bool b_by_words = choice.in_pairs || (choice.by_words && !gemm.transpose_b);
  const DType a_word = choice.in_pairs ? DType::F32 : DType::U32, b_word = b_by_words ? DType::F32 : DType::U32;
  const ir::BufferRef a_part =
      a_as_held ? left_registers(gemm) : temporary("a_part", a_word, ir::Scope::kRegister, 4 * down);
  const ir::BufferRef b_part =
      choice.b_in_registers ? storage(b) : temporary("b_part", b_word, ir::Scope::kRegister, 2 * across);
  const auto placed = [&](const OperandSlice& slice, size_t axis, const ExprRef& at) {
    const ExprRef& start = slice.starts[axis];
    return start ? plus(ir::make_cast({at->type, nullptr}, scalar(start, nullptr)), at) : at;
  };
  auto load_matrix = [&](const ir::BufferRef& tile, const ExprRef& row, const ExprRef& column, bool transpose,
                         int matrices, const ir::BufferRef& to, ExprRef at) {
    const OperandSlice& slice = tile == a && to == a_part ? left : right;
    LoopIntrinsic load{Kind::kLoadMatrix, {}, nullptr};
    load.immediate = matrices;
    load.transpose = transpose && !planted(Planted::kMatrixNotTransposed);
    load.type = tile->type.dtype;
    load.operands = {{to, std::move(at), matrices, true},
                     {storage(tile), offset(tile, {placed(slice, 0, row), placed(slice, 1, column)}, nullptr),
                      16 / (ir::bits(load.type) / 8), false}};
    emit({std::move(load)});
  };

  auto multiply = [&](const ExprRef& k) {
    const ExprRef k_first = plus(first_k, times(k, step));
    if (!a_as_held)
      unrolled("m_tile", down, [&](ExprRef i) {
        const ExprRef m = plus(first_row, times(i, kMmaRows));
        if (choice.in_pairs)
          return load_left_words(gemm, choice, m, k_first, plus(times(i, steps_of_k), k), a_part, times(i, 4));
        const bool swapped = planted(Planted::kSwappedFragment);
        if (!gemm.transpose_a)
          load_matrix(a, plus(m, plus(times(swapped ? high : low, 8), within)),
                      plus(k_first, times(swapped ? low : high, half)), false, 4, a_part, times(i, 4));
        else
          load_matrix(a, plus(k_first, plus(times(high, 8), within)), plus(m, times(low, 8)), true, 4, a_part,
                      times(i, 4));
      });
    auto load_b = [&](const ExprRef& tile, int matrices) {  // one or two tiles of 8 columns
      const ExprRef n = plus(first_column, times(tile, kMmaColumns));
      if (b_by_words) {
        const WordsOfK words{!gemm.transpose_b, choice.in_pairs, 1};
        for (int64_t i = 0; i < matrices / 2; ++i)
          load_words(b, words, plus(n, int32(8 * i)), k_first, b_part, times(plus(tile, int32(i)), 2));
        return;
      }
      const ExprRef second = matrices == 4 ? times(high, 8) : int32(0);
      if (gemm.transpose_b)
        load_matrix(b, plus(n, plus(second, within)), plus(k_first, times(low, half)), false, matrices, b_part,
                    times(tile, 2));
      else
        load_matrix(b, plus(k_first, plus(times(low, 8), within)), plus(n, second), true, matrices, b_part,
                    times(tile, 2));
    };
    if (!choice.b_in_registers) {
      if (across > 1) unrolled("n_pair", across / 2, [&](ExprRef i) { load_b(times(i, 2), 4); });
      if (across % 2) load_b(int32(across - 1), 2);
    }
    unrolled("m_tile", down, [&](ExprRef i) {
      unrolled("n_tile", across - (planted(Planted::kDroppedMma) && across > 1 ? 1 : 0), [&](ExprRef j) {
        const ExprRef at = times(plus(times(i, across), j), 4);
        // In registers A has the layout of an accumulator: two tiles of 8 columns are one step of k.
        const ExprRef a_at = a_as_held ? plus(times(i, steps_of_k * half),
                                              times(k, planted(Planted::kRegisterOperand) ? half / 2 : half))
                                       : times(i, 4);
        LoopIntrinsic mma{Kind::kMma, {}, nullptr};
        mma.type = choice.mma->a;
        mma.type_b = choice.mma->b;
        mma.widened = choice.widened;
        mma.operands = {{storage(c), at, 4, true},
                        {a_part, a_at, a_as_held ? half : 4, false},
                        {b_part, choice.b_in_registers ? times(plus(times(j, steps_of_k), k), 4) : times(j, 2),
                         choice.b_in_registers ? 4 : 2, false}};
        emit({std::move(mma)});
      });
    });
  };
  // Of many steps unrolled at once compilers load the operands of one ahead of the step before it, and more of them
  // where registers do not suffice even for that. Operands in registers have to be known by number.
  constexpr int64_t kStepsAtOnce = 4, kAddresses = 24;  // the latter: registers for all that is no tile
  int64_t registers = kAddresses + 4 * down + 2 * across;
  for (const LoopBuffer& buffer : out_.buffers)
    if (buffer.buffer->scope == ir::Scope::kRegister)
      registers += buffer.elements * ir::bits(buffer.buffer->type.dtype) / 32;
  if (registers <= machine_of(target_.architecture).registers_per_thread || choice.a_in_registers ||
      choice.b_in_registers || steps <= kStepsAtOnce || steps % kStepsAtOnce)
    return unrolled("k_step", steps, multiply);
  serial("k_part", int64(steps / kStepsAtOnce), false, [&](ExprRef part) {
    const ExprRef first = times(ir::make_cast({DType::I32, nullptr}, part), kStepsAtOnce);
    unrolled("k_step", kStepsAtOnce, [&](ExprRef k) { multiply(plus(first, k)); });
  });
}

}  // namespace kachel::lowering
