// Buffers of the reference interpreter. Private to it.
#pragma once
#include <cstdint>
#include <vector>

#include "ir/interpret.h"
#include "ir/interval.h"

namespace kachel::ir {

// A tile, or a tensor argument. Tiles and written tensors hold cells in row-major order; an `in` tensor is decoded from
// the caller's memory at each access. Elements are addressed by offset: the sum of index times strides_[axis].
//
// Written tensors remember which block wrote each element. Blocks are unordered, so a second block's write, or a read
// of what another block has written, leaves the element undecided; the reverse order, a write after another block's
// read, is found out too late for the reader, so it is remembered in `racy` for another run (see interpret.cc).
class Memory {
 public:
  static Memory tile(DType type, std::vector<int64_t> shape);
  static Memory tensor(const HostTensor& tensor, Direction direction);

  DType type() const { return type_; }
  int rank() const { return static_cast<int>(shape_.size()); }
  int64_t extent(int axis) const { return shape_[axis]; }
  int64_t stride(int axis) const { return strides_[axis]; }
  int64_t size() const { return static_cast<int64_t>(cells_.size()); }
  bool is_output() const { return output_; }

  // As a declaration does; undecided without an initial value.
  void reset(const Cell& value = Cell::undecided());
  Cell load(int64_t offset, uint32_t block);
  // `value` is already one of the buffer's type. `maybe`: it is undecided whether the write happens.
  void store(int64_t offset, const Cell& value, uint32_t block, bool maybe);
  // As store(), for writes that must not meet: two with equal `set` and different `writer` leave the element undecided.
  void store_once(int64_t offset, const Cell& value, uint32_t block, bool maybe, uint32_t set, uint32_t writer);
  // REQUIRES: is_output(), or a tile.
  void combine(AtomicOp op, int64_t offset, const Cell& value, uint32_t block, bool maybe);
  // Something undecided may have been written anywhere.
  void taint(uint32_t block);

  // Prepares another run; keeps `racy`.
  void restart(const HostTensor& tensor, Direction direction);
  bool found_race() const { return found_race_; }
  void expect(std::vector<Expected>& out) const;

 private:
  enum : uint32_t { kNobody = 0xFFFFFFFF, kMany = 0xFFFFFFFE, kAtomic = 0xFFFFFFFD };

  Cell decode(int64_t offset) const;
  void fill_from(const HostTensor& tensor, Direction direction);
  void note_write(int64_t offset, uint32_t block);
  bool combines_with(size_t at, uint32_t block);

  DType type_ = DType::F32;
  bool output_ = false;
  std::vector<int64_t> shape_, strides_;
  const void* raw_ = nullptr;
  std::vector<Cell> cells_;
  std::vector<uint64_t> stamps_;  // set << 32 | writer of store_once()
  // Outputs only.
  std::vector<uint32_t> writer_, reader_;
  std::vector<uint8_t> written_, racy_;
  bool found_race_ = false;
  // Float sums: what the bound of a sum in any order needs. A tile's elements have that bound all along.
  std::vector<double> magnitude_, inexact_;
  std::vector<uint32_t> additions_;
};

}  // namespace kachel::ir
