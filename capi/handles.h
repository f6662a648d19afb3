// What is behind the opaque handles of kachel.h. A handle owns a share of what it stands for, so that handles may be
// released in any order.
#pragma once
#include <memory>
#include <mutex>
#include <string>

#include "capi/kachel.h"
#include "ir/module.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/launchable.h"
#include "runtime/engine/report/tuning_view.h"

struct kachel_engine {
  std::shared_ptr<kachel::runtime::Engine> engine;
  std::once_flag path_once;
  std::string store_path;  // "" in memory; set by the first who asks
};

struct kachel_module {
  std::shared_ptr<kachel::runtime::Engine> engine;
  std::shared_ptr<const kachel::ir::Module> module;
};

struct kachel_kernel {
  std::shared_ptr<kachel::runtime::Launchable> kernel;
};

struct kachel_call {
  std::unique_ptr<kachel::runtime::BoundLaunch> call;
};

struct kachel_tuning {
  kachel::runtime::TuningView view;
};

struct kachel_text {
  std::string text;
};

namespace kachel::capi {

// Reads options over the kernel's settings. `options` may be null.
Status launch_settings(const runtime::Launchable& kernel, const kachel_launch_options* options,
                       runtime::LaunchSettings& out);
Status store_options(const kachel_engine_options& given, runtime::EngineOptions& options);
Status policy_of(int32_t policy, tuner::Policy fallback, tuner::Policy& out);

inline std::span<const runtime::Arg> arguments(const kachel_arg* args, size_t count) {
  return {reinterpret_cast<const runtime::Arg*>(args), args ? count : 0};
}

static_assert(sizeof(kachel_device) == sizeof(runtime::DeviceRef) && sizeof(kachel_dtype) == sizeof(runtime::DataType));
static_assert(sizeof(kachel_tensor) == sizeof(runtime::TensorArg) && sizeof(kachel_arg) == sizeof(runtime::Arg));
static_assert(offsetof(kachel_tensor, data) == offsetof(runtime::TensorArg, data) &&
              offsetof(kachel_tensor, device) == offsetof(runtime::TensorArg, device) &&
              offsetof(kachel_tensor, ndim) == offsetof(runtime::TensorArg, ndim) &&
              offsetof(kachel_tensor, dtype) == offsetof(runtime::TensorArg, dtype) &&
              offsetof(kachel_tensor, shape) == offsetof(runtime::TensorArg, shape) &&
              offsetof(kachel_tensor, strides) == offsetof(runtime::TensorArg, strides) &&
              offsetof(kachel_tensor, byte_offset) == offsetof(runtime::TensorArg, byte_offset));
static_assert(offsetof(kachel_arg, kind) == offsetof(runtime::Arg, kind) && offsetof(kachel_arg, u) == 8);

}  // namespace kachel::capi
