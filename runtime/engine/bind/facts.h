// Which of the facts that a program's passes ask for hold for given arguments.
#pragma once
#include "lowering/lower.h"
#include "runtime/engine/bind/argument_binder.h"

namespace kachel::runtime {

inline constexpr int32_t kCpuDevice = 1;  // DLPack
inline constexpr int64_t kIndexLimit = int64_t{1} << 30;
inline constexpr int64_t kReachLimit = int64_t{1} << 36;  // of kExtent32: strides of tensor maps are below 2^40 bytes

// Whether a tensor's rows lie along its last axis but one.
inline bool is_transposed(int rank, const int64_t* shape, const int64_t* strides) {
  return rank >= 2 && strides[rank - 2] == 1 && strides[rank - 1] != 1 && shape[rank - 1] > 1 && shape[rank - 2] > 1;
}

// Whether the last two axes lie as one row of whole 16 bytes, which the last one alone, a short one, is not.
inline bool has_joined_rows(int rank, const int64_t* shape, const int64_t* strides, uint64_t address, int bits) {
  const int last = rank - 1;
  const int64_t row = shape[last] * bits;
  if (row > 8 * lowering::kMostJoinedBytes || row % 128 == 0) return false;
  if (strides[last] != 1 || strides[last - 1] != shape[last]) return false;
  uint64_t divisors = address * 8 | static_cast<uint64_t>(shape[last - 1] * shape[last] * bits);
  for (int axis = 0; axis < last - 1; ++axis)
    if (shape[axis] > 1) divisors |= strides[axis] ? static_cast<uint64_t>(strides[axis] * bits) : 64;
  return divisors % 128 == 0;
}

// How the last two axes lie as one: the mask of the facts, less those that ask for multiples of more bytes than there
// are. `facts`: kOneAxis of 16 bytes; that of 1 is the next bit.
inline uint64_t one_axis_facts(uint64_t facts, int rank, const int64_t* shape, const int64_t* strides, uint64_t address,
                               int bits) {
  const int last = rank - 1;
  if (strides[last] != 1 || (shape[last - 1] > 1 && strides[last - 1] != shape[last])) return 0;
  uint64_t divisors = address * 8 | static_cast<uint64_t>(shape[last - 1] * shape[last] * bits);
  for (int axis = 0; axis < last - 1; ++axis)
    if (shape[axis] > 1) divisors |= strides[axis] ? static_cast<uint64_t>(strides[axis] * bits) : 64;
  return facts << 1 | (divisors % 128 == 0 ? facts : 0);
}

uint64_t facts_that_hold(const KernelModel& model, const BoundArguments& arguments);

// "index32, unit stride of `A`"; "none".
std::string facts_text(const KernelModel& model, uint64_t mask);

}  // namespace kachel::runtime
