#include "runtime/engine/programs/prepared_forms.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "derive/prepare_operands.h"
#include "ir/parse.h"
#include "lowering/machine/machine.h"
#include "lowering/machine/rates.h"
#include "runtime/engine/bind/facts.h"

namespace kachel::runtime {
namespace {

constexpr int64_t kLineBytes = 128;  // of the L2
constexpr double kMostShare = 0.5;   // of the kernel's time, that making operands may take at the memory's rate
constexpr double kStepNs = 2000;     // of a kernel more in the stream
constexpr int64_t kMostGrowth = 5;   // temporaries are at most so many times their sources: 16 bits of 4, and edges,
constexpr int64_t kAlwaysBytes = int64_t{8} << 20;  // or this

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

PreparedForms::PreparedForms(std::shared_ptr<Engine> engine, const ir::Kernel& kernel,
                             std::span<const ConstValue> consts, std::shared_ptr<const KernelModel> model,
                             std::vector<derive::OperandSlice> slices)
    : engine_(std::move(engine)),
      kernel_(kernel),
      consts_(consts.begin(), consts.end()),
      model_(std::move(model)),
      slices_(std::move(slices)) {}

std::unique_ptr<PreparedForms> PreparedForms::create(std::shared_ptr<Engine> engine, const ir::Kernel& kernel,
                                                     std::span<const ConstValue> consts,
                                                     std::shared_ptr<const KernelModel> model) {
  std::vector<derive::OperandSlice> slices = derive::operand_slices(kernel);
  if (slices.empty()) return nullptr;
  return std::unique_ptr<PreparedForms>(
      new PreparedForms(std::move(engine), kernel, consts, std::move(model), std::move(slices)));
}

const BoundTensor& PreparedForms::tensor(const BoundArguments& arguments, const ir::Buffer& buffer) const {
  const auto& params = kernel_.params;
  const auto found =
      std::find_if(params.begin(), params.end(), [&](const ir::Param& param) { return param.tensor.get() == &buffer; });
  return arguments.tensors[found - params.begin()];
}

ir::DType PreparedForms::type_of(const ir::Buffer& tile, const BoundArguments& arguments) const {
  if (!tile.type.symbol) return tile.type.dtype;
  const auto& symbols = kernel_.type_symbols;
  return arguments.type_of(
      static_cast<int>(std::find(symbols.begin(), symbols.end(), tile.type.symbol) - symbols.begin()));
}

PreparedForms::Operands PreparedForms::wanted(const Device& device, const BoundArguments& arguments) const {
  Operands wanted;
  for (size_t i = 0; i < slices_.size(); ++i) {
    const derive::OperandSlice& slice = slices_[i];
    const ir::Buffer& source = *slice.tensors[0];
    const BoundTensor& bound = tensor(arguments, source);
    // The copy engine converts nothing.
    const bool moved_by_threads =
        strays(bound, static_cast<int>(source.shape.size())) || bound.dtype != type_of(*slice.tile, arguments);
    const bool turned = slice.k_down && reads_along_k(device.properties(), type_of(*slice.tile, arguments), slice.tf32);
    const uint64_t bit = uint64_t{1} << i;
    if (slice.computed || turned || (device.properties().compute_major > 0 && moved_by_threads)) wanted.made |= bit;
    if (turned) wanted.turned |= bit;
  }
  return wanted;
}

Result<std::shared_ptr<const ProgramModel>> PreparedForms::derive(const Operands& operands) const {
  auto load = [&](const std::vector<derive::OperandSlice>& slices) {
    return ir::load(derive::prepare_operands(kernel_, slices), "prepared.tile");
  };
  std::vector<derive::OperandSlice> chosen;
  Status why = internal("no operand");
  for (size_t i = 0; i < slices_.size(); ++i) {
    if (!(operands.made >> i & 1)) continue;
    derive::OperandSlice slice = slices_[i];
    slice.turned = operands.turned >> i & 1;
    if (auto alone = load({slice}); alone.ok())
      chosen.push_back(std::move(slice));
    else
      why = alone.status();
  }
  if (chosen.empty()) return why;
  KACHEL_ASSIGN(const ir::Module module, load(chosen));
  return ProgramModel::create(module, module.programs.at(0), consts_, true);
}

ProgramHandle* PreparedForms::program(const Operands& operands) {
  std::lock_guard lock(mutex_);
  const auto [found, fresh] = programs_.try_emplace(operands);
  if (!fresh) return found->second.get();
  auto made = derive(operands);
  if (made.ok())
    found->second = std::make_unique<ProgramHandle>(engine_, *std::move(made));
  else
    engine_->log().write({.level = LogLevel::kInfo,
                          .message = fmt::format("kernel `{}`: its operands are not prepared: {}", kernel_.name,
                                                 made.status().message()),
                          .kernel = kernel_.name});
  return found->second.get();
}

bool PreparedForms::is_worth_trying(const Device& device, const BoundArguments& arguments, const ProgramModel& program,
                                    const Operands& operands) const {
  ProgramLayout layout;
  if (!lay_out(program, arguments, {1}, layout).ok()) return false;
  int64_t sources = 0;
  for (size_t i = 0; i < slices_.size(); ++i)
    if (operands.made >> i & 1)
      for (const ir::BufferRef& source : slices_[i].tensors) sources += tensor(arguments, *source).bytes;
  if (layout.bytes > kAlwaysBytes && layout.bytes / kMostGrowth > sources) return false;
  const DeviceProperties& properties = device.properties();
  const Point point = point_of(*model_, arguments);
  const auto decision = TuningStore(engine_->store(), {*model_, point, properties}).decision();
  if (properties.compute_major == 0 || !decision || decision->winner.ranked.empty()) return true;
  const lowering::Rates& rates = lowering::rates_of(10 * properties.compute_major + properties.compute_minor);
  const double bytes_a_ns = rates.dram_bytes * properties.multiprocessors * rates.clock_mhz / 1000;
  const double steps = std::popcount(operands.made);
  const double making = static_cast<double>(sources + layout.bytes) / bytes_a_ns + steps * kStepNs;
  return making < kMostShare * decision->winner.ranked[0].median_ns;
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
  const Operands operands = wanted(*device, arguments);
  if (!operands.made) return Serving{};
  {
    RelaxedCapture relaxed(*device);
    KACHEL_ASSIGN(const bool capturing, device->is_capturing(stream));
    if (capturing) return Serving{nullptr, alone_.find(signature), false};
  }
  ProgramHandle* program = this->program(operands);
  if (!program) return Serving{};
  // In the background the kernel serves until both are tuned, which its own handle sees to.
  LaunchSettings asked = settings;
  if (settings.policy == tuner::Policy::kBackground) asked.policy = tuner::Policy::kCachedOnly;
  const TunableValues* values = program->known(arguments, asked);
  if (!values) {
    const auto as_it_is = alone(arguments, settings, stream);
    if (settings.policy == tuner::Policy::kBlocking || settings.policy == tuner::Policy::kBackground) {
      if (!as_it_is.ok()) return as_it_is.status();
      if (!*as_it_is || !is_worth_trying(*device, arguments, program->program(), operands)) return Serving{};
    }
    if (as_it_is.ok() && *as_it_is) {
      (*as_it_is)->pin();
      alone_.publish(signature, *as_it_is);
    }
    auto chosen = program->resolve(arguments, args, asked, stream);
    if (!chosen.ok() && !is_for_the_kernel(chosen.status().code())) return chosen.status();
    if (!chosen.ok()) return Serving{nullptr, nullptr, false};
    values = *chosen;
  }
  if (values->front() == 0) return Serving{nullptr, nullptr, settings.policy != tuner::Policy::kOff};
  return Serving{program, nullptr, true};
}

}  // namespace kachel::runtime
