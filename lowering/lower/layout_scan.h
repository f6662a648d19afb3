// The prefix reductions of one region by its layout, element by element of a thread. Private to lower_scan.cc.
#pragma once
#include <map>
#include <vector>

#include "lowering/lower/tile_lowering.h"

namespace kachel::lowering {

class TileLowering::LayoutScan {
 public:
  // Along `axis` of the layout.
  LayoutScan(TileLowering* lowering, const FragmentLayout& layout, size_t axis, ir::ReduceOp op, ir::DType type);

  // By register: what the elements are, and what they become. Missing: nothing stands before it.
  using Values = std::map<int64_t, ir::ExprRef>;
  Values run(const Values& elements, bool inclusive);

 private:
  struct Step {
    FragmentLayout::Digit digit;
    std::vector<int> masks;  // of lanes; empty: the digit is a register's, or goes through shared memory
  };

  // For each value of the digits from `number` on, what stands before it; `own`: and itself.
  Values before(size_t number, const Values& values, bool own);
  Values in_registers(size_t number, const Values& values, bool own);
  Values in_lanes(size_t number, const Values& values, bool own);
  Values in_warps(size_t number, const Values& values, bool own);
  Values with_earlier(size_t number, const Values& wholes, const Values& within);
  void add_up(const ir::BufferRef& partial, const ir::ExprRef& from, int64_t count, const ir::ExprRef& mine, bool own,
              const ir::BufferRef& sums, const ir::BufferRef& all, const ir::ExprRef& at);
  ir::ExprRef bit(int mask);
  ir::ExprRef named(const ir::ExprRef& value) { return value ? lower_.let("scan", value) : nullptr; }
  std::vector<FragmentLayout::Digit> apart(size_t number) const;
  std::vector<FragmentLayout::Digit> below(size_t number) const;

  TileLowering& lower_;
  const FragmentLayout& layout_;
  const size_t axis_;
  const ir::ReduceOp op_;
  const ir::DType type_;
  std::vector<Step> steps_;
  std::map<int, ir::ExprRef> bits_;  // of the lane's number
};

}  // namespace kachel::lowering
