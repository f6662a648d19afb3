#include "runtime/engine/programs/prepared_forms.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "derive/fixed_extents.h"
#include "derive/prepare_operands.h"
#include "derive/taps_outside.h"
#include "ir/instantiate.h"
#include "ir/parse.h"
#include "lowering/machine/machine.h"
#include "lowering/machine/rates.h"
#include "runtime/engine/bind/facts.h"

namespace kachel::runtime {
namespace {

constexpr int64_t kLineBytes = 128;   // of the L2
constexpr double kMostShare = 0.5;    // of the kernel's time, that making operands may take at the memory's rate
constexpr double kStepNs = 2000;      // of a kernel more in the stream
constexpr int kMostTried = 2;         // forms of a key
constexpr double kIterationNs = 300;  // of a loop of products, where nothing was measured
constexpr double kMostGrowth = 5;     // an operand takes at most so many times its sources: 16 bits of 4, and edges,
constexpr double kAlwaysBytes = 8 << 20;  // or this
constexpr size_t kMostCrossed = 16;       // tensors of a kernel that are looked at

// Whether the rows of a tensor begin elsewhere than at lines, or run along an axis that products cannot do with: 16-bit
// types may have them along either of the last two.
bool strays(const BoundTensor& tensor, int rank) {
  const int bits = ir::bits(tensor.dtype);
  const int row = bits == 16 && is_transposed(rank, tensor.shape, tensor.strides) ? rank - 2 : rank - 1;
  for (int axis = 0; axis < rank; ++axis) {
    if (tensor.shape[axis] <= 1) continue;
    if (axis == row ? tensor.strides[axis] != 1 : tensor.strides[axis] * bits % (8 * kLineBytes) != 0) return true;
  }
  return reinterpret_cast<uintptr_t>(tensor.data) % 16 != 0;
}

// Whether the quickest products of operands of that type read them along k alone: wgmma does but for 16 bits, mma as
// far as operands are bytes.
bool reads_along_k(const DeviceProperties& device, ir::DType type, bool tf32) {
  if (ir::bits(type) == 8) return device.compute_major >= 8;
  return type == ir::DType::F32 && tf32 && lowering::has_group_mma(10 * device.compute_major + device.compute_minor);
}

// What a kernel that serves as it is may be told without being wrong: the kernel itself says it better.
bool is_for_the_kernel(Code code) {
  return code == Code::kNotCached || code == Code::kUnsupported || code == Code::kCompile || code == Code::kInvalid ||
         code == Code::kNoMemory;
}

}  // namespace

PreparedForms::PreparedForms(std::shared_ptr<Engine> engine, std::span<const ConstValue> consts,
                             std::shared_ptr<const KernelModel> model, Source plain, std::optional<Source> reordered,
                             std::optional<Sums> sums)
    : engine_(std::move(engine)),
      consts_(consts.begin(), consts.end()),
      model_(std::move(model)),
      plain_(std::move(plain)),
      reordered_(std::move(reordered)),
      sums_(std::move(sums)) {}

std::unique_ptr<PreparedForms> PreparedForms::create(std::shared_ptr<Engine> engine, const ir::Kernel& kernel,
                                                     std::span<const ConstValue> consts,
                                                     std::shared_ptr<const KernelModel> model) {
  const auto source = [](const ir::Kernel& kernel) {
    Source source{kernel, derive::operand_slices(kernel), derive::crossed_tensors(kernel)};
    if (source.crossed.size() > kMostCrossed) source.crossed.resize(kMostCrossed);
    return source;
  };
  Source plain = source(kernel);
  std::optional<Source> reordered;
  if (plain.crossed.empty())
    if (const auto other = derive::taps_outside(kernel)) reordered = source(*other);
  if (reordered && reordered->crossed.empty()) reordered.reset();
  std::optional<Sums> sums;
  if (auto loop = derive::sum_loop(kernel)) {
    sums = Sums{kernel, *std::move(loop)};
  } else if (auto fixed = derive::with_fixed_extents(kernel)) {
    if (auto its = derive::sum_loop(*fixed)) sums = Sums{*std::move(fixed), *std::move(its)};
  }
  if (plain.slices.empty() && plain.crossed.empty() && !reordered && !sums) return nullptr;
  return std::unique_ptr<PreparedForms>(new PreparedForms(std::move(engine), consts, std::move(model), std::move(plain),
                                                          std::move(reordered), std::move(sums)));
}

const BoundTensor& PreparedForms::tensor(const BoundArguments& arguments, const ir::Buffer& buffer) const {
  const auto& params = plain_.kernel.params;
  const auto found =
      std::find_if(params.begin(), params.end(), [&](const ir::Param& param) { return param.tensor.get() == &buffer; });
  return arguments.tensors[found - params.begin()];
}

bool PreparedForms::outgrows_sources(const derive::OperandSlice& slice, const BoundArguments& arguments) const {
  const ir::HostEnv env = host_values(*model_, plain_.kernel, arguments);
  int64_t sources = 0;
  for (const ir::BufferRef& source : slice.tensors) sources += tensor(arguments, *source).bytes;
  double bytes = ir::bits(tile_type(*model_, *slice.tile, arguments)) / 8.0;
  const auto times = [&](const ir::ExprRef& extent) {
    const auto value = ir::evaluate_int(extent, env);
    if (value.ok()) bytes *= static_cast<double>(*value);
  };
  for (const ir::IterVar& var : slice.free) times(var.extent);
  for (const derive::OperandSlice::Axis& axis : slice.axes) times(axis.all);
  return bytes > kAlwaysBytes && bytes / kMostGrowth > static_cast<double>(sources);
}

bool PreparedForms::may_lay_out(const derive::CrossedTensor& crossed, const BoundArguments& arguments) const {
  const BoundTensor& bound = tensor(arguments, *crossed.tensor);
  const int64_t extent = bound.shape[crossed.axis];
  const bool has_rows = bound.strides[crossed.axis] == 1 || extent < derive::kRowMultiple;
  return !has_rows && ir::bits(bound.dtype) <= 16;
}

PreparedForms::Form PreparedForms::operands(const Device& device, const BoundArguments& arguments,
                                            const Source& source) const {
  Form form;
  for (size_t i = 0; i < source.slices.size(); ++i) {
    const derive::OperandSlice& slice = source.slices[i];
    const ir::Buffer& read = *slice.tensors[0];
    const BoundTensor& bound = tensor(arguments, read);
    // The copy engine converts nothing.
    const bool moved_by_threads =
        strays(bound, static_cast<int>(read.shape.size())) || bound.dtype != tile_type(*model_, *slice.tile, arguments);
    const bool turned =
        slice.k_down && reads_along_k(device.properties(), tile_type(*model_, *slice.tile, arguments), slice.tf32);
    const uint64_t bit = uint64_t{1} << i;
    if (outgrows_sources(slice, arguments)) continue;
    if (slice.computed || turned || (device.properties().compute_major > 0 && moved_by_threads)) form.made |= bit;
    if (turned) form.turned |= bit;
  }
  return form;
}

// With tensors laid out, and what else there is to be made; none: nothing is laid out.
PreparedForms::Form PreparedForms::rows(const Device& device, const BoundArguments& arguments) const {
  const Source& source = reordered_ ? *reordered_ : plain_;
  Form form;
  if (device.properties().compute_major == 0 || source.crossed.empty()) return form;
  form = operands(device, arguments, source);
  for (size_t i = 0; i < source.crossed.size(); ++i) {
    const derive::CrossedTensor& crossed = source.crossed[i];
    if (!may_lay_out(crossed, arguments)) continue;
    form.laid_out |= uint64_t{1} << i;
    for (size_t j = 0; j < source.slices.size(); ++j) {
      const std::vector<ir::BufferRef>& read = source.slices[j].tensors;
      if (!std::count(read.begin(), read.end(), crossed.tensor)) continue;
      form.made &= ~(uint64_t{1} << j);
      form.turned &= ~(uint64_t{1} << j);
    }
  }
  return form;
}

std::vector<PreparedForms::Form> PreparedForms::forms(const Device& device, const BoundArguments& arguments,
                                                      const PartsOfSums& parts) const {
  const Form operands = this->operands(device, arguments, plain_), rows = this->rows(device, arguments);
  std::vector<Form> forms;
  if (rows.laid_out) forms.push_back(rows);
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

Result<std::shared_ptr<const ProgramModel>> PreparedForms::derive(const Form& form,
                                                                  const BoundArguments& arguments) const {
  const Source& source = this->source(form);
  auto load = [&](const std::vector<derive::OperandSlice>& slices,
                  const std::vector<derive::CrossedTensor>& crossed = {}) {
    const auto type = [&](const ir::Buffer& tile) { return tile_type(*model_, tile, arguments); };
    const derive::SumParts parts{form.parts, form.extent, type};
    return ir::load(derive::prepare_operands(plain_.kernel, slices, parts, crossed, &source.kernel), "prepared.tile");
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
  if (form.made && chosen.empty() && crossed.empty()) return why;
  KACHEL_ASSIGN(const ir::Module module, load(chosen, crossed));
  return ProgramModel::create(module, module.programs.at(0), consts_, true);
}

ProgramHandle* PreparedForms::program(const Form& form, const BoundArguments& arguments) {
  std::lock_guard lock(mutex_);
  const auto [found, fresh] = programs_.try_emplace(form);
  if (!fresh) return found->second.get();
  auto made = derive(form, arguments);
  if (made.ok())
    found->second = std::make_unique<ProgramHandle>(engine_, *std::move(made));
  else
    engine_->log().write(
        {.level = LogLevel::kInfo,
         .message = fmt::format("kernel `{}` has no other form: {}", plain_.kernel.name, made.status().message()),
         .kernel = plain_.kernel.name});
  return found->second.get();
}

bool PreparedForms::is_worth_trying(const Device& device, const BoundArguments& arguments, const ProgramModel& program,
                                    const Form& form, const PartsOfSums& parts) const {
  ProgramLayout layout;
  if (!lay_out(program, arguments, {1}, layout).ok()) return false;
  const Source& source = this->source(form);
  int64_t sources = 0;
  for (size_t i = 0; i < source.slices.size(); ++i)
    if (form.made >> i & 1)
      for (const ir::BufferRef& read : source.slices[i].tensors) sources += tensor(arguments, *read).bytes;
  for (size_t i = 0; i < source.crossed.size(); ++i)
    if (form.laid_out >> i & 1) sources += tensor(arguments, *source.crossed[i].tensor).bytes;
  const int64_t sums = form.parts > 1 ? parts.bytes : 0;
  const DeviceProperties& properties = device.properties();
  const double as_it_is = measured(device, arguments, *model_);
  const bool known = std::isfinite(as_it_is);
  if (properties.compute_major == 0 || (!known && form.parts == 1)) return true;
  const lowering::Rates& rates = lowering::rates_of(10 * properties.compute_major + properties.compute_minor);
  const double bytes_a_ns = rates.dram_bytes * properties.multiprocessors * rates.clock_mhz / 1000;
  double steps = std::popcount(form.made) + std::popcount(form.laid_out),
         bytes = static_cast<double>(sources + layout.bytes);
  if (form.parts > 1) {  // all that there is to read, and the parts once more
    steps += 1;
    bytes += static_cast<double>(sums);
    for (const ir::Param& param : plain_.kernel.params)
      if (param.tensor) bytes += static_cast<double>(tensor(arguments, *param.tensor).bytes);
  }
  const double takes = known ? as_it_is : kIterationNs * static_cast<double>(parts.steps);
  return bytes / bytes_a_ns + steps * kStepNs < kMostShare * takes;
}

Result<const Specialisation*> PreparedForms::alone(const BoundArguments& arguments, const LaunchSettings& settings,
                                                   void* stream) {
  KACHEL_ASSIGN(Device * device, engine_->devices().get(arguments.device));
  KACHEL_ASSIGN(const Resolver::Outcome outcome,
                Resolver(*engine_, *device, *model_, arguments, settings, stream).run());
  return outcome.specialisation;
}

Result<PreparedForms::Serving> PreparedForms::serving(const BoundArguments& arguments, std::span<const Arg> args,
                                                      const LaunchSettings& settings, const Signature& signature,
                                                      void* stream) {
  KACHEL_ASSIGN(Device * device, engine_->devices().get(arguments.device));
  const PartsOfSums parts =
      sums_ && device->properties().compute_major > 0
          ? parts_of_sums(*model_, sums_->kernel, sums_->loop, arguments, device->properties().multiprocessors)
          : PartsOfSums{};
  const std::vector<Form> forms = this->forms(*device, arguments, parts);
  if (forms.empty()) return Serving{};
  {
    RelaxedCapture relaxed(*device);
    KACHEL_ASSIGN(const bool capturing, device->is_capturing(stream));
    if (capturing) return Serving{nullptr, alone_.find(signature), false};
  }
  // In the background the kernel serves until all are tuned, which its own handle sees to.
  LaunchSettings asked = settings;
  if (settings.policy == tuner::Policy::kBackground) asked.policy = tuner::Policy::kCachedOnly;
  const bool tunes = settings.policy == tuner::Policy::kBlocking || settings.policy == tuner::Policy::kBackground;
  ProgramHandle* best = nullptr;
  double least = 0;
  int asked_about = 0, failed = 0;
  bool is_alone_known = false;
  for (const Form& form : forms) {
    ProgramHandle* program = this->program(form, arguments);
    if (!program) continue;
    const TunableValues* values = program->known(arguments, asked);
    if (!values) {
      if (!std::exchange(is_alone_known, true)) {
        const auto as_it_is = alone(arguments, settings, stream);
        if (tunes && !as_it_is.ok()) return as_it_is.status();
        if (tunes && !*as_it_is) return Serving{};
        if (as_it_is.ok() && *as_it_is) {
          (*as_it_is)->pin();
          alone_.publish(signature, *as_it_is);
        }
      }
      if (tunes && (asked_about == kMostTried || !is_worth_trying(*device, arguments, program->program(), form, parts)))
        continue;
      ++asked_about;
      auto chosen = program->resolve(arguments, args, asked, stream);
      if (!chosen.ok() && !is_for_the_kernel(chosen.status().code())) return chosen.status();
      failed += !chosen.ok();
      values = chosen.ok() ? *chosen : nullptr;
    }
    if (!values || values->front() == 0) continue;
    const double takes = forms.size() > 1 ? measured(*device, arguments, *program->program().header) : 0;
    if (!best || takes < least) best = program, least = takes;
  }
  if (best) return Serving{best, nullptr, true};
  return Serving{nullptr, nullptr, failed == 0 && settings.policy != tuner::Policy::kOff};
}

double PreparedForms::measured(const Device& device, const BoundArguments& arguments, const KernelModel& model) const {
  const Point point = point_of(model, arguments);
  const auto decision = TuningStore(engine_->store(), {model, point, device.properties()}).decision();
  const bool known = decision && !decision->winner.ranked.empty();
  return known ? decision->winner.ranked[0].median_ns : std::numeric_limits<double>::infinity();
}

}  // namespace kachel::runtime
