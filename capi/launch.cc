// Launching: what a hot loop calls. Nothing here allocates or locks on the way to a launch that has been seen before.
#include <fmt/format.h>

#include "capi/boundary.h"
#include "capi/handles.h"
#include "capi/tuning_options.h"

using namespace kachel;

Status capi::launch_settings(const runtime::Launchable& kernel, const kachel_launch_options* options,
                             runtime::LaunchSettings& out) {
  out = kernel.defaults();
  if (!options) return {};
  kachel_launch_options known;
  KACHEL_TRY(read_struct(options, known, "options"));
  KACHEL_TRY(policy_of(known.policy, out.policy, out.policy));
  if (known.tune_budget_ns != 0)
    out.tune_budget_ns = static_cast<int64_t>(std::min<uint64_t>(known.tune_budget_ns, INT64_MAX));
  if (known.tune_trials != 0) out.tune_trials = known.tune_trials;
  if (known.tuning) {
    KACHEL_ASSIGN(out.hooks, tuning_hooks(known.tuning));
  }
  out.has_configuration = known.configuration != nullptr;
  if (out.has_configuration) out.configuration = known.configuration;
  return {};
}

[[gnu::hot]] kachel_status kachel_launch(kachel_kernel* kernel, const kachel_arg* args, size_t count,
                                         const kachel_launch_options* options, void* stream, kachel_error** err) {
  return capi::guarded(err, [&]() -> Status {
    if (!kernel) return capi::missing("kernel");
    if (!args && count != 0) return capi::missing("args");
    if (!options) [[likely]]
      return kernel->kernel->launch(capi::arguments(args, count), kernel->kernel->defaults(), stream);
    runtime::LaunchSettings settings;
    KACHEL_TRY(capi::launch_settings(*kernel->kernel, options, settings));
    return kernel->kernel->launch(capi::arguments(args, count), settings, stream);
  });
}

kachel_status kachel_prepare(kachel_kernel* kernel, const kachel_arg* args, size_t count,
                             const kachel_launch_options* options, void* stream, kachel_error** err) {
  return capi::guarded(err, [&]() -> Status {
    if (!kernel) return capi::missing("kernel");
    if (!args && count != 0) return capi::missing("args");
    runtime::LaunchSettings settings;
    KACHEL_TRY(capi::launch_settings(*kernel->kernel, options, settings));
    return kernel->kernel->prepare(capi::arguments(args, count), settings, stream);
  });
}

kachel_status kachel_compile(kachel_kernel* kernel, const kachel_arg* args, size_t count,
                             const kachel_launch_options* options, uint32_t most, kachel_compiled* out,
                             kachel_error** err) {
  return capi::guarded(err, [&]() -> Status {
    if (!kernel) return capi::missing("kernel");
    if (!args && count != 0) return capi::missing("args");
    runtime::LaunchSettings settings;
    KACHEL_TRY(capi::launch_settings(*kernel->kernel, options, settings));
    KACHEL_ASSIGN(const runtime::CompiledAhead made,
                  kernel->kernel->compile(capi::arguments(args, count), settings, most));
    if (!out) return {};
    kachel_compiled value{};
    value.compiled = static_cast<uint32_t>(made.compiled);
    value.present = static_cast<uint32_t>(made.present);
    value.refused = static_cast<uint32_t>(made.refused);
    return capi::write_struct(out, value, "out");
  });
}

kachel_status kachel_bind(kachel_kernel* kernel, const kachel_arg* args, size_t count,
                          const kachel_launch_options* options, kachel_call** out, kachel_error** err) {
  return capi::guarded(err, [&]() -> Status {
    if (!kernel) return capi::missing("kernel");
    if (!args && count != 0) return capi::missing("args");
    if (!out) return capi::missing("out");
    runtime::LaunchSettings settings;
    KACHEL_TRY(capi::launch_settings(*kernel->kernel, options, settings));
    auto handle = std::make_unique<kachel_call>();
    KACHEL_ASSIGN(handle->call, kernel->kernel->bind(capi::arguments(args, count), settings));
    *out = handle.release();
    return {};
  });
}

[[gnu::hot]] kachel_status kachel_call_launch(kachel_call* call, void* const* pointers, const int64_t* scalars,
                                              void* stream) {
  if (!call) [[unlikely]]
    return KACHEL_E_INVALID;
  return capi::guarded(nullptr, [&] { return call->call->launch(pointers, scalars, stream); });
}

void kachel_call_release(kachel_call* call) {
  delete call;
}
