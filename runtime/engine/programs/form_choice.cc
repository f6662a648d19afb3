#include "runtime/engine/programs/form_choice.h"

#include <fmt/format.h>

#include <algorithm>

#include "derive/prepare_operands.h"
#include "derive/split_regions.h"
#include "derive/taps_outside.h"
#include "ir/instantiate.h"
#include "ir/parse.h"
#include "lowering/machine/machine.h"
#include "runtime/engine/bind/facts.h"

namespace kachel::runtime {
namespace {

constexpr int64_t kLineBytes = 128;       // of the L2
constexpr int64_t kCopyBytes = 16;        // of the widest copy
constexpr double kMostGrowth = 5;         // an operand takes at most so many times its sources: 16 bits of 4, and edges
constexpr double kSparedBytes = 8 << 20;  // or this
// The same where its source can be laid out instead: with room for rows of whole lines, but not for windows.
constexpr double kMostGrowthOfRows = 2.2;
constexpr size_t kMostCrossed = 16;  // tensors of a kernel that are looked at

// Whether a tensor does not lie in rows along the axis that begin at multiples of so many bytes.
bool strays(const BoundTensor& tensor, int rank, int row, int64_t bytes) {
  for (int axis = 0; axis < rank; ++axis) {
    if (tensor.shape[axis] <= 1) continue;
    const int64_t stride = tensor.strides[axis];
    if (axis == row ? stride != 1 : stride * ir::bits(tensor.dtype) % (8 * bytes) != 0) return true;
  }
  return reinterpret_cast<uintptr_t>(tensor.data) % kCopyBytes != 0;
}
// At lines, along an axis that products can do with: 16-bit types may have rows along either of the last two.
bool strays(const BoundTensor& tensor, int rank) {
  const bool exchanged = ir::bits(tensor.dtype) == 16 && is_transposed(rank, tensor.shape, tensor.strides);
  return strays(tensor, rank, rank - (exchanged ? 2 : 1), kLineBytes);
}

// Whether the quickest products of operands of that type read them along k alone: wgmma does but for 16 bits, mma as
// far as operands are bytes.
bool reads_along_k(const DeviceProperties& device, ir::DType type, bool tf32) {
  if (ir::bits(type) == 8) return device.compute_major >= 8;
  return type == ir::DType::F32 && tf32 && lowering::has_group_mma(10 * device.compute_major + device.compute_minor);
}

std::string_view manner_of(const derive::CrossedTensor& crossed) {
  if (crossed.has_rows()) return "with its rows filled up";
  return crossed.read == derive::CrossedTensor::Read::kColumns ? "laid out along its columns" : "laid out along k";
}

}  // namespace

FormChoice::FormChoice(const ir::Kernel& kernel, std::span<const ConstValue> consts,
                       std::shared_ptr<const KernelModel> model)
    : consts_(consts.begin(), consts.end()),
      model_(std::move(model)),
      kernel_(kernel),
      plain_(source_of(derive::split_regions(kernel))) {
  const bool crosses = std::any_of(plain_.crossed.begin(), plain_.crossed.end(), [](const derive::CrossedTensor& one) {
    return !one.has_rows() && one.read == derive::CrossedTensor::Read::kElements;
  });
  if (crosses) return;
  if (const auto other = derive::taps_outside(plain_.kernel)) reordered_ = source_of(*other);
}

FormChoice::Source FormChoice::source_of(const ir::Kernel& kernel) {
  Source source{kernel, derive::operand_slices(kernel), derive::crossed_tensors(kernel)};
  if (source.crossed.size() > kMostCrossed) source.crossed.resize(kMostCrossed);
  return source;
}

const BoundTensor& FormChoice::tensor(const BoundArguments& arguments, const ir::Buffer& buffer) const {
  const auto& params = kernel_.params;
  const auto found =
      std::find_if(params.begin(), params.end(), [&](const ir::Param& param) { return param.tensor.get() == &buffer; });
  return arguments.tensors[found - params.begin()];
}

bool FormChoice::outgrows_sources(const derive::OperandSlice& slice, const BoundArguments& arguments, double spared,
                                  double most) const {
  const ir::HostEnv env = host_values(*model_, kernel_, arguments);
  double sources = 0, bytes = ir::bits(tile_type(*model_, *slice.tile, arguments)) / 8.0;
  for (const ir::BufferRef& source : slice.tensors) sources += static_cast<double>(tensor(arguments, *source).bytes);
  const auto times = [&](const ir::ExprRef& extent) {
    const auto value = ir::evaluate_int(extent, env);
    if (value.ok()) bytes *= static_cast<double>(*value);
  };
  for (const ir::IterVar& var : slice.free) times(var.extent);
  for (const derive::OperandSlice::Axis& axis : slice.axes) times(axis.all);
  return bytes > spared && bytes > most * sources;
}

bool FormChoice::may_lay_out(const derive::CrossedTensor& crossed, const BoundArguments& arguments) const {
  const BoundTensor& bound = tensor(arguments, *crossed.tensor);
  if (bound.shape[crossed.axis] < derive::kRowMultiple ||
      ir::bits(bound.dtype) > (crossed.read == derive::CrossedTensor::Read::kColumns ? 32 : 16))
    return false;
  const bool alone = !crossed.has_rows() && bound.strides[crossed.axis] == 1;  // an extent of 1 behind it
  return !alone &&
         strays(bound, static_cast<int>(crossed.tensor->shape.size()), static_cast<int>(crossed.axis), kCopyBytes);
}

Form FormChoice::operands(const Device& device, const BoundArguments& arguments, const Source& source,
                          double spared) const {
  Form form;
  for (size_t i = 0; i < source.slices.size(); ++i) {
    const derive::OperandSlice& slice = source.slices[i];
    const ir::Buffer& read = *slice.tensors[0];
    const BoundTensor& bound = tensor(arguments, read);
    // The copy engine converts nothing.
    const int rank = static_cast<int>(read.shape.size());
    const bool moved_by_threads =
        !slice.fed.empty() ? strays(bound, rank, rank - 1, kCopyBytes)
                           : strays(bound, rank) || bound.dtype != tile_type(*model_, *slice.tile, arguments);
    const bool turned =
        slice.k_down && reads_along_k(device.properties(), tile_type(*model_, *slice.tile, arguments), slice.tf32);
    const uint64_t bit = uint64_t{1} << i;
    if (outgrows_sources(slice, arguments, spared, kMostGrowth)) continue;
    if (slice.computed || turned || (device.properties().compute_major > 0 && moved_by_threads)) form.made |= bit;
    if (turned) form.turned |= bit;
  }
  return form;
}

// What regions make of copies that are made ahead is left to the blocks.
Form FormChoice::copies_alone(Form form) const {
  const std::vector<derive::OperandSlice>& slices = plain_.slices;
  const uint64_t made = form.made;
  for (size_t i = 0; i < slices.size(); ++i)
    for (size_t other = 0; other < slices.size(); ++other)
      if ((made >> i & 1) && slices[other].computed &&
          std::count(slices[i].fed.begin(), slices[i].fed.end(), slices[other].tile.get()))
        form.made &= ~(uint64_t{1} << other);
  form.turned &= form.made;
  return form;
}

// With rows along k, for which tensors may have to be laid out, and what else there is to be made: an operand as a
// whole rather than a tensor that it is read of, if that is not much more.
Form FormChoice::rows(const Device& device, const BoundArguments& arguments) const {
  const Source& source = reordered_ ? *reordered_ : plain_;
  if (device.properties().compute_major == 0 || (source.crossed.empty() && !reordered_)) return {};
  Form form = operands(device, arguments, source, 0);  // whose rows can be copied as they are
  form.reordered = reordered_.has_value();
  const auto is_made_of = [&](size_t i, const derive::CrossedTensor& crossed) {
    const std::vector<ir::BufferRef>& read = source.slices[i].tensors;
    return (form.made >> i & 1) && std::count(read.begin(), read.end(), crossed.tensor);
  };
  for (const derive::CrossedTensor& crossed : source.crossed)
    for (size_t i = 0; i < source.slices.size(); ++i)
      if (is_made_of(i, crossed) && outgrows_sources(source.slices[i], arguments, 0, kMostGrowthOfRows))
        form.made &= ~(uint64_t{1} << i);
  form.turned &= form.made;
  for (size_t at = 0; at < source.crossed.size(); ++at) {
    bool whole = false;
    for (size_t i = 0; i < source.slices.size(); ++i) whole |= is_made_of(i, source.crossed[at]);
    if (!whole && may_lay_out(source.crossed[at], arguments)) form.laid_out |= uint64_t{1} << at;
  }
  return form;
}

std::vector<Form> FormChoice::forms(const Device& device, const BoundArguments& arguments,
                                    const PartsOfSums& parts) const {
  const Form operands = this->operands(device, arguments, plain_, kSparedBytes), rows = this->rows(device, arguments);
  std::vector<Form> forms;
  if (rows.laid_out || rows.reordered) forms.push_back(rows);
  if (const Form copies = copies_alone(operands); copies.made && copies.made != operands.made) forms.push_back(copies);
  const Form parted{.parts = parts.parts, .extent = parts.extent, .types = arguments.types};
  if (operands.made && parts.parts > 1) {
    forms.push_back(parted);
    forms.back().made = operands.made;
    forms.back().turned = operands.turned;
  }
  if (operands.made) forms.push_back(operands);
  if (parts.parts > 1) forms.push_back(parted);
  return forms;
}

Result<std::shared_ptr<const ProgramModel>> FormChoice::derive(const Form& form,
                                                               const BoundArguments& arguments) const {
  const Source& source = this->source(form);
  auto load = [&](const std::vector<derive::OperandSlice>& slices,
                  const std::vector<derive::CrossedTensor>& crossed = {}) {
    const auto type = [&](const ir::Buffer& tile) { return tile_type(*model_, tile, arguments); };
    const derive::SumParts parts{form.parts, form.extent, type};
    return ir::load(derive::prepare_operands(kernel_, slices, parts, crossed, &source.kernel), "prepared.tile");
  };
  std::vector<derive::OperandSlice> chosen;
  Status why = internal("no operand");
  for (size_t i = 0; i < source.slices.size(); ++i) {
    if (!(form.made >> i & 1)) continue;
    derive::OperandSlice slice = source.slices[i];
    slice.turned = form.turned >> i & 1;
    if (auto alone = load({slice}); alone.ok())
      chosen.push_back(std::move(slice));
    else
      why = alone.status();
  }
  std::vector<derive::CrossedTensor> crossed;
  for (size_t i = 0; i < source.crossed.size(); ++i)
    if (form.laid_out >> i & 1) crossed.push_back(source.crossed[i]);
  if (form.made && chosen.empty() && crossed.empty() && !form.reordered) return why;
  KACHEL_ASSIGN(const ir::Module module, load(chosen, crossed));
  return ProgramModel::create(module, module.programs.at(0), consts_, true);
}

std::string FormChoice::text(const Form& form) const {
  const Source& source = this->source(form);
  std::vector<std::string> parts;
  if (form.reordered) parts.push_back("k tap by tap");
  for (size_t i = 0; i < source.slices.size(); ++i)
    if (form.made >> i & 1)
      parts.push_back(fmt::format("`{}` made ahead{}", source.slices[i].tile->name,
                                  form.turned >> i & 1 ? " with its axes exchanged" : ""));
  for (size_t i = 0; i < source.crossed.size(); ++i)
    if (form.laid_out >> i & 1)
      parts.push_back(fmt::format("`{}` {}", source.crossed[i].tensor->name, manner_of(source.crossed[i])));
  if (form.parts > 1) parts.push_back(fmt::format("sums in {} parts", form.parts));
  return fmt::format("{}", fmt::join(parts, ", "));
}

int64_t FormChoice::bytes_read(const Form& form, const BoundArguments& arguments) const {
  const Source& source = this->source(form);
  int64_t bytes = 0;
  for (size_t i = 0; i < source.slices.size(); ++i)
    if (form.made >> i & 1)
      for (const ir::BufferRef& read : source.slices[i].tensors) bytes += tensor(arguments, *read).bytes;
  for (size_t i = 0; i < source.crossed.size(); ++i)
    if (form.laid_out >> i & 1) bytes += tensor(arguments, *source.crossed[i].tensor).bytes;
  return bytes;
}

int64_t FormChoice::bytes_of_all(const BoundArguments& arguments) const {
  int64_t bytes = 0;
  for (const ir::Param& param : kernel_.params)
    if (param.tensor) bytes += tensor(arguments, *param.tensor).bytes;
  return bytes;
}

}  // namespace kachel::runtime
