// What the lanes of a warp do together. Source of the fragments: PTX ISA, "Matrix Fragments" of ldmatrix and mma.m16n8.
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "tests/lowering/simulated_machine.h"
#include "tests/lowering/tensor_sums.h"

namespace kachel::lowering {

using ir::DType;

namespace {

constexpr size_t kRows = 16, kColumns = 8, kStepBytes = 32;  // m, n, and k in bytes

// Nearest, ties away from zero, 10 bits of mantissa.
float to_tf32(float value) {
  if (!std::isfinite(value)) return value;
  return std::bit_cast<float>((std::bit_cast<uint32_t>(value) + 0x1000u) & ~0x1FFFu);
}

bool supported(DType a, DType b, DType c) {
  auto byte = [](DType type) { return type == DType::I8 || type == DType::U8; };
  if (byte(a) && byte(b)) return c == DType::I32;
  if (ir::is_float8(a) && ir::is_float8(b)) return c == DType::F32;
  return a == b && c == DType::F32 && (a == DType::F16 || a == DType::BF16 || a == DType::F32);
}

}  // namespace

void Machine::warp_operation(const SimStmt& stmt, Warp warp) {
  if (warp.size() != kLanes) return fail("an operation of a warp that is not whole");
  if (stmt.kind == SimStmt::Kind::kShuffle) return shuffle(stmt, warp);
  if (stmt.kind == SimStmt::Kind::kLoadMatrix) return load_matrix(stmt, warp);
  if (stmt.kind == SimStmt::Kind::kStoreMatrix) return store_matrix(stmt, warp);
  if (stmt.kind == SimStmt::Kind::kBulkStore) return bulk_store(stmt, warp);
  if (stmt.kind == SimStmt::Kind::kBulkStoreWait)
    return finish_stores(static_cast<size_t>(warp[0].number) / kLanes, static_cast<size_t>(stmt.immediate));
  if (stmt.kind == SimStmt::Kind::kQuadExchange) return quad_exchange(stmt, warp);
  if (stmt.kind == SimStmt::Kind::kQuadJoin) return quad_join(stmt, warp);
  if (stmt.kind == SimStmt::Kind::kTurnMatrix) return turn_matrix(stmt, warp);
  if (stmt.kind != SimStmt::Kind::kMma) return group_operation(stmt, warp);
  mma(stmt, warp);
}

void Machine::shuffle(const SimStmt& stmt, Warp warp) {
  std::array<ir::Scalar, kLanes> values;
  for (size_t lane = 0; lane < kLanes; ++lane) values[lane] = eval(stmt.a, warp[lane]);
  if (stmt.immediate == kAnyLane) {
    ir::Scalar any{DType::Bool, 0, 0};
    for (const ir::Scalar& value : values) any.i |= value.i;
    values.fill(any);
  }
  for (size_t lane = 0; lane < kLanes; ++lane)
    set(warp[lane], stmt.slot, values[lane ^ static_cast<size_t>(stmt.immediate)]);
}

void Machine::quad_exchange(const SimStmt& stmt, Warp warp) {
  const SimStmt::Operand& operand = stmt.operands[0];
  if (bytes_of(stmt) != 16) return fail("four lanes exchange other than four words");
  for (size_t first = 0; first < kLanes; first += 4) {
    uint8_t* words[4];
    uint8_t before[4][16];
    for (size_t q = 0; q < 4; ++q) {
      Thread& lane = warp[first + q];
      words[q] = vector(operand, eval(operand.index, lane).i, 16, lane, Access::kWrite);
      if (!words[q]) return;
      std::memcpy(before[q], words[q], 16);
    }
    for (size_t q = 0; q < 4; ++q)
      for (size_t j = 0; j < 4; ++j) std::memcpy(words[j] + 4 * q, before[q] + 4 * j, 4);
  }
}

void Machine::quad_join(const SimStmt& stmt, Warp warp) {
  const SimStmt::Operand &to = stmt.operands[0], &from = stmt.operands[1];
  if (bytes_of(stmt) != 8 || type_of(to.buffer) != type_of(from.buffer))
    return fail("four lanes join other than two words");
  for (size_t first = 0; first < kLanes; first += 4) {
    uint8_t rows[2][16];
    for (size_t q = 0; q < 4; ++q) {
      Thread& lane = warp[first + q];
      const uint8_t* elements = vector(from, eval(from.index, lane).i, 4, lane, Access::kRead);
      if (!elements) return;
      for (size_t tile = 0; tile < 2; ++tile)
        for (size_t row = 0; row < 2; ++row)
          std::memcpy(rows[row] + 8 * tile + 2 * q, elements + 4 * tile + 2 * row, 2);
    }
    for (size_t q = 0; q < 4; ++q) {
      Thread& lane = warp[first + q];
      uint8_t* elements = vector(to, eval(to.index, lane).i, 4, lane, Access::kWrite);
      if (!elements) return;
      for (size_t row = 0; row < 2; ++row) std::memcpy(elements + 4 * row, rows[row] + 4 * q, 4);
    }
  }
}

void Machine::turn_matrix(const SimStmt& stmt, Warp warp) {
  const SimStmt::Operand &to = stmt.operands[0], &from = stmt.operands[1];
  if (bytes_of(stmt) != 8) return fail("a matrix is turned whose lanes have other than two words");
  uint8_t matrix[8][8][4];
  for (size_t number = 0; number < kLanes; ++number) {
    Thread& lane = warp[number];
    const uint8_t* elements = vector(from, eval(from.index, lane).i, 8, lane, Access::kRead);
    if (!elements) return;
    std::memcpy(matrix[number / 4][2 * (number % 4)], elements, 8);
  }
  for (size_t number = 0; number < kLanes; ++number) {
    Thread& lane = warp[number];
    uint8_t* elements = vector(to, eval(to.index, lane).i, 8, lane, Access::kWrite);
    if (!elements) return;
    for (size_t i = 0; i < 2; ++i) std::memcpy(elements + 4 * i, matrix[2 * (number % 4) + i][number / 4], 4);
  }
}

void Machine::store_matrix(const SimStmt& stmt, Warp warp) {
  const SimStmt::Operand &to = stmt.operands[0], &from = stmt.operands[1];
  if (buffer(to.buffer).kind != SimBuffer::Kind::kShared)
    return fail(fmt::format("a matrix is stored to `{}`, which is not in shared memory", buffer(to.buffer).name));
  if (stmt.immediate != 4 || bytes_of(stmt) != 16 || from.elements * ir::bits(type_of(from.buffer)) != 128)
    return fail("a matrix's rows or fragments have another size than its instruction");
  uint8_t rows[4][8][16];
  for (size_t lane = 0; lane < kLanes; ++lane) {
    const uint8_t* source = vector(from, eval(from.index, warp[lane]).i, 4, warp[lane], Access::kRead);
    if (!source) return;
    for (size_t matrix = 0; matrix < 4; ++matrix)
      std::memcpy(rows[matrix][lane / 4] + 4 * (lane % 4), source + 4 * matrix, 4);
  }
  ++result_.matrix_stores;
  for (size_t matrix = 0; matrix < 4; ++matrix) {
    std::array<int64_t, 8> addresses;
    for (size_t row = 0; row < 8; ++row) {
      Thread& lane = warp[8 * matrix + row];
      const int64_t at = eval(to.index, lane).i;
      uint8_t* target = memory_.vector(to.buffer, at, to.elements, 16, {lane.number, nullptr, true}, Access::kWrite);
      if (!target) return;
      std::memcpy(target, rows[matrix][row], 16);
      addresses[row] = memory_.shared_address(to.buffer, at);
    }
    result_.matrix_conflicts += bank_conflicts(addresses, 16);
  }
}

void Machine::load_matrix(const SimStmt& stmt, Warp warp) {
  const SimStmt::Operand &to = stmt.operands[0], &from = stmt.operands[1];
  const auto matrices = static_cast<size_t>(stmt.immediate);
  if (buffer(from.buffer).kind != SimBuffer::Kind::kShared)
    return fail(fmt::format("a matrix is loaded from `{}`, which is not in shared memory", buffer(from.buffer).name));
  if (stmt.transpose && ir::bits(type_of(from.buffer)) != 16)
    return fail("a matrix of other than 16 bits is transposed");
  if (bytes_of(stmt) != stmt.immediate * 4 || from.elements * ir::bits(type_of(from.buffer)) != 128)
    return fail("a matrix's rows or fragments have another size than its instruction");
  uint8_t rows[4][8][16];
  std::array<int64_t, 8> addresses;
  ++result_.matrix_loads;
  for (size_t matrix = 0; matrix < matrices; ++matrix) {
    for (size_t row = 0; row < 8; ++row) {
      Thread& lane = warp[8 * matrix + row];
      const int64_t at = eval(from.index, lane).i;
      const uint8_t* source =
          memory_.vector(from.buffer, at, from.elements, 16, {lane.number, nullptr, true}, Access::kRead);
      if (!source) return;
      std::memcpy(rows[matrix][row], source, 16);
      addresses[row] = memory_.shared_address(from.buffer, at);
    }
    result_.matrix_conflicts += bank_conflicts(addresses, 16);
  }
  for (size_t lane = 0; lane < kLanes; ++lane) {
    uint8_t* target = vector(to, eval(to.index, warp[lane]).i, 4, warp[lane], Access::kWrite);
    if (!target) return;
    for (size_t matrix = 0; matrix < matrices; ++matrix) {
      const size_t row = lane / 4, column = lane % 4;
      if (!stmt.transpose) {
        std::memcpy(target + 4 * matrix, rows[matrix][row] + 4 * column, 4);
        continue;
      }
      std::memcpy(target + 4 * matrix, rows[matrix][2 * column] + 2 * row, 2);
      std::memcpy(target + 4 * matrix + 2, rows[matrix][2 * column + 1] + 2 * row, 2);
    }
  }
}

// Register r of A holds row lane / 4 + 8 * (r % 2) and half r / 2 of k, register r of B column lane / 4 and half r;
// lane % 4 selects 4 bytes of k.
void Machine::mma(const SimStmt& stmt, Warp warp) {
  const SimStmt::Operand &c = stmt.operands[0], &a = stmt.operands[1], &b = stmt.operands[2];
  const DType type_c = type_of(c.buffer);
  if (!supported(stmt.type, stmt.type_b, type_c)) return fail("mma of types that no instruction multiplies");
  const auto width = static_cast<size_t>(ir::bits(stmt.type) / 8), each = 4 / width, depth = kStepBytes / width;
  auto bits = [&](const SimStmt::Operand& operand) { return operand.elements * ir::bits(type_of(operand.buffer)); };
  if (bits(a) != 128 || bits(b) != 64 || bits(c) != 128) return fail("mma with fragments of another size");

  // 8-bit floats are added up 16 at a time.
  const bool short_sums = ir::is_float8(stmt.type) && !stmt.widened;
  ir::Scalar left[kRows][kStepBytes], right[kStepBytes][kColumns], sum[kRows][kColumns];
  uint8_t* results[kLanes];
  for (size_t lane = 0; lane < kLanes; ++lane) {
    Thread& thread = warp[lane];
    const uint8_t* a_part = vector(a, eval(a.index, thread).i, 4, thread, Access::kRead);
    const uint8_t* b_part = vector(b, eval(b.index, thread).i, 4, thread, Access::kRead);
    results[lane] = vector(c, eval(c.index, thread).i, 4, thread, Access::kWrite);
    if (!a_part || !b_part || !results[lane]) return;
    const size_t group = lane / 4, first = lane % 4 * each;
    for (size_t i = 0; i < 4 * each; ++i)
      left[group + 8 * (i / each % 2)][first + i % each + depth / 2 * (i / each / 2)] =
          ir::load_element(stmt.type, a_part, static_cast<int64_t>(i));
    for (size_t i = 0; i < 2 * each; ++i)
      right[first + i % each + depth / 2 * (i / each)][group] =
          ir::load_element(stmt.type_b, b_part, static_cast<int64_t>(i));
    for (size_t i = 0; i < 4; ++i)
      sum[group + 8 * (i / 2)][lane % 4 * 2 + i % 2] = ir::load_element(type_c, results[lane], static_cast<int64_t>(i));
  }
  for (size_t m = 0; m < kRows; ++m)
    for (size_t n = 0; n < kColumns; ++n) {
      ir::Scalar& total = sum[m][n];
      for (size_t k = 0; short_sums && k < depth; k += depth / 2) {
        std::vector<double> terms{total.f};
        for (size_t i = 0; i < depth / 2; ++i) terms.push_back(left[m][k + i].f * right[k + i][n].f);
        total.f = short_sum(terms);
      }
      if (short_sums) continue;
      for (size_t k = 0; k < depth; ++k) {
        const ir::Scalar &x = left[m][k], &y = right[k][n];
        if (type_c == DType::I32) {
          total.i = ir::wrap_integer(DType::I32, total.i + x.i * y.i);
          continue;
        }
        auto factor = [&](const ir::Scalar& value) {
          const auto exact = static_cast<float>(value.f);
          return stmt.type == DType::F32 ? to_tf32(exact) : exact;
        };
        total.f = static_cast<float>(total.f) + factor(x) * factor(y);
      }
    }
  for (size_t lane = 0; lane < kLanes; ++lane)
    for (size_t i = 0; i < 4; ++i)
      ir::store_element(type_c, results[lane], static_cast<int64_t>(i),
                        sum[lane / 4 + 8 * (i / 2)][lane % 4 * 2 + i % 2]);
}

}  // namespace kachel::lowering
