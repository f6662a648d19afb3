// A layout as a value: where each element of a tile lives. The row-major linear index of an element is split into
// mixed-radix digits, fastest first; every digit adds digit * stride to the thread, the register or the offset. The
// radices need not be powers of two (a 176-wide tile is [2][4][22]...), so one form holds cyclic and blocked fragments,
// instruction fragments and strided or padded shared memory.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace kachel::lowering {

class Layout {
 public:
  enum class Target : uint8_t { kThread, kRegister, kOffset };
  struct Digit {
    int64_t radix;
    Target target;
    int64_t stride;
    bool operator==(const Digit&) const = default;
  };
  struct Place {
    int64_t thread = 0, reg = 0, offset = 0;
    bool operator==(const Place&) const = default;
  };

  Layout() = default;
  // digits: fastest first; the product of the radices is at least the number of elements.
  Layout(std::vector<int64_t> shape, std::vector<Digit> digits);

  // Element e in register e / threads of thread e % threads.
  static Layout cyclic(std::vector<int64_t> shape, int64_t threads);
  // Element e at offset e.
  static Layout row_major(std::vector<int64_t> shape);
  // Row-major with rows (of the last axis) `pitch` elements apart. REQUIRES: pitch >= shape.back().
  static Layout padded(std::vector<int64_t> shape, int64_t pitch);

  const std::vector<int64_t>& shape() const { return shape_; }
  const std::vector<Digit>& digits() const { return digits_; }
  int64_t elements() const;
  Place place(int64_t linear) const;
  int64_t registers() const;      // per thread
  int64_t offset_extent() const;  // one past the largest offset
  // Offset between neighbours along `axis`. REQUIRES: row_major or padded.
  int64_t axis_stride(size_t axis) const;
  // No two elements share a place.
  bool injective() const;
  // "[64, 128]: 128 thread*1, 64 register*1"
  std::string print() const;
  bool operator==(const Layout&) const = default;

 private:
  int64_t largest(Target target) const;
  std::vector<int64_t> shape_;
  std::vector<Digit> digits_;
};

int64_t product(const std::vector<int64_t>& values);

}  // namespace kachel::lowering
