// What the lower_*.cc and cpu_*.cc files hand each other. Private to them.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "ir/kernel.h"
#include "lowering/loop_ir/range.h"
#include "lowering/plan/fragment_layout.h"

namespace kachel::lowering {

struct Division {
  ir::ExprRef quotient, rest;
};

struct Slice {  // a TileRef with its uniform parts evaluated
  const ir::TileRef* ref;
  std::vector<ir::ExprRef> starts;  // one an axis; null where an axis has none
  std::vector<std::shared_ptr<Slice>> gathers;
  ir::ExprRef within_first, within_length;
};

struct ShiftedPlace {      // 16 bytes of a tensor
  ir::ExprRef at;          // offset of the first element
  ir::ExprRef whole;       // the 32 bytes from there on exist
  ir::ExprRef first, end;  // I32: the elements that exist
};

struct BlockSide {  // an operand of a product whose C is in registers, as one thread reads it
  const Slice* slice;
  const FragmentLayout::Axis* axis;  // of C
  int64_t extent, count;             // of the axis; rows or columns of a thread
  bool k_last;                       // k goes along the rows of the tile
  bool ragged;
  ir::DType type;
  ir::ExprRef first;     // I64: where the thread's digits point
  int64_t width = 1;     // elements of one load, along k or along the axis
  ir::BufferRef raw;     // what a step loads: depth of each row or column, or all of them for each k
  ir::BufferRef values;  // of one k, converted; null where they need no conversion
};

struct WordsOfK {
  bool k_down, in_pairs;  // of the tile's rows, of the lane's elements
  int64_t apart;          // registers
};

// What neighbours of a region write beside each other, as one access.
struct WideStore {
  int64_t width = 1;                 // elements; 1: each iteration writes its own
  std::vector<ir::ExprRef> indices;  // without names of the region's
  ir::ExprRef guard;                 // likewise, and without what bounds say anyway; null: true
  ir::BufferRef made;                // what the neighbours write
};

// 16-bit floats made of integers of few bits, two an instruction.
struct PackedValue {
  enum class Form : uint8_t { kOne, kRead, kField, kNumber, kApply } form;
  ir::ExprRef expr;  // kOne: alike for all neighbours; kField, kNumber: each one's own, an integer, one of the type's
  const ir::Expr* read{};  // kRead: RegionRead::value
  ir::Op op{};
  std::vector<PackedValue> args;
  Interval range;          // of integers, which the type holds; else unbounded
  int bits = 0;            // kField: the lowest ones of `expr`, which
  bool is_signed = false;  // have a sign
};

struct PackedOperand {
  ir::BufferRef registers;
  ir::ExprRef at;
  int64_t elements;
};

struct PackedStore {
  const ir::AssignStmt* store;
  PackedValue value;
  std::vector<const ir::LetStmt*> alike, own;    // names that it needs: of the first of neighbours, and of each
  int64_t width;                                 // neighbours, at least
  std::vector<const PackedValue*> in_front;      // parts of the value that follow the last axis alone; not all of it
  std::vector<const ir::LetStmt*> own_in_front;  // of `own`
};

struct Sharers {                                // of a result
  std::vector<int> masks;                       // lanes that differ in these bits, from the lowest on
  std::vector<FragmentLayout::Digit> rest;      // and other digits of the thread's number
  std::vector<FragmentLayout::Digit> replicas;  // digits by which threads differ that hold the same part
};

// Of sums that a loop carries along, a part in each thread (deferred_sums.h).
struct CarriedSum {
  ir::BufferRef sum;
  ir::ReduceOp op;
  FragmentLayout layout;
  Sharers sharers;
};

// One side of a copy on the CPU. Coordinates c are inside of [low, high) where the element exists; `present` (null:
// true) is what the rows fixed so far say, by indices from memory.
struct CpuSide {
  const Slice* slice;
  std::vector<int64_t> extents;
  std::vector<ir::ExprRef> low, high;
  std::vector<bool> whole;  // [low, high) is all of the coordinate, proved
  std::vector<size_t> axis_of;
  std::vector<ir::ExprRef> indices;
  ir::ExprRef present;
  int64_t panel_width = 0;  // of the last coordinate
  ir::ExprRef streams;      // of a written tensor: whether it is better stored past the caches; null: never
};

struct Ahead {  // what a copy will read for the next tile, or write of this one
  const ir::TileRef* ref;
  std::vector<ir::ExprRef> starts;
  std::vector<int64_t> shape;
  bool write = false;
  int64_t begun = 0;  // elements of the last axis that were asked for already
};

struct FusedCopy {
  Slice dst_slice, src_slice;
  CpuSide dst, src;  // borrow the slices
};

struct AheadPart {  // of its rows' elements: [begin, end)
  const Ahead* copy;
  int64_t begin, end;
};

}  // namespace kachel::lowering
