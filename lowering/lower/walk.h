// How elements and iterations are walked. Private to the lower_*.cc files.
#pragma once
#include <functional>
#include <vector>

#include "lowering/loop_ir/loop_ir.h"
#include "lowering/plan/fragment_layout.h"

namespace kachel::lowering {

// The iteration that an element access happens in.
struct Site {
  std::vector<ir::ExprRef> coords;  // I64, one a dimension of the iteration space
  ir::ExprRef slot;                 // I32 register slot of the cyclic order; null elsewhere
  // Of iterations dealt out by a layout: it, the values of its register digits by axis (null where a digit is the
  // thread's) and whether this thread is the first of its replicas (null: there are none).
  const FragmentLayout* layout = nullptr;
  std::vector<std::vector<ir::ExprRef>> digits;
  ir::ExprRef owner;
  ir::ExprRef inside;  // with WalkOptions::keeps_bounds, where it may be outside of the layout
  // I32: which of the neighbours along the last axis it is that are worked on together; null where nobody asks.
  ir::ExprRef neighbour;
};

// Of TileLowering::each_in().
struct WalkOptions {
  std::vector<size_t> early;               // axes, none of them ragged;
  std::function<void(const Site&)> enter;  // is called as soon as the coordinates along those are known
  bool keeps_bounds = false;               // what is outside of the layout is left to the body, by Site::inside
  int64_t most_unrolled = 0;               // iterations, beyond which outer loops stay loops; 0: as many as there are
  int64_t apart = 0;                       // LoopFor::apart, in iterations of `vector` neighbours
};

// Of TileLowering::unrolled().
struct LoopForm {
  bool written_out = true;  // LoopFor::unroll, where it is not too long
  int64_t apart = 0;        // and its others
  std::vector<ir::BufferRef> disjoint;
};

// What is done with `width` neighbours or more, a multiple, when all have been worked on, from the site of the first.
struct Behind {
  int64_t width = 1;
  std::function<void(const Site& first, int64_t count)> body;
};

// A digit of a number that counts `extent` values: of a thread's, or of a register's.
ir::ExprRef digit_of(const ir::ExprRef& number, const FragmentLayout::Digit& digit, int64_t extent);

}  // namespace kachel::lowering
