// What the lanes of a warp do together. Source of the fragments: PTX ISA, "Matrix Fragments" of ldmatrix and mma.m16n8.
#include <array>
#include <cstring>

#include "tests/lowering/ptx_machine_functions.h"
#include "tests/lowering/ptx_machine_state.h"
#include "tests/lowering/tensor_sums.h"

namespace kachel::lowering {
namespace {

using ir::DType;

constexpr size_t kWarp = 32, kRows = 16, kColumns = 8, kStepBytes = 32;  // m, n, and k in bytes

}  // namespace

void PtxMachine::warp_operation(const PtxInstruction& code, Warp warp) {
  if (code.kind == PtxKind::kWarpBarrier) return;
  for (const Thread& lane : warp)
    if (lane.ended || warp.size() != kWarp) return fail(code, lane, "an operation of a warp that is not whole");
  if (code.kind == PtxKind::kVoteAny) return vote(code, warp);
  if (code.kind == PtxKind::kLoadMatrix) return load_matrices(code, warp);
  if (code.kind == PtxKind::kStoreMatrix) return store_matrices(code, warp);
  if (code.kind == PtxKind::kMma) return mma(code, warp);
  shuffle(code, warp);
}

// shfl result, value, which, 31, -1
void PtxMachine::shuffle(const PtxInstruction& code, Warp warp) {
  std::array<uint64_t, kWarp> values;
  for (size_t lane = 0; lane < kWarp; ++lane) {
    const uint64_t* file = warp[lane].file;
    if (file[code.words[3]] != 31 || static_cast<uint32_t>(file[code.words[4]]) != 0xffffffff)
      return fail(code, warp[lane], "a part of a warp shuffles");
    const uint64_t from = file[code.words[2]] & 31;
    values[lane] = warp[code.kind == PtxKind::kShuffle ? lane ^ from : from].file[code.words[1]];
  }
  for (size_t lane = 0; lane < kWarp; ++lane) set(warp[lane], code.words[0], values[lane]);
}

void PtxMachine::vote(const PtxInstruction& code, Warp warp) {
  uint64_t any = 0;
  for (const Thread& lane : warp) any |= lane.file[code.words[1]];
  for (Thread& lane : warp) set(lane, code.words[0], any);
}

void PtxMachine::load_matrices(const PtxInstruction& code, Warp warp) {
  uint8_t rows[4][8][16];
  for (size_t i = 0; i < 8 * code.results; ++i) {
    const uint8_t* source = memory(code, warp[i], PtxSpace::kShared, code.last(), code.offsets[0], 16);
    if (!source) return;
    std::memcpy(rows[i / 8][i % 8], source, 16);
  }
  for (size_t lane = 0; lane < kWarp; ++lane)
    for (size_t matrix = 0; matrix < code.results; ++matrix) {
      const size_t row = lane / 4, column = lane % 4;
      uint16_t halves[2];
      for (size_t i = 0; i < 2; ++i)
        std::memcpy(&halves[i],
                    code.transposed ? rows[matrix][2 * column + i] + 2 * row : rows[matrix][row] + 4 * column + 2 * i,
                    2);
      set(warp[lane], code.words[matrix], halves[0] | uint64_t{halves[1]} << 16);
    }
}

void PtxMachine::store_matrices(const PtxInstruction& code, Warp warp) {
  uint8_t rows[4][8][16];
  for (size_t lane = 0; lane < kWarp; ++lane)
    for (size_t matrix = 0; matrix < code.results; ++matrix)
      for (size_t i = 0; i < 2; ++i) {
        const auto half = static_cast<uint16_t>(warp[lane].file[code.words[1 + matrix]] >> 16 * i);
        const size_t row = lane / 4, column = 2 * (lane % 4) + i;
        std::memcpy(code.transposed ? rows[matrix][column] + 2 * row : rows[matrix][row] + 2 * column, &half, 2);
      }
  for (size_t i = 0; i < 8 * code.results; ++i) {
    uint8_t* target = memory(code, warp[i], PtxSpace::kShared, code.words[0], code.offsets[0], 16);
    if (!target) return;
    std::memcpy(target, rows[i / 8][i % 8], 16);
  }
}

// Register r of A holds row lane / 4 + 8 * (r % 2) and half r / 2 of k, register r of B column lane / 4 and half r;
// lane % 4 selects 4 bytes of k.
void PtxMachine::mma(const PtxInstruction& code, Warp warp) {
  const auto width = static_cast<size_t>(ir::bits(code.type) / 8), each = 4 / width, depth = kStepBytes / width;
  const bool is_float = ir::is_float(code.type), short_sums = ir::is_float8(code.type);
  const auto number = [&](DType type, uint64_t word, size_t i) {
    const auto bits = static_cast<uint32_t>(word) >> 8 * width * i;
    if (type == DType::F32) return cut_to_tf32(std::bit_cast<float>(bits));
    if (type == DType::I8) return static_cast<float>(static_cast<int8_t>(bits));
    if (type == DType::U8) return static_cast<float>(static_cast<uint8_t>(bits));
    return narrow_float(type, bits & ((1u << 8 * width) - 1));
  };
  float a[kRows][kStepBytes], b[kColumns][kStepBytes];
  for (size_t lane = 0; lane < kWarp; ++lane) {
    const size_t group = lane / 4, first = lane % 4 * each;
    const auto word = [&](size_t i) { return warp[lane].file[code.words[i]]; };
    for (size_t i = 0; i < each; ++i) {
      for (size_t r = 0; r < 4; ++r)
        a[group + 8 * (r % 2)][first + i + depth / 2 * (r / 2)] = number(code.type, word(4 + r), i);
      for (size_t r = 0; r < 2; ++r) b[group][first + i + depth / 2 * r] = number(code.type_b, word(8 + r), i);
    }
  }
  for (size_t lane = 0; lane < kWarp; ++lane) {
    const auto sum = [&](size_t r, uint64_t before) -> uint64_t {
      const float *x = a[lane / 4 + 8 * (r / 2)], *y = b[lane % 4 * 2 + r % 2];
      if (!is_float) {
        int64_t total = static_cast<int32_t>(before);
        for (size_t k = 0; k < depth; ++k) total += static_cast<int64_t>(x[k] * y[k]);
        return static_cast<uint64_t>(total);
      }
      float total = std::bit_cast<float>(static_cast<uint32_t>(before));
      for (size_t k = 0; short_sums && k < depth; k += depth / 2) {
        std::vector<double> terms{double{total}};
        for (size_t i = k; i < k + depth / 2; ++i) terms.push_back(double{x[i]} * y[i]);
        total = static_cast<float>(short_sum(terms));
      }
      for (size_t k = 0; !short_sums && k < depth; ++k) total += x[k] * y[k];
      return std::bit_cast<uint32_t>(total);
    };
    uint64_t results[4];
    for (size_t r = 0; r < 4; ++r) results[r] = sum(r, warp[lane].file[code.words[10 + r]]);
    for (size_t r = 0; r < 4; ++r) set(warp[lane], code.words[r], results[r]);
  }
}

}  // namespace kachel::lowering
