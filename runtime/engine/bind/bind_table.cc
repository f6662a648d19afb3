#include "runtime/engine/bind/bind_table.h"

#include <bit>
#include <bitset>
#include <limits>

#include "runtime/engine/bind/argument_binder.h"
#include "runtime/engine/bind/kernel_model.h"

namespace kachel::runtime {
namespace {

using ir::DType;

ScalarEntry scalar_entry(const ParamModel& param, int index) {
  ScalarEntry entry{std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max(),
                    static_cast<uint8_t>(index), param.dtype == DType::F32};
  switch (param.dtype) {
    case DType::I32:
      entry.low = std::numeric_limits<int32_t>::min(), entry.high = std::numeric_limits<int32_t>::max();
      break;
    case DType::U32:
      entry.low = 0, entry.high = std::numeric_limits<uint32_t>::max();
      break;
    case DType::Bool:
      entry.low = 0, entry.high = 1;
      break;
    default:
      break;
  }
  return entry;
}

TensorEntry tensor_entry(const KernelModel& model, int index, std::bitset<kMaxDims>& bound) {
  const ParamModel& param = model.params[index];
  TensorEntry entry;
  entry.param = static_cast<uint8_t>(index);
  entry.rank = static_cast<uint8_t>(param.axes.size());
  entry.symbol = static_cast<int8_t>(param.symbol);
  if (param.symbol < 0) {
    entry.dtype = param.dtype;
    entry.expected = to_data_type(param.dtype);
  } else {
    for (DType option : model.type_options[param.symbol])
      entry.options = static_cast<uint16_t>(entry.options | 1u << static_cast<int>(option));
  }
  for (int axis = entry.rank - 1; axis >= 0; --axis) {
    const AxisModel& from = param.axes[axis];
    if (from.kind == AxisModel::Kind::kValue) {
      entry.axes[axis] = BoundArguments::kNoDim;
      continue;
    }
    entry.axes[axis] = static_cast<uint8_t>(from.dim | (bound[from.dim] ? TensorEntry::kCheck : 0));
    bound.set(from.dim);
  }
  return entry;
}

}  // namespace

static_assert(lowering::kLeastMultiple << (std::size(ScalarEntry{}.multiple) - 1) == lowering::kMostMultiple);

void BindTable::fill(const KernelModel& model) {
  std::bitset<kMaxDims> bound;
  for (int index : model.tensors) {
    if (model.params[index].direction != ir::Direction::kIn) outputs |= uint64_t{1} << tensors;
    tensor[tensors++] = tensor_entry(model, index, bound);
    for (const AxisModel& axis : model.params[index].axes) has_programs |= axis.kind == AxisModel::Kind::kValue;
  }
  for (int index : model.scalars) scalar[scalars++] = scalar_entry(model.params[index], index);
  has_programs |= !model.where.empty();
  for (size_t i = 0; i < model.facts.size(); ++i) {
    const lowering::Fact& fact = model.facts[i];
    const uint64_t bit = uint64_t{1} << i;
    if (fact.kind == lowering::Fact::Kind::kIndex32) index32_fact = bit;
    if (fact.kind == lowering::Fact::Kind::kExtent32) extent32_fact = bit;
    if (fact.bytes > 0) aligned_facts |= bit;
    for (int at = 0; at < scalars; ++at)
      if (fact.kind == lowering::Fact::Kind::kMultiple && scalar[at].param == fact.param)
        for (int of = fact.bytes, i = std::countr_zero(unsigned(of / lowering::kLeastMultiple));
             of <= lowering::kMostMultiple; of *= 2, ++i)
          scalar[at].multiple[i] |= bit;
    for (int at = 0; at < tensors; ++at) {
      TensorEntry& entry = tensor[at];
      if (entry.param != fact.param) continue;
      if (fact.kind == lowering::Fact::Kind::kUnitStride) entry.unit_stride = bit;
      if (fact.kind == lowering::Fact::Kind::kTransposed) entry.transposed = bit;
      if (fact.kind == lowering::Fact::Kind::kRows) entry.rows = bit;
      if (fact.kind == lowering::Fact::Kind::kOneAxis && fact.bytes > 1) {
        entry.rows = bit;
        entry.one_axis = true;
      }
      if (fact.kind == lowering::Fact::Kind::kVector)
        for (int wider = std::countr_zero(static_cast<unsigned>(fact.bytes)); wider < 5; ++wider)
          entry.vector[wider - 2] |= bit;
    }
  }
  for (int dim : model.static_dims) word[words++] = HostForm::of_dim(dim);
  for (const HostProgram& key : model.keys) word[words++] = key.form();
  for (int dim : model.condition_dims) word[words++] = HostForm::of_dim(dim);
  for (int index : model.condition_scalars) word[words++] = HostForm::of_scalar(index);
}

}  // namespace kachel::runtime
