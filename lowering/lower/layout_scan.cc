// A scanned axis is a mixed-radix number whose digits are read from the register, the lane or the warp, lowest first.
// Going up, what each value of a digit holds becomes what stands before it within the digits so far, and the whole of
// them is what the next digit counts; going down, what stands before the whole is added. So a row that n threads hold
// in vectors of v takes 2 v additions and log2(32) exchanges in a thread, and one pass through shared memory where it
// reaches across warps.
#include "lowering/lower/layout_scan.h"

#include <bit>
#include <utility>

#include "lowering/planted.h"

namespace kachel::lowering {

using ir::DType;
using ir::ExprRef;
using ir::Op;

namespace {

constexpr int64_t kLanes = 32, kMostUnrolled = 32;

// Null is nothing.
ExprRef joined(ir::ReduceOp op, const ExprRef& before, const ExprRef& value) {
  if (!before || !value) return before ? before : value;
  return combined(op, before, value);
}

using Values = std::map<int64_t, ExprRef>;

ExprRef at(const Values& values, int64_t reg) {
  const auto found = values.find(reg);
  return found == values.end() ? nullptr : found->second;
}
void put(Values* values, int64_t reg, ExprRef value) {
  if (value) (*values)[reg] = std::move(value);
}

}  // namespace

TileLowering::LayoutScan::LayoutScan(TileLowering* lowering, const FragmentLayout& layout, size_t axis, ir::ReduceOp op,
                                     DType type)
    : lower_(*lowering), layout_(layout), axis_(axis), op_(op), type_(type) {
  for (FragmentLayout::Digit digit : layout.axes()[axis]) {
    if (!digit.in_thread) {
      steps_.push_back({digit, {}});
      continue;
    }
    Step lanes{digit, {}};
    while (digit.stride < kLanes && digit.radix % 2 == 0 && std::has_single_bit(static_cast<uint64_t>(digit.stride))) {
      lanes.masks.push_back(static_cast<int>(digit.stride));
      digit.stride *= 2;
      digit.radix /= 2;
    }
    if (planted(Planted::kScanLanes) && lanes.masks.size() > 1) lanes.masks.pop_back();
    lanes.digit.radix /= digit.radix;
    if (!lanes.masks.empty()) steps_.push_back(lanes);
    if (digit.radix > 1) steps_.push_back({digit, {}});
  }
}

TileLowering::LayoutScan::Values TileLowering::LayoutScan::run(const Values& elements, bool inclusive) {
  if (steps_.empty()) return inclusive ? elements : Values{};
  return before(0, elements, inclusive);
}

TileLowering::LayoutScan::Values TileLowering::LayoutScan::before(size_t number, const Values& values, bool own) {
  if (number == steps_.size()) return {};
  const Step& step = steps_[number];
  if (!step.digit.in_thread) return in_registers(number, values, own);
  return step.masks.empty() ? in_warps(number, values, own) : in_lanes(number, values, own);
}

TileLowering::LayoutScan::Values TileLowering::LayoutScan::in_registers(size_t number, const Values& values, bool own) {
  const FragmentLayout::Digit& digit = steps_[number].digit;
  Values within, wholes;
  for (const auto& [reg, value] : values) {
    if (reg / digit.stride % digit.radix) continue;
    ExprRef sum;
    for (int64_t i = 0; i < digit.radix; ++i) {
      const int64_t each = reg + i * digit.stride;
      if (!own) put(&within, each, sum);
      sum = named(joined(op_, sum, values.at(each)));
      if (own) put(&within, each, sum);
    }
    wholes[reg] = sum;
  }
  const Values earlier = before(number + 1, wholes, false);
  Values result;
  for (const auto& [reg, value] : values) {
    const int64_t whole = reg - reg / digit.stride % digit.radix * digit.stride;
    put(&result, reg, named(joined(op_, at(earlier, whole), at(within, reg))));
  }
  return result;
}

// An exchange with the lane that differs in a bit: the upper one of the two has the lower one's before it, and both
// have the same whole.
TileLowering::LayoutScan::Values TileLowering::LayoutScan::in_lanes(size_t number, const Values& values, bool own) {
  const Step& step = steps_[number];
  Values within, wholes;
  for (const auto& [reg, value] : values) {
    ExprRef whole = value, sum = own ? value : nullptr;
    for (int mask : step.masks) {
      const ir::VarRef other = make_local("other", type_);
      lower_.emit({LoopShuffle{other, whole, mask}});
      const ExprRef theirs = ir::make_var(other);
      const ExprRef less = sum ? sum : neutral_element(op_, type_);
      sum = named(ir::make_typed(Op::kSelect, {bit(mask), joined(op_, theirs, sum), less}));
      whole = named(combined(op_, whole, theirs));
    }
    within[reg] = sum;
    wholes[reg] = whole;
  }
  return with_earlier(number, wholes, within);
}
ExprRef TileLowering::LayoutScan::bit(int mask) {
  ExprRef& set = bits_[mask];
  const FragmentLayout::Digit digit{2, true, mask};
  if (!set)
    set = named(
        ir::make_typed(Op::kNe, {digit_of(ir::make_var(lower_.out_.thread), digit, layout_.threads()), int32(0)}));
  return set;
}

TileLowering::LayoutScan::Values TileLowering::LayoutScan::with_earlier(size_t number, const Values& wholes,
                                                                        const Values& within) {
  const Values earlier = before(number + 1, wholes, false);
  Values result;
  for (const auto& [reg, value] : within) put(&result, reg, named(joined(op_, at(earlier, reg), value)));
  return result;
}

// Through shared memory: each value of the digit writes what it holds, and adds up those of the smaller ones.
TileLowering::LayoutScan::Values TileLowering::LayoutScan::in_warps(size_t number, const Values& values, bool own) {
  const FragmentLayout::Digit& digit = steps_[number].digit;
  const auto count = static_cast<int64_t>(values.size());
  int64_t rows = digit.radix;
  for (const FragmentLayout::Digit& other : apart(number)) rows *= other.radix;
  const ir::BufferRef partial = lower_.temporary("partial", type_, ir::Scope::kShared, rows * count);
  const ir::BufferRef sums = lower_.temporary("sums", type_, ir::Scope::kRegister, count);
  const ir::BufferRef all = lower_.temporary("all", type_, ir::Scope::kRegister, count);
  auto part = [&](const ExprRef& thread, const FragmentLayout::Digit& of) {
    return digit_of(thread, of, layout_.threads());
  };
  auto first_of = [&](const ExprRef& thread) {
    ExprRef row;
    int64_t scale = digit.radix;
    for (const FragmentLayout::Digit& other : apart(number)) {
      row = plus(row, times(part(thread, other), scale));
      scale *= other.radix;
    }
    return lower_.let("row", ir::make_cast({DType::I64, nullptr}, row ? row : int32(0)));
  };
  lower_.in_threads(layout_.threads(), [&](const ExprRef& thread) {
    ExprRef writes;
    for (const FragmentLayout::Digit& lower : below(number))
      writes = both(writes, ir::make_typed(Op::kEq, {part(thread, lower), int32(0)}));
    const ExprRef first = plus(first_of(thread), ir::make_cast({DType::I64, nullptr}, part(thread, digit)));
    int64_t behind = 0;
    for (const auto& [reg, value] : values) {
      lower_.store(partial, behind ? plus(first, int64(behind)) : first, value, writes);
      behind += rows;
    }
  });
  lower_.in_threads(layout_.threads(), [&](const ExprRef& thread) {
    const ExprRef mine = lower_.let("mine", part(thread, digit));
    const ExprRef first = first_of(thread);
    for (int64_t i = 0; i < count; ++i) {
      const ExprRef from = i ? plus(first, int64(i * rows)) : first;
      add_up(partial, from, digit.radix, mine, own, sums, all, int32(i));
    }
  });
  Values within, wholes;
  int64_t i = 0;
  for (const auto& [reg, value] : values) {
    within[reg] = named(ir::make_load(sums, {int32(i)}));
    wholes[reg] = named(ir::make_load(all, {int32(i++)}));
  }
  return with_earlier(number, wholes, within);
}

// Of `count` parts in shared memory those before `mine`, and all.
void TileLowering::LayoutScan::add_up(const ir::BufferRef& partial, const ExprRef& from, int64_t count,
                                      const ExprRef& mine, bool own, const ir::BufferRef& sums,
                                      const ir::BufferRef& all, const ExprRef& at) {
  const Op is_before = own != planted(Planted::kScanWarps) ? Op::kLe : Op::kLt;
  lower_.store(sums, at, neutral_element(op_, type_), nullptr);
  lower_.store(all, at, neutral_element(op_, type_), nullptr);
  auto step = [&](const ExprRef& number) {
    const ExprRef i = ir::make_cast({DType::I32, nullptr}, number);
    const ExprRef other = named(ir::make_load(partial, {plus(from, number)}));
    const ExprRef sum = ir::make_load(sums, {at}), whole = ir::make_load(all, {at});
    const ExprRef counts = ir::make_typed(is_before, {i, mine});
    lower_.store(sums, at, ir::make_typed(Op::kSelect, {counts, combined(op_, sum, other), sum}), nullptr);
    lower_.store(all, at, combined(op_, whole, other), nullptr);
  };
  if (count > kMostUnrolled) return lower_.serial("part", int64(count), false, step);
  for (int64_t i = 0; i < count; ++i) step(int64(i));
}

// Digits of the thread in which a thread has other parts than its neighbour: of the other axes, of replicas, and
// above the step's.
std::vector<FragmentLayout::Digit> TileLowering::LayoutScan::apart(size_t number) const {
  std::vector<FragmentLayout::Digit> digits = layout_.replicas();
  for (size_t axis = 0; axis < layout_.shape().size(); ++axis)
    for (const FragmentLayout::Digit& digit : layout_.axes()[axis])
      if (axis != axis_ && digit.in_thread) digits.push_back(digit);
  for (size_t i = number + 1; i < steps_.size(); ++i)
    if (steps_[i].digit.in_thread) digits.push_back(steps_[i].digit);
  return digits;
}
// Those below it, in which all have the same.
std::vector<FragmentLayout::Digit> TileLowering::LayoutScan::below(size_t number) const {
  std::vector<FragmentLayout::Digit> digits;
  for (size_t i = 0; i < number; ++i)
    if (steps_[i].digit.in_thread) digits.push_back(steps_[i].digit);
  return digits;
}

}  // namespace kachel::lowering
