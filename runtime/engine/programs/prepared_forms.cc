#include "runtime/engine/programs/prepared_forms.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "derive/fixed_extents.h"
#include "lowering/machine/rates.h"

namespace kachel::runtime {
namespace {

// Of the kernel's time, what another form may take at the memory's rate: a decode step of 11008 x 4096 weights of 4
// bits, which takes 21 us in 128 blocks, takes 14 in four parts, and could not take less than 10 (an H200).
constexpr double kMostShare = 0.5, kMostShareOfParts = 0.7;
constexpr double kStepNs = 2000;      // of a kernel more in the stream
constexpr int kMostTried = 2;         // forms of a key
constexpr double kIterationNs = 300;  // of a loop of products, where nothing was measured

// What a kernel that serves as it is may be told without being wrong: the kernel itself says it better.
bool is_for_the_kernel(Code code) {
  return code == Code::kNotCached || code == Code::kUnsupported || code == Code::kCompile || code == Code::kInvalid ||
         code == Code::kNoMemory;
}

}  // namespace

PreparedForms::PreparedForms(std::shared_ptr<Engine> engine, std::unique_ptr<const FormChoice> choice,
                             std::optional<Sums> sums)
    : engine_(std::move(engine)), choice_(std::move(choice)), sums_(std::move(sums)) {}

std::unique_ptr<PreparedForms> PreparedForms::create(std::shared_ptr<Engine> engine, const ir::Kernel& kernel,
                                                     std::span<const ConstValue> consts,
                                                     std::shared_ptr<const KernelModel> model) {
  auto choice = std::make_unique<const FormChoice>(kernel, consts, std::move(model));
  std::optional<Sums> sums;
  if (auto loop = derive::sum_loop(kernel)) {
    sums = Sums{kernel, *std::move(loop)};
  } else if (auto fixed = derive::with_fixed_extents(kernel)) {
    if (auto its = derive::sum_loop(*fixed)) sums = Sums{*std::move(fixed), *std::move(its)};
  }
  if (!choice->any() && !sums) return nullptr;
  return std::unique_ptr<PreparedForms>(new PreparedForms(std::move(engine), std::move(choice), std::move(sums)));
}

ProgramHandle* PreparedForms::program(const Form& form, const BoundArguments& arguments) {
  std::lock_guard lock(mutex_);
  const auto [found, fresh] = programs_.try_emplace(form);
  if (!fresh) return found->second.get();
  auto made = choice_->derive(form, arguments);
  if (made.ok())
    found->second = std::make_unique<ProgramHandle>(engine_, *std::move(made));
  else
    engine_->log().write(
        {.level = LogLevel::kInfo,
         .message = fmt::format("kernel `{}` has no other form: {}", choice_->kernel().name, made.status().message()),
         .kernel = choice_->kernel().name});
  return found->second.get();
}

bool PreparedForms::is_worth_trying(const Device& device, const BoundArguments& arguments, const ProgramModel& program,
                                    const Form& form, const PartsOfSums& parts) const {
  ProgramLayout layout;
  if (!lay_out(program, arguments, {1}, layout).ok()) return false;
  const int64_t sums = form.parts > 1 ? parts.bytes : 0;
  const DeviceProperties& properties = device.properties();
  const double as_it_is = measured(device, arguments, choice_->model());
  const bool known = std::isfinite(as_it_is);
  if (properties.compute_major == 0 || (!known && form.parts == 1)) return true;
  const lowering::Rates& rates = lowering::rates_of(10 * properties.compute_major + properties.compute_minor);
  const double bytes_a_ns = rates.dram_bytes * properties.multiprocessors * rates.clock_mhz / 1000;
  double steps = form.steps(), bytes = static_cast<double>(choice_->bytes_read(form, arguments) + layout.bytes);
  if (form.parts > 1) {  // all that there is to read, and the parts once more
    steps += 1;
    bytes += static_cast<double>(sums);
    bytes += static_cast<double>(choice_->bytes_of_all(arguments));
  }
  const double takes = known ? as_it_is : kIterationNs * static_cast<double>(parts.steps);
  return bytes / bytes_a_ns + steps * kStepNs < (form.parts > 1 ? kMostShareOfParts : kMostShare) * takes;
}

PartsOfSums PreparedForms::parts_of(const Device& device, const BoundArguments& arguments) const {
  if (!sums_ || device.properties().compute_major == 0) return {};
  return parts_of_sums(choice_->model(), sums_->kernel, sums_->loop, arguments, device.properties().multiprocessors);
}

Result<std::string> PreparedForms::considered(const BoundArguments& arguments) const {
  KACHEL_ASSIGN(Device * device, engine_->devices().get(arguments.device));
  std::vector<std::string> texts;
  for (const Form& form : choice_->forms(*device, arguments, parts_of(*device, arguments)))
    texts.push_back(choice_->text(form));
  return fmt::format("{}", fmt::join(texts, "; "));
}

Result<const Specialisation*> PreparedForms::alone(const BoundArguments& arguments, const LaunchSettings& settings,
                                                   void* stream) {
  KACHEL_ASSIGN(Device * device, engine_->devices().get(arguments.device));
  KACHEL_ASSIGN(const Resolver::Outcome outcome,
                Resolver(*engine_, *device, choice_->model(), arguments, settings, stream).run());
  return outcome.specialisation;
}

Result<PreparedForms::Serving> PreparedForms::serving(const BoundArguments& arguments, std::span<const Arg> args,
                                                      const LaunchSettings& settings, const Signature& signature,
                                                      void* stream) {
  KACHEL_ASSIGN(Device * device, engine_->devices().get(arguments.device));
  const PartsOfSums parts = parts_of(*device, arguments);
  const std::vector<Form> forms = choice_->forms(*device, arguments, parts);
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
