// A kernel's signature as a launch walks it: flat and without pointers, so that a launch which finds its caches cold
// reads few lines. Names and texts stay in KernelModel.
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>
#include <iterator>

#include "lowering/lower.h"
#include "runtime/engine/bind/arguments.h"
#include "runtime/engine/bind/host_form.h"
#include "runtime/engine/bind/limits.h"

namespace kachel::runtime {

struct KernelModel;

// One tensor parameter. Its axes are walked from the last, so that the use that binds a dimension need not be the one
// that AxisModel says.
struct alignas(64) TensorEntry {
  static constexpr uint8_t kCheck = 128;  // of an axis: an earlier one has bound its dimension

  // Masks of the facts of each kind, kVector by log2 of its bytes less 2. What holds for many bytes holds for fewer.
  uint64_t unit_stride = 0, vector[3] = {}, transposed = 0, rows = 0;
  uint8_t param = 0, rank = 0;
  int8_t symbol = -1;
  uint8_t axes[kMaxRank] = {};       // dimensions; BoundArguments::kNoDim where it is a program that gives the extent
  ir::DType dtype = ir::DType::F32;  // where symbol < 0, as `expected`
  bool one_axis = false;             // `rows` is of kOneAxis
  DataType expected;
  uint16_t options = 0;  // bit per DType, where symbol >= 0
};
static_assert(sizeof(TensorEntry) == 64);

struct ScalarEntry {
  int64_t low = 0, high = 0;  // of integers
  uint8_t param = 0;
  bool is_float = false;
  // Masks of the facts kMultiple, by log2 of what it is a multiple of less that of the least such number.
  uint64_t multiple[4] = {};

  // Those that hold for the value.
  uint64_t facts_of(int64_t value) const {
    const int power =
        std::countr_zero(static_cast<uint64_t>(value)) - std::countr_zero(unsigned{lowering::kLeastMultiple});
    const bool holds = power >= 0 && lowering::is_multiple(value, lowering::kLeastMultiple);
    return holds ? multiple[std::min<size_t>(static_cast<size_t>(power), std::size(multiple) - 1)] : 0;
  }
};

struct alignas(64) BindTable {
  void fill(const KernelModel& model);  // REQUIRES: the rest of the model is complete and stays where it is

  uint8_t tensors = 0, scalars = 0, words = 0;
  bool has_programs = false;                     // conditions, or extents that a program gives
  uint64_t outputs = 0;                          // bit i: tensor[i] is written
  uint64_t index32_fact = 0, extent32_fact = 0;
  uint64_t aligned_facts = 0;                    // asked for on GPUs only
  HostForm word[kMaxSignature];                  // of a dispatch signature, after those that every kernel has
  ScalarEntry scalar[kMaxParams];
  TensorEntry tensor[kMaxParams];
};

}  // namespace kachel::runtime
