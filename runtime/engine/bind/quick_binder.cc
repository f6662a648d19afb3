// One small pass over the flat table with few branches: a launch among other work pays for the code and the data that
// it has to fetch.
#include <bit>

#include "runtime/engine/bind/argument_binder.h"
#include "runtime/engine/bind/facts.h"

namespace kachel::runtime {
namespace {

using ir::DType;

// What all tensors of a launch determine together. `bad` collects what one branch at the end asks for.
struct Gathered {
  uint64_t types = 0, facts = 0;
  uint32_t bound_types = 0;
  uint64_t device = 0;
  int64_t extents = 0;  // their bits
  bool bad = false, narrow = true, near = true;
};

// The element type, bound to the entry's symbol where that is free; false where it does not fit.
inline bool element_type(const TensorEntry& entry, DataType given, Gathered& all, DType& out) {
  if (entry.symbol < 0) {
    out = entry.dtype;
    return given == entry.expected;
  }
  const uint32_t bit = 1u << entry.symbol;
  const int shift = 4 * entry.symbol;
  uint32_t options = all.bound_types & bit ? 1u << (all.types >> shift & 15) : entry.options;
  for (; options != 0; options &= options - 1) {
    const int type = std::countr_zero(options);
    if (kDataTypes[type] != given) continue;
    out = static_cast<DType>(type);
    all.types |= static_cast<uint64_t>(type) << shift;
    all.bound_types |= bit;
    return true;
  }
  return false;
}

inline bool tensor(const TensorEntry& entry, bool is_output, const Arg& arg, Gathered& all, BoundArguments& out) {
  if (arg.kind != Arg::kTensor || !arg.tensor) return false;
  const TensorArg& given = *arg.tensor;
  if (given.ndim != entry.rank || !given.shape || !given.data) return false;
  BoundTensor& bound = out.tensors[entry.param];
  if (!element_type(entry, given.dtype, all, bound.dtype)) return false;
  const int64_t bytes = given.dtype.bits / 8;  // 0 of 4-bit types
  const auto device = std::bit_cast<uint64_t>(given.device);
  if (all.device == 0) all.device = device;
  const uint64_t address = reinterpret_cast<uintptr_t>(given.data) + given.byte_offset;
  bool bad = device != all.device || bytes == 0 || (address & static_cast<uint64_t>(bytes - 1)) != 0;
  const int last = entry.rank - 1;
  const bool transposed = given.strides && is_transposed(entry.rank, given.shape, given.strides);
  const int row = transposed ? last - 1 : last;
  int64_t elements = 1, reach = 0;  // reach: elements from the first to the last
  // The lowest set bit of divisors is the largest power of two, up to 16, that divides all of these numbers of bytes.
  uint64_t divisors = address | 16;
  bool ordered = true;
  for (int axis = last; axis >= 0; --axis) {
    const int64_t extent = given.shape[axis];
    const int64_t stride = given.strides ? given.strides[axis] : elements;
    const auto steps = static_cast<int64_t>(static_cast<uint64_t>(extent) - 1);
    int64_t span;
    bad |= extent <= 0 || stride < 0;
    ordered &= extent == 1 || stride > reach;
    bad |= __builtin_mul_overflow(elements, extent, &elements);
    bad |= __builtin_mul_overflow(steps, stride, &span);
    bad |= __builtin_add_overflow(reach, span, &reach);
    divisors |= static_cast<uint64_t>(axis == row ? extent : extent == 1 ? 0 : stride) * static_cast<uint64_t>(bytes);
    divisors |= stride == 0 && extent > 1 && axis != row ? 8 : 0;  // as facts_that_hold() does
    all.extents |= extent;
    bound.shape[axis] = extent;
    bound.strides[axis] = stride;
    int64_t& dim = out.dims[entry.axes[axis] & (TensorEntry::kCheck - 1)];
    bad |= (entry.axes[axis] & TensorEntry::kCheck) != 0 && dim != extent;
    dim = extent;
  }
  bound.data = reinterpret_cast<char*>(address);
  bound.elements = elements;
  bound.bytes = static_cast<int64_t>((static_cast<uint64_t>(reach) + 1) * static_cast<uint64_t>(bytes));
  all.narrow &= reach < kIndexLimit && elements < kIndexLimit;
  all.near &= reach < kReachLimit;
  all.bad |= bad || (is_output && !ordered) || reach >= kMaxTensorBytes / 8 || elements > kMaxTensorBytes / 8;
  const bool unit = bound.strides[last] == 1;
  all.facts |= unit || bound.shape[last] == 1 ? entry.unit_stride : 0;
  const int aligned = std::countr_zero(divisors);
  all.facts |= unit && aligned >= 2 ? entry.vector[aligned - 2] : 0;
  all.facts |= transposed && aligned == 4 ? entry.transposed : 0;
  if (entry.one_axis)
    all.facts |= one_axis_facts(entry.rows, entry.rank, bound.shape, bound.strides, address, given.dtype.bits);
  else if (entry.rows && has_joined_rows(entry.rank, bound.shape, bound.strides, address, given.dtype.bits))
    all.facts |= entry.rows;
  return true;
}

inline bool scalar(const ScalarEntry& entry, const Arg& arg, Gathered& all, BoundArguments& out) {
  if (entry.is_float) {
    if (arg.kind != Arg::kFloat) return false;
    out.scalars[entry.param] = std::bit_cast<uint32_t>(static_cast<float>(arg.f));
    return true;
  }
  out.scalars[entry.param] = static_cast<uint64_t>(arg.i);
  all.facts |= entry.facts_of(arg.i);
  return arg.kind == Arg::kInt && arg.i >= entry.low && arg.i <= entry.high;
}

// No output's bytes lie between the first and the last of another tensor, and the other way round.
inline bool apart(const BindTable& table, const BoundArguments& out) {
  bool meet = false;
  for (uint64_t outputs = table.outputs; outputs != 0; outputs &= outputs - 1) {
    const int at = std::countr_zero(outputs);
    const BoundTensor& a = out.tensors[table.tensor[at].param];
    for (int i = 0; i < table.tensors; ++i) {
      const BoundTensor& b = out.tensors[table.tensor[i].param];
      meet |= i != at && a.data < b.data + b.bytes && b.data < a.data + a.bytes;
    }
  }
  return !meet;
}

// All but `where` and extents that a program gives.
inline bool bind(const BindTable& table, std::span<const Arg> args, BoundArguments& out) {
  if (args.size() != static_cast<size_t>(table.tensors) + table.scalars) return false;
  Gathered all;
  for (int i = 0; i < table.tensors; ++i) {
    const TensorEntry& entry = table.tensor[i];
    if (!tensor(entry, table.outputs >> i & 1, args[entry.param], all, out)) return false;
  }
  for (int i = 0; i < table.scalars; ++i) {
    const ScalarEntry& entry = table.scalar[i];
    if (!scalar(entry, args[entry.param], all, out)) return false;
  }
  if (all.bad || !apart(table, out)) return false;
  out.device = std::bit_cast<DeviceRef>(all.device);
  // A device of type 0 is what tensors without one have; the complete binder knows what becomes of those.
  if (out.device.type == 0 && table.tensors != 0) return false;
  // CPUs load unaligned vectors as they are, and an allocator's whim would be in every key.
  out.types = all.types;
  out.facts = all.facts & (out.device.type == kCpuDevice ? ~table.aligned_facts : ~uint64_t{0});
  if (all.near && all.extents < kIndexLimit) out.facts |= table.extent32_fact;
  if (all.narrow) out.facts |= table.index32_fact;
  return true;
}

[[gnu::noinline]] bool programs_hold(const KernelModel& model, const BoundArguments& bound) {
  const HostInputs inputs = bound.inputs();
  for (int index : model.tensors) {
    const std::vector<AxisModel>& axes = model.params[index].axes;
    for (size_t axis = 0; axis < axes.size(); ++axis)
      if (axes[axis].kind == AxisModel::Kind::kValue &&
          bound.tensors[index].shape[axis] != axes[axis].program.run(inputs))
        return false;
  }
  for (const Condition& condition : model.where)
    if (condition.program.run(inputs) == 0) return false;
  return true;
}

}  // namespace

[[gnu::hot]] bool bind_quickly(const KernelModel& model, std::span<const Arg> args, BoundArguments& out) {
  return bind(model.table, args, out) && (!model.table.has_programs || programs_hold(model, out));
}

}  // namespace kachel::runtime
