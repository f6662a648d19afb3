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
  // Of an offset layout: the last axis in chunks of `chunk` elements, whose number is exchanged within each row:
  // chunk ^ (row / rows & mask). With 16-byte chunks, 8 rows of a column lie in 8 different groups of banks.
  struct Swizzle {
    int64_t chunk = 1, rows = 1, mask = 0;  // mask 0: none
    bool operator==(const Swizzle&) const = default;
  };
  // Of an offset layout: so many elements are left out behind each `every`, for what walks it in strides of powers of two.
  struct Gap {
    int64_t every = 0, by = 0;  // every 0: none
    bool operator==(const Gap&) const = default;
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
  // For 16-byte accesses along rows and along columns without bank conflicts: swizzled where a power of two of chunks
  // makes a row, else with rows an odd number of chunks apart. REQUIRES: rows of whole 16-byte chunks.
  static Layout conflict_free(std::vector<int64_t> shape, int64_t element_bytes);
  // Row-major with 16 bytes left out behind each line of the banks, or each second one where a row has two words: rows that
  // are a power of two apart lie in eight different groups of banks. REQUIRES: rows of 2, 4 or 8 bytes.
  static Layout gapped(std::vector<int64_t> shape, int64_t element_bytes);
  // A matrix as wgmma reads it: slabs of 128 bytes of each row, one after the other, in each of them the rows, and the
  // chunks of 16 bytes swizzled; the last slab may be filled in part. Rows of 32 or 64 bytes are slabs themselves,
  // unless slabs are to be `whole`. Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory Layout".
  // REQUIRES: rows of whole 16-byte chunks.
  static Layout slabs(std::vector<int64_t> shape, int64_t element_bytes, bool whole = false);

  // Columns that lie beside each other: those of a slab, or all.
  int64_t slab_columns() const { return slab_columns_ ? slab_columns_ : shape_.back(); }
  // Columns that there is room for: all of the last slab's too.
  int64_t padded_columns() const;
  const std::vector<int64_t>& shape() const { return shape_; }
  const std::vector<Digit>& digits() const { return digits_; }
  int64_t elements() const;
  Place place(int64_t linear) const;
  int64_t registers() const;      // per thread
  int64_t offset_extent() const;  // one past the largest offset
  const Swizzle& swizzle() const { return swizzle_; }
  const Gap& gap() const { return gap_; }
  // Offset between neighbours along `axis`, before the swizzle and without gaps. REQUIRES: an offset layout.
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
  Swizzle swizzle_;
  Gap gap_;
  int64_t slab_columns_ = 0;  // 0: there are no slabs
};

int64_t product(const std::vector<int64_t>& values);

}  // namespace kachel::lowering
