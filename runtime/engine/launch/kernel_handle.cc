#include "runtime/engine/launch/kernel_handle.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "runtime/engine/specialise/configurations.h"

namespace kachel::runtime {
namespace {

constexpr tuner::Policy kServedAlike[] = {tuner::Policy::kOff, tuner::Policy::kCachedOnly, tuner::Policy::kBackground,
                                          tuner::Policy::kBlocking};

}  // namespace

inline Status KernelHandle::launch_one(const Specialisation& specialisation, const BoundArguments& arguments,
                                       bool follows, void* stream) {
  return specialisation.needs_workspace() ? launch_with_workspace(specialisation, arguments, follows, stream)
                                          : specialisation.launch(arguments, stream, follows);
}

[[gnu::hot]] Status KernelHandle::launch(std::span<const Arg> args, const LaunchSettings& settings, void* stream) {
  BoundArguments arguments;
  KACHEL_TRY(bind_arguments(args, arguments));
  Signature signature;
  make_signature(model_->table, arguments, settings.mode(), signature);
  const Specialisation* found = settings.has_configuration ? nullptr : table_.find(signature);
  if (!found) [[unlikely]]
    return launch_unknown(arguments, args, settings, signature, stream);
  return launch_found(*found, arguments, settings, signature, stream);
}

inline Status KernelHandle::launch_found(const Specialisation& found, const BoundArguments& arguments,
                                         const LaunchSettings& settings, Signature& signature, void* stream) {
  Status launched = launch_one(found, arguments, settings.follows, stream);
  if (!launched.ok()) [[unlikely]]
    return launch_failed(found, arguments, settings, signature, stream, std::move(launched));
  engine_->counters().launches.add();
  return launched;
}

Status KernelHandle::launch_unknown(const BoundArguments& arguments, std::span<const Arg> args,
                                    const LaunchSettings& settings, Signature& signature, void* stream) {
  KACHEL_ASSIGN(Served served, resolve(arguments, args, settings, signature, stream));
  if (served.program) {
    Status launched = served.program->launch(args, settings, stream);
    if (launched.code() != Code::kNoMemory) return launched;
    KACHEL_ASSIGN(served.specialisation, forms_->alone(arguments, settings, stream));
  }
  if (!served.specialisation) return {};
  return launch_found(*served.specialisation, arguments, settings, signature, stream);
}

Status KernelHandle::launch_failed(const Specialisation& failed, const BoundArguments& arguments,
                                   const LaunchSettings& settings, Signature& signature, void* stream, Status why) {
  if (why.code() == Code::kLaunch && !settings.has_configuration)
    return launch_another(failed, arguments, settings, signature, stream, std::move(why));
  return engine_->services().noticed(std::move(why));
}

Status KernelHandle::launch_with_workspace(const Specialisation& specialisation, const BoundArguments& arguments,
                                           bool follows, void* stream) {
  LaunchGrid grid;
  KACHEL_TRY(specialisation.grid(arguments.inputs(), grid));
  const int64_t bytes = specialisation.workspace_bytes(grid);
  if (bytes == 0) return {};
  RelaxedCapture relaxed(specialisation.device());
  KACHEL_ASSIGN(bool capturing, specialisation.device().is_capturing(stream));
  if (capturing) return busy_in_capture(*model_, "allocate scratch");
  KACHEL_ASSIGN(Workspace workspace,
                Workspace::allocate(specialisation.device(), engine_->options().scratch, bytes, stream));
  grid.workspace = workspace.get();
  return specialisation.launch(arguments, grid, stream, follows);
}

// The configuration is to blame only if another one can be launched in its place; else it is the stream or the device.
Status KernelHandle::launch_another(const Specialisation& failed, const BoundArguments& arguments,
                                    const LaunchSettings& settings, Signature& signature, void* stream, Status why) {
  Resolver resolver(*engine_, failed.device(), *model_, arguments, settings, stream);
  auto order = resolver.ranking_without_tuning();
  auto capturing = failed.device().is_capturing(stream);
  if (!order.ok() || !capturing.ok() || *capturing) return why;
  const Point point = point_of(*model_, arguments);
  int attempts = 0;
  for (const TunableValues& values : *order) {
    if (values == failed.values()) continue;
    if (++attempts > 2) break;
    auto other =
        engine_->plans().get({failed.device(), *model_, point, values, settings.policy != tuner::Policy::kCachedOnly});
    if (!other.ok() || (*other)->demoted() || !launch_one(**other, arguments, settings.follows, stream).ok()) continue;
    failed.demote();
    resolver.demote(failed.values(), why.message());
    (*other)->pin();
    for (tuner::Policy policy : kServedAlike) {
      make_signature(model_->table, arguments, settings.mode(policy), signature);
      if (policy == settings.policy || table_.find(signature) == &failed) table_.publish(signature, *other);
    }
    const std::string from = configuration_text(*model_, failed.values()), to = configuration_text(*model_, values);
    engine_->log().write(
        {.kind = EventKind::kDemoted,
         .level = LogLevel::kWarning,
         .message = fmt::format("kernel `{}`: a configuration failed to launch and is replaced by the next best: {}",
                                model_->kernel.name, why.message()),
         .kernel = model_->kernel.name,
         .key = resolver.key().hex(),
         .fields = {{"configuration", from}, {"replaced_by", to}, {"reason", why.message()}}});
    engine_->counters().launches.add();
    return {};
  }
  return why;
}

Result<KernelHandle::Served> KernelHandle::resolve(const BoundArguments& arguments, std::span<const Arg> args,
                                                   const LaunchSettings& settings, Signature& signature, void* stream) {
  bool forms_decided = true;
  const bool quiet = settings.quiet && settings.policy == tuner::Policy::kBackground;
  if (forms_ && !settings.has_configuration) {
    LaunchSettings own = settings;
    if (quiet) own.policy = tuner::Policy::kOff;
    KACHEL_ASSIGN(const OtherForms::Serving serving, forms_->serving(arguments, args, own, signature, stream));
    if (serving.program || serving.alone) return Served{serving.program, serving.alone};
    forms_decided = serving.decided;
  }
  KACHEL_ASSIGN(Device * device, engine_->devices().get(arguments.device));
  {
    RelaxedCapture relaxed(*device);
    KACHEL_ASSIGN(bool capturing, device->is_capturing(stream));
    if (capturing) {
      // Nothing may be loaded now; a binary that assumes less than these arguments offer does as well.
      const Specialisation* weaker = settings.has_configuration ? nullptr : drift_.last(signature);
      if (!settings.has_configuration && (!weaker || weaker->demoted())) weaker = table_.find_weaker(signature);
      if (weaker) return Served{nullptr, weaker};
      return busy_in_capture(*model_, "load code");
    }
  }
  Resolver resolver(*engine_, *device, *model_, arguments, settings, stream);
  KACHEL_ASSIGN(Resolver::Outcome outcome, resolver.run());
  const Served served{nullptr, outcome.specialisation, !outcome.specialisation || (outcome.decided && forms_decided)};
  if (!outcome.specialisation) return served;
  outcome.specialisation->pin();
  if (settings.has_configuration || (quiet && !served.decided)) return served;
  bool kept = table_.publish(signature, outcome.specialisation);
  Signature alike[std::size(kServedAlike)];
  if (served.decided)
    for (size_t i = 0; i < std::size(kServedAlike); ++i) {
      make_signature(model_->table, arguments, settings.mode(kServedAlike[i]), alike[i]);
      kept &= table_.publish(alike[i], outcome.specialisation);
    }
  if (served.decided && outcome.found && drift_.watches(settings)) {
    const cache::Key key = resolver.key();
    drift_.served(key.hex(), {*device, *model_, arguments, args, settings, stream}, alike, outcome.specialisation,
                  !engine_->tuned_here(key));
  }
  if (!kept)
    engine_->log().once("dispatch " + model_->body,
                        {.level = LogLevel::kWarning,
                         .message = fmt::format(
                             "kernel `{}` has been launched with more than {} different keys; further ones are looked "
                             "up in the store at each launch. Use bucket() in `key`",
                             model_->kernel.name, DispatchTable<Specialisation>::kMaxEntries),
                         .kernel = model_->kernel.name});
  if (served.decided || !outcome.later) return served;
  std::function<void()> whole;
  if (outcome.compact)
    whole = [this, device, point = point_of(*model_, arguments), values = outcome.specialisation->values()] {
      RelaxedCapture relaxed(*device);
      (void)engine_->plans().get({*device, *model_, point, values});
    };
  deferred_.add({*device, *model_, arguments, args, settings, stream}, signature, std::move(whole));
  return served;
}

Result<bool> KernelHandle::tune(std::span<const Arg> args, const LaunchSettings& settings, void* stream) {
  BoundArguments arguments;
  KACHEL_TRY(bind_arguments(args, arguments));
  Signature signature;
  make_signature(model_->table, arguments, settings.mode(), signature);
  KACHEL_ASSIGN(const Served served, resolve(arguments, args, settings, signature, stream));
  if (served.program) KACHEL_TRY(served.program->prepare(args, settings, stream));
  return served.decided;
}

Result<bool> KernelHandle::recheck(std::span<const Arg> args, const LaunchSettings& settings, void* stream) {
  BoundArguments arguments;
  KACHEL_TRY(bind_arguments(args, arguments));
  KACHEL_ASSIGN(Device * device, engine_->devices().get(arguments.device));
  return Resolver(*engine_, *device, *model_, arguments, settings, stream).recheck();
}

Status KernelHandle::prepare(std::span<const Arg> args, const LaunchSettings& settings, void* stream) {
  BoundArguments arguments;
  KACHEL_TRY(bind_arguments(args, arguments));
  Signature signature;
  make_signature(model_->table, arguments, settings.mode(), signature);
  if (!settings.has_configuration && table_.find(signature)) return {};
  KACHEL_ASSIGN(const Served served, resolve(arguments, args, settings, signature, stream));
  return served.program ? served.program->prepare(args, settings, stream) : Status();
}

Result<bool> KernelHandle::needs_tuning(std::span<const Arg> args, const LaunchSettings& settings) {
  BoundArguments arguments;
  KACHEL_TRY(bind_arguments(args, arguments));
  Signature signature;
  make_signature(model_->table, arguments, settings.mode(tuner::Policy::kBlocking), signature);
  if (!settings.has_configuration && table_.find(signature)) return false;
  KACHEL_ASSIGN(Device * device, engine_->devices().get(arguments.device));
  return Resolver(*engine_, *device, *model_, arguments, settings, nullptr).needs_tuning();
}

Result<std::unique_ptr<BoundLaunch>> KernelHandle::bind(std::span<const Arg> args, const LaunchSettings& settings) {
  BoundArguments arguments;
  KACHEL_TRY(bind_arguments(args, arguments));
  Signature signature;
  make_signature(model_->table, arguments, settings.mode(), signature);
  const Specialisation* found = settings.has_configuration ? nullptr : table_.find(signature);
  if (!found) {
    LaunchSettings bound = settings;
    bound.needs_code = std::any_of(model_->grid.begin(), model_->grid.end(),
                                   [](const HostProgram& extent) { return extent.mentions_scalars(); });
    KACHEL_ASSIGN(const Served served, resolve(arguments, args, bound, signature, nullptr));
    if (served.program) return served.program->bind(args, settings);
    found = served.specialisation;
  }
  KACHEL_ASSIGN(std::unique_ptr<BoundLaunch> call,
                BoundCall::create(engine_, model_, found, arguments, settings.follows));
  return call;
}

}  // namespace kachel::runtime
