// The host expressions that most kernels have, in 16 bytes and evaluated in place: one value, or one operation on a
// dimension. Everything else is left to a HostProgram.
#pragma once
#include <bit>
#include <cstdint>

namespace kachel::runtime {

// Values during evaluation, by position.
struct HostInputs {
  const int64_t* dims = nullptr;
  const uint64_t* scalars = nullptr;  // by parameter index, as in a launch slot: f32 as bits in the low half
  const int64_t* tunables = nullptr;
};

class HostProgram;

struct HostForm {
  enum class Kind : uint8_t {
    kConst,
    kDim,
    kScalar,      // as it is in its slot
    kBucket,      // bucket(dim)
    kCeilDiv,     // ceildiv(dim, value), value > 0
    kMultipleOf,  // dim % value == 0, value > 0
    kProgram,
  };
  Kind kind = Kind::kConst;
  uint8_t position = 0;
  union {
    int64_t value = 0;
    const HostProgram* program;  // must outlive the form
  };

  static HostForm of_dim(int dim) { return {Kind::kDim, static_cast<uint8_t>(dim)}; }
  static HostForm of_scalar(int param) { return {Kind::kScalar, static_cast<uint8_t>(param)}; }

  int64_t run(const HostInputs& inputs) const {
    if (kind == Kind::kDim) return inputs.dims[position];
    if (kind == Kind::kConst) return value;
    if (kind == Kind::kScalar) return static_cast<int64_t>(inputs.scalars[position]);
    if (kind == Kind::kProgram) return run_program(inputs);
    const int64_t dim = inputs.dims[position];
    if (kind == Kind::kBucket) return bucket(dim);
    const int64_t quotient = dim / value, rest = dim % value;
    return kind == Kind::kCeilDiv ? quotient + (rest > 0) : rest == 0;
  }

 private:
  static int64_t bucket(int64_t dim) {
    constexpr int64_t kLargest = int64_t{1} << 62;
    if (dim > kLargest) return kLargest;
    return dim <= 1 ? 1 : static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(dim)));
  }
  int64_t run_program(const HostInputs& inputs) const;
};
static_assert(sizeof(HostForm) == 16);

}  // namespace kachel::runtime
